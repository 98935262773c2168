//! `weft app awari`.

use super::progress::Whole;
use super::{all_done, open, pictures, prepare_out, Common, Ran, Report, Room};
use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::Job;
use weft_apps::{Failure, Memory};
use weft_awari::{
    read_positions, report, sequential, write_answer, write_histogram, Answer, Board, Database,
    Outcome, Params, Step, PER_CALL,
};
use weft_models::net::{Blocking, Live, Net};
use weft_run::misuse;

/// Endgame databases of Awari, positions at their owners (Awari)
#[derive(Debug, clap::Args)]
#[command(mut_args(super::numbers))]
pub struct Args {
    #[command(flatten)]
    input: Input,
    /// Print score and moves of this position: the stones of 12 pits, those of the player to move
    /// first, as in "1,1,1,1,1,2,4,2,3,0,0,0"
    #[arg(long, value_name = "PITS", conflicts_with = "positions")]
    position: Option<String>,
    /// Print score and moves of the positions of this file, one a line
    #[arg(long, value_name = "FILE")]
    positions: Option<PathBuf>,
    /// Answer from this file, awari.db of an earlier --out, and compute nothing
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["stones", "by", "per_call", "memory", "check", "out"])]
    database: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    room: Room,
    #[command(flatten)]
    common: Common,
}

/// The size of the databases.
#[derive(Debug, clap::Args)]
pub struct Input {
    /// Most stones of a position
    #[arg(long, value_name = "N", default_value_t = 13)]
    stones: u8,
}

impl Input {
    /// Returns the parameters.
    pub fn params(&self, memory: Memory) -> Result<Params> {
        let params = Params { stones: self.stones, memory_limit: memory.bytes() };
        params.check().map_err(misuse::of)?;
        Ok(params)
    }
}

/// The form of the parallel program.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Form {
    /// Programming system by which ranks update positions of others
    #[arg(long, value_enum, default_value = "jobs")]
    by: System,
    /// Least updates in a call of a rank that has other work [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    per_call: Option<u32>,
}

impl Form {
    /// Refuses an option that has no effect.
    pub fn check(self) -> Result<()> {
        if self.by == System::Jobs && self.per_call.is_some() {
            misuse!("--per-call belongs to --by calls: a rank that pushes jobs calls nobody");
        }
        Ok(())
    }

    /// The part of this rank.
    pub async fn run<N: Net>(
        self,
        net: &N,
        params: &Params,
        ns_per_update: f64,
        tell: &dyn Fn(Step),
    ) -> Result<Outcome, Failure> {
        match self.by {
            System::Jobs => Ok(weft_awari::run(net, params, ns_per_update, tell).await?),
            System::Calls => {
                let per_call = self.per_call.map_or(PER_CALL, |count| count as usize);
                weft_awari::run_by_calls(net, params, per_call, ns_per_update, tell).await
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum System {
    /// Updates are pushed to their owners, and nobody waits for an answer
    Jobs,
    /// Ranks call owners and wait for answers; a replicated object has the state of the game, as in
    /// paper 004
    Calls,
}

/// Returns the positions that are asked for.
fn asked(args: &Args) -> Result<Vec<Board>> {
    match (&args.position, &args.positions) {
        (Some(text), _) => match text.replace(',', " ").parse() {
            Ok(board) => Ok(vec![board]),
            Err(reason) => misuse!("--position {text}: {reason}"),
        },
        (None, Some(path)) => {
            read_positions(&mut open(path)?).with_context(|| path.display().to_string())
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// Refuses positions with more stones than the database has.
fn check_stones(asked: &[Board], most: u8, name: &str) -> Result<()> {
    match asked.iter().find(|board| board.stones() > most) {
        Some(board) => {
            misuse!("the position {board} has {} stones, more than {name}", board.stones())
        }
        None => Ok(()),
    }
}

/// Returns the figures of a result, with the positions that were asked for.
pub fn result(outcome: &Outcome, answers: &[Answer]) -> Value {
    let mut result = of_database(&outcome.database, answers);
    result["updates"] = outcome.updates.into();
    result
}

/// Returns the figures of a database, with the positions that were asked for.
fn of_database(database: &Database, answers: &[Answer]) -> Value {
    let stones = database.stones().unwrap_or(0);
    let counts = database.histogram(stones).unwrap_or_default();
    let sum = |counts: &[u64]| counts.iter().sum::<u64>();
    let drawn = usize::from(stones);
    let answers = answers.iter().map(|answer| {
        let moves = answer.moves.iter().map(|one| {
            json!({
                "pit": one.pit + 1, "captured": one.captured, "score": one.score,
                "best": one.score == answer.score,
            })
        });
        json!({
            "position": answer.board.0, "stones": answer.board.stones(), "score": answer.score,
            "moves": moves.collect::<Vec<_>>(),
        })
    });
    json!({
        "stones": stones, "positions": database.len(), "positions_of_most": sum(&counts),
        "wins": sum(&counts[drawn + 1..]), "draws": counts[drawn], "losses": sum(&counts[..drawn]),
        "answers": answers.collect::<Vec<_>>(),
    })
}

/// Returns the answers for people.
fn in_words(answers: &[Answer]) -> Result<String> {
    let mut text = Vec::new();
    answers.iter().try_for_each(|answer| write_answer(&mut text, answer))?;
    Ok(String::from_utf8(text)?)
}

/// Answers from a database that an earlier run has written.
fn look_up(path: &Path, args: &Args) -> Result<ExitCode> {
    let name = path.display().to_string();
    let database = Database::read(&mut open(path)?).with_context(|| name.clone())?;
    let (asked, stones) = (asked(args)?, database.stones().unwrap_or(0));
    check_stones(&asked, stones, &format!("the {stones} of {name}"))?;
    let answers: Vec<Answer> = asked.iter().filter_map(|board| database.answer(board)).collect();
    if args.common.json {
        let result = of_database(&database, &answers);
        println!("{}", json!({ "app": "awari", "database": name, "result": result }));
    } else {
        let positions = database.len();
        println!("Awari, {positions} positions of at most {stones} stones, from {name}");
        print!("{}", in_words(&answers)?);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the number of positions of so many stones: the ways to spread them over 12 pits.
fn positions(stones: u8) -> f64 {
    (1..=11).fold(1.0, |ways, pit| ways * f64::from(stones + pit) / f64::from(pit))
}

/// Returns the share of all databases that is done. Each has two parts of about the same time:
/// captures are played, then scores spread backwards.
fn share(step: &Step) -> f64 {
    let all: f64 = (0..=step.of).map(positions).sum();
    let before: f64 = (0..step.stones).map(positions).sum();
    let part = step.done as f64 / step.positions.max(1) as f64;
    let here = if step.round.is_none() { part / 2.0 } else { (1.0 + part) / 2.0 };
    (before + here * positions(step.stones)) / all
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let (world, common) = (job.world(), &args.common);
    let rank = world.rank();
    if let Some(path) = &args.database {
        let code = if rank == 0 { look_up(path, args)? } else { ExitCode::SUCCESS };
        all_done(world)?;
        return Ok(code);
    }
    let params = args.input.params(args.room.of(world)?)?;
    let asked = if rank == 0 { asked(args)? } else { Vec::new() };
    check_stones(&asked, params.stones, &format!("--stones {}", params.stones))?;
    args.form.check()?;
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let net = Live::new(world).context("the packet interface")?;
    let progress = Whole::new(rank);
    let tell = |s: Step| progress.at(format!("Awari, {} of {} stones", s.stones, s.of), share(&s));
    let outcome = net.block_on(args.form.run(&net, &params, 0.0, &tell))?;
    drop(progress);
    let Outcome { ranks, elapsed, checksum, .. } = outcome;
    let ran = Ran { app: "awari", ranks, elapsed, checksum };
    let Some(mut end) = Report::begin(world, common, ran)? else { return Ok(ExitCode::SUCCESS) };
    let database = &outcome.database;
    end.file("awari.csv", |to| write_histogram(to, database))?;
    end.picture(|| pictures::scores(database, params.stones))?;
    end.file("awari.db", |to| database.write(to))?;
    let answers: Vec<Answer> = asked.iter().filter_map(|board| database.answer(board)).collect();
    let summary = report(&outcome) + &in_words(&answers)?;
    end.check(|| {
        let progress = Whole::new(0);
        let alone = sequential(&params, &|s| {
            progress.at(format!("sequential Awari, {} of {} stones", s.stones, s.of), share(&s));
            Ok(())
        })?;
        let pass = outcome.agrees_with(&alone);
        Ok((pass, alone.elapsed, alone.checksum))
    })?;
    end.print(result(&outcome, &answers), &summary)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn share__goes_from_0_to_1_over_all_databases() {
        let at = |stones, round, done| {
            let positions = positions(stones) as u64;
            share(&Step { stones, of: 13, round, done: positions * done / 4, positions })
        };
        assert_eq!((positions(0), positions(1), positions(13)), (1.0, 12.0, 2_496_144.0));
        let shares = (0..=13).flat_map(|stones| {
            let parts = [(None, 0), (None, 4), (Some(3), 1), (Some(1), 4)];
            parts.map(|(round, done)| at(stones, round, done))
        });
        let shares: Vec<f64> = shares.collect();
        assert!(shares.is_sorted() && shares[0] == 0.0, "{shares:?}");
        assert!((shares[shares.len() - 1] - 1.0).abs() < 1e-9, "{shares:?}");
        // The last database has nearly half of the work.
        assert!((0.4..0.6).contains(&at(13, None, 0)), "{}", at(13, None, 0));
    }
}
