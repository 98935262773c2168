//! The rest of this program uses a lab through this module: it starts labs and enters their hosts.

use super::keeper::Started;
use super::spec::{free_subnet, Conditions, Spec};
use super::wire::{self, Description};
use anyhow::{bail, ensure, Context, Result};
use rustix::thread::{move_into_thread_name_spaces, ThreadNameSpaceType};
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Makes the specification of a lab, in a network that nothing else uses.
///
/// # Errors
/// Returns the errors of [`Spec::new`]; or no network is free.
pub fn plan(name: &str, hosts: usize, conditions: &Conditions) -> Result<Spec> {
    // Names of labs that end at this moment, or of other programs, use no network.
    let labs = wire::names()?;
    let others = labs.iter().filter_map(|name| wire::describe(name, None).ok());
    let taken: Vec<u8> = others.map(|(lab, _)| lab.spec.subnet).collect();
    Spec::new(name, hosts, conditions, free_subnet(&taken)?)
}

/// Starts a keeper and waits until its lab is up; returns the lab's shortcomings.
fn start(spec: &Spec, attached: bool) -> Result<(Child, Vec<String>)> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("weft").args(["lab-keeper", "--spec", &serde_json::to_string(spec)?]);
    if attached {
        // The keeper has its own group: Ctrl-C at the terminal goes to this process, which ends the
        // lab.
        command.arg("--attached").stdin(Stdio::piped()).process_group(0);
    } else {
        command.stdin(Stdio::null());
    }
    command.stdout(Stdio::piped());
    let mut child = command.spawn().context("starting the lab's keeper")?;
    let mut line = String::new();
    let output = child.stdout.take().context("its output")?;
    BufReader::new(output).read_line(&mut line)?;
    let why = match serde_json::from_str(&line) {
        Ok(Started::Ready(notes)) => return Ok((child, notes)),
        Ok(Started::Failed(why)) => why,
        Err(_) => "its keeper ended; see its message above".into(),
    };
    child.wait()?;
    bail!("lab {}: {why}", spec.name)
}

/// Starts a lab that stays when this process ends; returns its shortcomings.
///
/// # Errors
/// The machine does not allow it, or a lab of this name is up.
pub fn detached(spec: &Spec) -> Result<Vec<String>> {
    start(spec, false).map(|(_, notes)| notes)
}

/// A lab that ends when this value is dropped, and when this process ends in any way.
pub struct Attached {
    keeper: Child,
    /// Its name.
    pub name: String,
}

impl Attached {
    /// Starts a lab.
    ///
    /// # Errors
    /// Returns the errors of [`detached`].
    pub fn start(spec: &Spec) -> Result<Attached> {
        let (keeper, notes) = start(spec, true)?;
        for note in notes {
            log::info!("lab {}: {note}", spec.name);
        }
        Ok(Attached { keeper, name: spec.name.clone() })
    }

    /// Returns an entrance to one of its hosts.
    ///
    /// # Errors
    /// The host, or the whole lab, has ended.
    pub fn entrance(&self, host: usize) -> Result<Entrance> {
        Entrance::find(&self.name, host)
    }
}

impl Attached {
    /// Returns IPv4 address and first process of each host.
    ///
    /// # Errors
    /// The lab has ended.
    pub fn processes(&self) -> Result<Vec<(String, i32)>> {
        let (description, _) = wire::describe(&self.name, None)?;
        Ok(description.hosts.iter().map(|h| (h.v4.to_string(), h.pid)).collect())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // The keeper ends at the end of its input, and its hosts with it.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// A host that can be entered.
pub struct Entrance {
    process: OwnedFd,
    /// True if the host has a user namespace that this process is not in.
    own_user_namespace: bool,
    /// Its IPv4 address.
    pub address: IpAddr,
    /// Its name.
    pub name: String,
}

/// A host, found from outside or inside the lab.
pub enum Found {
    /// Found from outside the lab.
    Outside(Entrance),
    /// Found from a host, which cannot enter others: the number of the host found.
    Inside(usize),
}

impl Entrance {
    /// Finds a host by its number.
    ///
    /// # Errors
    /// There is no such lab or host, or this process is on one.
    pub fn find(lab: &str, host: usize) -> Result<Entrance> {
        let (description, process) = wire::describe(lab, Some(host))?;
        if description.inside {
            bail!("from a host of lab {lab} the others cannot be entered: do this outside of it");
        }
        Entrance::of(&description, host, process)
    }

    /// Finds a host for the proxy, which runs in the keeper's namespaces.
    pub(super) fn for_proxy(lab: &str, host: usize) -> Result<Entrance> {
        let (mut description, process) = wire::describe(lab, Some(host))?;
        // The keeper, which started this process, is in the user namespace already.
        description.own_user_namespace = false;
        Entrance::of(&description, host, process)
    }

    /// Finds a host by its name.
    ///
    /// # Errors
    /// There is no such lab or host.
    pub fn find_named(lab: &str, host: &str) -> Result<Found> {
        let (description, _) = wire::describe(lab, None)?;
        let Some(at) = description.spec.host_index(host) else {
            let last = description.spec.host_name(description.spec.hosts - 1);
            bail!("lab {lab} has no host {host}: its hosts are h1 to {last}");
        };
        match description.inside {
            true => Ok(Found::Inside(at)),
            false => Entrance::find(lab, at).map(Found::Outside),
        }
    }

    fn of(lab: &Description, host: usize, process: Option<OwnedFd>) -> Result<Entrance> {
        ensure!(host < lab.spec.hosts, "lab {} has no host {host}", lab.spec.name);
        let name = lab.spec.host_name(host);
        let process = process.with_context(|| {
            format!(
                "host {name} has ended; `weft lab down --name {0}` and `weft lab up` make it anew",
                lab.spec.name
            )
        })?;
        let address = lab.spec.v4(host).into();
        Ok(Entrance { process, own_user_namespace: lab.own_user_namespace, address, name })
    }

    /// Returns the descriptor of the host's first process.
    pub fn process(&self) -> &OwnedFd {
        &self.process
    }

    /// Returns the kinds of namespaces to enter for the host's network and IPC only.
    pub fn channels(&self) -> ThreadNameSpaceType {
        let kinds = ThreadNameSpaceType::NETWORK | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION;
        match self.own_user_namespace {
            true => kinds | ThreadNameSpaceType::USER,
            false => kinds,
        }
    }

    /// Moves this process, which must have one thread only, into the host; children that it starts
    /// from then on are in the host's PID namespace.
    ///
    /// # Errors
    /// The host has ended.
    pub fn enter(&self) -> Result<()> {
        let all = self.channels()
            | ThreadNameSpaceType::MOUNT
            | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
            | ThreadNameSpaceType::PROCESS_ID;
        let folder = std::env::current_dir();
        move_into_thread_name_spaces(self.process.as_fd(), all).context("entering the host")?;
        // The host sees the same files, but entering moves the process to the root folder.
        if let Err(e) = folder.and_then(std::env::set_current_dir) {
            log::warn!("the working folder is / in the host: {e}");
        }
        Ok(())
    }
}
