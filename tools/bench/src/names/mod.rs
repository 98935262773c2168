//! Names of a cluster of agents, on hosts of a lab: look-up, events, losses, messages and the cost
//! of an idle cluster, each target met or not.

pub mod child;
pub(super) mod cluster;
mod dnssd;

use crate::pair::Sample;
use crate::progress::Plan;
use crate::table::{Better, Other, Row, Table};
use crate::target::{self, Aim, Check};
use crate::Options;
use anyhow::{bail, ensure, Context, Result};
use child::{Values, READY, SIZE};
pub(super) use cluster::{own, weft};
use cluster::{processor_time, until, wake_ups, Agent, Hosts, Kind, LIMIT};
use std::hint::black_box;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use weft::names::{Mode, Name, Names, Notice, Pick, Spec, Watch};

/// Name of the benchmark.
const NAME: &str = "names";
/// Agents whose processor time is measured.
const HOSTS: usize = 8;
/// Agents that the other figures take.
const FEW: usize = 3;
/// The clusters: as they come, and tuned.
const PLAIN: Kind = Kind { name: "plain", port: 7117, tolerance_ms: 1500 };
const TUNED: Kind = Kind { name: "tuned", port: 7118, tolerance_ms: 50 };
/// Port of the Redis server on its host.
const REDIS: u16 = 6379;
/// The most wake-ups in a second of an agent of an idle cluster: two for each round of probes, and
/// two for its own timers.
const WAKE_UPS: f64 = 8.0;
/// Idle connections of programs to each agent while its processor time is measured.
const PROGRAMS: usize = 4;

/// A process that is ended when this value is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // An error here means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The measurements.
struct Run<'a> {
    options: &'a Options,
    hosts: Hosts,
    agents: Vec<Agent>,
    plan: Plan,
    checks: Vec<Check>,
    notes: Vec<String>,
}

/// A row: its name, bytes of a message, unit.
type Line = (&'static str, usize, &'static str);

fn spec(name: &str) -> Result<Spec> {
    let name: Name = name.parse()?;
    Ok(Spec::new(&name).address(([10, 0, 0, 1], 1).into()))
}

/// Waits until something is published (true) or withdrawn.
fn awaits(watch: &mut Watch, is_published: bool) -> Result<()> {
    loop {
        let event = watch.next(LIMIT)?.context("no event came")?;
        match event.notice {
            Notice::Published(_) if is_published => return Ok(()),
            Notice::Withdrawn(..) if !is_published => return Ok(()),
            Notice::SnapshotEnd | Notice::Published(_) | Notice::Withdrawn(..) => {}
            other => bail!("an event that does not belong here: {other:?}"),
        }
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

impl Run<'_> {
    fn push(
        &mut self,
        (what, size, unit): Line,
        ours: Option<Sample>,
        goal: Option<f64>,
        peers: Vec<Other>,
        aim: Aim,
    ) {
        let Some(ours) = ours else {
            self.notes.push(format!("{what}: not measured"));
            return;
        };
        let row = Row { what, size, ours, floors: Vec::new(), peers };
        let (rows, notes, better) = (vec![row], Vec::new(), Better::Lower);
        let table = Table { bench: NAME, link: "udp", what, unit, better, rows, notes };
        self.checks.push(Check { table, aim, goal });
    }

    /// Measures a figure so often, and shows it.
    fn each(
        &mut self,
        line: Line,
        count: u32,
        mut one: impl FnMut(&Hosts, u32) -> Result<f64>,
    ) -> Result<Option<Sample>> {
        let mut values = Vec::new();
        for n in 0..count {
            self.plan.show(line.0.into());
            values.push(one(&self.hosts, n)?);
            self.plan.at(self.plan.done() + 1);
        }
        Ok(Sample::of(values))
    }

    fn agent(&self, at: usize) -> Result<Names> {
        self.agents[at].names()
    }

    /// Looks a name of another host up, which this process has looked up before.
    fn cached(&mut self) -> Result<()> {
        let (mut owner, mut names) = (self.agent(0)?, self.agent(1)?);
        owner.claim(&spec("cached:1")?)?;
        let name: Name = "cached:1".parse()?;
        names.wait(&name, 1, LIMIT)?;
        let line = ("look-up, cached", 0, "us");
        let iters = if self.options.quick { 100 } else { 100_000 };
        let got = self.each(line, self.options.repeat(), |_, _| {
            let begun = Instant::now();
            for _ in 0..iters {
                let found = names.resolve(black_box(&name), Pick::Turn)?;
                ensure!(black_box(found).is_some(), "the name is gone");
            }
            Ok(ms(begun) * 1e3 / f64::from(iters))
        })?;
        self.push(line, got, Some(1.0), Vec::new(), Aim::default());
        Ok(())
    }

    /// Claims a name on one host, and waits for the event on another one.
    fn published(&mut self) -> Result<()> {
        let (mut owner, names) = (self.agent(0)?, self.agent(1)?);
        let mut watch = names.watch(&"event".parse()?, Mode::Each, None)?;
        let line = ("publish to event elsewhere", 0, "ms");
        let got = self.each(line, self.events(), |_, n| {
            let spec = spec(&format!("event:{n}"))?;
            let begun = Instant::now();
            let claim = owner.claim(&spec)?;
            awaits(&mut watch, true)?;
            let time = ms(begun);
            owner.withdraw(claim)?;
            awaits(&mut watch, false)?;
            Ok(time)
        })?;
        let redis = self.redis()?;
        let peers = vec![Other { name: "redis", sample: redis }];
        self.push(line, got, Some(1.0), peers, Aim::default());
        if let Some(sample) = self.dnssd()? {
            let line = ("the same, beside DNS-SD", 0, "ms");
            let peers = vec![Other { name: "avahi", sample: Some(sample) }];
            self.push(line, got, None, peers, Aim { peer: Some(1.0), floor: None });
        }
        Ok(())
    }

    /// Returns how many events a figure takes.
    fn events(&self) -> u32 {
        self.options.repeat() * if self.options.quick { 1 } else { 20 }
    }

    /// Kills the process that has a name, and waits for the event on another host.
    fn died(&mut self) -> Result<()> {
        let names = self.agent(1)?;
        let mut watch = names.watch(&"death".parse()?, Mode::Each, None)?;
        let line = ("process death to event elsewhere", 0, "ms");
        let place = self.agents[0].place.clone();
        let count = self.options.repeat() * if self.options.quick { 1 } else { 4 };
        let got = self.each(line, count, |_, _| {
            let mut command = weft(&["names", "claim", "death:1", "--at", "10.0.0.1:1"])?;
            command.env("WEFT_AGENT", &place).stdout(Stdio::null());
            let mut owner = Process(command.spawn().context("starting the owner of a name")?);
            awaits(&mut watch, true)?;
            let begun = Instant::now();
            owner.0.kill()?;
            awaits(&mut watch, false)?;
            Ok(ms(begun))
        })?;
        self.push(line, got, Some(10.0), Vec::new(), Aim::default());
        Ok(())
    }

    /// Kills the last agent of a cluster, and waits on another host for the end of its names.
    fn lost(&mut self, what: &'static str, kind: Kind, watcher: &Agent) -> Result<()> {
        let mut names = watcher.names()?;
        let mut watch = names.watch(&"host".parse()?, Mode::Each, None)?;
        let line = (what, 0, "ms");
        let got = self.each(line, self.options.repeat(), |hosts, _| {
            let mut victim = hosts.agent(FEW - 1, kind)?;
            let mut owner = victim.names()?;
            owner.claim(&spec("host:1")?)?;
            awaits(&mut watch, true)?;
            // The victim's host is watched like any other.
            let is_it = |h: &&weft_cluster::local::Host| h.host == owner.host();
            until("a host is watched", || {
                Ok(names.hosts()?.iter().find(is_it).is_some_and(|h| h.answers >= 2))
            })?;
            let begun = Instant::now();
            victim.kill()?;
            awaits(&mut watch, false)?;
            Ok(ms(begun))
        })?;
        let goal = Some(kind.tolerance_ms as f64);
        self.push(line, got, goal, Vec::new(), Aim::default());
        Ok(())
    }

    /// Messages of two endpoints on two hosts, to a name that is looked up for each and to the peer
    /// that it led to.
    fn messages(&mut self) -> Result<()> {
        let line = ("message to a name", SIZE, "us");
        self.plan.show(line.0.into());
        let iters = if self.options.quick { "10" } else { "2000" };
        let count = self.options.repeat().to_string();
        let start = |role, at: usize| {
            let mut command = own(&["bench-names", role, &self.agents[at].place])?;
            command.args(["--count", &count, "--iters", iters]).stdout(Stdio::piped());
            self.hosts.place(at, &mut command);
            command.spawn().map(Process).context("starting an end of messages")
        };
        let (_echo, ping) = (start("echo", 1)?, start("ping", 0)?);
        let values = output(ping)?.values()?;
        let direct = vec![Other { name: "to its endpoint", sample: Sample::of(values.direct) }];
        let aim = Aim { peer: Some(1.1), floor: None };
        self.push(line, Sample::of(values.by_name), None, direct, aim);
        self.plan.at(self.plan.done() + 1);
        Ok(())
    }

    /// The processor time of agents while nothing happens, each with programs that do nothing.
    fn idle(&mut self, count: usize) -> Result<()> {
        let line = ("an agent of an idle cluster, of a core", 0, "%");
        self.plan.show(line.0.into());
        let mut agents = std::mem::take(&mut self.agents);
        self.hosts.grow(&mut agents, count, PLAIN)?;
        self.agents = agents;
        let mut programs = Vec::new();
        for agent in &self.agents {
            for n in 0..PROGRAMS {
                let mut names = agent.names()?;
                names.claim(&spec(&format!("idle:{n}"))?)?;
                programs.push(names);
            }
        }
        // The names are everywhere.
        for agent in &self.agents {
            agent.names()?.wait(&"idle".parse()?, count * PROGRAMS, LIMIT)?;
        }
        let window = Duration::from_secs(if self.options.quick { 1 } else { 30 });
        let used = |agents: &[Agent]| -> Result<Vec<[f64; 2]>> {
            let of = |id| Ok([processor_time(id)?, wake_ups(id)?]);
            agents.iter().map(|agent| of(agent.process())).collect()
        };
        let before = used(&self.agents)?;
        let begun = Instant::now();
        // tidy-allow(sleep): the agents do nothing for this time, which is measured.
        std::thread::sleep(window);
        let after = used(&self.agents)?;
        let seconds = begun.elapsed().as_secs_f64();
        let each = |at: usize, scale: f64| {
            let part = |(from, to): (&[f64; 2], &[f64; 2])| (to[at] - from[at]) / seconds * scale;
            Sample::of(before.iter().zip(&after).map(part).collect())
        };
        self.push(line, each(0, 100.0), Some(0.1), Vec::new(), Aim::default());
        let line = ("its wake-ups in a second", 0, "1/s");
        self.push(line, each(1, 1.0), Some(WAKE_UPS), Vec::new(), Aim::default());
        let programs = PROGRAMS * count;
        self.notes.push(format!(
            "idle cluster: {count} hosts, {programs} programs with names that do nothing; median \
             and spread over the hosts, in {seconds:.0} s"
        ));
        self.plan.at(self.plan.done() + 1);
        Ok(())
    }

    /// The time from a service that is published by DNS-SD on one host to its event on another one.
    fn dnssd(&mut self) -> Result<Option<Sample>> {
        self.plan.show("dns-sd".into());
        let (done, count) = (self.plan.done(), self.options.repeat());
        if let Some(why) = dnssd::missing() {
            self.notes.push(why);
            return Ok(None);
        }
        let plan = &mut self.plan;
        let values = dnssd::measure(&self.hosts, count, || plan.at(plan.done() + 1));
        self.plan.at(done + count as usize);
        match values {
            Ok(values) => Ok(Sample::of(values)),
            Err(why) => {
                self.notes.push(format!("dns-sd: not measured: {why:#}"));
                Ok(None)
            }
        }
    }

    /// The time of a message from a publisher of Redis, on the host of the server, to a subscriber
    /// on another one.
    fn redis(&mut self) -> Result<Option<Sample>> {
        self.plan.show("redis".into());
        let address = self.hosts.address(0);
        let port = REDIS.to_string();
        let mut server = Command::new("redis-server");
        server.args(["--bind", &address, "--port", &port, "--save", "", "--appendonly", "no"]);
        server.args(["--protected-mode", "no", "--dir"]).arg(&self.hosts.folder.0);
        server.stdin(Stdio::null()).stdout(Stdio::null());
        self.hosts.place(0, &mut server);
        let _server = match server.spawn() {
            Ok(server) => Process(server),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                self.notes.push("redis: redis-server is not installed".into());
                return Ok(None);
            }
            Err(e) => return Err(e).context("starting redis-server"),
        };
        let place = format!("{address}:{port}");
        let count = self.events().to_string();
        let start = |role, host| {
            let mut command = own(&["bench-names", role, &place])?;
            command.args(["--count", &count]).stdout(Stdio::piped());
            self.hosts.place(host, &mut command);
            command.spawn().map(Process).context("starting a client of Redis")
        };
        let subscriber = start("subscribe", 1)?;
        let mut said = output(subscriber)?;
        let ready = said.line()?;
        ensure!(ready == READY, "a subscriber of Redis said {ready:?}");
        let _publisher = start("publish", 0)?;
        let values = said.values()?;
        self.plan.at(self.plan.done() + 1);
        Ok(Sample::of(values.redis))
    }
}

/// The lines of a process, which is ended when this value is dropped.
struct Said {
    lines: BufReader<ChildStdout>,
    _process: Process,
}

fn output(mut process: Process) -> Result<Said> {
    let lines = BufReader::new(process.0.stdout.take().context("the output of a process")?);
    Ok(Said { lines, _process: process })
}

impl Said {
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.lines.read_line(&mut line)? > 0, "a process ended without a word");
        Ok(line.trim_end().to_string())
    }

    fn values(&mut self) -> Result<Values> {
        serde_json::from_str(&self.line()?).context("the values of a process")
    }
}

/// Measures the figures of which weft's users wait for one, for a table of a busy host: the event
/// of a claim beside a message of Redis, where that is installed, and a message to a name beside
/// one to its endpoint. Each has the target of `most` of its peer's.
///
/// # Errors
/// A lab cannot be made here, or no agent starts.
pub(super) fn busy(options: &Options, most: f64) -> Result<(Vec<Check>, Vec<String>)> {
    let hosts = Hosts::start(FEW)?;
    let agents = hosts.cluster(FEW - 1, PLAIN)?;
    let (checks, notes) = (Vec::new(), Vec::new());
    let mut run = Run { options, hosts, agents, plan: Plan::default(), checks, notes };
    run.published()?;
    run.messages()?;
    for check in &mut run.checks {
        check.table.bench = "busy";
        check.goal = None;
        check.aim = Aim { peer: Some(most), floor: None };
    }
    Ok((run.checks, run.notes))
}

/// Measures all and prints the results.
///
/// # Errors
/// A lab cannot be made here, or no agent starts.
pub fn print(options: &Options, json: bool, out: &mut impl Write) -> Result<()> {
    let count = if options.quick { FEW } else { HOSTS };
    let hosts = Hosts::start(count)?;
    let agents = hosts.cluster(FEW - 1, PLAIN)?;
    let repeat = options.repeat() as usize;
    let events = repeat * if options.quick { 2 } else { 24 };
    let plan = Plan::of(4 * repeat + events + 3);
    let (checks, notes) = (Vec::new(), Vec::new());
    let mut run = Run { options, hosts, agents, plan, checks, notes };
    run.cached()?;
    run.published()?;
    run.died()?;
    run.messages()?;
    let watcher = run.hosts.cluster(FEW - 1, TUNED)?;
    run.lost("host loss to event, 50 ms", TUNED, &watcher[1])?;
    drop(watcher);
    let watcher = run.agents.remove(1);
    run.lost("host loss to event", PLAIN, &watcher)?;
    run.agents.push(watcher);
    run.idle(count)?;
    run.notes.push(
        match std::path::Path::new("/proc/sys/net/tipc").exists() {
            true => {
                "TIPC: not measured, though this kernel has it: its bearers are not set up here"
            }
            false => "TIPC: this kernel does not have it",
        }
        .into(),
    );
    run.notes.push(format!(
        "between hosts of a lab, MTU {}; publish: claim of a name to its event on another host; \
         redis: PUBLISH beside the server to a subscriber on another host; dns-sd: start of \
         avahi-publish to the line of avahi-browse on another host, where a name is probed three \
         times, 250 ms apart, before it is announced (RFC 6762, section 8.1)",
        crate::MTU
    ));
    run.notes.push("Consul: Debian has no package of it".into());
    target::show_all(NAME, (&run.checks, &run.notes), json, out)
}
