//! One run of a program under an MPI, on hosts of a lab.

use anyhow::{bail, Context, Result};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use weft::launch::keyfile;
use weft_lab::client::{plan, Attached};
use weft_lab::spec::Conditions;
use weft_run::mpi::command::{self, Request};
use weft_run::mpi::detect::{Family, Mpi};
use weft_run::run::hosts::Share;

/// A run that takes longer than this hangs.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Returns the last lines of a program's errors.
pub fn last_words(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().rev().take(4).collect();
    last.into_iter().rev().collect::<Vec<_>>().join(" / ")
}

/// Hosts of a lab that the launchers of MPIs can reach.
pub struct Hosts {
    lab: Attached,
    /// Address and first process of each host.
    hosts: Vec<(String, i32)>,
    agent: PathBuf,
}

/// Returns options of nsenter that enter a host's network and name. Files and processes stay those
/// of the machine, so that launchers on several hosts find one installation.
fn enter(process: i32) -> [String; 3] {
    ["net", "uts", "ipc"].map(|kind| format!("--{kind}=/proc/{process}/ns/{kind}"))
}

impl Hosts {
    /// Starts a lab of this many hosts: two are joined by one cable, more by a switch.
    ///
    /// # Errors
    /// The machine does not allow it.
    pub fn start(count: usize, mtu: u32, folder: &Path) -> Result<Hosts> {
        let name = format!("bench-{}-{:x}", std::process::id(), weft_link::random_u64() >> 32);
        let conditions = Conditions { mtu, direct: count == 2, ..Conditions::default() };
        let lab = Attached::start(&plan(&name, count, &conditions)?)?;
        let hosts = lab.processes()?;
        let agent = folder.join(format!("agent-{name}"));
        let mut script = String::from(
            "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n",
        );
        script += "case $host in\n";
        for (address, process) in &hosts {
            let words = enter(*process).join(" ");
            script += &format!("{address}) exec nsenter {words} sh -c \"$*\" ;;\n");
        }
        script += "*) echo \"no host $host\" >&2; exit 1 ;;\nesac\n";
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&agent)
            .and_then(|mut file| file.write_all(script.as_bytes()))
            .with_context(|| format!("writing {}", agent.display()))?;
        Ok(Hosts { lab, hosts, agent })
    }

    /// Returns the name of the lab.
    pub fn lab(&self) -> &str {
        &self.lab.name
    }

    /// Returns the ranks of each host.
    fn shares(&self, each: usize) -> Vec<Share> {
        let share = |(at, (host, _)): (usize, &(String, i32))| Share {
            host: host.clone(),
            first: at * each,
            count: each,
        };
        self.hosts.iter().enumerate().map(share).collect()
    }
}

/// An MPI with settings that select its transport.
#[derive(Clone)]
pub struct Subject {
    /// Name in tables.
    pub name: &'static str,
    /// The MPI.
    pub mpi: Mpi,
    /// Environment variables of the ranks.
    pub set: Vec<(String, String)>,
    /// Options of the launcher.
    pub extra: Vec<String>,
}

/// A program to run.
pub struct Job<'a> {
    /// The hosts; `None` is the machine itself.
    pub hosts: Option<&'a Hosts>,
    /// Ranks of each host.
    pub each: usize,
    /// Program and arguments.
    pub command: &'a [String],
    /// Working folder.
    pub folder: &'a Path,
    /// Start of the command line, which runs the launcher, if there is one.
    pub within: &'a [String],
}

impl Job<'_> {
    fn launcher(&self, subject: &Subject) -> Result<Command> {
        let shares = self.hosts.map(|hosts| hosts.shares(self.each));
        let ranks = shares.as_ref().map_or(self.each, |s| s.iter().map(|s| s.count).sum());
        let mut set = subject.set.clone();
        let key = keyfile::format(&weft::launch::random_key()?);
        set.push((keyfile::VARIABLE.to_owned(), key));
        let plan = command::plan(&Request {
            mpi: &subject.mpi,
            shares: shares.as_deref(),
            ranks,
            set,
            agent: self.hosts.map(|hosts| hosts.agent.clone()),
            timeout: None,
            extra: subject.extra.clone(),
            command: self.command,
            root: rustix::process::geteuid().is_root(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            inherited: Vec::new(),
        });
        let inner = plan.command();
        let mut outer = match self.hosts {
            Some(hosts) => {
                let mut outer = Command::new("nsenter");
                outer.args(enter(hosts.hosts[0].1)).arg(inner.get_program());
                outer
            }
            None => Command::new(inner.get_program()),
        };
        outer.args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        Ok(outer)
    }

    /// Runs the job; returns its output.
    ///
    /// # Errors
    /// The job failed (the error holds its output) or hung.
    pub fn run(&self, subject: &Subject) -> Result<String> {
        let mut command = Command::new("timeout");
        let launcher = self.launcher(subject)?;
        let seconds = TIMEOUT.as_secs().to_string();
        command.args(["--kill-after=5", &seconds]).args(self.within);
        command.arg(launcher.get_program());
        command.args(launcher.get_args()).current_dir(self.folder).stdin(Stdio::null());
        for (name, value) in launcher.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let output = command.output().context("timeout (coreutils)")?;
        if !output.status.success() {
            bail!("{}: {}: {}", subject.name, output.status, last_words(&output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the compiler of an MPI. Where several MPIs share a folder, it has the ending of the
/// launcher or of the family: Debian's MPICH has `mpiexec.hydra` and `mpicc.mpich`.
fn compiler(mpi: &Mpi) -> PathBuf {
    let launcher = mpi.launcher.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let ending = launcher.split_once('.').map_or(String::new(), |(_, e)| format!(".{e}"));
    let family = match mpi.family {
        family if family.is_open_mpi() => ".openmpi",
        Family::Mpich => ".mpich",
        _ => "",
    };
    let named = [ending.as_str(), family, ""].map(|ending| format!("mpicc{ending}"));
    let all = named.map(|name| mpi.launcher.with_file_name(name));
    all.iter().find(|file| file.is_file()).unwrap_or(&all[0]).clone()
}

/// Compiles the program with an MPI's own compiler and these options.
///
/// # Errors
/// There is no compiler, or it fails.
pub fn compile(mpi: &Mpi, source: &Path, folder: &Path, options: &[&str]) -> Result<PathBuf> {
    let compiler = compiler(mpi);
    let program = folder.join(format!("{mpi}").replace([' ', '/'], "-"));
    let output = Command::new(&compiler)
        .arg("-o")
        .args([&program, source])
        .args(options)
        .output()
        .with_context(|| format!("{} (install gcc and {mpi})", compiler.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}", compiler.display(), said.lines().next().unwrap_or("failed"));
    }
    Ok(program)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft_run::folder::Folder;

    #[test]
    fn compiler__is_that_of_the_family_where_the_launcher_has_another_ending() {
        let folder = Folder::new().unwrap();
        let of = |launcher: &str, family| {
            let launcher = folder.0.join(launcher);
            let (version, prefix) = ("4.0.2".into(), folder.0.clone());
            let found = compiler(&Mpi { family, version, launcher, prefix });
            found.file_name().unwrap().to_string_lossy().into_owned()
        };
        assert_eq!(of("mpiexec.hydra", Family::Mpich), "mpicc.hydra", "there is none");
        std::fs::write(folder.0.join("mpicc"), "").unwrap();
        assert_eq!(of("mpiexec.hydra", Family::Mpich), "mpicc");
        for name in ["mpicc.mpich", "mpicc.openmpi"] {
            std::fs::write(folder.0.join(name), "").unwrap();
        }
        assert_eq!(of("mpiexec.hydra", Family::Mpich), "mpicc.mpich");
        assert_eq!(of("mpiexec.openmpi", Family::OpenMpi4), "mpicc.openmpi");
        assert_eq!(of("mpiexec", Family::OpenMpi5), "mpicc");
        assert_eq!(of("mpiexec", Family::Intel), "mpicc");
    }
}
