//! Programs in C over `vipl.h`, compiled with the system's compiler.
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use weft_conformance::skip;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// Makes a folder in which the library has the names that an installation gives it.
fn installed() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let library = beside.parent().unwrap().join("libweft_via.so");
    assert!(library.is_file(), "no library at {}", library.display());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("via-lib");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["libvipl.so", "libvipl.so.0"] {
        let link = folder.join(name);
        let _old = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&library, &link).unwrap();
    }
    folder
}

/// Compiles a program with further options, once. `None`, with the reason printed, without a
/// compiler.
fn compile(name: &'static str, options: &'static [&'static str]) -> Option<PathBuf> {
    type Done = BTreeMap<(&'static str, usize), Option<PathBuf>>;
    static DONE: Mutex<Done> = Mutex::new(BTreeMap::new());
    if Command::new("cc").arg("--version").output().is_err() {
        skip("no C compiler");
        return None;
    }
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = done.get(&(name, options.len())) {
        return program.clone();
    }
    let folder = installed();
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("via-{name}-{}", options.len()));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"]).args(options);
    let of = |folder| sources().join(folder).join(name).with_extension("c");
    cc.arg(Some(of("examples")).filter(|it| it.is_file()).unwrap_or_else(|| of("tests")));
    cc.args(["include", "examples"].map(|f| format!("-I{}", sources().join(f).display())));
    cc.arg("-L").arg(&folder).arg("-o").arg(&program);
    // Before LD_LIBRARY_PATH, in which cargo puts a folder first that may hold an older library.
    cc.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display()));
    let out = cc.args(["-lvipl", "-lpthread"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    let found = match out.status.success() {
        true => Some(program),
        false if !options.is_empty() && said.contains("asan") => None,
        false => panic!("{said}"),
    };
    done.insert((name, options.len()), found.clone());
    found
}

/// Starts a program with a key and a link of its own.
fn start(program: &Path, words: &[&str], settings: &[(&str, &str)]) -> Child {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The tests of one run share no names with others.
    command.env("WEFT_KEY", format!("{:064x}", u128::from(std::process::id()) + 1));
    command.envs(settings.iter().copied()).spawn().unwrap()
}

fn end(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

fn text(out: &Output) -> String {
    [&out.stdout[..], &out.stderr].map(String::from_utf8_lossy).concat()
}

const LINKS: [&str; 2] = ["shm", "udp"];

#[test]
fn hello__two_programs_find_each_other() {
    let Some(program) = compile("hello", &[]) else { return };
    for link in LINKS {
        let settings = [("WEFT_LINK", link)];
        let server = start(&program, &["server"], &settings);
        let client = end(start(&program, &["client", "localhost"], &settings));
        let server = end(server);
        let said = text(&server) + &text(&client);
        assert!(server.status.success() && client.status.success(), "{link}: {said}");
        assert!(said.contains("server received: client"), "{link}: {said}");
        assert!(said.contains("client received: hello, client"), "{link}: {said}");
    }
}
