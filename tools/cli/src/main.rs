//! The command `weft`: starts jobs, measures, simulates and explains.
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate weft_run;

mod cluster;
mod demo;
mod doctor;
mod info;
mod names;
mod pages;
mod selftest;
mod sockets;
mod sys;
mod top;
mod tune;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;
use weft_app as app;
use weft_lab as lab;
use weft_measure as measure;
use weft_run::program::{self, hand_over, BENCH};
use weft_run::{mpi, pages::Man, run};
use weft_simulate as sim;

#[derive(Parser)]
#[command(name = "weft", version = program::version(), about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Run(run::Args),
    Migrate(run::moving::ask::Args),
    Mpi(mpi::Args),
    MpiEnv(mpi::env::Args),
    #[command(hide = true)]
    MpiProbe(mpi::probe::Args),
    #[command(hide = true)]
    MpiLine(mpi::agent::Line),
    #[command(hide = true)]
    MpiServe(mpi::served::Args),
    Info(info::Args),
    Doctor(doctor::Args),
    /// Answer `weft doctor --hosts` on one of the hosts
    #[command(hide = true)]
    DoctorVisit,
    /// Measure weft beside the floor and the peer (in weft-bench)
    #[command(disable_help_flag = true)]
    Bench {
        /// The benchmark and its options; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    Tune(tune::Args),
    #[command(hide = true)]
    TuneStore(tune::store::Args),
    #[command(hide = true)]
    BenchRank(measure::work::Args),
    #[command(hide = true)]
    DemoLink(demo::measure::Args),
    Lab(lab::Args),
    #[command(hide = true)]
    LabKeeper(lab::keeper::Args),
    #[command(hide = true)]
    LabHost(lab::init::Args),
    #[command(hide = true)]
    LabProxy(lab::proxy::Args),
    Sim(sim::Args),
    Top(top::Args),
    Cluster(cluster::Args),
    Names(names::Args),
    Sockets(sockets::Args),
    App(app::Args),
    Completions(pages::Completions),
    Man(Man),
    /// Start the ranks of one host for `weft run`
    #[command(hide = true)]
    RunProxy,
    #[command(hide = true)]
    RunInit(run::moving::init::Args),
    #[command(hide = true)]
    RunCarry(run::moving::carry::Args),
    #[command(hide = true)]
    Selftest(selftest::Args),
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::Run(args) => run::run(args),
        Command::Mpi(args) => mpi::run(&args),
        Command::MpiEnv(args) => mpi::env::run(&args),
        Command::MpiProbe(args) => mpi::probe::run(&args),
        Command::MpiLine(line) => mpi::agent::run_line(&line),
        Command::MpiServe(args) => mpi::served::serve(&args),
        Command::Info(args) => info::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::DoctorVisit => doctor::partner::run(),
        Command::Bench { words } => {
            hand_over(BENCH, std::iter::once(OsString::from("bench")).chain(words))
        }
        Command::Tune(args) => tune::run(args),
        Command::TuneStore(args) => tune::store::run(&args),
        Command::BenchRank(args) => measure::work::run(args),
        Command::DemoLink(args) => demo::measure::run(&args),
        Command::Lab(args) => lab::run(args),
        Command::LabKeeper(args) => lab::keeper::run(&args),
        Command::LabHost(args) => lab::init::run(&args),
        Command::LabProxy(args) => lab::proxy::run(&args),
        Command::Sim(args) => sim::run(args),
        Command::Top(args) => top::run(args),
        Command::Cluster(args) => cluster::run(args),
        Command::Names(args) => names::run(args),
        Command::Sockets(args) => sockets::run(&args),
        Command::App(args) => app::run(args),
        Command::Completions(args) => pages::completions(&args, &Cli::command()),
        Command::Man(args) => pages::man(&args, &Cli::command()),
        Command::RunProxy => run::proxy::run(),
        Command::RunInit(args) => run::moving::init::run(&args),
        Command::RunCarry(args) => run::moving::carry::run(&args),
        Command::Migrate(args) => run::moving::ask::run(&args),
        Command::Selftest(args) => selftest::run(args),
    }
}

/// Reads the command line.
fn parsed() -> Result<Cli> {
    let words = std::env::args_os().collect();
    Ok(Cli::parse_from(mpi::habits::understood(words, &Cli::command())?))
}

fn main() -> ExitCode {
    program::init_log();
    program::status(match mpi::agent::is_called() {
        true => mpi::agent::run(),
        false => parsed().and_then(|cli| dispatch(cli.command)),
    })
}
