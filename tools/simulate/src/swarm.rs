//! `weft sim swarm`: random clusters, one for each seed.

use super::models::{self, Chosen};
use super::replay::{self, Files};
use super::runs::Runs;
use super::scenario;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::json;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;
use weft_run::bars;
use weft_sim::plan::Kind;
use weft_sim::scenarios::default_config;
use weft_sim::swarm::{parse_seeds, run_seed, PlanReport};

/// Random hosts, links, faults and traffic for each seed, every promise checked; or one seed
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A programming model in place of messages: calls, order (groups), churn (groups
    /// whose ranks come and go), objects, regions, jobs,
    /// actors, together (operations of all ranks), or all
    /// of them
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["agents", "services", "trace", "log"])]
    model: Option<Chosen>,
    /// Seeds A to B, without B; or the first N
    #[arg(long, value_name = "A..B", env = "WEFT_SEEDS", value_parser = parse_seeds,
        default_value = "0..100")]
    seeds: Range<u64>,
    /// Only this seed, in detail
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// An agent on every host, which sends and receives for its rank
    #[arg(long)]
    agents: bool,
    /// Multicast, counters and ranks that compute beside messages
    #[arg(long)]
    services: bool,
    /// Simulations at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Go on after a failure; the plans of failures are not made smaller
    #[arg(long)]
    keep_going: bool,
    /// Print one JSON object for each seed
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

impl Args {
    fn kind(&self) -> Kind {
        Kind { agents: self.agents, services: self.services }
    }
}

/// Most runs to make the plan of a failure smaller.
const TRIES: usize = 300;

/// Returns a bar on a terminal, and nothing elsewhere.
fn bar(seeds: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(seeds), ProgressDrawTarget::stderr());
    bars::form(&bar, "swarm {bar:16} {pos}/{len} seeds, {msg} messages, {elapsed}, {left}");
    bar.with_message("0")
}

#[derive(Default)]
struct Total {
    passed: u64,
    failed: u64,
    messages: u64,
    errors: u64,
    frames: u64,
    lost: u64,
}

impl Total {
    fn add(&mut self, report: &PlanReport) {
        let c = &report.outcome.counters;
        self.passed += 1;
        self.messages += report.delivered;
        self.errors += report.failed;
        self.frames += c.sent;
        self.lost += c.lost + c.partitioned + c.queue_full + c.ring_full;
    }
}

fn line(seed: u64, report: &PlanReport) -> serde_json::Value {
    json!({
        "scenario": "swarm",
        "seed": seed,
        "pass": true,
        "delivered": report.delivered,
        "failed_as_they_must": report.failed,
        "virtual_ns": report.outcome.at,
        "network": scenario::counters(&report.outcome.counters),
    })
}

/// Returns the number of simulations at a time.
fn jobs(args: &Args) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    args.jobs.map_or(cores, usize::from)
}

fn many(args: &Args) -> ExitCode {
    let seeds = args.seeds.end - args.seeds.start;
    let tries = if args.keep_going { 0 } else { TRIES };
    let (start, bar, mut total) = (Instant::now(), bar(seeds), Total::default());
    let run = |seed| run_seed(seed, args.kind(), tries);
    let (numbers, jobs, keep_going) = (args.seeds.clone(), jobs(args), args.keep_going);
    Runs { numbers, jobs, keep_going, run }.all(|seed, result| {
        match result {
            Ok(report) => {
                total.add(&report);
                if args.json {
                    println!("{}", line(seed, &report));
                }
            }
            Err(failure) => {
                total.failed += 1;
                bar.suspend(|| replay::tell(&failure, &again(seed, args.kind()), args.json));
            }
        }
        bar.set_message(total.messages.to_string());
        bar.inc(1);
    });
    bar.finish_and_clear();
    if !args.json {
        println!(
            "seeds {}..{}: {} messages delivered and checked, {} operations failed as they must,",
            args.seeds.start, args.seeds.end, total.messages, total.errors
        );
        let seconds = start.elapsed().as_secs_f64();
        println!("{} frames sent, {} lost, {seconds:.1} s", total.frames, total.lost);
        let skipped = seeds - total.passed - total.failed;
        println!("{} passed, {} failed, {skipped} skipped", total.passed, total.failed);
    }
    if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn one(seed: u64, args: &Args) -> Result<ExitCode> {
    let mut config = default_config("swarm", seed).context("the swarm is a scenario")?;
    (config.trace, config.served) = (args.files.keep(), args.agents);
    config.services = args.services;
    scenario::play("swarm", config, &again(seed, args.kind()), &args.files, args.json)
}

/// Returns the command that reproduces a seed.
fn again(seed: u64, kind: Kind) -> String {
    format!("weft sim {kind} --seed {seed}")
}

/// Runs the seeds.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(chosen) = args.model {
        let seeds = args.seed.map_or(args.seeds.clone(), |seed| seed..seed + 1);
        return Ok(models::run(chosen, seeds, jobs(args), args.keep_going, args.json));
    }
    match args.seed {
        Some(seed) => one(seed, args),
        None => Ok(many(args)),
    }
}
