//! `weft top`: live counters of the ranks that run on this machine.

mod format;
mod screen;
mod table;
mod waits;

use anyhow::{Context, Result};
use format::Row;
use screen::{Heard, Screen};
use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use table::{Order, View};
use weft::counters::{scan, Snapshot};

/// Show live counters of the jobs that run on this machine
///
/// A user sees only own jobs, root the jobs of all users. It reads this host's memory: of a job
/// over several hosts it shows the ranks of this one, and knows nothing of the others, also where
/// it looks for deadlocks. `ssh -t HOST weft top` shows those of another host. The table takes the
/// terminal's size: arrows and page keys move through the ranks, s sorts them, q ends. Where the
/// output is no terminal, tables follow each other until Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print once and end; rates are averages since each rank started
    #[arg(long)]
    once: bool,
    /// Print one JSON object per rank instead of a table, again after each interval until it is
    /// ended; with --once, once
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Print all counters once, in the text format of Prometheus
    #[arg(long)]
    prometheus: bool,
    /// Order of the table
    #[arg(long, value_enum, default_value = "rank")]
    sort: Order,
    /// Seconds between two tables, or two prints of --json, 0.05 to 3600
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_interval)]
    interval: Duration,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|s| (0.05..=3600.0).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give seconds from 0.05 to 3600".into())
}

/// The last snapshot of each rank, from which its rates are measured.
type Past = HashMap<(u32, SystemTime), Snapshot>;

fn rows(now: &[Snapshot], past: &Past) -> Vec<Row> {
    now.iter().map(|s| Row::new(s, past.get(&(s.pid, s.start)))).collect()
}

fn look() -> Result<Vec<Snapshot>> {
    scan().context("reading /proc")
}

fn show(args: &Args, now: &[Snapshot], past: &Past) -> Result<()> {
    let mut rows = rows(now, past);
    if args.prometheus {
        print!("{}", format::prometheus(now));
    } else if args.json {
        print!("{}", format::json(&rows)?);
    } else {
        print!("{}", table::whole(&mut rows, args.sort));
    }
    Ok(())
}

/// Keeps the snapshots for the next rates.
fn keep(now: Vec<Snapshot>) -> Past {
    now.into_iter().map(|s| ((s.pid, s.start), s)).collect()
}

/// Prints repeatedly, for another program or a file.
fn stream(args: &Args) -> Result<()> {
    let mut past = Past::new();
    loop {
        let now = look()?;
        show(args, &now, &past)?;
        past = keep(now);
        std::thread::sleep(args.interval);
    }
}

/// Draws the terminal repeatedly.
fn live(args: &Args, screen: &mut Screen) -> Result<()> {
    let mut view = View { order: args.sort, first: 0 };
    let mut past = Past::new();
    loop {
        let now = look()?;
        let mut rows = rows(&now, &past);
        past = keep(now);
        let until = std::time::Instant::now() + args.interval;
        loop {
            screen.show(&view.page(&mut rows, screen.size()));
            match screen.wait(until)? {
                Heard::End => return Ok(()),
                Heard::Key(key) => view.press(key, screen.size()),
                Heard::Resized => {}
                Heard::Nothing => break,
            }
        }
    }
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.once || args.prometheus {
        show(&args, &look()?, &Past::new())?;
    } else if args.json {
        stream(&args)?;
    } else {
        match Screen::open()? {
            Some(mut screen) => live(&args, &mut screen)?,
            None => stream(&args)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}
