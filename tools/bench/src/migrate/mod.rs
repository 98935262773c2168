//! `weft bench migrate`: a rank of MPICH that moves between two lab hosts, beside bare CRIU; the
//! quiet of its peers before a move; messages of ranks that could move and do not, beside ranks
//! that cannot. Each row has its target.

mod floor;

use crate::mpi::job::compile;
use crate::pair::Sample;
use crate::progress::Plan;
use crate::table::{Better, Other, Row, Table};
use crate::target::{self, Aim, Check};
use crate::{Options, MTU};
use anyhow::{bail, ensure, Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use weft_lab::client::{plan, Attached};
use weft_lab::spec::Conditions;
use weft_run::folder::Folder;
use weft_run::mpi::detect::{self, Family};
use weft_run::mpi::judge;
use weft_run::mpi::variables::{variables, Choice};
use weft_run::program;
use weft_run::run::moving::ask::{Event, Moved};
use weft_run::run::moving::criu;

/// Name of the benchmark.
const NAME: &str = "migrate";
/// Megabytes of the rank that moves.
const MEGABYTES: usize = 64;
/// Peers whose quiet is measured.
const PEERS: usize = 16;
/// Targets: times the floor without progress; milliseconds until peers are quiet; times the latency
/// of ranks that cannot move.
const STOPPED: f64 = 1.3;
const QUIET: f64 = 20.0;
const LATENCY: f64 = 1.02;
/// Seconds after which a job hangs.
const TIMEOUT: &str = "300";

/// Two lab hosts, the program, and the variables of MPICH.
struct Stage {
    weft: PathBuf,
    program: PathBuf,
    set: Vec<String>,
    lab: Attached,
    folder: Folder,
}

/// A job whose rank 0 moves.
struct Job {
    launcher: Child,
    out: BufReader<ChildStdout>,
    stop: PathBuf,
}

impl Drop for Job {
    fn drop(&mut self) {
        // The job has ended, or is of no use any more; `timeout` passes the signal on.
        let pid = rustix::process::Pid::from_child(&self.launcher);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.launcher.wait();
    }
}

impl Job {
    /// Asks the job to end, which must end well.
    fn end(mut self) -> Result<()> {
        std::fs::write(&self.stop, b"")?;
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.out, &mut rest)?;
        let status = self.launcher.wait()?;
        ensure!(status.success(), "the job whose rank moved ended with {status}");
        Ok(())
    }
}

impl Stage {
    /// Makes the hosts and compiles the program.
    fn set() -> Result<Stage> {
        let folder = Folder::new()?;
        criu::version()?;
        let provider = match judge::provider() {
            Ok(provider) => provider.folder,
            Err(fault) => bail!("{}; {}", fault.why, fault.remedy),
        };
        let (all, _) = detect::all();
        let mpich = all.into_iter().find(|mpi| mpi.family == Family::Mpich);
        let mpich = mpich.context("no MPICH here: `pip install mpich` is enough")?;
        let source = folder.0.join("program.c");
        std::fs::write(&source, include_str!("program.c"))?;
        let program = compile(&mpich, &source, &folder.0, &["-O2"])?;
        let choice = Choice { link: None, all_through_weft: true };
        let set = variables(mpich.family, &provider, &choice);
        let set = set.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let name = format!("migrate-{}-{:x}", std::process::id(), weft_link::random_u64() >> 32);
        let conditions = Conditions { mtu: MTU, direct: true, ..Conditions::default() };
        let lab = Attached::start(&plan(&name, 2, &conditions)?)?;
        Ok(Stage { weft: program::weft()?, program, set, lab, folder })
    }

    /// Returns a command of weft, whose jobs are in this stage's folder.
    fn weft(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", TIMEOUT]).arg(&self.weft);
        command.env("XDG_RUNTIME_DIR", &self.folder.0).stdin(Stdio::null());
        command
    }

    /// Returns the command of a job on the hosts.
    fn job(&self, movable: bool, hosts: &str, ranks: usize) -> Command {
        let mut command = self.weft();
        command.arg("run").args(movable.then_some("--migratable"));
        command.args(["--hosts", hosts, "-n", &ranks.to_string(), "--launch-agent"]);
        command.arg(format!("'{}' lab --name {} exec", self.weft.display(), self.lab.name));
        for variable in &self.set {
            command.args(["--env", variable]);
        }
        command.arg("--").arg(&self.program);
        command
    }

    /// Starts a job whose peers send to rank 0, which has so many megabytes.
    fn fan(&self, peers: usize, megabytes: usize) -> Result<Job> {
        let stop = self.folder.0.join(format!("stop-{peers}"));
        let here = peers.div_ceil(2);
        let mut command =
            self.job(true, &format!("h1:{},h2:{}", here, peers + 1 - here), peers + 1);
        command.arg("fan").arg(&stop).arg(megabytes.to_string());
        let mut launcher = command.stdout(Stdio::piped()).spawn().context("timeout (coreutils)")?;
        let out = launcher.stdout.take().context("the job's output")?;
        let mut job = Job { launcher, out: BufReader::new(out), stop };
        let mut line = String::new();
        job.out.read_line(&mut line)?;
        ensure!(line.trim() == "runs", "the job whose rank is to move does not begin");
        Ok(job)
    }

    /// Moves rank 0 to a host.
    fn migrate(&self, host: &str) -> Result<Moved> {
        let mut command = self.weft();
        let output = command.args(["migrate", "0", host, "--json"]).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().last().context("weft migrate says nothing")?;
        match serde_json::from_str(last)? {
            Event::Moved(moved) => Ok(moved),
            other => bail!("the rank did not move: {other:?}"),
        }
    }

    /// Returns the one-way time of messages of two ranks, in microseconds.
    fn latency(&self, movable: bool, hosts: &str, bytes: usize, rounds: usize) -> Result<f64> {
        let mut command = self.job(movable, hosts, 2);
        command.args(["pingpong", &bytes.to_string(), &rounds.to_string()]);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let figure = said.lines().find_map(|line| line.strip_prefix("us ")?.parse().ok());
        figure.with_context(|| crate::mpi::job::last_words(&output))
    }
}

/// A row of the results.
struct Line {
    what: &'static str,
    link: &'static str,
    size: usize,
    unit: &'static str,
}

impl Line {
    /// Makes the row; `None` if nothing was measured.
    fn check(
        self,
        ours: Vec<f64>,
        [floor, peer]: [Option<(&'static str, Vec<f64>)>; 2],
        (aim, goal): (Aim, Option<f64>),
    ) -> Option<Check> {
        let Line { what, link, size, unit } = self;
        let others = |other: Option<(&'static str, Vec<f64>)>| -> Vec<Other> {
            let of = |(name, values)| Other { name, sample: Sample::of(values) };
            other.map(of).into_iter().collect()
        };
        let row =
            Row { what, size, ours: Sample::of(ours)?, floors: others(floor), peers: others(peer) };
        let (better, notes) = (Better::Lower, Vec::new());
        let table = Table { bench: NAME, link, what, unit, better, rows: vec![row], notes };
        Some(Check { table, aim, goal })
    }
}

/// Measures moves of a rank with memory beside bare CRIU, in turn.
fn moves(stage: &Stage, turns: u32, steps: &mut Plan) -> Result<Vec<Check>> {
    let job = stage.fan(1, MEGABYTES)?;
    let (mut ours, mut alone, mut quiet) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..turns {
        steps.show(format!("a rank of {MEGABYTES} MB moves"));
        let moved = stage.migrate(if turn % 2 == 0 { "h2" } else { "h1" })?;
        ours.push(moved.stopped_ms);
        quiet.push(moved.quiet_ms);
        let out = stage.folder.0.join(format!("floor-{turn}"));
        alone.push(floor::measure(&stage.weft, &stage.program, MEGABYTES, &out)?);
        steps.at(steps.done() + 1);
    }
    job.end()?;
    let size = MEGABYTES << 20;
    let stopped = Line { what: "no progress", link: "udp", size, unit: "ms" };
    let aim = Aim { floor: Some(STOPPED), peer: None };
    let first = stopped.check(ours, [Some(("CRIU alone", alone)), None], (aim, None));
    let still = Line { what: "quiet, 1 peer", link: "udp", size, unit: "ms" };
    let second = still.check(quiet, [None, None], (Aim::default(), None));
    Ok(first.into_iter().chain(second).collect())
}

/// Measures the time until a rank with many peers, which all send to it, stands still.
fn quiet(stage: &Stage, turns: u32, steps: &mut Plan) -> Result<Vec<Check>> {
    let job = stage.fan(PEERS, 0)?;
    let mut ours = Vec::new();
    for turn in 0..turns {
        steps.show(format!("a rank with {PEERS} peers moves"));
        ours.push(stage.migrate(if turn % 2 == 0 { "h2" } else { "h1" })?.quiet_ms);
        steps.at(steps.done() + 1);
    }
    job.end()?;
    let line = Line { what: "quiet, 16 peers", link: "udp", size: 0, unit: "ms" };
    Ok(line.check(ours, [None, None], (Aim::default(), Some(QUIET))).into_iter().collect())
}

/// Measures messages of ranks that could move and do not, in turn with ranks that cannot.
fn latency(stage: &Stage, options: &Options, steps: &mut Plan) -> Result<Vec<Check>> {
    let rounds = if options.quick { 50 } else { 4000 };
    let mut checks = Vec::new();
    for (what, hosts, size) in [("inside a host", "h1:2,h2", 8), ("between hosts", "h1,h2", 16)] {
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for _ in 0..options.repeat() {
            steps.show(format!("one way {what}"));
            ours.push(stage.latency(true, hosts, size, rounds)?);
            others.push(stage.latency(false, hosts, size, rounds)?);
            steps.at(steps.done() + 1);
        }
        let line = Line { what, link: "udp", size, unit: "us" };
        let aim = Aim { floor: None, peer: Some(LATENCY) };
        checks.extend(line.check(ours, [None, Some(("cannot move", others))], (aim, None)));
    }
    Ok(checks)
}

/// Measures, and prints the results.
///
/// # Errors
/// Something is not here that ranks need to move, or the output cannot be written.
pub fn print(options: &Options, json: bool, out: &mut impl Write) -> Result<()> {
    let stage = Stage::set()?;
    let turns = options.repeat();
    let mut steps = Plan::of(4 * turns as usize);
    let (mut checks, mut notes) = (Vec::new(), Vec::new());
    let parts = [
        ("moves", moves(&stage, turns, &mut steps)),
        ("quiet", quiet(&stage, turns, &mut steps)),
        ("messages", latency(&stage, options, &mut steps)),
    ];
    for (part, measured) in parts {
        match measured {
            Ok(some) => checks.extend(some),
            Err(why) => notes.push(format!("{part}: {why:#}")),
        }
    }
    notes.push(format!(
        "two lab hosts of this machine, MTU {MTU}; CRIU alone: copy of the process, of its files, \
         and restore; pages on demand are not measured: there are none"
    ));
    target::show_all("ranks that move", (&checks, &notes), json, out)
}
