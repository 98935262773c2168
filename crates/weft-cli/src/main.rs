//! weft: starts jobs, measures, simulates and explains.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod app;
mod bench;
mod demo;
mod doctor;
mod info;
mod run;
mod selftest;
mod sim;
mod top;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "weft", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Run(run::Args),
    Info(info::Args),
    Doctor(doctor::Args),
    Bench(bench::Args),
    #[command(hide = true)]
    BenchRank(bench::rank::Args),
    Sim(sim::Args),
    Top(top::Args),
    App(app::Args),
    /// Start the ranks of one host for `weft run`
    #[command(hide = true)]
    RunProxy,
    #[command(hide = true)]
    Selftest(selftest::Args),
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::Run(args) => run::run(args),
        Command::Info(args) => info::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Bench(args) => bench::run(args),
        Command::BenchRank(args) => bench::rank::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Top(args) => top::run(args),
        Command::App(args) => app::run(args),
        Command::RunProxy => run::proxy::run(),
        Command::Selftest(args) => selftest::run(args),
    }
}

fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            // In one piece: ranks of one job may all write to the same place.
            let text = format!("weft: {error:#}\n");
            eprint!("{text}");
            ExitCode::FAILURE
        }
    }
}
