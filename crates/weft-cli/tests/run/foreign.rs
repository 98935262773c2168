//! Start-up under launchers that are not weft's. Each test is skipped, saying so, where its
//! launcher is not installed.

use crate::harness::{bootstrap_keys, Job};
use std::process::Command;
use weft_conformance::hosts::{self, Host};
use weft_conformance::skip;
use weft_conformance::slurm::Cluster;

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

/// `srun` of a cluster of this test's own, with one of Slurm's plugins for MPI.
fn srun(cluster: &Cluster, plugin: &str) -> Option<Command> {
    if !cluster.offers(plugin) {
        skip(&format!("Slurm has no plugin {plugin}"));
        return None;
    }
    let mut command = cluster.srun();
    command.arg(format!("--mpi={plugin}"));
    Some(command)
}

fn on_slurm(cluster: &Cluster) {
    for (plugin, launcher) in [("pmix", "pmix"), ("pmi2", "pmi1")] {
        let Some(command) = srun(cluster, plugin) else { continue };
        check(command, launcher);
        // Messages from two hosts to one, by links that a user gets.
        let mut command = srun(cluster, plugin).expect("it was there");
        command.args(["-n", "4", env!("CARGO_BIN_EXE_weft"), "selftest", "incast"]);
        Job::of(command).finish().assert_code(0);
        let mut command = srun(cluster, plugin).expect("it was there");
        command.args(["-n", "4"]);
        let done = Job::of(command).selftest(&["--aborts", "3"]).finish();
        assert_ne!(done.code, Some(0), "rank 3 aborts the job: {}", done.err);
    }
    let Some(mut command) = srun(cluster, "none") else { return };
    command.args(["-n", "2"]);
    let done = Job::of(command).selftest(&[]).finish();
    done.assert_code(1);
    done.assert_says(&["--mpi=pmi2 or --mpi=pmix"]);
}

#[test]
fn srun__ranks_on_two_nodes_join_by_what_slurm_offers() {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let on_first = |host: &Host| {
        let _until_dropped = done;
        match Cluster::start(host) {
            Ok(cluster) => on_slurm(&cluster),
            Err(why) => skip(&why),
        }
    };
    if let Err(why) = hosts::run(1, on_first, move |_| wait.recv().is_err()) {
        skip(&why);
    }
}
