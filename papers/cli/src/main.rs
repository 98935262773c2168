//! weft-papers: what reproduces the papers, as commands of `weft`: applications, simulated clusters
//! of 2004, and their tables and claims.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate weft_run;

mod app;
mod sim;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use weft_run::{pages, program};

/// Applications and simulations of papers: `weft app` and `weft sim` call this program
#[derive(Parser)]
#[command(name = "weft-papers", bin_name = "weft", version = program::version())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(subcommand)]
    App(app::Which),
    #[command(subcommand)]
    Sim(sim::Which),
    /// Write the manual pages of this program
    #[command(hide = true)]
    ManualPages(pages::Man),
}

fn main() -> ExitCode {
    program::init_log();
    program::status(match Cli::parse().command {
        Command::App(which) => app::run(&which),
        Command::Sim(which) => sim::run(&which),
        Command::ManualPages(args) => pages::write(&args, &Cli::command()),
    })
}
