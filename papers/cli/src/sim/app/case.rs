//! The one way in which every application is simulated and compared.

use super::super::replay;
use super::bar::{Bar, Shown};
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
use weft_models::net::Live;
use weft_sim::{Env, Sim, SimConfig};

/// The option for the computing time of a thing: its name, its usual value, and its description.
pub type Time = (&'static str, &'static str, &'static str);

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
pub struct Options<C: Case>(All<C::Options>);

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
        let (name, usual, about) = C::TIME;
        let time = |time: Arg| time.long(name).default_value(usual).required(false).help(about);
        C::usual(All::<C::Options>::augment_args(command).mut_arg("ns_each", time))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::<C>::augment_args(command)
    }
}

/// An application.
pub trait Case: fmt::Debug + 'static {
    /// Its name after `weft sim`.
    const NAME: &'static str;
    /// The names of the simulated and of the sequential program, beside their bars.
    const TITLES: [&'static str; 2];
    /// The name of the things that it computes, each in the same time.
    const THINGS: &'static str;
    /// The option for that time.
    const TIME: Time;
    /// Its options, beside those of all applications.
    type Options: clap::Args + fmt::Debug;
    /// All that a host's program needs to know, but for that time.
    type Input: 'static;
    /// The result of a host.
    type Outcome: 'static;
    /// The error of a host.
    type Error: Fault + 'static;

    /// Gives options the values that are usual in a simulation.
    fn usual(command: Command) -> Command;

    /// Returns the input, in which a seed is that of the simulation.
    ///
    /// # Errors
    /// The options are invalid.
    fn input(own: &Self::Options, given: &Given<'_>) -> Result<Self::Input>;

    /// Returns the change below which the program ends, if it ends so.
    fn tolerance(_: &Self::Input) -> Option<f64> {
        None
    }

    /// The program of a host.
    fn program(
        env: Env,
        input: Rc<Self::Input>,
        ns_each: f64,
        bar: Shown,
    ) -> impl Future<Output = Result<Self::Outcome, Self::Error>> + 'static;

    /// The sequential program.
    fn sequential(input: &Self::Input, bar: &Bar) -> Self::Outcome;

    /// Returns true if a host has the result of the sequential program.
    fn agrees(outcome: &Self::Outcome, sequential: &Self::Outcome) -> bool;

    /// Returns the number of things that the sequential program has computed.
    fn count(input: &Self::Input, sequential: &Self::Outcome) -> f64;

    fn figures(outcome: &Self::Outcome) -> Figures;
}

/// Returns the packet interface of a host.
pub fn net(env: &Env) -> Live {
    env.net().expect("no agent is chosen")
}

/// Runs an application on all hosts, and alone.
fn compare<C: Case>(
    (input, ns_each): (C::Input, f64),
    sim: &mut Sim,
    (hosts, mortal): (u32, &[u32]),
) -> Result<Report, Stop> {
    let (tolerance, input) = (C::tolerance(&input), Rc::new(input));
    let bar = Rc::new(Bar::new(C::TITLES[0], tolerance));
    let (given, shown) = (Rc::clone(&input), Rc::downgrade(&bar));
    let ended = simulate(sim, (hosts, mortal), move |env| {
        let shown = if env.host == 0 { Weak::clone(&shown) } else { Weak::new() };
        C::program(env, Rc::clone(&given), ns_each, Shown(shown))
    });
    drop(bar);
    let Ended { outcomes, died, counters, retransmitted } = ended?;
    let bar = Bar::new(C::TITLES[1], tolerance);
    let sequential = C::sequential(&input, &bar);
    drop(bar);
    let wrong = outcomes.iter().filter(|(_, outcome)| !C::agrees(outcome, &sequential));
    Ok(Report {
        name: C::NAME,
        died,
        wrong: wrong.map(|(host, _)| *host).collect(),
        figures: C::figures(&outcomes[0].1),
        things: C::THINGS,
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
    let input = C::input(&all.own, &Given { config: &config, ns_each })?;
    let (start, mortal) = (Instant::now(), fates.mortal());
    let mut sim = Sim::new(C::NAME, config.clone());
    let failure = match compare::<C>((input, ns_each), &mut sim, (*hosts, &mortal)) {
        Ok(report) if report.wrong.is_empty() => {
            report.print(&config, start.elapsed(), *json);
            None
        }
        Ok(report) => Some(sim.failure(report.verdict())),
        Err(Stop::Failed(failure)) => Some(failure),
        Err(Stop::Died(how)) => {
            print_died(C::NAME, &mortal, &config, &how, *json);
            None
        }
    };
    files.write(sim.network().borrow().trace())?;
    Ok(match failure {
        Some(failure) => replay::tell(&failure, &replay::command(network.seed), *json),
        None => ExitCode::SUCCESS,
    })
}
