//! `weft sim app`: the applications of `weft app`, on simulated hosts.

use super::network::{Hosts, Network};
use super::replay::{self, Files};
use super::scenario::counters;
use crate::app::{Convergence, Progress};
use anyhow::Result;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::process::ExitCode;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};
use weft::{Group, GroupError, OpError};
use weft_asp::Graph;
use weft_run::misuse;
use weft_sim::{Counters, Env, Failure, Sim, SimConfig};
use weft_sor::{parse_size, Step};

/// Run an application on simulated hosts, against the sequential program
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    which: Which,
}

#[derive(Debug, clap::Subcommand)]
enum Which {
    Sor(Sor),
    Asp(Asp),
}

/// Red-black successive over-relaxation of a heated plate (SOR)
#[derive(Debug, clap::Args)]
struct Sor {
    /// Rows and columns of the matrix: N or ROWSxCOLS
    #[arg(long, value_name = "SIZE", default_value = "256", value_parser = parse_size)]
    size: (usize, usize),
    /// Most iterations
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    iterations: u64,
    /// Stop when no cell changes by this many degrees; 0: do all iterations
    #[arg(long, value_name = "DEGREES", default_value_t = 1e-3)]
    tolerance: f64,
    /// Computing time of a cell, in nanoseconds of virtual time
    #[arg(long, value_name = "NS", default_value_t = 2.0)]
    ns_per_cell: f64,
    #[command(flatten)]
    common: Common,
}

/// All-pairs shortest paths by pipelined broadcast (ASP)
#[derive(Debug, clap::Args)]
struct Asp {
    /// Nodes of the random graph
    #[arg(long, visible_alias = "size", value_name = "N", default_value_t = 256)]
    nodes: u32,
    /// Arcs that leave each node
    #[arg(long, value_name = "N", default_value_t = 16)]
    degree: u32,
    /// Computing time of a cell, in nanoseconds of virtual time
    #[arg(long, value_name = "NS", default_value_t = 0.5)]
    ns_per_cell: f64,
    #[command(flatten)]
    common: Common,
}

/// Options of both.
#[derive(Debug, clap::Args)]
struct Common {
    /// Number of hosts, one rank each
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=16384))]
    hosts: u32,
    /// Print one JSON object in place of the text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    network: Network,
    #[command(flatten)]
    fates: Hosts,
    #[command(flatten)]
    files: Files,
}

/// Reason why there is no report.
enum Stop {
    /// The options are invalid.
    Refused(anyhow::Error),
    /// The simulation failed.
    Failed(Failure),
    /// Hosts died as the options say, and others noticed: one line for each of those.
    Died(Vec<String>),
}

impl From<anyhow::Error> for Stop {
    fn from(why: anyhow::Error) -> Stop {
        Stop::Refused(why)
    }
}

/// The end of a host without a result: the error, and its text.
type Ending = (OpError, String);

/// Returns the outcome of a run in which some host has no result. Such a run is expected if hosts
/// die by the options and another host ended with an error of a peer.
fn without_result(
    sim: &Sim,
    mortal: &[u32],
    hosts: u32,
    ended: &[(u32, Option<Ending>)],
) -> Result<(), Stop> {
    let mut lines = Vec::new();
    for (host, ending) in ended {
        match ending {
            Some((OpError::Peer { .. }, text)) if !mortal.is_empty() => {
                lines.push(format!("host {host}: {text}"));
            }
            Some((_, text)) => return Err(sim.failure(format!("host {host}: {text}")).into()),
            None => {}
        }
    }
    match (lines.is_empty(), ended.len() == hosts as usize) {
        (false, _) => Err(Stop::Died(lines)),
        (true, true) => Ok(()),
        (true, false) => {
            Err(sim.failure(format!("{} of {hosts} hosts have a result", ended.len())).into())
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

/// The results of the ranks.
struct Ended<O> {
    outcomes: Vec<O>,
    counters: Counters,
    retransmitted: u64,
}

/// Interval at which a host checks if the job was ended, in virtual ns.
const POLL_EVERY_NS: u64 = 10_000_000;

/// Returns the result of `work`; `None` if the job is ended first.
async fn unless<T>(work: impl Future<Output = T>, job: Option<(Env, Rc<Cell<bool>>)>) -> Option<T> {
    let mut work = pin!(work);
    let Some((env, aborted)) = job else { return Some(work.await) };
    while !aborted.get() {
        let mut sleep = pin!(env.sleep(POLL_EVERY_NS));
        let step = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
        });
        if let Some(done) = step.await {
            return Some(done);
        }
    }
    None
}

/// Runs a program on every host; a rank without a result is an error.
fn simulate<O, F, Fut>(sim: &mut Sim, of: (u32, &[u32]), program: F) -> Result<Ended<O>, Stop>
where
    O: 'static,
    F: Fn(Group) -> Fut + Clone + 'static,
    Fut: Future<Output = Result<O, GroupError>> + 'static,
{
    let (hosts, mortal) = of;
    let results = Rc::new(RefCell::new(Vec::new()));
    let retransmitted = Rc::new(Cell::new(0));
    let (shared, sum) = (Rc::clone(&results), Rc::clone(&retransmitted));
    // If hosts may die, the first error ends the job, as under a launcher; the others notice it at
    // their next check.
    let aborts = !mortal.is_empty();
    let aborted = Rc::new(Cell::new(false));
    sim.spawn_all(move |env| {
        let (results, sum) = (Rc::clone(&shared), Rc::clone(&sum));
        let (world, aborted) = (env.world(), Rc::clone(&aborted));
        let work = program(world.clone());
        async move {
            let job = || aborts.then(|| (env.clone(), Rc::clone(&aborted)));
            let Some(result) = unless(work, job()).await else { return };
            let result = result.map_err(|error| (error.cause(), error.to_string()));
            let failed = result.is_err();
            aborted.set(aborted.get() | failed);
            results.borrow_mut().push((env.host, result));
            if !failed {
                // This host answers until all hosts have their results.
                let _ = unless(world.barrier(), job()).await;
            }
            sum.set(sum.get() + env.endpoint.stats().retransmitted);
        }
    });
    let run = sim.run();
    let mut results = results.take();
    results.sort_by_key(|(host, _)| *host);
    let (mut outcomes, mut ended) = (Vec::new(), Vec::new());
    for (host, result) in results {
        ended.push((host, result.map(|outcome| outcomes.push(outcome)).err()));
    }
    let errors = ended.iter().any(|(_, ending)| ending.is_some());
    let counters = match run {
        Ok(outcome) => outcome.counters,
        Err(_) if mortal.is_empty() && errors => Counters::default(),
        Err(failure) => return Err(failure.into()),
    };
    without_result(sim, mortal, hosts, &ended)?;
    Ok(Ended { outcomes, counters, retransmitted: retransmitted.get() })
}

/// The report of an application that ran to its end.
struct Report {
    app: &'static str,
    config: String,
    hosts: u32,
    /// Hosts whose result differs from that of the sequential program.
    wrong: Vec<usize>,
    checksum: u64,
    /// Virtual time of the computation.
    elapsed: Duration,
    /// Virtual time in which one host alone would compute, at the same cost per cell.
    alone: Duration,
    counters: Counters,
    retransmitted: u64,
}

impl Report {
    fn speedup(&self) -> f64 {
        self.alone.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn verdict(&self) -> String {
        if self.wrong.is_empty() {
            "PASS: every host has the result of the sequential program".to_string()
        } else {
            format!("the result differs from the sequential program's on hosts {:?}", self.wrong)
        }
    }

    fn print(&self, seed: u64, wall: Duration, as_json: bool) {
        let (ms, alone) = (self.elapsed.as_secs_f64() * 1e3, self.alone.as_secs_f64() * 1e3);
        let network = counters(&self.counters);
        if as_json {
            let line = json!({
                "scenario": format!("app {}", self.app),
                "seed": seed,
                "pass": true,
                "config": self.config,
                "hosts": self.hosts,
                "checksum": format!("{:016x}", self.checksum),
                "virtual_ms": ms,
                "alone_ms": alone,
                "speedup": self.speedup(),
                "retransmitted": self.retransmitted,
                "network": network,
                "wall_seconds": wall.as_secs_f64(),
            });
            println!("{line}");
            return;
        }
        let text: Vec<_> = network.iter().map(|(name, n)| format!("{name} {n}")).collect();
        println!("{}: {}", self.app, self.config);
        println!(
            "  virtual time {ms:.3} ms, one host alone {alone:.3} ms: {:.2} x",
            self.speedup()
        );
        println!("  {}, retransmitted {}", text.join(", "), self.retransmitted);
        println!("  checksum {:016x}", self.checksum);
        println!("  {}, {:.2} s of wall time", self.verdict(), wall.as_secs_f64());
    }
}

impl Sor {
    fn params(&self) -> Result<weft_sor::Params> {
        let params = weft_sor::Params {
            rows: self.size.0,
            cols: self.size.1,
            max_iterations: self.iterations,
            tolerance: self.tolerance,
            ns_per_cell: Some(self.ns_per_cell),
            ..weft_sor::Params::default()
        };
        params.check().map_err(misuse::of)?;
        Ok(params)
    }

    fn run(&self, sim: &mut Sim, config: &SimConfig) -> Result<Report, Stop> {
        let params = self.params()?;
        let mortal = self.common.fates.mortal();
        let (bar, given) = (Convergence::new(0, "simulated SOR", params.tolerance), params.clone());
        let bar = Rc::new(bar);
        let shown = Rc::downgrade(&bar);
        let ended = simulate(sim, (config.hosts, &mortal), move |world| {
            let (params, shown) = (given.clone(), shown.clone());
            async move {
                let tell = |step: Step| {
                    if let Some(bar) = shown.upgrade().filter(|_| world.rank() == 0) {
                        bar.at(step.iterations, step.max_iterations, step.residual);
                    }
                };
                weft_sor::run(&world, &params, &tell).await
            }
        });
        drop(bar);
        let ended = ended?;
        let bar = Convergence::new(0, "sequential SOR", params.tolerance);
        let tell = |s: Step| bar.at(s.iterations, s.max_iterations, s.residual);
        let want = weft_sor::sequential(&params, &tell);
        let right = ended.outcomes.iter().map(|outcome| outcome.agrees_with(&want)).collect();
        let cells = (params.rows - 2) as f64 * params.cols as f64 * want.iterations as f64;
        let first = &ended.outcomes[0];
        let figures = (first.checksum, first.elapsed, cells * self.ns_per_cell);
        Ok(report("sor", config, figures, right, &ended))
    }
}

impl Asp {
    fn params(&self, seed: u64, hosts: u32) -> Result<weft_asp::Params> {
        let params = weft_asp::Params {
            graph: Graph::random(self.nodes, self.degree, 100, seed),
            ns_per_cell: Some(self.ns_per_cell),
            ..weft_asp::Params::default()
        };
        params.check(1).map_err(misuse::of)?;
        params.check(hosts as usize).map_err(misuse::of)?;
        Ok(params)
    }

    fn run(&self, sim: &mut Sim, config: &SimConfig) -> Result<Report, Stop> {
        let params = self.params(config.seed, config.hosts)?;
        let mortal = self.common.fates.mortal();
        let (bar, given) = (Rc::new(Progress::new(0, "simulated ASP")), params.clone());
        let shown = Rc::downgrade(&bar);
        let other = weft_asp::Params { graph: Graph::default(), ..params.clone() };
        let ended = simulate(sim, (config.hosts, &mortal), move |world| {
            let params = if world.rank() == 0 { given.clone() } else { other.clone() };
            let shown = shown.clone();
            async move {
                let tell = |done, of| show(&shown, &world, done, of);
                weft_asp::run(&world, &params, &tell).await
            }
        });
        drop(bar);
        let ended = ended?;
        let bar = Progress::new(0, "sequential ASP");
        let want = weft_asp::sequential(&params, &|done, of| bar.at(done, of));
        let right = ended.outcomes.iter().map(|outcome| outcome.agrees_with(&want)).collect();
        let cells = f64::from(self.nodes).powi(3);
        let first = &ended.outcomes[0];
        let figures = (first.checksum, first.elapsed, cells * self.ns_per_cell);
        Ok(report("asp", config, figures, right, &ended))
    }
}

/// Moves the bar, if it still exists, by the progress of the first host.
fn show(bar: &Weak<Progress>, world: &Group, done: u64, of: u64) {
    if let Some(bar) = bar.upgrade().filter(|_| world.rank() == 0) {
        bar.at(done, of);
    }
}

fn report<O>(
    app: &'static str,
    config: &SimConfig,
    (checksum, elapsed, alone_ns): (u64, Duration, f64),
    right: Vec<bool>,
    ended: &Ended<O>,
) -> Report {
    Report {
        app,
        config: config.to_string(),
        hosts: config.hosts,
        wrong: (0..right.len()).filter(|&host| !right[host]).collect(),
        checksum,
        elapsed,
        alone: Duration::from_nanos(alone_ns as u64),
        counters: ended.counters,
        retransmitted: ended.retransmitted,
    }
}

/// Prints how the other hosts ended after hosts died.
fn print_died(name: &str, died: &[u32], config: &SimConfig, how: &[String], as_json: bool) {
    if as_json {
        let line = json!({
            "scenario": name, "seed": config.seed, "pass": true, "config": config.to_string(),
            "hosts": config.hosts, "died": died, "errors": how,
        });
        println!("{line}");
        return;
    }
    println!("{name}: {config}");
    how.iter().for_each(|line| println!("  {line}"));
    println!("  PASS: hosts {died:?} died, and the job ended with the first that noticed");
}

/// Runs the application.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (name, common) = match &args.which {
        Which::Sor(sor) => ("app sor", &sor.common),
        Which::Asp(asp) => ("app asp", &asp.common),
    };
    let seed = common.network.seed;
    let mut config = SimConfig::new(common.hosts, seed);
    config.trace = common.files.keep();
    let config = common.fates.apply(common.network.apply(config))?;
    let start = Instant::now();
    let mut sim = Sim::new(name, config.clone());
    let result = match &args.which {
        Which::Sor(sor) => sor.run(&mut sim, &config),
        Which::Asp(asp) => asp.run(&mut sim, &config),
    };
    let failure = match result {
        Ok(report) if report.wrong.is_empty() => {
            report.print(seed, start.elapsed(), common.json);
            None
        }
        Ok(report) => Some(sim.failure(report.verdict())),
        Err(Stop::Failed(failure)) => Some(failure),
        Err(Stop::Died(how)) => {
            print_died(name, &common.fates.mortal(), &config, &how, common.json);
            None
        }
        Err(Stop::Refused(why)) => return Err(why),
    };
    common.files.write(sim.network().borrow().trace())?;
    Ok(match failure {
        Some(failure) => replay::tell(&failure, &replay::command(seed), common.json),
        None => ExitCode::SUCCESS,
    })
}
