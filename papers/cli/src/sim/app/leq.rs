//! `weft sim app leq`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case, Given, Placed, Time};
use super::report::Figures;
use crate::app::leq;
use anyhow::Result;
use clap::Command;
use std::rc::Rc;
use weft_leq::{Outcome, Params, RunError, Step};
use weft_sim::Env;

/// The application.
#[derive(Debug)]
pub struct Leq;

fn mark(step: Step) -> Mark {
    Mark { done: step.iterations, of: step.max_iterations, change: step.change }
}

impl Case for Leq {
    const NAME: &'static str = "app leq";
    const TITLES: [&'static str; 2] = ["simulated LEQ", "sequential LEQ"];
    const THINGS: &'static str = "products";
    const TIME: Time = (
        "ns-per-product",
        "2",
        "Computing time of a product, of a coefficient and an unknown, in nanoseconds of \
         virtual time",
    );
    type Options = Placed<leq::Input>;
    type Input = Params;
    type Outcome = Outcome;
    type Error = RunError;

    fn usual(command: Command) -> Command {
        command.mut_arg("equations", |equations| equations.default_value("200"))
    }

    fn input(own: &Self::Options, given: &Given<'_>) -> Result<Params> {
        let hosts = given.hosts();
        own.input.params(hosts, own.room.part(hosts))
    }

    fn tolerance(params: &Params) -> Option<f64> {
        Some(params.tolerance)
    }

    async fn program(
        env: Env,
        params: Rc<Params>,
        ns: f64,
        bar: Shown,
    ) -> Result<Outcome, RunError> {
        let tell = |step| bar.at(mark(step));
        weft_leq::run(&net(&env), &params, ns, &tell).await
    }

    fn sequential(params: &Params, bar: &Bar) -> Outcome {
        let sequential = weft_leq::sequential(params, &|step| bar.told(mark(step)));
        sequential.expect("nobody stops it")
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn count(_: &Params, sequential: &Outcome) -> f64 {
        (sequential.x.len() as f64).powi(2) * sequential.iterations as f64
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = leq::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
