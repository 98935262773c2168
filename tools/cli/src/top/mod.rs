//! `weft top`: live counters of the ranks that run on this machine and, where an agent of a cluster
//! serves, on its other hosts.

mod format;
pub mod look;
mod screen;
mod table;
mod waits;

use anyhow::Result;
use format::Row;
use look::{Look, Seen};
use screen::{Heard, Screen};
use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use table::{Order, View};
use weft::counters::Snapshot;

/// Show live counters of running jobs
///
/// A user sees only own jobs, root the jobs of all users. Where an agent of a cluster serves
/// (`weftd --cluster`), the ranks of all its hosts are shown, and deadlocks between them. Without
/// one it reads this host's memory: of a job over several hosts it shows the ranks of this one.
/// The table takes the terminal's size: arrows and page keys move through the ranks, s sorts them,
/// q ends. Where the output is no terminal, tables follow each other until Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print once and end; rates are averages since each rank started
    #[arg(long)]
    once: bool,
    /// Print one JSON object per rank instead of a table, again after each interval until it is
    /// ended; with --once, once
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Print all counters of this host's ranks once, in the text format of Prometheus
    #[arg(long)]
    prometheus: bool,
    /// Show the ranks of this host alone, also where an agent of a cluster serves
    #[arg(long)]
    here: bool,
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
type Past = HashMap<(String, u32, SystemTime), Snapshot>;

fn key(seen: &Seen) -> (String, u32, SystemTime) {
    (seen.host.clone(), seen.snapshot.pid, seen.snapshot.start)
}

fn rows(now: &[Seen], past: &Past) -> Vec<Row> {
    now.iter().map(|s| Row::new(s, past.get(&key(s)))).collect()
}

fn show(args: &Args, look: &mut Look, past: &Past) -> Result<Past> {
    let now = look.ranks()?;
    let mut rows = rows(&now, past);
    if args.prometheus {
        print!("{}", format::prometheus(&now));
    } else if args.json {
        print!("{}", format::json(&rows)?);
        look.notes.iter().for_each(|note| eprintln!("weft top: {note}"));
    } else {
        print!("{}", table::whole(&mut rows, &look.notes, args.sort));
    }
    Ok(keep(now))
}

/// Keeps the snapshots for the next rates.
fn keep(now: Vec<Seen>) -> Past {
    now.into_iter().map(|s| (key(&s), s.snapshot)).collect()
}

/// Prints repeatedly, for another program or a file.
fn stream(args: &Args, look: &mut Look) -> Result<()> {
    let mut past = Past::new();
    loop {
        past = show(args, look, &past)?;
        weft_run::out::flush();
        std::thread::sleep(args.interval);
    }
}

/// Draws the terminal repeatedly.
fn live(args: &Args, look: &mut Look, screen: &mut Screen) -> Result<()> {
    let mut view = View { order: args.sort, first: 0 };
    let mut past = Past::new();
    loop {
        let now = look.ranks()?;
        let mut rows = rows(&now, &past);
        past = keep(now);
        let until = std::time::Instant::now() + args.interval;
        loop {
            screen.show(&view.page(&mut rows, &look.notes, screen.size()));
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
    let mut look = Look::new(args.here || args.prometheus);
    if args.once || args.prometheus {
        show(&args, &mut look, &Past::new())?;
    } else if args.json {
        stream(&args, &mut look)?;
    } else {
        match Screen::open()? {
            Some(mut screen) => live(&args, &mut look, &mut screen)?,
            None => stream(&args, &mut look)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}
