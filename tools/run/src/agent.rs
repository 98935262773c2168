//! The agents that this command starts and asks.

use crate::run::poll::{self, Set};
use anyhow::{anyhow, bail, ensure, Context, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use weft_link::ports;

/// Name of the variable that asks the proxy of a host to start an agent for its ranks.
pub const START: &str = "WEFT_RUN_AGENT";
/// Name of the variable that holds the name of the agent's socket.
pub const NAME: &str = "WEFT_AGENT";

/// Longest time until a started agent reports that it serves, where no variable sets another.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the path of `weftd` beside this program, else of the one in `PATH`.
pub fn program() -> PathBuf {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join("weftd")));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("weftd"))
}

/// Returns a name that no other agent of this host has.
pub fn fresh_name() -> String {
    format!("@weft-agent-{:016x}", weft_link::random_u64())
}

/// The lines of an agent of a job, where the user chose none: it does without links that need
/// rights, as the ranks do, and says so to nobody. `weft doctor` does.
const LINES: &str = "info,weftd::links=error";

/// Returns the command that starts an agent that ends with its last rank. `kernel`: the agent keeps
/// its counters in the kernel, and says why if it cannot.
pub fn command(name: &str, kernel: bool) -> Command {
    let mut command = lasting(name);
    command.arg("--once").args(kernel.then_some("--kernel"));
    if !kernel && std::env::var_os("WEFT_LOG").is_none() {
        command.env("WEFT_LOG", LINES);
    }
    command
}

/// Returns the command that starts an agent that ends on request only.
pub fn lasting(name: &str) -> Command {
    let mut command = Command::new(program());
    command.args(["--name", name, "--user", ""]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// An agent that was started and has not yet reported that it serves.
#[derive(Debug)]
pub struct Starting {
    agent: Child,
    out: ChildStdout,
    said: Vec<u8>,
    began: Instant,
    patience: Duration,
    told: bool,
}

/// Time without a report of the agent after which the user gets a message.
const SLOW: Duration = Duration::from_secs(5);
/// Longest line that an agent reports, in bytes.
const LINE_MAX: usize = 4096;

impl Starting {
    /// Starts the agent. `patience` bounds the time until it serves.
    ///
    /// # Errors
    /// The program is not there, or the system refuses.
    pub fn start(mut command: Command, patience: Duration) -> Result<Starting> {
        let program = command.get_program().to_owned();
        let mut agent = command.spawn().with_context(|| {
            format!("starting {} (install weftd beside weft)", program.display())
        })?;
        let out = agent.stdout.take().context("the agent's output is not a pipe")?;
        let flags = rustix::fs::fcntl_getfl(&out)?;
        rustix::fs::fcntl_setfl(&out, flags | OFlags::NONBLOCK)?;
        Ok(Starting { agent, out, said: Vec::new(), began: Instant::now(), patience, told: false })
    }

    /// Becomes readable when [`said`](Self::said) has something to read.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.out.as_fd()
    }

    /// Returns the time by which [`said`](Self::said) must be called next.
    pub fn until(&self) -> Instant {
        self.began + if self.told { self.patience } else { self.patience.min(SLOW) }
    }

    /// Reads the agent's output. Returns the line with which it reports that it serves, or `None`
    /// before that line is complete.
    ///
    /// # Errors
    /// The agent has ended instead, or was silent for too long.
    pub fn said(&mut self) -> Result<Option<String>> {
        let mut some = [0; 256];
        loop {
            match rustix::io::read(&self.out, &mut some) {
                Ok(0) => bail!("weftd ended at once"),
                Ok(n) => self.said.extend(&some[..n]),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(e) => return Err(e).context("reading what the agent says"),
            }
            if let Some(end) = self.said.iter().position(|&b| b == b'\n') {
                let line = String::from_utf8_lossy(&self.said[..end]);
                return Ok(Some(line.trim().to_string()));
            }
            ensure!(self.said.len() < LINE_MAX, "weftd printed a long line that is not its report");
        }
        let (waited, pid) = (self.began.elapsed(), self.agent.id());
        let seconds = self.patience.as_secs_f64();
        ensure!(
            waited < self.patience,
            "weftd (process {pid}) did not say within {seconds} s that it serves"
        );
        if waited >= SLOW && !self.told {
            self.told = true;
            let host = rustix::system::uname();
            let host = host.nodename().to_string_lossy();
            eprintln!(
                "host {host}: weftd (process {pid}) has not said for {} s that it serves; ranks \
                 start without it after {seconds} s",
                SLOW.as_secs()
            );
        }
        Ok(None)
    }

    /// Returns the process of an agent that serves. Its later output is not read.
    pub fn into_agent(self) -> Child {
        self.agent
    }

    /// Ends the agent in any state.
    pub fn end(mut self) {
        // An error here means that the process has ended already.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }

    /// Waits until the agent serves; returns its process and the line that it reported. Gives up
    /// when `asker`, who wanted the agent, has ended.
    ///
    /// # Errors
    /// The agent ended instead (its own messages went to standard error); it was silent for too
    /// long; `asker` has ended.
    pub fn wait(mut self, asker: Option<BorrowedFd<'_>>) -> Result<(Child, String)> {
        let why = loop {
            match self.said() {
                Ok(Some(said)) => return Ok((self.agent, said)),
                Ok(None) => {}
                Err(why) => break why,
            }
            let mut set = Set::default();
            set.add(false, self.out.as_fd(), poll::READ);
            asker.into_iter().for_each(|fd| set.add(true, fd, poll::READ));
            let gone = match set.wait(Some(self.until())) {
                Ok(ready) => ready.contains(&true) && !asker.is_some_and(more),
                Err(e) => break e.into(),
            };
            if gone {
                break anyhow!("nobody wants the agent any more");
            }
        };
        self.end();
        Err(why)
    }
}

/// True if there was anything left to read.
pub fn more(from: impl AsFd) -> bool {
    rustix::io::read(from, &mut [0; 64]).is_ok_and(|n| n > 0)
}

/// Waits until a started agent reports that it serves; returns its process and the line reported.
///
/// # Errors
/// Returns the errors of [`Starting::wait`].
pub fn start_and_wait(command: Command, patience: Duration) -> Result<(Child, String)> {
    Starting::start(command, patience)?.wait(None)
}

/// Starts the agent of a host for the ranks of a job, if their environment asks for one.
///
/// # Errors
/// The agent cannot be started; the ranks work without it.
pub fn start_for(env: &[(String, String)]) -> Result<Option<Starting>> {
    let value = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let (Some("1"), Some(name)) = (value(START), value(NAME)) else { return Ok(None) };
    let kernel = value("WEFT_FETCH_ADD").is_some_and(|server| server.contains("kernel"));
    // Ranks of other hosts wait for the ranks of this host as long as start-up may take.
    let start_up = value("WEFT_LAUNCH_TIMEOUT").and_then(|s| s.parse::<f64>().ok());
    let start_up = start_up.and_then(|s| Duration::try_from_secs_f64(s).ok());
    let patience = start_up.map_or(TIMEOUT, |start_up| start_up / 2);
    let mut command = command(name, kernel);
    command.envs(value(ports::VARIABLE).map(|range| (ports::VARIABLE, range)));
    Starting::start(command, patience).map(Some)
}

/// Reports on standard error that ranks of this host work without an agent, and why.
pub fn without(why: &anyhow::Error) {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    eprintln!("no agent on host {host}: {why:#}; its ranks do without");
}

/// Returns the agents' socket names that another user's process has taken, so that no rank of this
/// user trusts them; and the reason for each.
pub fn strangers() -> Vec<(String, String)> {
    let names = weft::job::agent_from_env().names;
    let stranger = |name: String| {
        let why = weft_cluster::desk::distrust(&name).ok().flatten()?;
        Some((name, why))
    };
    names.into_iter().filter_map(stranger).collect()
}

/// Asks the agents at the usual socket names, or at the one of `WEFT_AGENT`, for their status.
/// Returns the name of each and its status lines as pairs of name and value.
pub fn serving() -> Vec<(String, Vec<(String, String)>)> {
    let names = weft::job::agent_from_env().names;
    let lines = |text: String| {
        let pair = |l: &str| l.split_once(' ').map(|(n, v)| (n.to_string(), v.to_string()));
        text.lines().filter_map(pair).collect()
    };
    let trusted = |name: &String| weft_cluster::desk::distrust(name).is_ok_and(|why| why.is_none());
    let ask = |name: String| Some((name.clone(), lines(weft_cluster::desk::status(&name).ok()?)));
    names.into_iter().filter(trusted).filter_map(ask).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn command__an_agent_of_a_job_tells_of_links_only_if_they_were_asked_for() {
        let lines = |kernel| {
            let command = command("@weft-test", kernel);
            let found = command.get_envs().find(|(name, _)| *name == "WEFT_LOG");
            found.and_then(|(_, value)| Some(value?.to_owned()))
        };
        let chosen = std::env::var_os("WEFT_LOG").is_some();
        assert_eq!(lines(false).is_some(), !chosen);
        assert_eq!(lines(true), None);
    }
}
