//! `weft cluster`: the key of a cluster, its hosts and their events.

mod show;

use anyhow::Result;
use clap::Subcommand;
use rustix::process::geteuid;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use weft_cluster::{KeyFile, Names};

/// Make hosts one cluster, and see them
///
/// The agents of several hosts (`weftd --cluster NAME`) know each other: they see hosts come and
/// go, and share the names that programs claim (`weft names`). They prove a common key to each
/// other, which `init` makes and you copy to each host.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples, as a user of hosts a and b (root: /etc/weft/cluster.key):
  a$ weft cluster init           makes ~/.config/weft/cluster.key
  a$ ssh b mkdir -p .config/weft
  a$ scp -p ~/.config/weft/cluster.key b:.config/weft/
  a$ weftd --cluster lab &
  b$ weftd --cluster lab --join a &
  b$ weft cluster status")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make the key of a new cluster
    ///
    /// The file is its owner's alone (mode 0600), and agents refuse one that others may read.
    /// Nothing is overwritten.
    Init {
        /// The file [/etc/weft/cluster.key for root, ~/.config/weft/cluster.key for other users]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Put a new key in front of the present one, which stays good until the next rotation
    ///
    /// Run it on one host and copy the file to the others, in any order and without hurry: agents
    /// read it again by themselves, and accept both keys meanwhile. Rotate a second time to end the
    /// old key.
    Rotate {
        /// The file [as in init]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Show the hosts (state and cause, agents, round-trip times, losses, names, ranks), and jobs
    Status {
        /// Print one JSON object per host
        #[arg(long)]
        json: bool,
        /// Show the counters of this host's agent as well
        #[arg(long)]
        counters: bool,
    },
    /// Print hosts as they come and go, with the cause
    Watch {
        /// Print one JSON object per event
        #[arg(long)]
        json: bool,
        /// End after so many events
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Show the hosts again and again
    Top {
        /// Seconds between two tables, 0.05 to 3600
        #[arg(long, value_name = "S", default_value = "1")]
        interval: f64,
        /// Print one JSON object per host each time
        #[arg(long)]
        json: bool,
    },
}

fn key_file(given: &Option<PathBuf>) -> PathBuf {
    given.clone().unwrap_or_else(|| KeyFile::usual(geteuid().is_root()))
}

fn init(file: &Option<PathBuf>) -> Result<()> {
    let path = key_file(file);
    KeyFile::init(&path)?;
    println!("the key of a new cluster is in {}", path.display());
    println!("copy it to each host, for its owner alone (scp -p), then on each:");
    let option = match file {
        Some(_) => format!(" --cluster-key {}", path.display()),
        None => String::new(),
    };
    println!("  weftd --cluster NAME{option} --join HOST,...");
    Ok(())
}

fn rotate(file: &Option<PathBuf>) -> Result<()> {
    let path = key_file(file);
    let keys = KeyFile::rotate(&path, geteuid().as_raw())?;
    println!("{} has a new key, number {:016x}", path.display(), keys.all()[0].public_id());
    println!("the one before is accepted until the next rotation; copy the file to all hosts");
    Ok(())
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::Init { file } => init(&file)?,
        Action::Rotate { file } => rotate(&file)?,
        Action::Status { json, counters } => {
            let mut names = Names::connect()?;
            show::status(&mut names, json)?;
            if counters {
                print!("{}", names.report()?);
            }
        }
        Action::Watch { json, count } => show::watch(&mut Names::connect()?, json, count)?,
        Action::Top { interval, json } => {
            if !(0.05..=3600.0).contains(&interval) {
                misuse!("--interval {interval}: give seconds from 0.05 to 3600");
            }
            let mut names = Names::connect()?;
            loop {
                if !json && rustix::termios::isatty(std::io::stdout()) {
                    print!("\x1b[H\x1b[2J");
                }
                show::status(&mut names, json)?;
                weft_run::out::flush();
                std::thread::sleep(Duration::from_secs_f64(interval));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
