//! `weft sim app dd`.

use super::bar::{Bar, Mark, Shown};
use super::case::{Case, Given, Placed, Time};
use super::report::Figures;
use crate::app::dd;
use anyhow::Result;
use clap::Command;
use std::rc::Rc;
use weft::GroupError;
use weft_dd::{Outcome, Params, Step};
use weft_sim::Env;

/// The application.
#[derive(Debug)]
pub struct Dd;

fn mark(step: Step) -> Mark {
    Mark { done: step.solution as u64, of: step.solutions as u64, change: step.change() }
}

impl Case for Dd {
    const NAME: &'static str = "app dd";
    const TITLES: [&'static str; 2] = ["simulated DD", "sequential DD"];
    const THINGS: &'static str = "exponentials and points";
    const TIME: Time = (
        "ns-per-unit",
        "5",
        "Computing time of an exponential, and of a point of a linear equation, in nanoseconds of \
         virtual time",
    );
    type Options = Placed<dd::Input>;
    type Input = Params;
    type Outcome = Outcome;
    type Error = GroupError;

    fn usual(command: Command) -> Command {
        command.mut_arg("tolerance", |tolerance| tolerance.default_value("1e-5"))
    }

    fn input(own: &Self::Options, given: &Given<'_>) -> Result<Params> {
        let hosts = given.hosts();
        let params = own.input.params(hosts, own.room.part(hosts))?;
        Ok(Params { ns_per_unit: Some(given.ns_each), ..params })
    }

    fn tolerance(params: &Params) -> Option<f64> {
        Some(params.tolerance)
    }

    async fn program(
        env: Env,
        params: Rc<Params>,
        _: f64,
        bar: Shown,
    ) -> Result<Outcome, GroupError> {
        weft_dd::run(&env.world(), &params, &|step| bar.at(mark(step))).await
    }

    fn sequential(params: &Params, bar: &Bar) -> Outcome {
        weft_dd::sequential(params, &|step| bar.at(mark(step)))
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn count(_: &Params, sequential: &Outcome) -> f64 {
        sequential.rows.iter().map(|row| row.work).sum::<u64>() as f64
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = dd::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
