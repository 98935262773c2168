//! Programs in C over `vipl.h`, compiled with the system's compiler.
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use weft_conformance::skip;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn library() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let library = beside.parent().unwrap().join("libweft_via.so");
    assert!(library.is_file(), "no library at {}", library.display());
    library
}

/// Makes a folder in which the library has the names that an installation gives it.
fn installed() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("via-lib");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["libvipl.so", "libvipl.so.0"] {
        let link = folder.join(name);
        let _old = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(library(), &link).unwrap();
    }
    folder
}

/// The way in which a program is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    C,
    Cpp,
    /// As C, with the address sanitizer.
    Asan,
}

/// Compiles a program, once, because several tests run it. `None`, with the reason printed, if this
/// machine cannot.
fn compile(name: &'static str, way: Way) -> Option<PathBuf> {
    type Done = BTreeMap<(&'static str, Way), Option<PathBuf>>;
    static DONE: Mutex<Done> = Mutex::new(BTreeMap::new());
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = done.get(&(name, way)) {
        return program.clone();
    }
    let (compiler, options): (_, &[&str]) = match way {
        Way::C => ("cc", &["-std=c11"]),
        Way::Cpp => ("c++", &["-std=c++17", "-x", "c++"]),
        Way::Asan => ("cc", &["-std=c11", "-fsanitize=address,undefined"]),
    };
    let folder = installed();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("via-{name}-{way:?}"));
    let mut cc = Command::new(compiler);
    cc.args(options).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"]);
    let of = |folder| sources().join(folder).join(name).with_extension("c");
    cc.arg(Some(of("examples")).filter(|it| it.is_file()).unwrap_or_else(|| of("tests")));
    cc.args(["include", "examples"].map(|f| format!("-I{}", sources().join(f).display())));
    cc.arg("-L").arg(&folder).arg("-o").arg(&program);
    // Before LD_LIBRARY_PATH, in which cargo puts a folder first that may hold an older library.
    cc.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display()));
    let found = match cc.args(["-lvipl", "-lpthread"]).output() {
        Ok(out) if out.status.success() => Some(program),
        Ok(out) => {
            let said = String::from_utf8_lossy(&out.stderr);
            let lacks = way == Way::Asan && (said.contains("asan") || said.contains("ubsan"));
            assert!(lacks, "{said}");
            skip("the compiler has no sanitizers");
            None
        }
        Err(why) => {
            skip(&format!("no {compiler}: {why}"));
            None
        }
    };
    done.insert((name, way), found.clone());
    found
}

/// Starts a program with a link, under a key that only the programs of one test have.
fn start(
    program: &Path,
    words: &[&str],
    link: &str,
    key: &str,
    settings: &[(&str, &str)],
) -> Child {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("WEFT_LINK", link).env("WEFT_KEY", key).envs(settings.iter().copied());
    // Memory that a program's end leaves is no leak: threads use it until then.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    command.spawn().unwrap()
}

fn key() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{:032x}{:032x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn text(out: &Output) -> String {
    [&out.stdout[..], &out.stderr].map(String::from_utf8_lossy).concat()
}

/// Runs a server and a client; returns what they have said.
fn both(
    name: &'static str,
    way: Way,
    [server, client]: [&[&str]; 2],
    link: &str,
    settings: &[(&str, &str)],
) -> Option<String> {
    let program = compile(name, way)?;
    let key = key();
    let server = start(&program, server, link, &key, settings);
    let client = start(&program, client, link, &key, settings).wait_with_output().unwrap();
    let server = server.wait_with_output().unwrap();
    let said = format!("server: {}client: {}", text(&server), text(&client));
    let good = server.status.success() && client.status.success();
    assert!(good, "{name}, {link} {settings:?}: {said}");
    Some(said)
}

const LINKS: [&str; 2] = ["shm", "udp"];

#[test]
fn hello__two_programs_find_each_other() {
    for link in LINKS {
        let words: [&[&str]; 2] = [&["server"], &["client", "localhost"]];
        let Some(said) = both("hello", Way::C, words, link, &[]) else { return };
        assert!(said.contains("server received: client"), "{link}: {said}");
        assert!(said.contains("client received: hello, client"), "{link}: {said}");
    }
}

fn pair(way: Way, link: &str, settings: &[(&str, &str)]) {
    let words: [&[&str]; 2] = [&["server"], &["client"]];
    let Some(said) = both("pair", way, words, link, settings) else { return };
    assert_eq!(said.matches("all is as it has to be").count(), 2, "{link}: {said}");
}

#[test]
fn pair__all_that_takes_two_over_shared_memory_and_udp() {
    LINKS.into_iter().for_each(|link| pair(Way::C, link, &[]));
}

#[test]
fn pair__all_that_takes_two_over_a_network_with_faults() {
    let faults = ("WEFT_FAULTS", "loss=1%,dup=1%,reorder=1%,seed=5");
    pair(Way::C, "udp", &[faults, ("WEFT_MTU", "1K")]);
}

#[test]
fn pair__under_the_address_sanitizer() {
    LINKS.into_iter().for_each(|link| pair(Way::Asan, link, &[]));
}

fn alone(way: Way) {
    let Some(program) = compile("alone", way) else { return };
    for link in LINKS {
        let out = start(&program, &[], link, &key(), &[]).wait_with_output().unwrap();
        assert!(out.status.success(), "{link}: {}", text(&out));
    }
}

#[test]
fn alone__every_function_refuses_misuse_by_its_codes() {
    alone(Way::C);
}

#[test]
fn alone__under_the_address_sanitizer() {
    alone(Way::Asan);
}

/// Runs a server whose client ends in a way.
fn death(link: &str, case: &str, way: &str) {
    let Some(program) = compile("death", Way::C) else { return };
    let key = key();
    let times = [("WEFT_PEER_TIMEOUT_MS", "600"), ("WEFT_KEEPALIVE_MS", "100")];
    let mut client = start(&program, &["client", case, way], link, &key, &times);
    let server = start(&program, &["server", case, way], link, &key, &times);
    let server = server.wait_with_output().unwrap();
    // One that was stopped.
    let _ended = client.kill();
    let client = client.wait_with_output().unwrap();
    let said = text(&server);
    assert!(said.contains("the server goes on"), "{link} {case} {way}: {said}{}", text(&client));
}

#[test]
fn death__the_other_side_learns_of_it_by_a_code() {
    for link in LINKS {
        for case in ["connected", "sending", "requesting", "accepting"] {
            ["kill", "exit", "stop"].into_iter().for_each(|way| death(link, case, way));
        }
    }
}

#[test]
fn header__layouts_are_those_of_the_interface_in_c_and_cpp() {
    for way in [Way::C, Way::Cpp] {
        let Some(program) = compile("layout", way) else { continue };
        let out = start(&program, &[], "shm", &key(), &[]).wait_with_output().unwrap();
        assert!(out.status.success(), "{way:?}: {}", text(&out));
    }
}

/// The functions of the interface.
const FUNCTIONS: [&str; 41] = [
    "VipOpenNic",
    "VipCloseNic",
    "VipQueryNic",
    "VipCreateVi",
    "VipDestroyVi",
    "VipSetViAttributes",
    "VipQueryVi",
    "VipCreatePtag",
    "VipDestroyPtag",
    "VipRegisterMem",
    "VipDeregisterMem",
    "VipSetMemAttributes",
    "VipQueryMem",
    "VipPostSend",
    "VipPostRecv",
    "VipSendDone",
    "VipRecvDone",
    "VipSendWait",
    "VipRecvWait",
    "VipSendNotify",
    "VipRecvNotify",
    "VipCreateCQ",
    "VipDestroyCQ",
    "VipResizeCQ",
    "VipCQDone",
    "VipCQWait",
    "VipCQNotify",
    "VipConnectWait",
    "VipConnectAccept",
    "VipConnectReject",
    "VipConnectRequest",
    "VipConnectPeerRequest",
    "VipConnectPeerDone",
    "VipConnectPeerWait",
    "VipDisconnect",
    "VipErrorCallback",
    "VipQuerySystemManagementInfo",
    "VipNSInit",
    "VipNSGetHostByName",
    "VipNSGetHostByAddr",
    "VipNSShutdown",
];

#[test]
fn library__exports_the_functions_of_the_header_and_no_other_names() {
    let header = std::fs::read_to_string(sources().join("include/vipl.h")).unwrap();
    let mut wanted: Vec<&str> = FUNCTIONS.to_vec();
    wanted.sort_unstable();
    let words = header.split(|c: char| !c.is_alphanumeric());
    let mut declared: Vec<&str> =
        words.filter(|word| word.starts_with("Vip") && word.len() > 4).collect();
    declared.sort_unstable();
    declared.dedup();
    declared.retain(|name| header.contains(&format!("VIP_RETURN {name}(")));
    assert_eq!(declared, wanted);
    let Ok(out) = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output() else {
        return skip("no nm (binutils)");
    };
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut exported: Vec<&str> =
        said.lines().filter_map(|line| line.split_whitespace().last()).collect();
    exported.sort_unstable();
    assert_eq!(exported, wanted);
}
