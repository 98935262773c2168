//! `weft sim`: programs, scenarios and seeds on simulated clusters, in virtual time.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate weft_run;

mod models;
mod names;
pub mod network;
pub mod replay;
mod runs;
pub mod scenario;
mod swarm;

use anyhow::Result;
use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;
use weft_run::program::{hand_over, PAPERS};
use weft_sim::scenarios::{Scenario, SCENARIOS};

/// Run programs and scenarios on a simulated cluster, in virtual time and repeatable by seed
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    which: Which,
}

/// The simulation: a command of its own, or one of the named scenarios.
#[derive(Debug)]
enum Which {
    Fixed(Fixed),
    Named(&'static str, Box<scenario::Args>),
}

#[derive(Debug, Subcommand)]
enum Fixed {
    /// List the scenarios, one per line
    List,
    Swarm(swarm::Args),
    Names(names::Args),
    /// Run an application on simulated hosts, against the sequential program (in weft-papers)
    #[command(disable_help_flag = true)]
    App(Words),
    /// Speed-ups on the cluster of paper 000, and what the paper says of them (in weft-papers)
    #[command(disable_help_flag = true)]
    Paper000(Words),
    /// The clusters and choices of paper 004, beside every number it states (in weft-papers)
    #[command(disable_help_flag = true)]
    Paper004(Words),
}

/// The words of a command that another program has.
#[derive(Debug, clap::Args)]
struct Words {
    /// Its options; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Words {
    /// Becomes the program of the papers.
    fn hand_over(self, name: &str) -> Result<ExitCode> {
        let first = ["sim", name].map(OsString::from);
        hand_over(PAPERS, first.into_iter().chain(self.words))
    }
}

/// Returns the scenarios that are commands: all but the swarm, which has options of its own.
fn named() -> impl Iterator<Item = &'static Scenario> {
    SCENARIOS.iter().filter(|scenario| scenario.name != "swarm")
}

impl FromArgMatches for Which {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Which, clap::Error> {
        if let Some((name, options)) = matches.subcommand() {
            if let Some(scenario) = named().find(|scenario| scenario.name == name) {
                let args = scenario::Args::from_arg_matches(options)?;
                return Ok(Which::Named(scenario.name, Box::new(args)));
            }
        }
        Fixed::from_arg_matches(matches).map(Which::Fixed)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Which::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Which {
    fn augment_subcommands(command: Command) -> Command {
        let command = Fixed::augment_subcommands(command);
        named().fold(command, |command, scenario| {
            let options = <scenario::Args as clap::Args>::augment_args(Command::new(scenario.name));
            command.subcommand(options.about(scenario.about))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Which::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Fixed::has_subcommand(name) || named().any(|scenario| scenario.name == name)
    }
}

fn list() -> ExitCode {
    println!("{:<13} {:>5}  what it shows", "scenario", "hosts");
    for Scenario { name, about, hosts, .. } in SCENARIOS {
        let hosts = if *hosts == 0 { "-".to_string() } else { hosts.to_string() };
        println!("{name:<13} {hosts:>5}  {about}");
    }
    ExitCode::SUCCESS
}

/// Hides warnings, unless the user has chosen a level: failing peers are part of a simulation.
pub fn quiet() {
    if std::env::var_os("WEFT_LOG").is_none() {
        log::set_max_level(log::LevelFilter::Error);
    }
}

/// Runs the subcommand.
///
/// # Errors
/// The options are invalid, files cannot be written, or a program is not there.
pub fn run(args: Args) -> Result<ExitCode> {
    quiet();
    match args.which {
        Which::Fixed(Fixed::List) => Ok(list()),
        Which::Fixed(Fixed::Swarm(args)) => swarm::run(&args),
        Which::Fixed(Fixed::App(words)) => words.hand_over("app"),
        Which::Fixed(Fixed::Names(args)) => names::run(&args),
        Which::Fixed(Fixed::Paper000(words)) => words.hand_over("paper000"),
        Which::Fixed(Fixed::Paper004(words)) => words.hand_over("paper004"),
        Which::Named(name, args) => scenario::run(name, &args),
    }
}
