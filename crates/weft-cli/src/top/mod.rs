//! `weft top`: live counters of the ranks that run on this machine.

mod format;
mod screen;

use anyhow::{Context, Result};
use format::Row;
use screen::Screen;
use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use weft::counters::{scan, Snapshot};

/// Show live counters of this user's running jobs
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print once and end; rates are averages since each rank started
    #[arg(long)]
    once: bool,
    /// Print one JSON object a rank instead of a table
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Print all counters once, in the text format of Prometheus
    #[arg(long)]
    prometheus: bool,
    /// Seconds between two tables, 0.05 to 3600
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_interval)]
    interval: Duration,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|s| (0.05..=3600.0).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give seconds from 0.05 to 3600".into())
}

/// What a rank's rates are measured from: its counters when last seen.
type Past = HashMap<(u32, SystemTime), Snapshot>;

fn rows(now: &[Snapshot], past: &Past) -> Vec<Row> {
    now.iter().map(|s| Row::new(s, past.get(&(s.pid, s.start)))).collect()
}

fn print_once(args: &Args) -> Result<()> {
    let now = scan().context("reading /proc")?;
    let mut out = std::io::stdout().lock();
    if args.prometheus {
        write!(out, "{}", format::prometheus(&now))?;
    } else if args.json {
        write!(out, "{}", format::json(&rows(&now, &Past::new()))?)?;
    } else {
        write!(out, "{}", format::table(&rows(&now, &Past::new())))?;
    }
    out.flush().context("writing")
}

fn live(args: &Args) -> Result<()> {
    let mut screen = Screen::open(!args.json)?;
    let mut past = Past::new();
    loop {
        let now = scan().context("reading /proc")?;
        let rows = rows(&now, &past);
        let text = if args.json { format::json(&rows)? } else { format::table(&rows) };
        screen.show(&text)?;
        past = now.into_iter().map(|s| ((s.pid, s.start), s)).collect();
        if screen.wait(args.interval)? {
            return Ok(());
        }
    }
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.once || args.prometheus {
        print_once(&args)?;
    } else {
        live(&args)?;
    }
    Ok(ExitCode::SUCCESS)
}
