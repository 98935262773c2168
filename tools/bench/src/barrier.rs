//! Time of a barrier among ranks of this host, also of more ranks than cores: a job of `weft run`
//! for each number of ranks, in turn.

use super::pair::Sample;
use super::table::{Better, Other, Row, Table};
use super::{LinkName, Options};
use anyhow::{ensure, Context, Result};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use weft::{Group, GroupError, Job};
use weft_run::program;

/// The fewest ranks that have a barrier. The others are compared with this number.
const LEAST: u32 = 2;
/// Numbers of ranks where none are given.
const USUAL: [u32; 2] = [LEAST, 4];
/// Number of barriers before the measurement, and again to find how many fill the time.
const WARM: u64 = 100;
/// A job that takes more seconds than this hangs.
const TIMEOUT: &str = "120";

/// Run a rank of `weft bench barrier`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Time to measure, milliseconds
    #[arg(long, default_value_t = 80)]
    ms: u64,
}

/// Returns the steps until the last rank has information of the first, if each rank informs one
/// other per step.
fn hops(ranks: u32) -> u32 {
    ranks.next_power_of_two().trailing_zeros().max(1)
}

/// Runs `count` barriers and returns their time.
async fn barriers(world: &Group, count: u64) -> Result<Duration, GroupError> {
    let start = Instant::now();
    for _ in 0..count {
        world.barrier().await?;
    }
    Ok(start.elapsed())
}

/// Returns the seconds per barrier, measured by rank 0 over about `time`.
async fn measure(world: &Group, time: Duration) -> Result<f64> {
    barriers(world, WARM).await?;
    let each = barriers(world, WARM).await?.as_secs_f64() / WARM as f64;
    let count = ((time.as_secs_f64() / each.max(1e-9)) as u64).clamp(WARM, 10_000_000);
    // All ranks do as many barriers as rank 0.
    let told = world.broadcast(0, count.to_le_bytes().to_vec()).await?;
    let count = u64::from_le_bytes(told.try_into().ok().context("a number of barriers")?);
    Ok(barriers(world, count).await?.as_secs_f64() / count as f64)
}

/// Runs the hidden command: rank 0 prints the seconds per barrier.
pub fn rank(args: &Args) -> Result<ExitCode> {
    let job = Job::init()?;
    let seconds = job.block_on(measure(job.world(), Duration::from_millis(args.ms)))?;
    if job.world().rank() == 0 {
        println!("{seconds:e}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a job of `ranks` ranks; returns the seconds per barrier.
fn job(link: LinkName, ranks: u32, options: &Options) -> Result<f64> {
    let own = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program::weft()?);
    command.args(["run", "--ranks", &ranks.to_string(), "--link", link.name()]);
    command.args(["--timeout", TIMEOUT]).arg(&own);
    command.args(["bench-barrier", "--ms", &options.turn().as_millis().to_string()]);
    let done = command.stdin(Stdio::null()).output().context("starting weft run")?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "a barrier of {ranks} ranks: {}", errors.trim());
    let text = String::from_utf8_lossy(&done.stdout);
    text.trim().parse().with_context(|| format!("a time, and not {text:?}"))
}

/// Returns the numbers of ranks. The number that the others are compared with comes first.
fn counts(asked: &[u32]) -> Vec<u32> {
    let asked = if asked.is_empty() { &USUAL } else { asked };
    let mut counts = vec![LEAST];
    for &ranks in asked {
        if !counts.contains(&ranks) {
            counts.push(ranks);
        }
    }
    counts
}

/// Returns the time of a hop in microseconds for each number of ranks.
fn samples(link: LinkName, counts: &[u32], options: &Options) -> Result<Vec<Option<Sample>>> {
    let mut values = vec![Vec::new(); counts.len()];
    for _ in 0..options.repeat() {
        for (values, &ranks) in values.iter_mut().zip(counts) {
            values.push(job(link, ranks, options)? * 1e6 / f64::from(hops(ranks)));
        }
    }
    Ok(values.into_iter().map(Sample::of).collect())
}

/// Returns the table.
pub fn table(link: LinkName, asked: &[u32], options: &Options) -> Result<Table> {
    let counts = counts(asked);
    let samples = samples(link, &counts, options)?;
    let least = samples.first().copied().flatten();
    let row = |(&ranks, ours): (&u32, Option<Sample>)| {
        let sample = least.filter(|_| ranks != LEAST);
        let floors = vec![Other { name: "2 ranks", sample }];
        let what = format!("{ranks} ranks").leak();
        Some(Row { what, size: 0, ours: ours?, floors, peers: Vec::new() })
    };
    let rows = counts.iter().zip(samples).filter_map(row).collect();
    let cores = weft::job::cores_of_host();
    let notes = vec![format!(
        "a barrier of n ranks counts as log2 n hops, rounded up: the steps it needs if each tells \
         one other at a time; jobs of weft run on this host of {cores} cores, in turn, wherever \
         the system puts the ranks"
    )];
    let (bench, what, unit) = ("barrier", "a hop", "us");
    Ok(Table { bench, link: link.name(), what, unit, better: Better::Lower, rows, notes })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn hops__are_the_logarithm_rounded_up() {
        assert_eq!([2, 3, 4, 5, 8, 9].map(hops), [1, 2, 2, 3, 3, 4]);
    }

    #[test]
    fn counts__two_ranks_are_always_measured_and_first() {
        assert_eq!(counts(&[]), [2, 4]);
        assert_eq!(counts(&[8, 4, 2, 4]), [2, 8, 4]);
    }
}
