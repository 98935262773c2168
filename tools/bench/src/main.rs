//! weft-bench: the command `weft bench`, in a program of its own.
#![deny(unsafe_code)]
#![warn(missing_docs)]

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;
use weft_bench as bench;
use weft_lab as lab;
use weft_measure::work;
use weft_run::{pages, program};

#[derive(Parser)]
#[command(name = "weft-bench", bin_name = "weft bench", version = program::version())]
struct Cli {
    #[command(flatten)]
    args: bench::Args,
}

/// The processes that benchmarks start.
#[derive(Parser)]
#[command(name = "weft-bench", hide = true)]
struct Started {
    #[command(subcommand)]
    process: Process,
}

#[derive(Subcommand)]
enum Process {
    BenchRank(work::Args),
    BenchBarrier(bench::barrier::Args),
    BenchCollectives(bench::collectives::rank::Args),
    BenchService(bench::service::Args),
    BenchNames(bench::names::child::Args),
    BenchSockets(bench::sockets::child::Args),
    BenchSovia(bench::sovia::child::Args),
    LabKeeper(lab::keeper::Args),
    LabHost(lab::init::Args),
    LabProxy(lab::proxy::Args),
    /// Write the manual pages of this program
    ManualPages(pages::Man),
}

fn start(process: Process) -> Result<ExitCode> {
    match process {
        Process::BenchRank(args) => work::run(args),
        Process::BenchBarrier(args) => bench::barrier::rank(&args),
        Process::BenchCollectives(args) => bench::collectives::rank::rank(&args),
        Process::BenchService(args) => bench::service::run(args),
        Process::BenchNames(args) => bench::names::child::run(&args),
        Process::BenchSockets(args) => bench::sockets::child::run(&args),
        Process::BenchSovia(args) => bench::sovia::child::run(&args),
        Process::LabKeeper(args) => lab::keeper::run(&args),
        Process::LabHost(args) => lab::init::run(&args),
        Process::LabProxy(args) => lab::proxy::run(&args),
        Process::ManualPages(args) => pages::write(&args, &Cli::command()),
    }
}

/// True if these words start one of the processes of a benchmark.
fn is_process(words: &[OsString]) -> bool {
    let named = words.get(1).and_then(|word| word.to_str());
    named.is_some_and(|name| Started::command().find_subcommand(name).is_some())
}

fn main() -> ExitCode {
    program::init_log();
    work::add(bench::ADDITION, bench::work);
    let mut words: Vec<OsString> = std::env::args_os().collect();
    // The word by which `weft` names this program.
    if words.get(1).is_some_and(|word| word == "bench") {
        words.remove(1);
    }
    program::status(match is_process(&words) {
        true => start(Started::parse_from(words).process),
        false => bench::run(Cli::parse_from(words).args),
    })
}
