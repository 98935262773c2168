//! `weft app puzzle`.

use super::progress::Deepening;
use super::{open, pictures, prepare_out, Common, Ran, Report};
use anyhow::{ensure, Context, Result};
use clap::builder::RangedU64ValueParser;
use serde_json::{json, Value};
use std::path::PathBuf;
use std::process::ExitCode;
use weft::Job;
use weft_models::net::{Blocking, Live};
use weft_puzzle::{
    korf, read_positions, report, sequential, write_iterations, write_solution, Board, Division,
    Known, Outcome, Params, Step,
};
use weft_run::misuse;

/// Shortest solutions of the 15-puzzle, jobs pushed to the owners of positions (Puzzle)
#[derive(Debug, clap::Args)]
#[command(mut_args(super::numbers))]
pub struct Args {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    common: Common,
}

/// The position, and the division of the work.
#[derive(Debug, clap::Args)]
pub struct Input {
    /// Korf's position of this number, from 1 to 100
    #[arg(long, value_name = "N", default_value_t = 80, conflicts_with_all = ["position", "input"])]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    korf: usize,
    /// This position: 16 tiles row by row, 0 the blank, as in "1 2 3 0 4 5 6 7 8 9 10 11 12 13 14
    /// 15"
    #[arg(long, value_name = "TILES", conflicts_with = "input")]
    position: Option<String>,
    /// A position of this file, which has one a line
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Its number among those of the file
    #[arg(long, value_name = "N", default_value_t = 1, requires = "input")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    number: usize,
    /// Search the last iteration whole, so that nodes can be compared
    #[arg(long)]
    whole: bool,
    /// Most jobs in a message; the paper has 4 and 64
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    jobs: usize,
    /// Moves from which on positions are searched where they are; the paper's program has 80
    #[arg(long, value_name = "MOVES", default_value_t = 16)]
    depth: u8,
}

impl Input {
    /// Returns the position of Korf's that is solved, if it is one.
    fn known(&self) -> Option<Known> {
        let is_other = self.position.is_some() || self.input.is_some();
        korf(self.korf).filter(|_| !is_other)
    }

    /// Returns the position.
    fn start(&self) -> Result<Board> {
        if let Some(text) = &self.position {
            return match text.parse() {
                Ok(board) => Ok(board),
                Err(reason) => misuse!("--position {text}: {reason}"),
            };
        }
        if let Some(path) = &self.input {
            let (name, number) = (path.display(), self.number);
            let all = read_positions(&mut open(path)?).with_context(|| name.to_string())?;
            return match all.get(number - 1) {
                Some(board) => Ok(*board),
                None => misuse!("--number {number}: {name} has {} positions", all.len()),
            };
        }
        let known = self.known().context("a position of Korf's")?;
        Ok(known.start)
    }

    /// Returns the parameters.
    pub fn params(&self) -> Result<Params> {
        Ok(Params { start: self.start()?, whole: self.whole })
    }

    /// Returns the division of the work.
    pub fn division(&self) -> Division {
        Division { per_message: self.jobs, depth: self.depth, ..Division::default() }
    }
}

/// Returns a hash of what runs agree on: the length, and with `--whole` the solution.
pub fn checksum(outcome: &Outcome) -> u64 {
    let moves = outcome.moves.iter().map(|step| *step as u64);
    let length = std::iter::once(outcome.length() as u64);
    weft_apps::digest(0, length.chain(moves.filter(|_| outcome.whole)))
}

/// Returns the figures of a result.
pub fn result(outcome: &Outcome) -> Value {
    let solutions = outcome.iterations.last().filter(|_| outcome.whole).map(|last| last.solutions);
    json!({
        "position": outcome.start.to_string(), "length": outcome.length(),
        "moves": outcome.letters(), "positions": outcome.nodes(),
        "iterations": outcome.iterations.len(), "solutions": solutions,
    })
}

/// Returns the number of searches after that with this threshold, for a position of known length:
/// each has two moves more than the one before.
fn left(threshold: u8, length: Option<u8>) -> Option<usize> {
    length.map(|length| usize::from(length.saturating_sub(threshold)).div_ceil(2))
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let (world, common) = (job.world(), &args.common);
    let rank = world.rank();
    let (params, division) = (args.input.params()?, args.input.division());
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let net = Live::new(world).context("the packet interface")?;
    let progress = Deepening::new(rank, "Puzzle");
    let length = args.input.known().map(|known| known.length);
    let tell = |s: Step| progress.at(u64::from(s.threshold), left(s.threshold, length));
    let outcome = net.block_on(weft_puzzle::run(&net, &params, &division, &tell))?;
    drop(progress);
    let Outcome { ranks, elapsed, .. } = outcome;
    let ran = Ran { app: "puzzle", ranks, elapsed, checksum: checksum(&outcome) };
    let Some(mut end) = Report::begin(world, common, ran)? else { return Ok(ExitCode::SUCCESS) };
    if let Some(Known { length, .. }) = args.input.known() {
        let found = outcome.length();
        ensure!(found == usize::from(length), "{found} moves, but Korf's length is {length}");
    }
    end.file("puzzle.csv", |to| write_iterations(to, &outcome))?;
    end.file("puzzle-solution.csv", |to| write_solution(to, &outcome))?;
    end.picture(|| pictures::searched(&outcome))?;
    end.check(|| {
        let alone = sequential(&params, &|_| Ok(()))?;
        let pass = outcome.agrees_with(&alone);
        Ok((pass, alone.elapsed, checksum(&alone)))
    })?;
    end.print(result(&outcome), &report(&outcome))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn left__searches_up_to_the_known_length() {
        assert_eq!(left(41, Some(57)), Some(8));
        assert_eq!((left(57, Some(57)), left(41, None)), (Some(0), None));
    }
}
