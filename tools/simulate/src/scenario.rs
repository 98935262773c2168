//! `weft sim NAME`: one of the named scenarios.

use super::network::Network;
use super::replay::{self, Files};
use anyhow::{Context, Result};
use serde_json::{json, Map, Value};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weft_sim::scenarios::{default_config, run_named, run_telling, Report, Row, Value as Figure};
use weft_sim::{Counters, SimConfig};

/// Options of every scenario.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of hosts [default: see `weft sim list`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=16384))]
    hosts: Option<u32>,
    /// Print one JSON object in place of the text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    network: Network,
    #[command(flatten)]
    files: Files,
}

/// Returns the counters that are not zero.
pub fn counters(counters: &Counters) -> Map<String, Value> {
    let shown = counters.list().into_iter().filter(|&(_, n)| n > 0);
    shown.map(|(name, n)| (name.to_string(), n.into())).collect()
}

fn row(row: &Row) -> Value {
    let value = |value: &Figure| match value {
        Figure::Text(text) => json!(text),
        Figure::Number(number) => json!(number),
    };
    Value::Object(row.iter().map(|(name, of)| (name.to_string(), value(of))).collect())
}

/// Prints the report. `told`: its lines are on the screen already.
fn print(report: &Report, told: bool, seed: u64, took: Duration, as_json: bool) {
    if !as_json {
        let text = if told { report.ending() } else { report.to_string() };
        if !text.is_empty() {
            println!("{}", text.trim_end());
        }
        println!("  PASS, {:.2} s of wall time", took.as_secs_f64());
        return;
    }
    let outcome = report.outcome.as_ref();
    // A table is printed as values, not as text.
    let (name, told) = match report.rows.is_empty() {
        true => ("lines", json!(report.lines)),
        false => ("rows", report.rows.iter().map(row).collect()),
    };
    let line = json!({
        "scenario": report.name,
        "seed": seed,
        "pass": true,
        "config": report.config,
        (name): told,
        "virtual_ns": outcome.map(|o| o.at),
        "network": outcome.map(|o| counters(&o.counters)),
        "wall_seconds": took.as_secs_f64(),
    });
    println!("{line}");
}

/// Runs a scenario and prints how it ended; `replay` is the command that reproduces it.
pub fn play(
    name: &str,
    config: SimConfig,
    replay: &str,
    files: &Files,
    as_json: bool,
) -> Result<ExitCode> {
    files.check()?;
    let (seed, start) = (config.seed, Instant::now());
    let mut told = false;
    let mut tell = |line: &str| {
        told = true;
        if !as_json {
            println!("{line}");
        }
    };
    let ended = run_telling(name, &config, &mut tell);
    match ended.unwrap_or_else(|| run_named(name, config)) {
        Ok(report) => {
            print(&report, told, seed, start.elapsed(), as_json);
            files.write(&report.trace)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            let code = replay::tell(&failure, replay, as_json);
            files.write(&failure.trace)?;
            Ok(code)
        }
    }
}

/// Runs the scenario `name` with its options.
pub fn run(name: &str, args: &Args) -> Result<ExitCode> {
    let seed = args.network.seed;
    if name == "reliability" && args.network.reliability.is_some() {
        misuse!("`weft sim reliability` compares the protocols: --reliability does not go with it");
    }
    let mut config = default_config(name, seed).context("a scenario that is listed")?;
    config.hosts = args.hosts.unwrap_or(config.hosts);
    config.trace = args.files.keep();
    let config = args.network.apply(config);
    play(name, config, &replay::command(seed), &args.files, args.json)
}
