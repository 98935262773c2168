//! Agents on hosts of a lab that are a cluster.

use crate::sys::{prepare, Setup};
use anyhow::{ensure, Context, Result};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weft::names::Names;
use weft_cluster::KeyFile;
use weft_lab::client::{plan, Attached, Entrance};
use weft_lab::spec::Conditions;
use weft_run::agent;
use weft_run::folder::Folder;
use weft_run::program;

/// Longest wait for anything.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Time between two looks at a state that changes.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// Hosts of a lab, with a folder that all of them see.
pub struct Hosts {
    entrances: Vec<Entrance>,
    /// The folder of sockets and of the key.
    pub folder: Folder,
    _lab: Attached,
}

/// One cluster of several on the same hosts.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// The UDP port of its agents.
    pub port: u16,
    /// The silence after which a host is lost, in ms.
    pub tolerance_ms: u64,
}

/// An agent; it ends when this value is dropped.
pub struct Agent {
    child: Child,
    /// Path of its socket.
    pub place: String,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // An error here means that the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    /// Returns its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends it without a word, as if its host had lost power.
    ///
    /// # Errors
    /// The agent has ended before.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("ending an agent")
    }

    /// Connects to it.
    ///
    /// # Errors
    /// The agent does not answer.
    pub fn names(&self) -> Result<Names> {
        Ok(Names::at(&self.place)?)
    }
}

impl Hosts {
    /// Starts the hosts of a lab, and makes a key.
    ///
    /// # Errors
    /// The machine does not allow it.
    pub fn start(count: usize) -> Result<Hosts> {
        Hosts::with(count, Conditions { mtu: crate::MTU, ..Conditions::default() })
    }

    /// Starts two hosts that are joined by a cable.
    ///
    /// # Errors
    /// The machine does not allow it.
    pub fn joined() -> Result<Hosts> {
        Hosts::with(2, Conditions { mtu: crate::MTU, direct: true, ..Conditions::default() })
    }

    fn with(count: usize, conditions: Conditions) -> Result<Hosts> {
        let name = format!("bench-{}-{:x}", std::process::id(), weft_link::random_u64() >> 32);
        let lab = Attached::start(&plan(&name, count, &conditions)?);
        let lab = lab.context("two lab hosts, or more, are needed")?;
        let entrances = (0..count).map(|host| lab.entrance(host)).collect::<Result<_>>()?;
        let folder = Folder::new()?;
        KeyFile::init(&folder.0.join("key"))?;
        Ok(Hosts { entrances, folder, _lab: lab })
    }

    /// Returns the address of a host.
    pub fn address(&self, host: usize) -> String {
        self.entrances[host].address.to_string()
    }

    /// Has a command run with the network of a host; it ends with this process.
    pub fn place(&self, host: usize, command: &mut Command) {
        let entrance = &self.entrances[host];
        let namespaces = Some((entrance.process().as_raw_fd(), entrance.channels()));
        prepare(command, Setup { inherited: Vec::new(), cpus: None, host: namespaces });
    }

    /// Starts the agent of a host.
    ///
    /// # Errors
    /// weftd is not there, or does not serve.
    pub fn agent(&self, host: usize, kind: Kind) -> Result<Agent> {
        let place = self.folder.0.join(format!("{}-{host}", kind.name)).display().to_string();
        let mut command = agent::lasting(&place);
        let port = kind.port.to_string();
        command.args(["--links", "udp", "--cluster", kind.name, "--cluster-port", &port]);
        command.arg("--cluster-key").arg(self.folder.0.join("key"));
        command.args(["--cluster-multicast", "off", "--cluster-address", &self.address(host)]);
        command.args(["--tolerance-ms", &kind.tolerance_ms.to_string()]);
        command.args(["--join", &format!("{},{}", self.address(0), self.address(1))]);
        command.env("WEFT_LOG", "error");
        self.place(host, &mut command);
        let (child, _) = agent::start_and_wait(command, agent::TIMEOUT)?;
        Ok(Agent { child, place })
    }

    /// Starts agents on the first hosts, and waits until they are one cluster.
    ///
    /// # Errors
    /// The agents do not become one cluster.
    pub fn cluster(&self, count: usize, kind: Kind) -> Result<Vec<Agent>> {
        let mut agents = Vec::new();
        self.grow(&mut agents, count, kind)?;
        Ok(agents)
    }

    /// Starts agents on further hosts, up to so many, and waits until all are one cluster.
    ///
    /// # Errors
    /// The agents do not become one cluster.
    pub fn grow(&self, agents: &mut Vec<Agent>, count: usize, kind: Kind) -> Result<()> {
        for host in agents.len()..count {
            agents.push(self.agent(host, kind)?);
        }
        for agent in agents.iter() {
            let mut names = agent.names()?;
            until("the hosts are one cluster", || {
                Ok(names.hosts()?.iter().filter(|h| h.is_up).count() == count)
            })?;
        }
        Ok(())
    }
}

/// Waits for a state.
pub fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while !holds()? {
        ensure!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        std::thread::sleep(POLL_EVERY);
    }
    Ok(())
}

/// Returns a command of `weft`.
pub fn weft(words: &[&str]) -> Result<Command> {
    let mut command = Command::new(program::weft()?);
    command.args(words).stdin(Stdio::null());
    Ok(command)
}

/// Returns the command that runs this program.
pub fn own(words: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(words).stdin(Stdio::null());
    Ok(command)
}

/// Returns the processor time of a process so far, in seconds, of all its threads: in ns from the
/// scheduler, where the kernel counts it, otherwise in ticks.
pub fn processor_time(process: u32) -> Result<f64> {
    if let Some(seconds) = scheduled(process) {
        return Ok(seconds);
    }
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"));
    let text = text.context("reading the processor time of an agent")?;
    let fields: Vec<&str> =
        text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // After the name: state, then utime and stime as fields 14 and 15 of proc(5).
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok());
    let all = ticks(11).zip(ticks(12)).context("the processor time of an agent")?;
    Ok((all.0 + all.1) / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns how often the threads of a process have slept so far, so that something woke them.
pub fn wake_ups(process: u32) -> Result<f64> {
    let mut count = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count += line.context("the sleeps of a thread")?.trim().parse::<f64>()?;
    }
    Ok(count)
}

/// Returns the time that the scheduler gave all threads of a process. The file of the process
/// itself has that of its first thread only.
fn scheduled(process: u32) -> Option<f64> {
    let mut ns = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        ns += text.split_whitespace().next()?.parse::<f64>().ok()?;
    }
    Some(ns / 1e9)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups__of_a_thread_that_sleeps() {
        // A process of its own: threads of other tests come and go here.
        let piped = std::process::Stdio::piped;
        let mut cat = std::process::Command::new("cat");
        let mut cat = cat.stdin(piped()).stdout(piped()).spawn().unwrap();
        let (mut to, mut from) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
        let mut round = || {
            std::io::Write::write_all(&mut to, b"x").unwrap();
            std::io::Read::read_exact(&mut from, &mut [0]).unwrap();
        };
        round();
        let before = wake_ups(cat.id()).unwrap();
        while wake_ups(cat.id()).unwrap() <= before {
            round();
        }
        drop(to);
        assert!(cat.wait().unwrap().success());
    }

    #[test]
    fn processor_time__counts_every_thread() {
        // The thread stays until its time was read. Threads of other tests come and go, so that
        // their sum may shrink, but never below the time of this one.
        let (told, tell) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let own = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                while own().tv_nsec < 30_000_000 && own().tv_sec == 0 {}
                told.wait();
                tell.wait();
            });
            told.wait();
            let all = processor_time(std::process::id()).unwrap();
            tell.wait();
            assert!(all >= 0.02, "{all}");
        });
    }
}
