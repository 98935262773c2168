//! The peer over OpenSHMEM: a program in C on two PEs of this host, where one is installed.

use crate::mpi::job::last_words;
use crate::mpi::usual;
use crate::pair::Sample;
use crate::shmem::{compile, figure, find, folders, Operation};
use crate::Options;
use anyhow::{bail, Context, Result};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use weft_run::folder::Folder;
use weft_run::mpi::detect::Family;
use weft_run::program;

/// Names the command by which `oshrun` of Sandia OpenSHMEM starts PEs.
const LAUNCHER: &str = "OSHRUN_LAUNCHER";
/// Names libfabric's provider, which Sandia OpenSHMEM takes, and the one for ranks of a host.
const PROVIDER: (&str, &str) = ("FI_PROVIDER", "shm");
/// A job that takes more seconds than this hangs.
const TIMEOUT: &str = "60";
/// Seconds of a turn, and of one of a quick run.
const TURN: [f64; 2] = [0.15, 0.01];

/// An OpenSHMEM, with the program compiled for it.
struct Installed {
    folder: Folder,
    oshrun: PathBuf,
    /// Options of `oshrun`.
    extra: Vec<String>,
    program: PathBuf,
}

/// Returns libfabric's provider.
fn provider() -> String {
    std::env::var(PROVIDER.0).unwrap_or_else(|_| PROVIDER.1.into())
}

impl Installed {
    /// Finds an OpenSHMEM in these folders and compiles the program.
    fn find(folders: Vec<PathBuf>) -> Result<Installed> {
        let oshcc = find(folders, &["oshcc", "oshrun"])?;
        let (folder, oshrun) = (Folder::new()?, oshcc.with_file_name("oshrun"));
        let program = compile(&oshcc, &folder.0)?;
        let mut found = Installed { folder, oshrun, extra: Vec::new(), program };
        let version = found.start(&["--version"])?;
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        if version.contains("OpenRTE") || version.contains("Open MPI") {
            found.extra = usual(Family::OpenMpi4);
            found.extra.push("--allow-run-as-root".into());
        }
        Ok(found)
    }

    /// Runs `oshrun`. Sandia OpenSHMEM's takes `weft run` and shared memory, unless the user names
    /// others: the first launcher in `PATH` may be of an MPI that cannot start its PEs.
    fn start(&self, words: &[&str]) -> Result<Output> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", TIMEOUT]).arg(&self.oshrun).args(&self.extra).args(words);
        if std::env::var_os(LAUNCHER).is_none() {
            let weft = program::weft()?;
            command.env(LAUNCHER, format!("{} run", weft.display()));
        }
        command.env(PROVIDER.0, provider());
        command.current_dir(&self.folder.0).stdin(Stdio::null());
        command.output().context("timeout (coreutils)")
    }

    /// Runs the program; returns the name of the OpenSHMEM, the seconds of an operation, and how
    /// the job ended if that was a failure: its values were checked before.
    fn run(&self, operation: Operation, turn: f64) -> Result<(String, f64, Option<String>)> {
        let (program, turn) = (self.program.to_string_lossy(), turn.to_string());
        let output = self.start(&["-n", "2", &program, operation.name(), &turn])?;
        let Some((name, seconds)) = figure(&String::from_utf8_lossy(&output.stdout))? else {
            bail!("no figure; {}: {}", output.status, last_words(&output))
        };
        let end = (!output.status.success()).then(|| output.status.to_string());
        Ok((name, seconds, end))
    }
}

/// The peer: measures in turn with weft. Without an OpenSHMEM, and after a failure, it has no
/// figures, and a note says why.
pub struct Peer {
    installed: Option<Installed>,
    turn: f64,
    times: Vec<f64>,
    notes: Vec<String>,
}

impl Peer {
    /// Returns a peer that has no figures.
    pub fn none() -> Peer {
        Peer { installed: None, turn: 0.0, times: Vec::new(), notes: Vec::new() }
    }

    /// Finds an OpenSHMEM of this host.
    pub fn find(options: &Options) -> Peer {
        Peer::find_in(folders(), TURN[usize::from(options.quick)])
    }

    fn find_in(folders: Vec<PathBuf>, turn: f64) -> Peer {
        let mut peer = Peer { turn, ..Peer::none() };
        match Installed::find(folders) {
            Ok(installed) => peer.installed = Some(installed),
            Err(why) => peer.note(format!("OpenSHMEM is left out: {why:#}")),
        }
        peer
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Measures an operation once.
    pub fn measure(&mut self, operation: Operation) {
        let Some(installed) = &self.installed else { return };
        let oshrun = installed.oshrun.display().to_string();
        match installed.run(operation, self.turn) {
            Ok((name, seconds, end)) => {
                self.times.push(seconds);
                let by = match name.starts_with("Sandia") {
                    true => format!("{name} over libfabric's {}", provider()),
                    false => name,
                };
                self.note(format!("OpenSHMEM: {by}, two PEs of this host started by {oshrun}"));
                if let Some(end) = end {
                    self.note(format!(
                        "OpenSHMEM: its values were right, its figures stand, but shmem_finalize \
                         fails ({end})"
                    ));
                }
            }
            Err(why) => {
                let name = operation.name();
                self.note(format!("OpenSHMEM is left out: {name} by {oshrun}: {why:#}"));
                (self.installed, self.times) = (None, Vec::new());
            }
        }
    }

    /// Takes the figure of the turns since the last call, in microseconds.
    pub fn take(&mut self) -> Option<Sample> {
        let times = std::mem::take(&mut self.times);
        Some(Sample::of(times)?.map(|seconds| seconds * 1e6))
    }

    /// Takes the notes.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Writes an OpenSHMEM whose compiler makes an empty file and whose launcher runs this script.
    fn fake(folder: &Folder, oshrun: &str) -> Peer {
        for (name, script) in [("oshcc", ": > \"$2\""), ("oshrun", oshrun)] {
            let file = folder.0.join(name);
            std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        }
        Peer::find_in(vec!["/nonexistent".into(), folder.0.clone()], 0.01)
    }

    #[test]
    fn measure__figures_stand_if_the_job_fails_after_them() {
        let folder = Folder::new().unwrap();
        let figures = "[ $1 = --version ] || echo 'weft-shmem Fake\nweft-bench 16 2e-6'; exit 139";
        let mut peer = fake(&folder, figures);
        peer.measure(Operation::Ticket);
        peer.measure(Operation::Ticket);
        let sample = peer.take().unwrap();
        assert!((sample.median - 2.0).abs() < 1e-9 && peer.take().is_none(), "{sample:?}");
        let notes = peer.notes();
        assert!(notes.len() == 2 && notes[0].starts_with("OpenSHMEM: Fake, "), "{notes:?}");
        assert!(notes[1].contains("139"), "{notes:?}");
    }

    #[test]
    fn measure__a_failure_is_a_note_and_takes_the_figures_away() {
        let folder = Folder::new().unwrap();
        let once = folder.0.join("once");
        let script = format!(
            "[ $1 = --version ] && exit\n\
             if mkdir {}; then echo 'weft-shmem Fake\nweft-bench 16 2e-6'\n\
             else echo weft-failed 1 of 10 values were wrong; fi",
            once.display()
        );
        let mut peer = fake(&folder, &script);
        peer.measure(Operation::Write);
        peer.measure(Operation::Write);
        assert!(peer.take().is_none());
        let notes = peer.notes();
        assert!(notes[1].ends_with(": 1 of 10 values were wrong"), "{notes:?}");
        peer.measure(Operation::Ticket);
        assert!(peer.take().is_none() && peer.notes().is_empty(), "it is not tried again");
    }

    #[test]
    fn find__a_host_without_one_and_one_that_does_not_start() {
        let mut none = Peer::find_in(vec!["/nonexistent".into()], 0.01);
        none.measure(Operation::Ticket);
        assert!(none.take().is_none());
        let notes = none.notes();
        assert!(notes.len() == 1 && notes[0].contains("none is installed"), "{notes:?}");
        let folder = Folder::new().unwrap();
        let mut dumb = fake(&folder, "echo no PMI >&2; exit 3");
        dumb.measure(Operation::Write);
        let notes = dumb.notes();
        assert!(dumb.take().is_none() && notes[0].contains("3: no PMI"), "{notes:?}");
    }
}
