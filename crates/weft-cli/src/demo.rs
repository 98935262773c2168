//! `weft demo`.

use anyhow::{bail, Result};
use std::process::ExitCode;

/// .
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the subcommand.
pub fn run(_args: Args) -> Result<ExitCode> {
    bail!("not available in this version")
}
