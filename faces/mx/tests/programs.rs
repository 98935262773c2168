//! Programs in C over `myriexpress.h`, compiled with the system's compiler.
#![allow(non_snake_case)]

use std::path::Path;
use std::process::Command;
use weft_conformance::programs::{key, start, text, Face, Way};
use weft_conformance::skip;

const FACE: Face = Face {
    name: "mx",
    sources: env!("CARGO_MANIFEST_DIR"),
    scratch: env!("CARGO_TARGET_TMPDIR"),
    built: "libweft_mx.so",
    names: &["libmyriexpress.so", "libopen-mx.so.0"],
    linked: "-lmyriexpress",
};

const LINKS: [&str; 2] = ["shm", "udp"];

#[test]
fn hello__two_programs_find_each_other() {
    for link in LINKS {
        let words: [&[&str]; 2] = [&["server"], &["client", "localhost"]];
        let Some(said) = FACE.both("hello", Way::C, words, link, &[]) else { return };
        assert!(said.contains("server received: client"), "{link}: {said}");
        assert!(said.contains("client received: hello, client"), "{link}: {said}");
    }
}

fn pair(way: Way, link: &str, settings: &[(&str, &str)]) {
    // A file that opens when the server may go on.
    let gate = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mx-gate-{}", key()));
    let at = gate.display().to_string();
    let words: [&[&str]; 2] = [&["server", &at], &["client", &at]];
    let said = FACE.both("pair", way, words, link, settings);
    let _gone = std::fs::remove_file(&gate);
    let Some(said) = said else { return };
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

/// Runs a server whose client ends in a way.
fn death(link: &str, way: &str) {
    let Some(program) = FACE.compile("death", Way::C) else { return };
    let key = key();
    let times = [("WEFT_PEER_TIMEOUT_MS", "600"), ("WEFT_KEEPALIVE_MS", "100")];
    let mut client = start(&program, &["client", way], link, &key, &times);
    let server = start(&program, &["server", way], link, &key, &times);
    let server = server.wait_with_output().unwrap();
    // One that was stopped.
    let _ended = client.kill();
    let client = client.wait_with_output().unwrap();
    let said = text(&server);
    assert!(said.contains("the server goes on"), "{link} {way}: {said}{}", text(&client));
}

#[test]
fn death__the_other_side_learns_of_it_by_a_status() {
    for link in LINKS {
        ["kill", "exit", "stop"].into_iter().for_each(|way| death(link, way));
    }
}

fn alone(way: Way) {
    let Some(program) = FACE.compile("alone", way) else { return };
    let peers = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mx-peers-{way:?}"));
    std::fs::write(&peers, "# hosts of the test\n10.9.8.7 far\n").unwrap();
    let peers = peers.display().to_string();
    for link in LINKS {
        let peers = [("WEFT_MX_PEERS", peers.as_str())];
        let out = start(&program, &[], link, &key(), &peers).wait_with_output().unwrap();
        let said = text(&out);
        assert!(out.status.success(), "{link}: {said}");
        assert!(!said.contains("messages unacknowledged"), "{link}: {said}");
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

#[test]
fn errors__are_fatal_unless_the_program_or_the_environment_says_otherwise() {
    let Some(program) = FACE.compile("alone", Way::C) else { return };
    let run = |settings: &[(&str, &str)]| {
        start(&program, &["fatal"], "shm", &key(), settings).wait_with_output().unwrap()
    };
    let out = run(&[]);
    assert_eq!(out.status.code(), Some(255), "{}", text(&out));
    assert!(text(&out).contains("mx_progress: the endpoint is not open"), "{}", text(&out));
    assert!(run(&[("MX_ERRORS_ARE_FATAL", "0")]).status.success());
    assert!(run(&[("MX_ERRORS_ARE_FATAL", "1"), ("OMX_FATAL_ERRORS", "0")]).status.success());
}

#[test]
fn open__without_a_link_or_an_interface_says_so() {
    let Some(program) = FACE.compile("alone", Way::C) else { return };
    for settings in [[("WEFT_LINK", "no-such-link")], [("WEFT_MXOE", "no-such-interface")]] {
        let out = start(&program, &["none"], "udp", &key(), &settings).wait_with_output().unwrap();
        assert!(out.status.success(), "{settings:?}: {}", text(&out));
    }
}

#[test]
fn pair__without_shared_memory_as_the_environment_of_mx_asks() {
    for name in ["MX_DISABLE_SHMEM", "OMX_DISABLE_SHARED"] {
        let Some(program) = FACE.compile("alone", Way::C) else { return };
        // Shared memory would be the only link.
        let settings = [("WEFT_LINK", "shm"), (name, "1")];
        let out = start(&program, &["none"], "shm", &key(), &settings).wait_with_output().unwrap();
        assert!(out.status.success(), "{name}: {}", text(&out));
    }
}

#[test]
fn header__layouts_are_those_of_the_interface_in_c_and_cpp() {
    for way in [Way::C, Way::Cpp] {
        let Some(program) = FACE.compile("layout", way) else { continue };
        let out = start(&program, &[], "shm", &key(), &[]).wait_with_output().unwrap();
        assert!(out.status.success(), "{way:?}: {}", text(&out));
    }
}

/// Words of the headers that are no functions of the library.
const DATA: [&str; 2] = ["MX_ERRORS_ARE_FATAL", "MX_ERRORS_RETURN"];

#[test]
fn library__exports_the_functions_of_the_headers_and_no_other_names() {
    let header =
        |name: &str| std::fs::read_to_string(Path::new(FACE.sources).join("include").join(name));
    let text = ["myriexpress.h", "mx_io.h"].map(|name| header(name).unwrap()).concat();
    let mut declared: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("mx_"))
        .filter(|word| text.contains(&format!(" {word}(")) || text.contains(&format!("*{word}(")))
        .chain(DATA)
        .collect();
    declared.sort_unstable();
    declared.dedup();
    let Ok(out) = Command::new("nm").args(["-D", "--defined-only"]).arg(FACE.library()).output()
    else {
        return skip("no nm (binutils)");
    };
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut exported: Vec<&str> =
        said.lines().filter_map(|line| line.split_whitespace().last()).collect();
    exported.sort_unstable();
    exported.retain(|name| *name != "mx_init");
    declared.retain(|name| *name != "mx_init");
    assert_eq!(exported, declared);
}

/// Functions of the version nodes that native MX had, and others that the example calls.
const STUB: &str = "int mx_open_endpoint(void) { return 2; } int mx_wait(void) { return 2; }\
    int mx__init_api(void) { return 2; } int mx_finalize(void) { return 2; }\
    int mx_close_endpoint(void) { return 2; } int mx_set_error_handler(void) { return 2; }\
    int mx_isend(void) { return 2; } int mx_irecv(void) { return 2; }\
    int mx_connect(void) { return 2; } int mx_hostname_to_nic_id(void) { return 2; }\
    void *const MX_ERRORS_RETURN = 0;";
const NODES: &str = "MX_0.9 { global: mx_open_endpoint; }; MX_0.91 { global: mx_wait; } MX_0.9;\
    MX_0.92 { global: mx__init_api; } MX_0.91;";

#[test]
fn binary__linked_with_a_library_of_the_time_loads_this_one() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mx-stub");
    std::fs::create_dir_all(&folder).unwrap();
    let [stub, nodes] = ["stub.c", "nodes"].map(|name| folder.join(name));
    std::fs::write(&stub, STUB).unwrap();
    std::fs::write(&nodes, NODES).unwrap();
    for name in ["libmyriexpress.so", "libopen-mx.so.0"] {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-fno-builtin", "-o"]).arg(folder.join("libmyriexpress.so"));
        cc.arg(format!("-Wl,-soname,{name},--version-script={}", nodes.display())).arg(&stub);
        let Ok(out) = cc.output() else { return skip("no cc") };
        assert!(out.status.success(), "{}", text(&out));
        let program = folder.join(format!("hello-{name}"));
        let mut cc = Command::new("cc");
        cc.args(
            ["include", "examples"]
                .map(|f| format!("-I{}", Path::new(FACE.sources).join(f).display())),
        );
        cc.arg(Path::new(FACE.sources).join("examples/hello.c")).arg("-o").arg(&program);
        let out = cc.arg("-L").arg(&folder).arg("-lmyriexpress").output().unwrap();
        assert!(out.status.success(), "{}", text(&out));
        let path = FACE.installed().display().to_string();
        let (key, path) = (key(), [("LD_LIBRARY_PATH", path.as_str())]);
        let server = start(&program, &["server"], "shm", &key, &path);
        let client = start(&program, &["client", "localhost"], "shm", &key, &path);
        for side in [client, server] {
            let out = side.wait_with_output().unwrap();
            assert!(out.status.success(), "{name}: {}", text(&out));
        }
    }
}
