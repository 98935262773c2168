//! `weft app qr`.

use super::progress::Progress;
use super::{all_done, open, prepare_out, write_file, Check, Common, Report};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use weft::Job;
use weft_apps::Matrix;
use weft_models::net::{Blocking, Live};
use weft_qr::{report, sequential, write_diagonal, write_summary, Params, Step};
use weft_run::misuse;
use weft_sor::parse_size;

/// QR factorisation with pivoted columns, by reductions and broadcasts (QR)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Read the matrix from this Matrix Market file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "seed"])]
    matrix: Option<PathBuf>,
    /// Rows and columns of a random matrix: N or ROWSxCOLS
    #[arg(long, value_name = "SIZE", default_value = "1024", value_parser = parse_size)]
    size: (usize, usize),
    /// Seed of the random matrix
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

/// Most values of a matrix that is read.
const MOST: usize = 1 << 28;

fn params(args: &Args) -> Result<Params> {
    let matrix = match &args.matrix {
        Some(path) => Matrix::read_market(&mut open(path)?, MOST)
            .with_context(|| path.display().to_string())?,
        None => Matrix::random(args.size.0, args.size.1, args.seed),
    };
    let params = Params { matrix };
    params.check().map_err(misuse::of)?;
    Ok(params)
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let (world, common) = (job.world(), &args.common);
    let rank = world.rank();
    let params = params(args)?;
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let net = Live::new(world).context("the packet interface")?;
    let progress = Progress::new(rank, "QR");
    let tell = |s: Step| progress.at(s.steps as u64, s.of as u64);
    let outcome = net.block_on(weft_qr::run(&net, &params, 0.0, &tell))?;
    all_done(world)?;
    drop(progress);
    if rank != 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let mut files = Vec::new();
    if let Some(dir) = &common.out {
        files.push(write_file(dir, "qr.csv", |to| write_summary(to, &outcome))?);
        files.push(write_file(dir, "qr-diagonal.csv", |to| write_diagonal(to, &outcome))?);
        let r = outcome.factors.r();
        files.push(write_file(dir, "qr-r.mtx", |to| r.write_market(to))?);
    }
    let check = match common.check {
        false => None,
        true => {
            let progress = Progress::new(0, "sequential QR");
            let alone = sequential(&params, &|s| {
                progress.at(s.steps as u64, s.of as u64);
                Ok(())
            })?;
            let pass = outcome.agrees_with(&alone);
            Some(Check::new(pass, outcome.elapsed, alone.elapsed, alone.checksum))
        }
    };
    // The error takes as long as the run.
    let error = common.check.then(|| outcome.factors.error(&params.matrix));
    let end = Report {
        app: "qr",
        ranks: outcome.ranks,
        seconds: outcome.elapsed.as_secs_f64(),
        checksum: format!("{:016x}", outcome.checksum),
        check,
        files,
    };
    end.print(common, &report(&outcome, error))
}
