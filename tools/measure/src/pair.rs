//! The parent's side of the two ranks: starts them, sends them tasks, computes medians.

use super::far::{self, Far};
use super::kept;
use super::netns::{Hosts, Place};
use super::options::Options;
use super::probe::{Answer, Outcome, Probe, Task};
use super::progress::Plan;
pub use super::sample::Sample;
use super::sys::{self, Setup};
use super::table::human;
use anyhow::{bail, ensure, Context, Result};
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::thread::{sched_getaffinity, CpuSet};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weft_run::folder::Folder;

/// The descriptors that one rank inherits, in order.
struct Ends {
    control: OwnedFd,
    side: OwnedFd,
    unix: OwnedFd,
    pipe_in: OwnedFd,
    pipe_out: OwnedFd,
    memory: OwnedFd,
}

impl Ends {
    fn numbers(&self) -> Vec<RawFd> {
        let Ends { control, side, unix, pipe_in, pipe_out, memory } = self;
        [control, side, unix, pipe_in, pipe_out, memory].map(AsRawFd::as_raw_fd).to_vec()
    }
}

struct Member {
    process: Child,
    control: UnixStream,
    answers: BufReader<UnixStream>,
}

/// Two ranks, connected by every channel that is measured.
pub struct Pair {
    members: Vec<Member>,
    /// The agent of each host, where the link is `agent`.
    agents: Vec<Child>,
    /// The folder of the agent that joins the two.
    folder: Option<Folder>,
    // Dropped after the members: members leave their hosts before the hosts end.
    _hosts: Option<Hosts>,
}

impl Drop for Pair {
    fn drop(&mut self) {
        // A rank ends when its control socket closes, but it may be in a loop waiting for its peer.
        // Both are killed at once, else one would report the death of the other.
        for member in &mut self.members {
            let _ = member.process.kill();
        }
        for member in &mut self.members {
            let _ = member.process.wait();
        }
        for agent in &mut self.agents {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        self.folder = None;
    }
}

/// Settings in which pairs differ.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Value of `WEFT_LINK`.
    pub link: &'static str,
    /// Settings of the ranks in addition to those of this process.
    pub config: &'static [(&'static str, &'static str)],
    /// Place of the ranks.
    pub place: Place,
}

/// Longest time of a task; a rank that is silent for longer hangs.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Bytes that a pipe holds, where the system allows that.
const PIPE_LEN: usize = 1 << 20;

/// Returns the first two cores that this process may use; `None` if there is only one.
pub fn cores() -> Option<[usize; 2]> {
    let set = sched_getaffinity(None).ok()?;
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    Some([allowed.next()?, allowed.next()?])
}

fn ends() -> Result<([Ends; 2], [UnixStream; 2])> {
    let (control_a, control_0) = UnixStream::pair()?;
    let (control_b, control_1) = UnixStream::pair()?;
    let (side_0, side_1) = UnixStream::pair()?;
    let (unix_0, unix_1) = UnixStream::pair()?;
    let (from_1, to_0) = sys::pipe(PIPE_LEN)?;
    let (from_0, to_1) = sys::pipe(PIPE_LEN)?;
    let memory = memfd_create("weft-bench", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, sys::SHARED_LEN as u64)?;
    let zero = Ends {
        control: control_0.into(),
        side: side_0.into(),
        unix: unix_0.into(),
        pipe_in: from_1,
        pipe_out: to_1,
        memory: memory.try_clone()?,
    };
    let one = Ends {
        control: control_1.into(),
        side: side_1.into(),
        unix: unix_1.into(),
        pipe_in: from_0,
        pipe_out: to_0,
        memory,
    };
    Ok(([zero, one], [control_a, control_b]))
}

/// The agent's socket on each host: abstract names belong to a network namespace.
const AGENT: &str = "@weft-bench-agent";
/// The socket of the agent that joins the ranks of two hosts, in a folder of its own.
const BROKER: &str = "agent.sock";

/// Starts the agent of a rank's host, on the rank's core.
fn spawn_agent(rank: usize, hosts: &Hosts, kernel: bool) -> Result<Child> {
    let mut command = weft_run::agent::command(AGENT, kernel);
    command.args(["--sessions", "16", "--quota", "ranks=16"]);
    let cpus = core(rank);
    if std::env::var_os("WEFT_LOG").is_none() {
        command.env("WEFT_LOG", "warn");
    }
    let host = &hosts.entrances[rank];
    let host = Some((host.process().as_raw_fd(), host.channels()));
    sys::prepare(&mut command, Setup { inherited: Vec::new(), cpus, host });
    Ok(weft_run::agent::start_and_wait(command, weft_run::agent::TIMEOUT)?.0)
}

/// Starts an agent that joins the ranks of two hosts: its socket is a path that both see. Returns
/// the folder of the socket too.
fn spawn_broker() -> Result<(Child, Folder)> {
    let folder = Folder::new()?;
    let mut command = weft_run::agent::lasting(&folder.file(BROKER)?);
    command.args(["--links", "udp"]);
    if std::env::var_os("WEFT_LOG").is_none() {
        command.env("WEFT_LOG", "warn");
    }
    sys::prepare(&mut command, Setup { inherited: Vec::new(), cpus: None, host: None });
    let (agent, _) = weft_run::agent::start_and_wait(command, weft_run::agent::TIMEOUT)?;
    Ok((agent, folder))
}

/// Returns the core of a rank, if there is one for each.
pub fn core(rank: usize) -> Option<CpuSet> {
    cores().map(|cores| {
        let mut set = CpuSet::new();
        set.set(cores[rank]);
        set
    })
}

fn spawn(
    kind: &Kind,
    rank: usize,
    key: u64,
    ends: &Ends,
    hosts: Option<&Hosts>,
    broker: Option<&Path>,
) -> Result<Child> {
    let program = std::env::current_exe().context("finding this program")?;
    let numbers = ends.numbers();
    let fds: Vec<String> = numbers.iter().map(RawFd::to_string).collect();
    let mut command = Command::new(program);
    command
        .args(["bench-rank", "--rank", &rank.to_string(), "--link", kind.link])
        .args(["--key", &key.to_string(), "--fds", &fds.join(",")])
        .stdin(Stdio::null());
    if cores().is_none() {
        command.arg("--alone");
    }
    command.envs(kind.config.iter().copied());
    if kind.link == "agent" {
        command.env(weft_run::agent::NAME, AGENT);
    }
    command.envs(broker.map(|socket| (weft_run::agent::NAME, socket)));
    let cpus = core(rank);
    if let Some(hosts) = hosts {
        let [a, b] = [&hosts.entrances[0], &hosts.entrances[1]].map(|host| match kind.place {
            Place::Inside => Ipv4Addr::LOCALHOST.into(),
            _ => host.address,
        });
        command.arg("--hosts").arg(format!("{a},{b}"));
    }
    let host = hosts.map(|hosts| &hosts.entrances[rank]);
    let host = host.map(|host| (host.process().as_raw_fd(), host.channels()));
    sys::prepare(&mut command, Setup { inherited: numbers, cpus, host });
    command.spawn().with_context(|| format!("starting rank {rank}"))
}

impl Pair {
    /// Starts two ranks.
    pub fn start(kind: &Kind) -> Result<Pair> {
        let key = weft_link::random_u64();
        let (ends, controls) = ends()?;
        let hosts = Hosts::start(kind.place)?;
        let mut pair = Pair { members: Vec::new(), agents: Vec::new(), folder: None, _hosts: None };
        let kernel =
            kind.config.contains(&("WEFT_FETCH_ADD", weft::choices::Server::Kernel.name()));
        if let (Some(hosts), "agent") = (&hosts, kind.link) {
            for rank in 0..2 {
                pair.agents.push(spawn_agent(rank, hosts, kernel)?);
            }
        }
        if kind.place == Place::Apart {
            let (agent, folder) = spawn_broker()?;
            pair.agents.push(agent);
            pair.folder = Some(folder);
        }
        let broker = pair.folder.as_ref().map(|folder| folder.0.join(BROKER));
        for ((rank, ends), control) in ends.iter().enumerate().zip(controls) {
            control.set_read_timeout(Some(TIMEOUT))?;
            let hosts = hosts.as_ref();
            let process = spawn(kind, rank, key, ends, hosts, broker.as_deref())?;
            let answers = BufReader::new(control.try_clone()?);
            pair.members.push(Member { process, control, answers });
        }
        drop(ends);
        pair._hosts = hosts;
        Ok(pair)
    }

    /// Starts two ranks on other hosts.
    ///
    /// # Errors
    /// A host's command cannot be started.
    pub fn start_far(
        far: &Far,
        link: &str,
        config: &[(&'static str, &'static str)],
    ) -> Result<Pair> {
        let key = weft_link::random_u64();
        let own = std::env::vars().filter(|(name, _)| name.starts_with("WEFT_"));
        let mut env: BTreeMap<String, String> = own.collect();
        env.extend(config.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        let start = |rank| far::Start { rank, link: link.to_owned(), key, env: env.clone() };
        let mut pair = Pair { members: Vec::new(), agents: Vec::new(), folder: None, _hosts: None };
        for (process, control) in far.start([start(0), start(1)])? {
            control.set_read_timeout(Some(TIMEOUT))?;
            let answers = BufReader::new(control.try_clone()?);
            pair.members.push(Member { process, control, answers });
        }
        Ok(pair)
    }

    /// Sets the time of silence after which a rank counts as hanging.
    pub fn patience(&mut self, patience: Duration) -> Result<()> {
        let each = self.members.iter().map(|m| m.control.set_read_timeout(Some(patience)));
        Ok(each.collect::<std::io::Result<()>>()?)
    }

    /// Runs a task on both ranks.
    ///
    /// # Errors
    /// A rank failed, died or hangs. The pair cannot be used any more.
    pub fn run(&mut self, task: &Task) -> Result<Outcome> {
        self.run_costed(task).map(|(outcome, _)| outcome)
    }

    /// Runs a task by [`run`](Self::run); also returns the processor time of both ranks in seconds.
    pub fn run_costed(&mut self, task: &Task) -> Result<(Outcome, f64)> {
        let mut line = serde_json::to_string(task)?;
        line.push('\n');
        for member in &mut self.members {
            member.control.write_all(line.as_bytes()).context("a rank ended")?;
        }
        let (mut result, mut cpu) = (Outcome::Elsewhere, 0.0);
        for (rank, member) in self.members.iter_mut().enumerate() {
            let mut answer = String::new();
            let read = member.answers.read_line(&mut answer);
            let read = read.with_context(|| format!("{}: rank {rank} hangs", task.probe))?;
            ensure!(read > 0, "{}: rank {rank} ended", task.probe);
            let answer: Answer = serde_json::from_str(&answer)?;
            cpu += answer.cpu;
            match answer.outcome {
                Outcome::Failed(why) => bail!("{}, rank {rank}: {why}", task.probe),
                Outcome::Elsewhere => {}
                other => result = other,
            }
        }
        Ok((result, cpu))
    }
}

/// A probe of one pair, measured in turn with others.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Index of the pair that runs it.
    pub pair: usize,
    /// The probe.
    pub probe: Probe,
    /// Argument of the probe; see [`Probe`].
    pub arg: u64,
    /// Number of iterations, for probes whose duration depends on it; 0: calibrate.
    pub iters: u64,
}

impl From<Probe> for Subject {
    fn from(probe: Probe) -> Subject {
        Subject { pair: 0, probe, arg: 0, iters: 0 }
    }
}

/// Measures subjects in turn, so that a disturbance of the machine affects all of them.
pub struct Meter<'a> {
    /// The pairs; `Subject::pair` is an index into this.
    pub pairs: Vec<Pair>,
    /// Extent of the measurement.
    pub options: &'a Options,
    /// Name of the measurement for the progress bar; empty: the caller shows progress.
    pub title: String,
    /// Progress of the whole plan.
    pub plan: Plan,
    /// Reasons of missing figures, for the notes below the table.
    pub absent: Vec<String>,
}

impl Meter<'_> {
    /// Returns the number of steps that measuring so many subjects takes.
    pub fn steps(&self, subjects: usize) -> usize {
        subjects * (1 + self.options.repeat() as usize)
    }

    /// Returns one `Sample` per subject, in seconds per iteration; `None` where a subject cannot be
    /// measured here.
    pub fn measure(&mut self, size: usize, subjects: &[Subject]) -> Result<Vec<Option<Sample>>> {
        self.collect(size, subjects, |time, _| time, &mut || {})
    }

    /// Measures by [`measure`](Self::measure), and something else once in each turn.
    pub fn measure_beside(
        &mut self,
        size: usize,
        subjects: &[Subject],
        other: &mut dyn FnMut(),
    ) -> Result<Vec<Option<Sample>>> {
        self.collect(size, subjects, |time, _| time, other)
    }

    /// Measures by [`measure`](Self::measure), in processor seconds of both ranks per iteration.
    pub fn measure_cost(
        &mut self,
        size: usize,
        subjects: &[Subject],
    ) -> Result<Vec<Option<Sample>>> {
        self.collect(size, subjects, |_, cost| cost, &mut || {})
    }

    /// `pick` returns the figure from an iteration's time and processor time; `other` is called in
    /// each turn.
    fn collect(
        &mut self,
        size: usize,
        subjects: &[Subject],
        pick: impl Fn(f64, f64) -> f64,
        other: &mut dyn FnMut(),
    ) -> Result<Vec<Option<Sample>>> {
        let mut tasks = Vec::new();
        self.plan.expect(self.steps(subjects.len()));
        for subject in subjects {
            self.progress(size, &format!("calibrating {}", subject.probe));
            tasks.push(self.calibrate(size, subject)?);
            self.plan.at(self.plan.done() + 1);
        }
        let mut values = vec![Vec::new(); subjects.len()];
        for _ in 0..self.options.repeat() {
            for (at, task) in tasks.iter().enumerate() {
                if let Some(task) = task {
                    self.progress(size, &task.probe.to_string());
                    let (outcome, cost) = self.pairs[subjects[at].pair].run_costed(task)?;
                    let cost = cost / task.iters as f64;
                    match outcome {
                        Outcome::Value(value) => {
                            let picked = pick(value, cost);
                            let what = format!("{}, {} B", self.title, human(size));
                            kept::note(format!("{what}: {}", task.probe), picked);
                            values[at].push(picked);
                        }
                        Outcome::Absent(why) => self.note(task.probe, why),
                        _ => {}
                    }
                }
                self.plan.at(self.plan.done() + 1);
            }
            other();
        }
        Ok(values.into_iter().map(Sample::of).collect())
    }

    /// Finds the number of iterations that fill the time of one repetition; `None` if the probe
    /// cannot be measured here.
    fn calibrate(&mut self, size: usize, subject: &Subject) -> Result<Option<Task>> {
        let Subject { pair, probe, arg, iters } = *subject;
        let mut task = Task { probe, size, iters: 4, arg };
        if iters > 0 {
            return Ok(Some(Task { iters, ..task }));
        }
        let target = self.options.turn().as_secs_f64();
        // Two runs: the first, short run is cold and overestimates the time.
        for share in [0.05, 1.0] {
            match self.pairs[pair].run(&task)? {
                Outcome::Value(value) => {
                    let iters = share * target / value.max(1e-9);
                    task.iters = (iters as u64).clamp(self.options.least_iters(), 100_000_000);
                }
                Outcome::Absent(why) => {
                    self.note(probe, why);
                    return Ok(None);
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(task))
    }

    fn note(&mut self, probe: Probe, why: String) {
        let note = format!("{probe} not measured: {why}");
        if !self.absent.contains(&note) {
            self.absent.push(note);
        }
    }

    fn progress(&mut self, size: usize, what: &str) {
        if !self.title.is_empty() {
            self.plan.show(format!("{}, {} B: {what}", self.title, human(size)));
        }
    }
}
