//! The two processes of a measurement: on two lab hosts or on this one, over weft, over libfabric's
//! `tcp`, or started by Charm++'s launcher over UDP.

use crate::MTU;
use anyhow::{bail, Context, Result};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weft_lab::client::{plan, Attached};
use weft_lab::spec::Conditions;
use weft_run::program;

/// Seconds after which a job hangs.
const TIMEOUT: &str = "90";

/// A carrier of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// weft's provider.
    Weft,
    /// libfabric's provider for TCP.
    Tcp,
    /// libfabric's older provider for TCP sockets, which Sandia OpenSHMEM takes.
    Sockets,
    /// UDP by Charm++ itself: its build `netlrts`.
    Udp,
}

impl Carrier {
    /// Returns its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Carrier::Weft => "weft",
            Carrier::Tcp => "libfabric tcp",
            Carrier::Sockets => "libfabric sockets",
            Carrier::Udp => "netlrts udp",
        }
    }
}

/// A lab of two hosts, and the files by which Charm++'s launcher reaches them.
struct Lab {
    lab: Attached,
    agent: PathBuf,
    nodes: PathBuf,
}

/// The hosts of the two processes.
pub struct Place {
    /// Folder of weft's provider.
    provider: PathBuf,
    lab: Option<Lab>,
}

impl Place {
    /// This host.
    pub fn host(provider: &Path) -> Place {
        Place { provider: provider.into(), lab: None }
    }

    /// Two hosts of a lab that lives as long as this value.
    ///
    /// # Errors
    /// The machine does not allow it, or the files cannot be written.
    pub fn lab(folder: &Path, provider: &Path) -> Result<Place> {
        let name = format!("consumers-{}-{:x}", std::process::id(), weft_link::random_u64() >> 32);
        let conditions = Conditions { mtu: MTU, direct: true, ..Conditions::default() };
        let lab = Attached::start(&plan(&name, 2, &conditions)?)?;
        let hosts = lab.processes()?;
        let (agent, nodes) = (folder.join("agent"), folder.join("nodes"));
        // The launcher calls it like ssh: address, options with a value each, command.
        let mut script = String::from("#!/bin/sh\ncase $1 in\n");
        let mut list = format!("group main ++shell {}\n", agent.display());
        for (at, (address, _)) in hosts.iter().enumerate() {
            script += &format!("{address}) host=h{} ;;\n", at + 1);
            list += &format!("host {address}\n");
        }
        script += "esac\nshift\nwhile [ \"${1#-}\" != \"$1\" ]; do shift 2; done\n";
        let weft = program::weft()?;
        let lab_exec = format!("'{}' lab --name {name} exec", weft.display());
        script += &format!("exec {lab_exec} \"$host\" sh -c \"$*\"\n");
        for (path, text, mode) in [(&agent, &script, 0o700), (&nodes, &list, 0o600)] {
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(mode).open(path);
            let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
            written.with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(Place { provider: provider.into(), lab: Some(Lab { lab, agent, nodes }) })
    }

    /// Returns its name.
    pub fn name(&self) -> &'static str {
        if self.lab.is_some() {
            "two hosts"
        } else {
            "one host"
        }
    }

    /// Returns the links that weft takes there.
    pub fn link(&self) -> &'static str {
        if self.lab.is_some() {
            "auto"
        } else {
            "shm"
        }
    }

    /// True for two hosts.
    pub fn is_lab(&self) -> bool {
        self.lab.is_some()
    }

    /// Runs two processes of a program that uses libfabric; returns its output.
    ///
    /// # Errors
    /// The job failed or hung, or the carrier is none of libfabric.
    pub fn fabric(&self, carrier: Carrier, words: &[String]) -> Result<String> {
        let weft = program::weft()?;
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", TIMEOUT]).arg(weft);
        match &self.lab {
            Some(lab) => command.args(["lab", "--name", &lab.lab.name, "run"]),
            None => command.arg("run"),
        };
        command.args(["-n", "2", "--"]).args(words);
        match carrier {
            Carrier::Weft => command.env("FI_PROVIDER", "weft"),
            Carrier::Tcp => command.env("FI_PROVIDER", "tcp;ofi_rxm"),
            Carrier::Sockets => command.env("FI_PROVIDER", "sockets"),
            Carrier::Udp => bail!("libfabric has no such provider"),
        };
        command.env("FI_PROVIDER_PATH", &self.provider);
        output(command)
    }

    /// Runs two processes of a program of Charm++ by the launcher in its folder; returns its
    /// output.
    ///
    /// # Errors
    /// The job failed or hung.
    pub fn charmrun(&self, program: &Path, words: &[String]) -> Result<String> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", TIMEOUT]);
        if let Some(lab) = &self.lab {
            command.arg(program::weft()?).args(["lab", "--name", &lab.lab.name, "exec", "h1"]);
        }
        command.arg(program.with_file_name("charmrun")).arg("+p2");
        match &self.lab {
            Some(lab) => {
                command.arg("++nodelist").arg(&lab.nodes).arg("++remote-shell").arg(&lab.agent)
            }
            None => command.arg("++local"),
        };
        command.arg(program).args(words);
        output(command)
    }
}

/// Runs a command; returns its standard output.
fn output(mut command: Command) -> Result<String> {
    for name in super::charm::VARIABLES {
        // Ranks warn of variables that nothing in weft reads.
        command.env_remove(name);
    }
    let done = command.stdin(Stdio::null()).output().context("timeout (coreutils)")?;
    if !done.status.success() {
        bail!("{}: {}", done.status, crate::mpi::job::last_words(&done));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
