//! `weft sim names`: clusters of agents through a partition of half.

mod plot;

use anyhow::{Context, Error, Result};
use indicatif::ProgressBar;
use serde_json::json;
use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weft_run::{bars, outputs};
use weft_sim::names::{partition, ClusterPlan, ClusterReport};

/// Clusters of agents with names and subscriptions, through a partition of half and its heal
///
/// Hosts find each other before the run begins. Each event of a subscriber is checked: once, in
/// order. A thousand hosts take a quarter of an hour, and 5 GB of memory.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Numbers of hosts, each a run
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "16,64")]
    hosts: Vec<usize>,
    /// Names for each host
    #[arg(long, value_name = "N", default_value = "10")]
    names: usize,
    /// Subscriptions for each host
    #[arg(long, value_name = "N", default_value = "1")]
    subscriptions: usize,
    /// The seed
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
    /// Print one JSON object for each run
    #[arg(long)]
    json: bool,
    /// Draw the growth of the figures into an SVG; takes two numbers of hosts or more
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Least time between two lines about a run, where there is no terminal.
const LINES: Duration = Duration::from_secs(5);

/// The stage of a run, on the standard error: a line that changes on a terminal, else one now and
/// then.
struct Progress {
    bar: ProgressBar,
    told: Cell<Instant>,
}

impl Progress {
    fn new() -> Progress {
        let bar = ProgressBar::new_spinner();
        bars::form(&bar, "{spinner} {msg}, {elapsed}");
        Progress { bar, told: Cell::new(Instant::now()) }
    }

    /// Shows that a run of so many hosts is in a stage, after so much virtual time.
    fn at(&self, hosts: usize, stage: &str, at: Duration) {
        let text = || format!("{hosts} hosts: {stage}, {:.2} s of virtual time", at.as_secs_f64());
        if !self.bar.is_hidden() {
            self.bar.set_message(text());
            self.bar.tick();
        } else if self.told.get().elapsed() >= LINES {
            self.told.set(Instant::now());
            eprintln!("weft sim names: {}", text());
        }
    }

    /// Clears the line, for others.
    fn hide(&self) {
        self.bar.finish_and_clear();
        self.bar.reset();
    }
}

/// Columns of the table: what is counted, its unit, and the width.
const COLUMNS: [(&str, &str, usize); 10] = [
    ("", "hosts", 5),
    ("", "names", 7),
    ("", "watched", 7),
    ("messages", "/s", 8),
    ("claimed", "ms", 7),
    ("parted", "ms", 6),
    ("healed", "ms", 6),
    ("heal", "messages", 9),
    ("watch", "KiB", 8),
    ("table", "KiB", 8),
];

/// Returns a line of the table.
fn line<T: AsRef<str>>(cells: [T; COLUMNS.len()]) -> String {
    let each = COLUMNS.iter().zip(&cells);
    let each = each.map(|(&(.., width), cell)| format!("{:>width$}", cell.as_ref()));
    each.collect::<Vec<_>>().join(" ")
}

/// Returns the two lines above the figures.
fn head() -> [String; 2] {
    [line(COLUMNS.map(|column| column.0)), line(COLUMNS.map(|column| column.1))]
}

/// Returns the figures of a run as a line.
fn row(plan: &ClusterPlan, r: &ClusterReport) -> String {
    line([
        plan.hosts.to_string(),
        plan.names.to_string(),
        r.watched.to_string(),
        format!("{:.0}", r.idle_per_s),
        r.claimed_ms.to_string(),
        r.parted_ms.to_string(),
        r.healed_ms.to_string(),
        format!("{:.0}", r.heal_messages),
        format!("{:.1}", r.watching_bytes as f64 / 1024.0),
        format!("{:.1}", r.table_bytes as f64 / 1024.0),
    ])
}

/// Prints the figures of a run.
fn print(plan: &ClusterPlan, r: &ClusterReport, as_json: bool) {
    match as_json {
        true => println!(
            "{}",
            json!({
                "hosts": plan.hosts,
                "names": plan.names,
                "subscriptions": plan.subscriptions,
                "seed": plan.seed,
                "watched": r.watched,
                "idle_messages_per_s": r.idle_per_s,
                "claimed_ms": r.claimed_ms,
                "parted_ms": r.parted_ms,
                "healed_ms": r.healed_ms,
                "heal_messages": r.heal_messages,
                "watching_bytes": r.watching_bytes,
                "table_bytes": r.table_bytes,
                "hosts_bytes": r.hosts_bytes,
                "events": r.events,
            })
        ),
        false => println!("{}", row(plan, r)),
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.plot.is_some() && args.hosts.last() <= args.hosts.first() {
        misuse!("--plot takes two numbers of hosts that grow: --hosts 16,64");
    }
    if let Some(path) = args.plot.as_ref().filter(|path| path.extension() != Some("svg".as_ref())) {
        misuse!("{}: the plot's file is to end in .svg", path.display());
    }
    args.plot.iter().try_for_each(|path| outputs::check_file("--plot", path))?;
    if !args.json {
        head().iter().for_each(|line| println!("{line}"));
    }
    let (mut runs, progress) = (Vec::new(), Progress::new());
    for &hosts in &args.hosts {
        let (names, subscriptions) = (hosts * args.names, hosts * args.subscriptions);
        let plan = ClusterPlan { hosts, names, subscriptions, seed: args.seed };
        let mut tell = |stage, at| progress.at(hosts, stage, at);
        let r = partition(&plan, &mut tell).map_err(Error::msg)?;
        progress.hide();
        print(&plan, &r, args.json);
        weft_run::out::flush();
        runs.push((hosts, r));
    }
    if let (Some(path), Some(picture)) = (&args.plot, plot::plot(&runs)) {
        std::fs::write(path, picture.svg("growth of a cluster's figures"))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn row__the_largest_cluster_fits_80_columns() {
        let plan = ClusterPlan { hosts: 4096, names: 409_600, subscriptions: 40_960, seed: 1 };
        let report = ClusterReport {
            watched: 128,
            idle_per_s: 999_999.0,
            claimed_ms: 99_999,
            parted_ms: 99_999,
            healed_ms: 99_999,
            heal_messages: 99_999_999.0,
            watching_bytes: 99_999 << 10,
            table_bytes: 999_999 << 10,
            ..ClusterReport::default()
        };
        let row = row(&plan, &report);
        for line in head().iter().chain([&row]) {
            assert_eq!(line.len(), 80, "{line}");
        }
        assert_eq!(row.split_whitespace().count(), COLUMNS.len());
    }
}
