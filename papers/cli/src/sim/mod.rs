//! `weft sim`: the simulations that reproduce the papers.

mod app;
mod paper004;

pub use weft_simulate::{network, replay, scenario};

use anyhow::Result;
use std::process::ExitCode;

/// Run the applications and the clusters of the papers in virtual time
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    which: Which,
}

#[derive(Debug, clap::Subcommand)]
enum Which {
    App(Box<app::Args>),
    Paper004(paper004::Args),
}

/// Runs the simulation.
///
/// # Errors
/// The options are invalid, or files cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    weft_simulate::quiet();
    match &args.which {
        Which::App(args) => app::run(args),
        Which::Paper004(args) => paper004::run(args),
    }
}
