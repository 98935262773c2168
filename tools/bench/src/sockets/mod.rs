//! Unmodified socket programs of one host, and of two, with and without the library in turn: the
//! kernel's TCP is the floor, a Unix socket is the peer of programs that are our own.

pub mod child;
mod crowd;
mod hosts;
mod programs;

use crate::names::weft;
use crate::pair::{core, Sample};
use crate::progress::Plan;
use crate::sys::{prepare, Setup};
use crate::table::{figure, human, Better, Other, Row, Table};
use crate::target::{self, Aim, Check};
use crate::Options;
use anyhow::{ensure, Context, Result};
use rustix::thread::CpuSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weft_run::agent;
use weft_run::limited::output_within;

/// Name of the benchmark.
const NAME: &str = "sockets";
/// Longest wait for a server, and longest run of a client.
const START: Duration = Duration::from_secs(30);
const RUN: Duration = Duration::from_secs(120);

/// A process that is ended when this value is dropped.
pub(crate) struct Process(pub Child);

impl Process {
    /// Starts a server of our own; returns it and the place that it prints.
    pub fn serving(mut command: Command) -> Result<(Process, String)> {
        let mut server = Process(command.stdout(Stdio::piped()).spawn().context("a server")?);
        let mut line = String::new();
        let said = server.0.stdout.take().context("the output of a server")?;
        BufReader::new(said).read_line(&mut line)?;
        ensure!(!line.is_empty(), "a server ended without a word");
        Ok((server, line.trim().to_string()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error here means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The way that the bytes of a program take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// With the library; calls look at rings before they sleep.
    Weft,
    /// With the library; calls sleep at once.
    Asleep,
    /// The kernel's TCP.
    Tcp,
    /// A Unix socket.
    Unix,
}

/// The figures of one line, by way.
type Figures = Vec<(Way, Vec<f64>)>;

/// A row: its name, bytes of a message, unit, better direction.
type Line = (&'static str, usize, &'static str, Better);

struct Run<'a> {
    options: &'a Options,
    agent: String,
    plan: Plan,
    checks: Vec<Check>,
    notes: Vec<String>,
}

impl Run<'_> {
    /// Returns the command of a program, on the core of an end: 0 the client, 1 the server.
    fn command(&self, way: Way, end: usize, program: &str, words: &[&str]) -> Result<Command> {
        words_of(way, &self.agent, core(end), program, words)
    }

    /// Returns the command of a program of our own.
    fn own(&self, way: Way, end: usize, words: &[&str]) -> Result<Command> {
        let program = std::env::current_exe().context("finding this program")?;
        let program = program.to_str().context("the path of this program")?;
        let mut all = vec!["bench-sockets"];
        all.extend(words);
        if way == Way::Unix {
            all.push("--unix");
        }
        self.command(way, end, program, &all)
    }

    /// Starts a server of our own; returns it and its place.
    fn serve(&self, way: Way, role: &str) -> Result<(Process, String)> {
        let place = match way {
            Way::Unix => format!("weft-bench-{:016x}", weft_link::random_u64()),
            _ => "0".to_string(),
        };
        Process::serving(self.own(way, 1, &[role, &place])?)
    }

    /// Runs a client of our own; returns its figure.
    fn figure(&self, way: Way, words: &[&str]) -> Result<f64> {
        let text = output(self.own(way, 0, words)?)?;
        text.trim().parse().with_context(|| format!("a figure, not {text:?}"))
    }

    /// Measures a line in turn by each way.
    fn in_turn(
        &mut self,
        line: Line,
        ways: &[Way],
        mut one: impl FnMut(&Self, Way) -> Result<f64>,
    ) -> Result<Figures> {
        let mut figures: Figures = ways.iter().map(|&way| (way, Vec::new())).collect();
        for _ in 0..self.options.repeat() {
            for (way, values) in &mut figures {
                self.plan.show(format!("{}, {way:?}", line.0));
                values.push(one(self, *way)?);
                self.plan.at(self.plan.done() + 1);
            }
        }
        let median =
            |of: &Vec<f64>| Sample::of(of.clone()).map_or("-".into(), |s| figure(s.median));
        let said = figures.iter().map(|(way, of)| format!("{way:?} {}", median(of)));
        let said = said.collect::<Vec<_>>().join(", ");
        self.plan.tell(&format!("{}, {}, {}: {said}", line.0, human(line.1), line.2));
        Ok(figures)
    }

    /// Adds a row of what was measured by way of weft, beside what was by TCP and by Unix sockets.
    fn push(&mut self, line: Line, ours: Way, figures: &Figures, aim: f64) {
        let (what, size, unit, better) = line;
        let of = |way| figures.iter().find(|one| one.0 == way).map(|one| one.1.clone());
        let sample = |way| of(way).and_then(Sample::of);
        let Some(ours) = sample(ours) else { return };
        let other = |name, way| sample(way).map(|one| Other { name, sample: Some(one) });
        let floors = other("tcp", Way::Tcp).into_iter().collect();
        let peers = other("unix", Way::Unix).into_iter().collect();
        let row = Row { what, size, ours, floors, peers };
        let (rows, notes) = (vec![row], Vec::new());
        let table = Table { bench: NAME, link: "sockets", what, unit, better, rows, notes };
        let aim = Aim { floor: Some(aim), peer: None };
        self.checks.push(Check { table, aim, goal: None });
    }

    fn iters(&self, all: u64) -> String {
        (if self.options.quick { all / 100 } else { all }).max(1).to_string()
    }

    /// Requests and answers of a program that does nothing else.
    fn asks(&mut self) -> Result<()> {
        for size in [64, 4096] {
            let line = ("request and answer, one way", size, "us", Better::Lower);
            let ways = [Way::Weft, Way::Asleep, Way::Tcp, Way::Unix];
            let (size, iters) = (size.to_string(), self.iters(50_000));
            let figures = self.in_turn(line, &ways, |run, way| {
                let (_server, place) = run.serve(way, "echo")?;
                run.figure(way, &["ask", &place, "--size", &size, "--iters", &iters])
            })?;
            self.push(line, Way::Weft, &figures, 0.15);
            let asleep = ("the same, without spinning", line.1, line.2, line.3);
            self.push(asleep, Way::Asleep, &figures, 0.9);
        }
        Ok(())
    }

    /// Measures two programs that do nothing else: a server and its client.
    fn pair(&mut self, line: Line, ways: &[Way], roles: [&str; 2], aim: f64) -> Result<()> {
        let [server, client] = roles;
        let iters = self.iters(2000);
        let figures = self.in_turn(line, ways, |run, way| {
            let (_server, place) = run.serve(way, server)?;
            run.figure(way, &[client, &place, "--iters", &iters])
        })?;
        self.push(line, Way::Weft, &figures, aim);
        Ok(())
    }

    fn streams(&mut self) -> Result<()> {
        let line = ("stream", 64 << 10, "GB/s", Better::Higher);
        self.pair(line, &[Way::Weft, Way::Tcp, Way::Unix], ["sink", "stream"], 2.0)
    }

    fn short(&mut self) -> Result<()> {
        let line = ("connections of one request", 64, "1/s", Better::Higher);
        self.pair(line, &[Way::Weft, Way::Tcp], ["echo", "short"], 0.97)
    }

    /// The cost of the library in a call on a file that is no socket, and on a connection by TCP:
    /// the rows are the differences.
    fn calls(&mut self) -> Result<()> {
        let iters = self.iters(2_000_000);
        let lines = [
            ("a call on another file, more than without", "calls"),
            ("a call on a connection by TCP, more than without", "calls-tcp"),
        ];
        for (what, role) in lines {
            let line = (what, 1, "ns", Better::Lower);
            let figures = self.in_turn(line, &[Way::Weft, Way::Tcp], |run, way| {
                run.figure(way, &[role, "--iters", &iters])
            })?;
            self.alone((what, "ns", Some(10.0)), crowd::difference(&figures));
        }
        Ok(())
    }

    /// True if a program is installed; notes one that is not.
    fn has(&mut self, programs: &[&str]) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let there = |name: &str| std::env::split_paths(&path).any(|at| at.join(name).is_file());
        let missing = programs.iter().find(|name| !there(name));
        self.notes.extend(missing.map(|name| format!("left out: {name} is not installed")));
        missing.is_none()
    }

    fn iperf3(&mut self) -> Result<()> {
        if !self.has(&["iperf3"]) {
            return Ok(());
        }
        let line = ("iperf3, one stream", 128 << 10, "GB/s", Better::Higher);
        let bytes = if self.options.quick { "20M" } else { "8G" };
        let figures = self.in_turn(line, &[Way::Weft, Way::Tcp], |run, way| {
            let port = port()?;
            iperf3((way, "127.0.0.1"), (&port, bytes), |end, words| {
                run.command(way, end, "iperf3", words)
            })
        })?;
        self.push(line, Way::Weft, &figures, 2.0);
        Ok(())
    }

    fn redis(&mut self) -> Result<()> {
        if !self.has(&["redis-server", "redis-benchmark"]) {
            return Ok(());
        }
        const LINES: [(&str, &str, &str, f64); 4] = [
            ("redis GET, 1 client", "get", "1", 1.5),
            ("redis SET, 1 client", "set", "1", 1.5),
            ("redis GET, 50 clients", "get", "50", 1.2),
            ("redis SET, 50 clients", "set", "50", 1.2),
        ];
        for (what, test, clients, aim) in LINES {
            let line = (what, 3, "1/s", Better::Higher);
            let requests = self.iters(100_000);
            let figures = self.in_turn(line, &[Way::Weft, Way::Tcp], |run, way| {
                let port = port()?;
                let words = ["--port", &port, "--bind", "127.0.0.1", "--save", ""];
                let _server = run.listening(way, "redis-server", &words, &port)?;
                let words = ["-p", &port, "-t", test, "-c", clients, "-n", &requests, "--csv"];
                rate(&output(run.command(way, 0, "redis-benchmark", &words)?)?, test)
            })?;
            self.push(line, Way::Weft, &figures, aim);
        }
        Ok(())
    }

    /// Starts a server, and waits until it listens.
    fn listening(&self, way: Way, program: &str, words: &[&str], port: &str) -> Result<Process> {
        let mut command = self.command(way, 1, program, words)?;
        let mut server = Process(command.stdout(Stdio::null()).spawn().context("a server")?);
        let end = Instant::now() + START;
        while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
            ensure!(Instant::now() < end, "{program} does not listen");
            ensure!(server.0.try_wait()?.is_none(), "{program} has ended");
            std::thread::yield_now();
        }
        Ok(server)
    }
}

/// Round trips of socket programs, for tables of other interfaces.
pub(crate) struct Beside<'a> {
    run: Run<'a>,
    _agent: Process,
}

impl<'a> Beside<'a> {
    /// Starts an agent.
    ///
    /// # Errors
    /// The agent does not start.
    pub fn start(options: &'a Options) -> Result<Beside<'a>> {
        let (agent, name) = begin()?;
        let (plan, checks, notes) = (Plan::default(), Vec::new(), Vec::new());
        Ok(Beside { run: Run { options, agent: name, plan, checks, notes }, _agent: agent })
    }

    /// Measures microseconds one way, with the library and without it.
    ///
    /// # Errors
    /// A program fails.
    pub fn one_way(&self, size: usize) -> Result<[Option<Sample>; 2]> {
        let (size, iters) = (size.to_string(), self.run.iters(50_000));
        let one = |way| {
            let (_server, place) = self.run.serve(way, "echo")?;
            self.run.figure(way, &["ask", &place, "--size", &size, "--iters", &iters])
        };
        let (mut ours, mut tcp) = (Vec::new(), Vec::new());
        for _ in 0..self.run.options.repeat() {
            ours.push(one(Way::Weft)?);
            tcp.push(one(Way::Tcp)?);
        }
        Ok([Sample::of(ours), Sample::of(tcp)])
    }
}

/// Returns the command of a program, with the library or without it, on these cores.
pub(crate) fn words_of(
    way: Way,
    agent: &str,
    cpus: Option<CpuSet>,
    program: &str,
    words: &[&str],
) -> Result<Command> {
    let mut command = match way {
        Way::Tcp | Way::Unix => Command::new(program),
        Way::Weft | Way::Asleep => {
            let mut command = weft(&["sockets", "run", program])?;
            command.env(agent::NAME, agent);
            if way == Way::Asleep {
                command.env("WEFT_SOCKETS_SPIN_US", "0");
            }
            command
        }
    };
    command.args(words).stdin(Stdio::null()).stderr(Stdio::null());
    prepare(&mut command, Setup { inherited: vec![], cpus, host: None });
    Ok(command)
}

/// Starts an agent of this benchmark's own; returns it and its name.
pub(crate) fn begin() -> Result<(Process, String)> {
    let name = agent::fresh_name();
    let mut command = agent::lasting(&name);
    command.args(["--links", "udp"]).env("WEFT_LOG", "error");
    prepare(&mut command, Setup { inherited: vec![], cpus: None, host: None });
    let (served, _) = agent::start_and_wait(command, agent::TIMEOUT)?;
    Ok((Process(served), name))
}

/// Returns the requests a second of a test, in the table of redis-benchmark.
fn rate(text: &str, test: &str) -> Result<f64> {
    let of_test = |line: &&str| {
        line.trim_start_matches('"').to_ascii_lowercase().starts_with(&format!("{test}\""))
    };
    let line = text.lines().find(of_test);
    let field = line.and_then(|line| line.split(',').nth(1));
    let rate = field.and_then(|field| field.trim_matches('"').parse().ok());
    rate.with_context(|| format!("a rate of {test} in {text:?}"))
}

/// Runs iperf3 between the ends of a way, the server at this address; returns GB/s. The server is
/// not asked if it listens: it takes any connection for its client, and resets the next one.
fn iperf3(
    (way, to): (Way, &str),
    (port, bytes): (&str, &str),
    command: impl Fn(usize, &[&str]) -> Result<Command>,
) -> Result<f64> {
    let mut server = command(1, &["--server", "--one-off", "--port", port, "--bind", to])?;
    let mut server = Process(server.stdout(Stdio::null()).spawn().context("a server")?);
    let words = ["--json", "--client", to, "--port", port, "--bytes", bytes];
    let end = Instant::now() + START;
    loop {
        let said = output(command(0, &words)?);
        match said.and_then(|report| rate_of_iperf3(&report)) {
            // The server does not listen yet.
            Err(_) if Instant::now() < end && server.0.try_wait()?.is_none() => {}
            figure => return figure.with_context(|| format!("iperf3, {way:?}")),
        }
    }
}

/// Returns the GB/s that iperf3 received, by its report.
fn rate_of_iperf3(report: &str) -> Result<f64> {
    let report: serde_json::Value = serde_json::from_str(report)?;
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.with_context(|| format!("iperf3 reports no rate: {}", report["error"]))? / 8e9)
}

pub(crate) fn output(mut command: Command) -> Result<String> {
    command.stdout(Stdio::piped());
    let program = command.get_program().to_string_lossy().into_owned();
    let output = output_within(command, RUN).context(program.clone())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{program}: {}: {text}", output.status);
    Ok(text)
}

/// Returns a port that nobody has now.
fn port() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string())
}

/// Measures all and prints the results.
///
/// # Errors
/// No agent starts, or a program fails.
pub fn print(options: &Options, json: bool, out: &mut impl Write) -> Result<()> {
    let (_agent, name) = begin()?;
    let plan = Plan::of(options.repeat() as usize * (8 + 3 + 2 + 2 + 4 + 8 + 4 + 2 + 2 + 2 + 8));
    let (checks, notes) = (Vec::new(), Vec::new());
    let mut run = Run { options, agent: name, plan, checks, notes };
    let results = [
        run.asks(),
        run.streams(),
        run.iperf3(),
        run.redis(),
        run.nginx(),
        run.memcached(),
        run.postgres(),
        run.short(),
        run.calls(),
        run.crowd(),
        hosts::measure(&mut run),
    ];
    // One that fails costs its own rows; the others are shown first.
    let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    run.notes.extend(failed.iter().map(|why| format!("FAILED: {why:#}")));
    let pinned = core(0).map_or("not pinned: there is one core", |_| "each on a core of its own");
    run.notes.push(format!(
        "client and server {pinned}; floor: the same programs without the library, in turn; \
         memory: both ends' together, more than without the library, without the kernel's"
    ));
    target::show_all(NAME, (&run.checks, &run.notes), json, out)?;
    failed.into_iter().next().map_or(Ok(()), Err)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn rate__of_old_and_new_versions_of_redis() {
        let new = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"151057.41\",\"0.1\"\n";
        assert_eq!(rate(new, "get").unwrap(), 151057.41);
        assert_eq!(rate("\"SET\",\"70.5\"\n", "set").unwrap(), 70.5);
        assert!(rate("\"MSET (10 keys)\",\"70.5\"\n", "set").is_err());
    }
}
