//! The one way in which every application is simulated and compared.

use super::super::replay;
use super::about::About;
use super::bar::{Bar, Mark};
use super::hosts::{simulate, Ended, Fault, Stop};
use super::report::{print_died, Figures, Report};
use super::{nanoseconds, Common};
use crate::app::{numbers, Room};
use anyhow::Result;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use std::fmt;
use std::future::Future;
use std::process::ExitCode;
use std::rc::{Rc, Weak};
use std::time::Instant;
use weft_apps::{Memory, Stopped};
use weft_models::net::Live;
use weft_sim::{Env, Sim, SimConfig};

/// The circumstances of a simulation.
pub struct Given<'a> {
    pub config: &'a SimConfig,
    /// The computing time of a thing, in nanoseconds of virtual time.
    pub ns_each: f64,
}

impl Given<'_> {
    /// Returns the number of hosts.
    pub fn hosts(&self) -> usize {
        self.config.hosts as usize
    }

    /// Returns the memory of a host, of which all are on this machine.
    pub fn memory(&self, room: &Room) -> Memory {
        room.part(self.hosts())
    }
}

/// The options of an application whose data grow with its input.
#[derive(Debug, clap::Args)]
pub struct Placed<O: clap::Args> {
    #[command(flatten)]
    pub input: O,
    #[command(flatten)]
    pub room: Room,
}

/// The options of an application, and those of all applications.
#[derive(Debug, clap::Args)]
#[command(mut_args(numbers))]
struct All<O: clap::Args> {
    #[command(flatten)]
    own: O,
    #[arg(long, value_name = "NS", value_parser = nanoseconds)]
    ns_each: f64,
    #[command(flatten)]
    common: Common,
}

/// All options of a simulated application.
#[derive(Debug)]
pub struct Options<C: Case>(All<C>);

impl<C: Case> FromArgMatches for Options<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Options<C>, clap::Error> {
        All::from_arg_matches(matches).map(Options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<C: Case> clap::Args for Options<C> {
    fn augment_args(command: Command) -> Command {
        let (name, usual, thing) = C::ABOUT.time;
        let help = format!("Computing time of {thing}, in nanoseconds of virtual time");
        let time = |time: Arg| time.long(name).default_value(usual).required(false).help(help);
        C::usual(All::<C>::augment_args(command).mut_arg("ns_each", time))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::<C>::augment_args(command)
    }
}

/// The options of an application, beside those of all applications.
pub trait Case: clap::Args + fmt::Debug + 'static {
    /// The application.
    const ABOUT: &'static About;
    /// All that a host's program needs to know, but for the time of a thing.
    type Input: 'static;
    /// The result of a host.
    type Outcome: 'static;

    /// Gives options the values that are usual in a simulation.
    fn usual(command: Command) -> Command {
        Self::ABOUT.usual(command)
    }

    /// Returns the input, in which a seed is that of the simulation.
    ///
    /// # Errors
    /// The options are invalid.
    fn input(&self, given: &Given<'_>) -> Result<Self::Input>;

    /// Returns the change below which the program ends, if it ends so.
    fn tolerance(_: &Self::Input) -> Option<f64> {
        None
    }

    /// The program of a host.
    fn program(
        host: Host,
        input: Rc<Self::Input>,
    ) -> impl Future<Output = Result<Self::Outcome, Fault>> + 'static;

    /// The sequential program.
    ///
    /// # Errors
    /// None: the bar stops no program.
    fn sequential(input: &Self::Input, bar: &Bar) -> Result<Self::Outcome, Stopped>;

    /// Returns the number of things that the sequential program has computed.
    fn count(input: &Self::Input, sequential: &Self::Outcome) -> f64;

    /// Returns true if a host has the result of the sequential program.
    fn agrees(outcome: &Self::Outcome, sequential: &Self::Outcome) -> bool;

    fn figures(outcome: &Self::Outcome) -> Figures;
}

/// A host that runs a program.
pub struct Host {
    pub env: Env,
    /// The computing time of a thing.
    pub ns_each: f64,
    /// The bar of the first host, during the simulation.
    bar: Weak<Bar>,
}

impl Host {
    /// Returns its packet interface.
    pub fn net(&self) -> Live {
        self.env.net().expect("no agent is chosen")
    }

    /// Shows a place, if the bar is there.
    pub fn at(&self, mark: Mark) {
        if let Some(bar) = self.bar.upgrade() {
            bar.at(mark);
        }
    }
}

/// Runs an application on all hosts, and alone.
fn compare<C: Case>(
    (input, ns_each): (C::Input, f64),
    sim: &mut Sim,
    (hosts, mortal): (u32, &[u32]),
) -> Result<Report, Stop> {
    let (tolerance, input) = (C::tolerance(&input), Rc::new(input));
    let About { title, things, .. } = C::ABOUT;
    let bar = Rc::new(Bar::new(format!("simulated {title}"), tolerance));
    let (given, shown) = (Rc::clone(&input), Rc::downgrade(&bar));
    let ended = simulate(sim, (hosts, mortal), move |env| {
        let bar = if env.host == 0 { Weak::clone(&shown) } else { Weak::new() };
        C::program(Host { env, ns_each, bar }, Rc::clone(&given))
    });
    drop(bar);
    let Ended { outcomes, died, counters, retransmitted } = ended?;
    let bar = Bar::new(format!("sequential {title}"), tolerance);
    let sequential = C::sequential(&input, &bar).expect("nobody stops it");
    drop(bar);
    let wrong = outcomes.iter().filter(|(_, outcome)| !C::agrees(outcome, &sequential));
    Ok(Report {
        name: C::ABOUT.name(),
        died,
        wrong: wrong.map(|(host, _)| *host).collect(),
        figures: C::figures(&outcomes[0].1),
        things,
        count: C::count(&input, &sequential),
        ns_each,
        counters,
        retransmitted,
    })
}

/// Runs an application, and reports.
///
/// # Errors
/// The options are invalid, or files cannot be written.
pub fn play<C: Case>(Options(all): &Options<C>) -> Result<ExitCode> {
    let Common { hosts, json, network, fates, files } = &all.common;
    files.check()?;
    let mut config = SimConfig::new(*hosts, network.seed);
    config.trace = files.keep();
    let config = fates.apply(network.apply(config))?;
    let ns_each = all.ns_each;
    let input = all.own.input(&Given { config: &config, ns_each })?;
    let (start, mortal) = (Instant::now(), fates.mortal());
    let mut sim = Sim::new(C::ABOUT.name(), config.clone());
    let failure = match compare::<C>((input, ns_each), &mut sim, (*hosts, &mortal)) {
        Ok(report) if report.wrong.is_empty() => {
            report.print(&config, start.elapsed(), *json);
            None
        }
        Ok(report) => Some(sim.failure(report.verdict())),
        Err(Stop::Failed(failure)) => Some(failure),
        Err(Stop::Died(how)) => {
            print_died(&C::ABOUT.name(), &mortal, &config, &how, *json);
            None
        }
    };
    files.write(sim.network().borrow().trace())?;
    Ok(match failure {
        Some(failure) => replay::tell(&failure, &replay::command(network.seed), *json),
        None => ExitCode::SUCCESS,
    })
}
