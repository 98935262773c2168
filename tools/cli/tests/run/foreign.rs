//! Start-up under other launchers than weft's: those on PATH, those of the wheels that `cargo xtask
//! test --suite mpi` installs below `target/mpi`, and those in the folders below `WEFT_TEST_MPIS`.
//! Each test is skipped, with a note, if its launcher is not installed.

use crate::harness::{bootstrap_keys, Job};
use std::path::{Path, PathBuf};
use std::process::Command;
use weft_conformance::hosts::{self, Host};
use weft_conformance::skip;
use weft_conformance::slurm::Cluster;

/// Returns folders of MPIs that are not on PATH.
fn wheels() -> Vec<PathBuf> {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mpi");
    let folder = std::env::var_os("WEFT_TEST_MPIS").map_or_else(own, PathBuf::from);
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    // This file marks a complete environment.
    let mut whole: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    whole.retain(|place| place.join("installed").is_file());
    whole.sort();
    whole
}

/// Returns all launchers of a name.
fn launchers(program: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|folder| folder.join(program));
    let first = first.into_iter().find(|file| file.is_file());
    let others = wheels().into_iter().map(|place| place.join("bin").join(program));
    first.into_iter().chain(others.filter(|file| file.is_file())).collect()
}

/// Returns all launchers of a name; without one, the test is skipped.
fn installed(program: &str, what: &str) -> Vec<PathBuf> {
    let all = launchers(program);
    if all.is_empty() {
        skip(&format!("{what} is not installed"));
    }
    all
}

/// Returns the folder of Intel MPI, if the launcher belongs to it.
fn intel(launcher: &Path) -> Option<&Path> {
    launcher.ancestors().nth(2).filter(|root| root.join("opt/mpi").is_dir())
}

/// Returns a command of Hydra's launcher, with the path of the rest of its MPI.
fn hydra(launcher: &Path) -> Command {
    let mut command = Command::new(launcher);
    if let Some(root) = intel(launcher) {
        command.env("I_MPI_ROOT", root);
    }
    command
}

/// Returns a command of Open MPI's or PRRTE's launcher that allows more ranks than cores, with the
/// option of its version.
fn crowded(launcher: &Path, before_5: bool) -> Command {
    let mut command = Command::new(launcher);
    command.arg("--allow-run-as-root");
    match before_5 {
        true => command.arg("--oversubscribe"),
        false => command.args(["--map-by", ":oversubscribe"]),
    };
    command
}

/// Returns the version that `mpirun` prints, if it is Open MPI's: MPICH has a launcher of that name
/// too.
fn open_mpi(launcher: &Path) -> Option<String> {
    let output = Command::new(launcher).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.split_once("(Open MPI) ")?.1.to_string())
}

fn check(mut command: Command, launcher: &str) {
    command.args(["-n", "3"]);
    let done = Job::of(command).selftest(&["--bytes", "3000"]).finish();
    done.assert_code(0);
    assert_eq!(bootstrap_keys(&done.out, 3, launcher).len(), 1, "{}", done.out);
}

#[test]
fn hydra__ranks_join_through_pmi1() {
    for launcher in installed("mpiexec.hydra", "mpiexec.hydra (MPICH)") {
        check(hydra(&launcher), "pmi1");
        // Intel's Hydra has no port.
        if intel(&launcher).is_none() {
            let mut by_port = hydra(&launcher);
            by_port.arg("-pmi-port");
            check(by_port, "pmi1");
        }
    }
}

#[test]
fn mpirun__ranks_join_through_pmix() {
    let all = launchers("mpirun");
    let mut all = all.iter().filter_map(|it| Some((it, open_mpi(it)?))).peekable();
    if all.peek().is_none() {
        skip("Open MPI's mpirun is not installed");
    }
    for (launcher, version) in all {
        check(crowded(launcher, version.starts_with('4')), "pmix");
    }
}

#[test]
fn prterun__ranks_join_through_pmix() {
    for launcher in installed("prterun", "prterun") {
        check(crowded(&launcher, false), "pmix");
    }
}

/// Returns a command in a mount namespace where the system has no PMIx library.
fn without_pmix(command: &Command) -> Command {
    let script =
        "files=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n 's/.*libpmix.so.2.*=> //p')
                  for file in $files; do mount --bind /dev/null \"$file\" || exit 1; done
                  exec \"$@\"";
    let mut alone = Command::new("unshare");
    alone.args(["--mount", "sh", "-c", script, "sh"]).arg(command.get_program());
    alone.args(command.get_args());
    command.get_envs().for_each(|(name, value)| _ = alone.env(name, value.unwrap_or_default()));
    alone
}

/// True if commands can run without the library of the system; else prints that a test is skipped.
fn can_be_without_pmix() -> bool {
    let can = without_pmix(&Command::new("true")).status().is_ok_and(|done| done.success());
    if !can {
        skip("needs root and unshare, to be without the library of the system");
    }
    can
}

#[test]
fn no_pmix__is_an_error_only_where_it_is_needed() {
    if !can_be_without_pmix() {
        return;
    }
    for launcher in launchers("mpiexec.hydra") {
        check(without_pmix(&hydra(&launcher)), "pmi1");
    }
    let weft = || Command::new(env!("CARGO_BIN_EXE_weft"));
    let mut run = weft();
    check(without_pmix(run.arg("run")), "pmi1");
    let done = Job::of(without_pmix(weft().args(["selftest", "bootstrap"]))).finish();
    bootstrap_keys(&done.out, 1, "none");
    let alone = without_pmix(weft().args(["selftest", "bootstrap"]));
    let done = Job::of(alone).env("WEFT_BOOTSTRAP", "pmix").finish();
    done.assert_code(1);
    done.assert_says(&["libpmix.so.2 could not be loaded", "libpmix2", "WEFT_PMIX_LIBRARY"]);
}

#[test]
fn prterun__brings_the_library_that_ranks_speak_to_it_with() {
    let brings = |launcher: &PathBuf| {
        let prefix = launcher.ancestors().nth(2).expect("a folder");
        prefix.join("lib/openmpi/libpmix.so.2").is_file()
    };
    let Some(launcher) = launchers("prterun").into_iter().find(brings) else {
        return skip("no prterun that brings a PMIx library is installed");
    };
    if can_be_without_pmix() {
        check(without_pmix(&crowded(&launcher, false)), "pmix");
    }
}

/// Returns `srun` of a cluster of this test's own, with one of Slurm's plugins for MPI.
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
        // Messages from two hosts to one, over the links that users get.
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

/// Returns `weft` in an allocation of three tasks on two hosts.
fn allocated(cluster: &Cluster, words: &[&str]) -> Command {
    let mut command = cluster.salloc();
    command.args(["--ntasks=3", env!("CARGO_BIN_EXE_weft")]).args(words);
    command
}

fn in_an_allocation(cluster: &Cluster) {
    let place = ["run", "sh", "-c", "echo $PMI_RANK of $PMI_SIZE on $(hostname)"];
    let done = Job::of(allocated(cluster, &place)).finish();
    done.assert_code(0);
    let mut lines: Vec<&str> = done.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 of 3 on n1", "1 of 3 on n1", "2 of 3 on n2"], "{}", done.err);
    let weft = env!("CARGO_BIN_EXE_weft");
    let done =
        Job::of(allocated(cluster, &["run", "-n", "4", weft, "selftest", "incast"])).finish();
    done.assert_code(0);
    // Hosts named by the user replace the allocation.
    let done = Job::of(allocated(cluster, &["run", "--hosts", "n1:2", "hostname"])).finish();
    assert_eq!(done.out, "n1\nn1\n", "{}", done.err);
    let done = Job::of(allocated(cluster, &["run", "sh", "-c", "exit 7"])).finish();
    done.assert_code(7);
    let Some(mpi) = launchers("mpiexec.hydra").into_iter().next() else {
        return skip("mpiexec.hydra (MPICH) is not installed: `weft mpi` in an allocation");
    };
    let mpi = mpi.to_str().expect("a plain path");
    let done = Job::of(allocated(cluster, &["mpi", "--mpi", mpi, "--dry-run", "true"])).finish();
    if done.code != Some(0) {
        return skip(&format!("`weft mpi` in an allocation: {}", done.err));
    }
    let line = done.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(line.contains("-n 3") && line.contains("n1:2,n2:1"), "{line}");
}

#[test]
fn salloc__hosts_and_counts_are_those_of_the_allocation() {
    with_slurm(in_an_allocation);
}

#[test]
fn srun__ranks_on_two_nodes_join_by_what_slurm_offers() {
    with_slurm(on_slurm);
}

fn with_slurm(test: fn(&Cluster)) {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let on_first = |host: &Host| {
        let _until_dropped = done;
        match Cluster::start(host) {
            Ok(cluster) => test(&cluster),
            Err(why) => skip(&why),
        }
    };
    if let Err(why) = hosts::run(1, on_first, move |_| wait.recv().is_err()) {
        skip(&why);
    }
}
