//! `weft sim names`: clusters of agents through a partition of half.

mod plot;

use anyhow::{Context, Error, Result};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use weft_sim::names::{partition, ClusterPlan};

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

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.plot.is_some() && args.hosts.last() <= args.hosts.first() {
        misuse!("--plot takes two numbers of hosts that grow: --hosts 16,64");
    }
    if let Some(path) = args.plot.as_ref().filter(|path| path.extension() != Some("svg".as_ref())) {
        misuse!("{}: the plot's file is to end in .svg", path.display());
    }
    if !args.json {
        println!(
            "{:>6} {:>7} {:>8} {:>12} {:>11} {:>10} {:>10} {:>13} {:>9} {:>9}",
            "hosts",
            "names",
            "watched",
            "messages/s",
            "claimed ms",
            "parted ms",
            "healed ms",
            "heal messages",
            "watch KiB",
            "table KiB"
        );
    }
    let mut runs = Vec::new();
    for &hosts in &args.hosts {
        let (names, subscriptions) = (hosts * args.names, hosts * args.subscriptions);
        let plan = ClusterPlan { hosts, names, subscriptions, seed: args.seed };
        let r = partition(&plan).map_err(Error::msg)?;
        match args.json {
            true => println!(
                "{}",
                json!({
                    "hosts": hosts,
                    "names": names,
                    "subscriptions": subscriptions,
                    "seed": args.seed,
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
            false => println!(
                "{hosts:>6} {names:>7} {:>8} {:>12.0} {:>11} {:>10} {:>10} {:>13.0} {:>9.1} \
                 {:>9.1}",
                r.watched,
                r.idle_per_s,
                r.claimed_ms,
                r.parted_ms,
                r.healed_ms,
                r.heal_messages,
                r.watching_bytes as f64 / 1024.0,
                r.table_bytes as f64 / 1024.0
            ),
        }
        weft_run::out::flush();
        runs.push((hosts, r));
    }
    if let (Some(path), Some(picture)) = (&args.plot, plot::plot(&runs)) {
        std::fs::write(path, picture.svg("growth of a cluster's figures"))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
