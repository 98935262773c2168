//! `weft app qr`.

use super::progress::Progress;
use super::{open, pictures, prepare_out, Measured, Ran, Report};
use anyhow::{Context, Result};
use serde_json::{json, Value};
use std::path::PathBuf;
use std::process::ExitCode;
use weft::Job;
use weft_apps::{Matrix, Memory};
use weft_models::net::{Blocking, Live};
use weft_qr::{
    bytes_needed, report, sequential, write_diagonal, write_summary, Outcome, Params, Step,
};
use weft_run::misuse;
use weft_sor::parse_size;

/// The options.
pub type Args = Measured<Seeded>;

/// The matrix, and the seed of a random one.
#[derive(Debug, clap::Args)]
pub struct Seeded {
    #[command(flatten)]
    input: Input,
    /// Seed of the random matrix
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "matrix")]
    seed: u64,
}

/// The matrix.
#[derive(Debug, clap::Args)]
pub struct Input {
    /// Read the matrix from this Matrix Market file
    #[arg(long, value_name = "FILE", conflicts_with = "size")]
    matrix: Option<PathBuf>,
    /// Rows and columns of a random matrix: N or ROWSxCOLS
    #[arg(long, value_name = "SIZE", default_value = "1024", value_parser = parse_size)]
    size: (usize, usize),
}

impl Input {
    /// Returns the parameters for columns that are divided among so many ranks, each of which needs
    /// the memory of so many runs. A random matrix is that of the seed.
    pub fn params(&self, seed: u64, ranks: usize, runs: u128, memory: Memory) -> Result<Params> {
        let fits = |rows, cols| {
            let bytes = bytes_needed(rows, cols, ranks).saturating_mul(runs);
            memory.check(format!("a matrix of {rows} x {cols} doubles"), bytes)
        };
        let matrix = match &self.matrix {
            Some(path) => {
                let accept = |rows, cols| fits(rows, cols).map_err(|error| error.to_string());
                let read = Matrix::read_market_if(&mut open(path)?, &accept);
                read.with_context(|| path.display().to_string())?
            }
            None => {
                let (rows, cols) = self.size;
                fits(rows, cols).map_err(misuse::of)?;
                Matrix::random(rows, cols, seed)
            }
        };
        let params = Params { matrix };
        params.check().map_err(misuse::of)?;
        Ok(params)
    }
}

/// Returns the figures of a result, with the error of the factors if it is known.
pub fn result(outcome: &Outcome, error: Option<f64>) -> Value {
    let factors = &outcome.factors;
    let diagonal = factors.diagonal();
    json!({
        "rows": factors.rows(), "columns": factors.cols(), "rank": factors.rank(),
        "diagonal_first": diagonal.first(), "diagonal_last": diagonal.last(), "error": error,
    })
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let (world, common) = (job.world(), &args.common);
    let rank = world.rank();
    // The check has all columns once more, and the error of the factors two matrices.
    let runs = if common.check { 2 } else { 1 };
    let Seeded { input, seed } = &args.input;
    let params = input.params(*seed, world.size(), runs, args.room.of(world)?)?;
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let net = Live::new(world).context("the packet interface")?;
    let progress = Progress::new(rank, "QR");
    let tell = |s: Step| progress.at(s.steps as u64, s.of as u64);
    let outcome = net.block_on(weft_qr::run(&net, &params, 0.0, &tell))?;
    drop(progress);
    let Outcome { ranks, elapsed, checksum, .. } = outcome;
    let ran = Ran { app: "qr", ranks, elapsed, checksum };
    let Some(mut end) = Report::begin(world, common, ran)? else { return Ok(ExitCode::SUCCESS) };
    end.file("qr.csv", |to| write_summary(to, &outcome))?;
    end.file("qr-diagonal.csv", |to| write_diagonal(to, &outcome))?;
    let r = outcome.factors.r();
    end.file("qr-r.mtx", |to| r.write_market(to))?;
    end.picture(|| pictures::diagonal(&outcome))?;
    end.check(|| {
        let progress = Progress::new(0, "sequential QR");
        let alone = sequential(&params, &|s| {
            progress.at(s.steps as u64, s.of as u64);
            Ok(())
        })?;
        let pass = outcome.agrees_with(&alone);
        Ok((pass, alone.elapsed, alone.checksum))
    })?;
    // The error takes as long as the run.
    let error = common.check.then(|| outcome.factors.error(&params.matrix));
    end.print(result(&outcome, error), &report(&outcome, error))
}
