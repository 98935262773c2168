//! `weft info`.

use anyhow::{bail, Result};
use std::process::ExitCode;

/// Show what this machine offers and which settings are in force.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> Result<ExitCode> {
    bail!("not available in this version")
}
