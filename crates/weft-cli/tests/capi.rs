//! Programs in C over `weft.h`, compiled with the system's compiler and run by `weft run`.
#![allow(non_snake_case)]

use std::path::{Path, PathBuf};
use std::process::Command;
use weft_conformance::skip;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../weft-capi")
}

/// Compiles an example; `None`, and said why, without a compiler.
fn compile(name: &str) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        skip("no C compiler");
        return None;
    }
    // The library as cargo built it for this test.
    let beside = std::env::current_exe().unwrap();
    let folder = beside.parent().unwrap();
    assert!(folder.join("libweft_capi.so").is_file(), "no library in {}", folder.display());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{name}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-o"]).arg(&program);
    cc.arg(sources().join("examples").join(name).with_extension("c"));
    cc.arg("-I").arg(sources().join("include")).arg("-L").arg(folder);
    cc.arg(format!("-Wl,-rpath,{}", folder.display())).arg("-lweft_capi");
    let out = cc.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(program)
}

/// Runs an example with so many ranks and settings; what it printed.
fn run(name: &str, ranks: u32, settings: &[(&str, &str)]) -> Option<String> {
    let program = compile(name)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(["run", "-n", &ranks.to_string()]).arg(program);
    let out = command.envs(settings.iter().copied()).output().unwrap();
    let (text, complaints) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{name} {settings:?}: {text} {complaints}");
    Some(text.into_owned())
}

/// Shared memory, UDP, and UDP with faults under each kind of retransmission.
const WAYS: [&[(&str, &str)]; 4] = [
    &[("WEFT_LINK", "shm")],
    &[("WEFT_LINK", "udp"), ("WEFT_MTU", "1K")],
    &[("WEFT_LINK", "udp"), ("WEFT_FAULTS", "loss=2%,dup=1%,reorder=1%,seed=5")],
    &[
        ("WEFT_LINK", "udp"),
        ("WEFT_FAULTS", "loss=2%,dup=1%,reorder=1%,seed=6"),
        ("WEFT_RELIABILITY", "gbn"),
        ("WEFT_TRANSFER", "gather"),
    ],
];

fn all(name: &str, ranks: u32, says: &str) {
    for way in WAYS {
        let Some(text) = run(name, ranks, way) else { return };
        assert!(text.contains(says), "{way:?}: {text:?}");
    }
}

#[test]
fn pingpong__packets_to_and_fro() {
    all("pingpong", 2, "us one way");
}

#[test]
fn multicast__every_tree_with_packets_kept() {
    all("multicast", 5, "100 packets to 4 ranks");
}

#[test]
fn fetch_add__tickets_are_different() {
    all("fetch_add", 4, "4 ranks drew 400 tickets");
}

#[test]
fn rcpy__bytes_are_there() {
    all("rcpy", 2, "bytes are there");
}

#[test]
fn init__an_agent_is_chosen_and_there_is_none() {
    let Some(program) = compile("pingpong") else { return };
    let out = Command::new(program).env("WEFT_FETCH_ADD", "agent").output().unwrap();
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    assert!(complaints.contains("WEFT_FETCH_ADD=agent"), "{complaints}");
}
