//! Start-up under launchers that are not weft's. Each test is skipped, saying so, where its
//! launcher is not installed.

use crate::harness::{bootstrap_keys, Job};
use std::process::{Command, Stdio};
use weft_conformance::skip;

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
        skip("mpiexec.hydra (MPICH) is not installed");
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
        None => skip("Open MPI's mpirun is not installed"),
    }
}

#[test]
fn prterun__ranks_join_through_pmix() {
    match open_mpi("prterun") {
        Some(command) => check(command, "pmix"),
        None => skip("prterun is not installed"),
    }
}

/// Whether a Slurm cluster answers here; else why not.
fn slurm() -> Result<(), String> {
    let mut ask = Command::new("sinfo");
    ask.args(["--noheader", "--states=idle,mixed"]).stdin(Stdio::null());
    let answer = ask.output().map_err(|e| format!("Slurm's sinfo: {e}"))?;
    match answer.stdout.is_empty() {
        true => Err("no Slurm node is free here".into()),
        false => Ok(()),
    }
}

/// `srun` with one of its plugins for MPI, when Slurm has it and a node is free.
fn srun(plugin: &str) -> Result<Command, String> {
    slurm()?;
    let plugins = Command::new("srun").arg("--mpi=list").output();
    let listed = plugins.map_err(|e| format!("srun: {e}"))?;
    // Older versions print the list on the error stream.
    let text = String::from_utf8_lossy(&[listed.stdout, listed.stderr].concat()).into_owned();
    if !text.contains(plugin) {
        return Err(format!("Slurm has no plugin {plugin}"));
    }
    let mut command = Command::new("srun");
    command.args(["--immediate=30", "--overcommit", &format!("--mpi={plugin}")]);
    Ok(command)
}

/// One after the other: a job waits until the one before has left the node.
#[test]
fn srun__ranks_join_by_what_slurm_offers() {
    for (plugin, launcher) in [("pmix", "pmix"), ("pmi2", "pmi1")] {
        match srun(plugin) {
            Ok(command) => check(command, launcher),
            Err(why) => skip(&why),
        }
    }
    let mut command = match srun("none") {
        Ok(command) => command,
        Err(why) => return skip(&why),
    };
    command.args(["-n", "2"]);
    let done = Job::of(command).selftest(&[]).finish();
    done.assert_code(1);
    done.assert_says(&["--mpi=pmi2 or --mpi=pmix"]);
}
