//! Programs that have the kernel read their connections by io_uring.

use crate::harness::{library, Process, Served, LOOKS};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use weft_conformance::skip;

/// The status of a program that gets no ring.
const SKIPPED: i32 = 77;

/// Builds the library that makes a ring, and a program that uses it.
fn build() -> Option<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        skip("the program has instructions of another machine");
        return None;
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ring.c");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (maker, program) = (folder.join("libweft-test-ring.so"), folder.join("ring"));
    let cc = |more: &[&str], to: &PathBuf| {
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-Wall", "-Werror", "-o"]).arg(to).arg(source).args(more);
        cc.status().is_ok_and(|status| status.success())
    };
    let with = maker.to_str().unwrap();
    let built = cc(&["-DLIBRARY", "-shared", "-fPIC"], &maker) && cc(&[with], &program);
    if !built {
        skip("cc builds nothing here");
    }
    built.then_some(program)
}

/// Runs the program in a way, against an echo, with so many connections before that of the ring.
/// Returns the connections that were joined.
fn joined(way: &str, before: u64) -> Option<u64> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(build).as_ref()?;
    let agent = Served::start();
    let mut echoes: Vec<_> = (0..=before).map(|_| agent.with("echo", "")).collect();
    let ports: Vec<String> = echoes.iter_mut().map(|echo| echo.says()).collect();
    let mut command = Command::new(program);
    command
        .args([ports[0].as_str(), way])
        .args(&ports[1..])
        .envs([LOOKS, ("WEFT_SOCKETS_AFTER", "1")]);
    command.env("LD_PRELOAD", library()).env("WEFT_AGENT", &agent.name);
    let status = command.status().unwrap();
    if status.code() == Some(SKIPPED) {
        skip("the kernel makes no ring here");
        return None;
    }
    assert!(status.success(), "{way}: {status}");
    echoes.into_iter().for_each(Process::ends_well);
    Some(agent.counter("sockets_paired"))
}

#[test]
fn ring__finds_all_bytes_in_tcp_when_a_library_makes_it() {
    if let Some(joined) = joined("library", 0) {
        assert_eq!(joined, 1);
    }
}

#[test]
fn ring__that_the_program_makes_itself_keeps_later_connections_on_tcp() {
    for before in [0, 2, 4] {
        if let Some(joined) = joined("own", before) {
            assert_eq!(joined, before);
        }
    }
}
