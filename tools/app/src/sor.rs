//! `weft app sor`.

use super::progress::Convergence;
use super::{pictures, prepare_out, Measured, Ran, Report};
use anyhow::Result;
use serde_json::{json, Value};
use std::process::ExitCode;
use weft::Job;
use weft_apps::Memory;
use weft_run::misuse;
use weft_sor::{bytes_needed, parse_size, report, sequential, Outcome, Params, Step};

/// The options.
pub type Args = Measured<Input>;

/// The plate, and the end of the iteration.
#[derive(Debug, clap::Args)]
pub struct Input {
    /// Rows and columns of the matrix: N or ROWSxCOLS
    #[arg(long, value_name = "SIZE", default_value = "1536", value_parser = parse_size)]
    size: (usize, usize),
    /// Most iterations
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    iterations: u64,
    /// Stop when no cell changes by this many degrees; 0: do all iterations
    #[arg(long, value_name = "DEGREES", default_value_t = 1e-3)]
    tolerance: f64,
    /// Relaxation factor, between 0 and 2 [default: the best for the size]
    #[arg(long, value_name = "W")]
    omega: Option<f64>,
    /// Send border rows when all rows are computed, not before the others: to see what the overlap
    /// is worth
    #[arg(long)]
    late: bool,
}

impl Input {
    /// Returns the parameters for a matrix that is divided among so many ranks.
    pub fn params(&self, ranks: usize, memory: Memory, keep_grid: bool) -> Result<Params> {
        let (rows, cols) = self.size;
        let params = Params {
            rows,
            cols,
            max_iterations: self.iterations,
            tolerance: self.tolerance,
            omega: self.omega,
            keep_grid,
            late: self.late,
            ns_per_cell: None,
        };
        params.check().map_err(misuse::of)?;
        let bytes = bytes_needed(rows, cols, ranks, keep_grid);
        memory.check(format!("a plate of {rows} x {cols} cells"), bytes).map_err(misuse::of)?;
        Ok(params)
    }
}

/// Returns the figures of a result.
pub fn result(outcome: &Outcome) -> Value {
    json!({
        "rows": outcome.rows, "columns": outcome.cols, "omega": outcome.omega,
        "iterations": outcome.iterations, "converged": outcome.converged,
        "largest_change": outcome.residual,
    })
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let (world, common) = (job.world(), &args.common);
    // The check has the whole matrix in one block.
    let ranks = if common.check { 1 } else { world.size() };
    let params = args.input.params(ranks, args.room.of(world)?, common.out.is_some())?;
    let rank = world.rank();
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let progress = Convergence::new(rank, "SOR", params.tolerance);
    let tell = |s: Step| progress.at(s.iterations, s.max_iterations, s.residual);
    let done = job.block_on(weft_sor::run(world, &params, &tell));
    let outcome = done?;
    drop(progress);
    let Outcome { ranks, elapsed, checksum, .. } = outcome;
    let ran = Ran { app: "sor", ranks, elapsed, checksum };
    let Some(mut end) = Report::begin(world, common, ran)? else { return Ok(ExitCode::SUCCESS) };
    if let Some(grid) = &outcome.grid {
        end.picture(|| pictures::plate(grid, outcome.iterations))?;
    }
    end.check(|| {
        let progress = Convergence::new(0, "sequential SOR", params.tolerance);
        let tell = |s: Step| progress.at(s.iterations, s.max_iterations, s.residual);
        let params = Params { keep_grid: false, ..params };
        let alone = sequential(&params, &tell);
        let pass = outcome.agrees_with(&alone);
        Ok((pass, alone.elapsed, alone.checksum))
    })?;
    end.print(result(&outcome), &report(&outcome))
}
