//! `weft app leq`.

use super::progress::Convergence;
use super::{all_done, open, prepare_out, write_file, Check, Common, Report};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use weft::Job;
use weft_leq::{report, sequential, write_solution, write_summary, Params, Step, System};
use weft_models::net::{Blocking, Live};
use weft_run::misuse;

/// Linear equations by Jacobi's iteration, the vector a replicated object (LEQ)
#[derive(Debug, clap::Args)]
pub struct Args {
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
    #[command(flatten)]
    common: Common,
}

/// Most coefficients of a matrix that is read.
const MOST: usize = 1 << 28;

fn params(args: &Args) -> Result<Params> {
    let system = match (&args.matrix, args.random) {
        (Some(path), _) => {
            let mut sides = args.sides.as_deref().map(open).transpose()?;
            let sides = sides.as_mut().map(|sides| sides as &mut dyn std::io::BufRead);
            System::read(&mut open(path)?, sides, MOST)
                .with_context(|| path.display().to_string())?
        }
        (None, Some(seed)) => System::random(args.equations, seed),
        (None, None) => System::ones(args.equations),
    };
    let params = Params { system, tolerance: args.tolerance, max_iterations: args.iterations };
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
    let progress = Convergence::new(rank, "LEQ", params.tolerance);
    let tell = |s: Step| progress.at(s.iterations, s.max_iterations, s.change);
    let outcome = net.block_on(weft_leq::run(&net, &params, 0.0, &tell))?;
    all_done(world)?;
    drop(progress);
    if rank != 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let mut files = Vec::new();
    if let Some(dir) = &common.out {
        files.push(write_file(dir, "leq.csv", |to| write_summary(to, &outcome))?);
        files.push(write_file(dir, "leq-solution.csv", |to| write_solution(to, &outcome))?);
    }
    let check = match common.check {
        false => None,
        true => {
            let progress = Convergence::new(0, "sequential LEQ", params.tolerance);
            let alone = sequential(&params, &|s| {
                progress.at(s.iterations, s.max_iterations, s.change);
                Ok(())
            })?;
            let pass = outcome.agrees_with(&alone);
            Some(Check::new(pass, outcome.elapsed, alone.elapsed, alone.checksum))
        }
    };
    let end = Report {
        app: "leq",
        ranks: outcome.ranks,
        seconds: outcome.elapsed.as_secs_f64(),
        checksum: format!("{:016x}", outcome.checksum),
        check,
        files,
    };
    end.print(common, &report(&outcome))
}
