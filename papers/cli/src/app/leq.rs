//! `weft app leq`.

use super::pictures::Changes;
use super::progress::Convergence;
use super::{open, prepare_out, Measured, Ran, Report};
use anyhow::{Context, Result};
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::Job;
use weft_apps::{Memory, TooLarge};
use weft_leq::{
    bytes_needed, report, sequential, write_solution, write_summary, End, Outcome, Params, Step,
    System,
};
use weft_models::net::{Blocking, Live};
use weft_run::misuse;

/// The options.
pub type Args = Measured<Input>;

fn read(path: &Path, fits: &dyn Fn(usize) -> Result<(), TooLarge>) -> Result<System> {
    let accept = |n| fits(n).map_err(|error| error.to_string());
    System::read(&mut open(path)?, &accept).with_context(|| path.display().to_string())
}

/// The equations, and the end of the iteration.
#[derive(Debug, clap::Args)]
pub struct Input {
    /// Read the coefficients from this Matrix Market file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["equations", "random"])]
    matrix: Option<PathBuf>,
    /// Read the right-hand side from this one [default: ones]
    #[arg(long, value_name = "FILE", requires = "matrix")]
    sides: Option<PathBuf>,
    /// Number of equations: ones, and this number on the diagonal
    #[arg(long, value_name = "N", default_value_t = 1000)]
    equations: usize,
    /// Random equations of this seed instead
    #[arg(long, value_name = "SEED")]
    random: Option<u64>,
    /// Stop when the unknowns together change by less; 0: do all iterations
    #[arg(long, value_name = "X", default_value_t = 1e-3)]
    tolerance: f64,
    /// Most iterations
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    iterations: u64,
}

impl Input {
    /// Returns the parameters for rows that are divided among so many ranks.
    pub fn params(&self, ranks: usize, memory: Memory) -> Result<Params> {
        let fits = |n| memory.check(format!("a system of {n} equations"), bytes_needed(n, ranks));
        let mut system = match (&self.matrix, self.random) {
            (Some(path), _) => read(path, &fits)?,
            (None, seed) => {
                fits(self.equations).map_err(misuse::of)?;
                match seed {
                    Some(seed) => System::random(self.equations, seed),
                    None => System::ones(self.equations),
                }
            }
        };
        if let Some(path) = &self.sides {
            let read = system.read_sides(&mut open(path)?);
            read.with_context(|| path.display().to_string())?;
        }
        let params = Params { system, tolerance: self.tolerance, max_iterations: self.iterations };
        let of = |path: &PathBuf| path.display().to_string();
        let checked = params.check().map_err(misuse::of);
        match &self.matrix {
            Some(path) => checked.with_context(|| of(path))?,
            None => checked?,
        }
        Ok(params)
    }
}

/// Returns the figures of a result.
pub fn result(outcome: &Outcome) -> Value {
    json!({
        "equations": outcome.x.len(), "iterations": outcome.iterations,
        "end": outcome.end.name(), "change": outcome.change, "residual": outcome.residual,
        "last_unknown": outcome.x.last(),
    })
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let (world, common) = (job.world(), &args.common);
    let rank = world.rank();
    // The check has the panels of all rows.
    let ranks = if common.check { 1 } else { world.size() };
    let params = args.input.params(ranks, args.room.of(world)?)?;
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let net = Live::new(world).context("the packet interface")?;
    let progress = Convergence::new(rank, "LEQ", params.tolerance);
    let changes = Changes::default();
    let tell = |s: Step| {
        progress.at(s.iterations, s.max_iterations, s.change);
        changes.add(s.iterations, s.change);
    };
    let outcome = net.block_on(weft_leq::run(&net, &params, 0.0, &tell))?;
    drop(progress);
    let Outcome { ranks, elapsed, checksum, .. } = outcome;
    let ran = Ran { app: "leq", ranks, elapsed, checksum };
    let Some(mut end) = Report::begin(world, common, ran)? else { return Ok(ExitCode::SUCCESS) };
    end.file("leq.csv", |to| write_summary(to, &outcome))?;
    end.file("leq-solution.csv", |to| write_solution(to, &outcome))?;
    end.picture(|| changes.picture(outcome.x.len()))?;
    end.check(|| {
        let progress = Convergence::new(0, "sequential LEQ", params.tolerance);
        let alone = sequential(&params, &|s| {
            progress.at(s.iterations, s.max_iterations, s.change);
            Ok(())
        })?;
        let pass = outcome.agrees_with(&alone);
        Ok((pass, alone.elapsed, alone.checksum))
    })?;
    let code = end.print(result(&outcome), &report(&outcome))?;
    // A result that grows beyond all bounds is no solution.
    Ok(if outcome.end == End::Diverged { ExitCode::FAILURE } else { code })
}
