//! `weft app`: the applications of the papers that `weft` itself does not have.

pub mod awari;
pub mod barnes;
pub mod dd;
pub mod leq;
mod pictures;
pub mod puzzle;
pub mod qr;
pub mod radix;

pub use weft_app::{
    all_done, asp, numbers, open, prepare_out, progress, run_rank, sor, write_file, Common,
    Convergence, Measured, Progress, Ran, Report, Room,
};

use anyhow::Result;
use std::process::ExitCode;

/// Run one of the parallel applications; alone, or on many ranks: `weft run -n 4 weft app radix`
#[derive(Debug, clap::Subcommand)]
pub enum Which {
    Awari(awari::Args),
    Barnes(barnes::Args),
    /// Drift and diffusion of electrons and holes in a semiconductor (DD)
    Dd(dd::Args),
    /// Linear equations by Jacobi's iteration, the vector a replicated object (LEQ)
    Leq(leq::Args),
    Puzzle(puzzle::Args),
    /// QR factorisation with pivoted columns, by reductions and broadcasts (QR)
    Qr(qr::Args),
    /// Radix sort, the keys in coherent regions (Radix)
    Radix(radix::Args),
}

/// Runs the application.
///
/// # Errors
/// The application failed.
pub fn run(which: &Which) -> Result<ExitCode> {
    run_rank(|job| match which {
        Which::Awari(args) => awari::run(job, args),
        Which::Barnes(args) => barnes::run(job, args),
        Which::Dd(args) => dd::run(job, args),
        Which::Leq(args) => leq::run(job, args),
        Which::Puzzle(args) => puzzle::run(job, args),
        Which::Qr(args) => qr::run(job, args),
        Which::Radix(args) => radix::run(job, args),
    })
}
