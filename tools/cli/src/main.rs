//! weft: starts jobs, measures, simulates and explains.
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate weft_run;

mod app;
mod cluster;
mod demo;
mod doctor;
mod info;
mod names;
mod pages;
mod selftest;
mod sim;
mod sockets;
mod sys;
mod top;
mod tune;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use weft_bench as bench;
use weft_lab as lab;
use weft_run::{misuse, mpi, run};

#[derive(Parser)]
#[command(name = "weft", version = version(), about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Run(run::Args),
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
    Bench(bench::Args),
    Tune(tune::Args),
    #[command(hide = true)]
    TuneStore(tune::store::Args),
    #[command(hide = true)]
    BenchRank(bench::rank::Args),
    #[command(hide = true)]
    BenchBarrier(bench::barrier::Args),
    #[command(hide = true)]
    BenchService(bench::service::Args),
    #[command(hide = true)]
    BenchNames(bench::names::child::Args),
    #[command(hide = true)]
    BenchSockets(bench::sockets::child::Args),
    #[command(hide = true)]
    BenchSovia(bench::sovia::child::Args),
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
    Man(pages::Man),
    /// Start the ranks of one host for `weft run`
    #[command(hide = true)]
    RunProxy,
    #[command(hide = true)]
    Selftest(selftest::Args),
}

/// Returns the version and the commit of this build.
fn version() -> &'static str {
    // The text is made once, and clap keeps it to the end of the process.
    weftd::version().leak()
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
        Command::Bench(args) => bench::run(args),
        Command::Tune(args) => tune::run(args),
        Command::TuneStore(args) => tune::store::run(&args),
        Command::BenchRank(args) => bench::rank::run(args),
        Command::BenchBarrier(args) => bench::barrier::rank(&args),
        Command::BenchService(args) => bench::service::run(args),
        Command::BenchNames(args) => bench::names::child::run(&args),
        Command::BenchSockets(args) => bench::sockets::child::run(&args),
        Command::BenchSovia(args) => bench::sovia::child::run(&args),
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
        Command::Selftest(args) => selftest::run(args),
    }
}

/// Sends warnings to standard error, with the rank in front; `WEFT_LOG` (error to trace) sets the
/// level.
fn init_log() {
    use std::io::Write;
    let rank = std::env::var("PMI_RANK").or_else(|_| std::env::var("PMIX_RANK")).ok();
    let who = rank.map_or("weft".to_owned(), |rank| format!("weft rank {rank}"));
    env_logger::Builder::new()
        .filter_level(log::LevelFilter::Warn)
        .parse_env("WEFT_LOG")
        .format(move |out, record| {
            let level = record.level().as_str().to_lowercase();
            writeln!(out, "{who}: {level}: {}", record.args())
        })
        .init();
}

/// Reads the command line.
fn parsed() -> Result<Cli> {
    let words = std::env::args_os().collect();
    Ok(Cli::parse_from(mpi::habits::understood(words, &Cli::command())?))
}

fn main() -> ExitCode {
    init_log();
    let ended = match mpi::agent::is_called() {
        true => mpi::agent::run(),
        false => parsed().and_then(|cli| dispatch(cli.command)),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weft: {error:#}");
            misuse::status(&error)
        }
    }
}
