//! Agents (`weftd`) for the time of a job, one on each of its hosts.

use super::sys;
use crate::agent::{self, Starting};
use crate::run::agents::Agent;
use crate::run::poll::{self, Set};
use anyhow::{bail, Context, Result};
use rustix::process::{kill_process, Pid, PidfdFlags, Signal};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longest wait until the agents of all hosts serve.
const START: Duration = Duration::from_secs(60);
/// Longest wait until one agent ends.
const END: Duration = Duration::from_secs(5);
/// Prefix of an agent's report: a login shell may print other lines.
const READY: &str = "weft-mpi-serve: ";
/// Prefix of the reason why an agent ended too early.
const ENDED: &str = "weft-mpi-serve ended: ";

/// Start the agent of one host for `weft mpi`, until standard input ends
#[derive(Debug, clap::Args)]
pub struct Args {
    name: String,
}

/// Starts an agent, reports that it serves, and ends it when the process that asked for it ends.
/// Ranks may come and go in between, as in MPI sessions.
///
/// # Errors
/// The agent cannot be started, or ends at once.
pub fn serve(args: &Args) -> Result<ExitCode> {
    let mut command = agent::lasting(&args.name);
    sys::end_with_us(&mut command);
    // The end of the asker is noticed also while the agent has reported nothing.
    let asker = std::io::stdin();
    let (mut weftd, said) = Starting::start(command, agent::TIMEOUT)?.wait(Some(asker.as_fd()))?;
    println!("{READY}{said}");
    std::io::stdout().flush().context("telling that the agent serves")?;
    await_end(&weftd)?;
    // The agent serves the remaining ranks until they leave.
    let told = weftd.try_wait().context("looking at the agent")?.is_none()
        && kill_process(Pid::from_child(&weftd), Signal::TERM).is_ok();
    let status = weftd.wait().context("waiting for the agent")?;
    if told && status.success() {
        return Ok(ExitCode::SUCCESS);
    }
    // The asker may have ended as well.
    let _ = writeln!(std::io::stdout(), "{ENDED}{}", how(status));
    Ok(ExitCode::FAILURE)
}

/// A party that is watched while an agent serves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Party {
    Agent,
    Asker,
}

/// Waits until the process that asked for the agent, or the agent, ends.
fn await_end(weftd: &Child) -> Result<()> {
    let pidfd = rustix::process::pidfd_open(Pid::from_child(weftd), PidfdFlags::empty())?;
    let stdin = std::io::stdin().lock();
    loop {
        let mut set = Set::default();
        set.add(Party::Agent, pidfd.as_fd(), poll::READ);
        set.add(Party::Asker, stdin.as_fd(), poll::READ);
        let ready = set.wait(None)?;
        // The asker sends nothing, so readable input is its end; an error counts as the end too.
        let asker_gone = || ready.contains(&Party::Asker) && !agent::more(&stdin);
        if ready.contains(&Party::Agent) || asker_gone() {
            return Ok(());
        }
    }
}

/// Describes how a process ended.
fn how(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("killed by signal {signal}"),
        None => status.to_string(),
    }
}

/// Index of a host, and the report of its agent or the reason why none serves.
type Told = (usize, Result<String>);

/// The agents of a job's hosts.
#[derive(Debug, Default)]
pub struct Serving {
    hosts: Vec<Child>,
    /// Closed when the output of all agents has been read.
    told: Option<mpsc::Receiver<Told>>,
}

/// Returns variables for the ranks: the agent's socket, and the links `shm,agent` unless others are
/// set.
pub fn variables(linked: bool) -> Vec<(String, String)> {
    let name = (agent::NAME.to_owned(), agent::fresh_name());
    let link = ("WEFT_LINK".to_owned(), "shm,agent".to_owned());
    if linked {
        vec![name]
    } else {
        vec![link, name]
    }
}

/// Reads until the agent reports that it serves; returns the report.
fn ready(out: &mut impl BufRead) -> Result<String> {
    for line in out.lines() {
        if let Some(said) = line?.strip_prefix(READY) {
            return Ok(said.to_owned());
        }
    }
    bail!("it ended at once");
}

/// Reads until the end, and reports an agent that ended before the job. Its ranks report it too,
/// but launchers drop the last output of ranks that abort.
fn listen(out: &mut impl BufRead, host: &str, name: &str) {
    for line in out.lines().map_while(Result::ok) {
        if let Some(how) = line.strip_prefix(ENDED) {
            let said = format!(
                "weft mpi: the agent {name} of host {host} has ended ({how}): \
                 ranks lose the peers that it served\n"
            );
            // In one piece, because ranks write to the same terminal or file.
            let _ = std::io::stderr().write_all(said.as_bytes());
        }
    }
}

impl Serving {
    /// Starts an agent of this name on each host. Ranks of a host where that fails work without it.
    pub fn start(starter: &Agent, hosts: &[&str], name: &str) -> Serving {
        let until = Instant::now() + START;
        let (tell, told) = mpsc::channel();
        let (mut serving, mut waiting) = (Serving::default(), Vec::new());
        for host in hosts {
            let (mut command, _) = starter.command(host, &["mpi-serve", name]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            // Keys at the terminal signal the launcher only: the agents end after it.
            command.process_group(0);
            let started = command.spawn().and_then(|mut child| {
                let out = child.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
                Ok((child, out))
            });
            match started {
                Ok((child, out)) => {
                    let (tell, at) = (tell.clone(), serving.hosts.len());
                    let (host_name, name) = ((*host).to_owned(), name.to_owned());
                    serving.hosts.push(child);
                    std::thread::spawn(move || {
                        let mut out = BufReader::new(out);
                        // After the time limit the receiver is gone.
                        let _ = tell.send((at, ready(&mut out)));
                        listen(&mut out, &host_name, &name);
                    });
                    waiting.push((*host, true));
                }
                Err(why) => without(host, &why.to_string()),
            }
        }
        drop(tell);
        while waiting.iter().any(|(_, silent)| *silent) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((at, said)) = told.recv_timeout(left) else { break };
            let (host, silent) = &mut waiting[at];
            match said {
                Ok(said) => log::debug!("{host}: {said}"),
                Err(why) => without(host, &format!("{why:#}")),
            }
            *silent = false;
        }
        for (at, (host, silent)) in waiting.into_iter().enumerate() {
            if silent {
                without(host, &format!("no answer for {} s", START.as_secs()));
                // Killing it closes its output, which ends the thread that reads it.
                let _ = serving.hosts[at].kill();
            }
        }
        serving.told = Some(told);
        serving
    }

    /// Ends the agents.
    pub fn end(mut self) {
        for host in &mut self.hosts {
            drop(host.stdin.take());
        }
        let until = Instant::now() + END;
        self.hosts.iter_mut().for_each(|host| reap(host, until));
        let left = || until.saturating_duration_since(Instant::now());
        while self.told.as_ref().is_some_and(|told| told.recv_timeout(left()).is_ok()) {}
    }
}

fn without(host: &str, why: &str) {
    eprintln!("weft mpi: no agent on host {host}: {why}; its ranks do without");
}

/// Waits until a child ends; kills it at `until`.
fn reap(child: &mut Child, until: Instant) {
    if let Ok(pidfd) = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        let mut set = Set::default();
        set.add((), pidfd.as_fd(), poll::READ);
        // Either the child has ended, or its time is over.
        let _ = set.wait(Some(until));
    }
    // An error here means that the process has ended already.
    let _ = child.kill();
    let _ = child.wait();
}
