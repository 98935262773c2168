//! Start-up under launchers that are not weft's. Each test is skipped, saying so, where its
//! launcher is not installed.

use crate::harness::{bootstrap_keys, Job};
use std::process::Command;

/// The text of `program --version`, when there is such a program.
fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn open_mpi(program: &str) -> Option<Command> {
    let text = version(program)?;
    if !text.contains("Open MPI") && !text.contains("PRRTE") && !text.contains("prterun") {
        return None;
    }
    let mut command = Command::new(program);
    command.args(["--allow-run-as-root", "--oversubscribe"]);
    Some(command)
}

fn check(mut command: Command, launcher: &str) {
    command.args(["-n", "3"]);
    let done = Job::of(command).selftest(&["--bytes", "3000"]).finish();
    done.assert_code(0);
    assert_eq!(bootstrap_keys(&done.out, 3, launcher).len(), 1, "{}", done.out);
}

#[test]
fn hydra__ranks_join_through_pmi1() {
    if version("mpiexec.hydra").is_none() {
        println!("skipped: mpiexec.hydra (MPICH) is not installed");
        return;
    }
    check(Command::new("mpiexec.hydra"), "pmi1");
    let mut by_port = Command::new("mpiexec.hydra");
    by_port.arg("-pmi-port");
    check(by_port, "pmi1");
}

#[test]
fn mpirun__ranks_join_through_pmix() {
    match open_mpi("mpirun") {
        Some(command) => check(command, "pmix"),
        None => println!("skipped: Open MPI's mpirun is not installed"),
    }
}

#[test]
fn prterun__ranks_join_through_pmix() {
    match open_mpi("prterun") {
        Some(command) => check(command, "pmix"),
        None => println!("skipped: prterun is not installed"),
    }
}
