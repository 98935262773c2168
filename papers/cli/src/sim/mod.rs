//! `weft sim`: the simulations that reproduce the papers.

mod app;
mod paper000;
mod paper004;

pub use weft_simulate::{network, replay, scenario};

use anyhow::Result;
use std::process::ExitCode;

/// Run the applications and the clusters of the papers in virtual time
#[derive(Debug, clap::Subcommand)]
pub enum Which {
    #[command(subcommand)]
    App(Box<app::Which>),
    Paper000(paper000::Args),
    Paper004(paper004::Args),
}

/// Runs the simulation.
///
/// # Errors
/// The options are invalid, or files cannot be written.
pub fn run(which: &Which) -> Result<ExitCode> {
    weft_simulate::quiet();
    match which {
        Which::App(which) => app::run(which),
        Which::Paper000(args) => paper000::run(args),
        Which::Paper004(args) => paper004::run(args),
    }
}
