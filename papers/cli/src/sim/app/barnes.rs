//! `weft sim app barnes`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case, Given, Placed, Time};
use super::report::Figures;
use crate::app::barnes;
use anyhow::Result;
use clap::Command;
use std::rc::Rc;
use weft_apps::Failure;
use weft_barnes::{Outcome, Params, Step};
use weft_sim::Env;

/// The application.
#[derive(Debug)]
pub struct Barnes;

fn mark(step: Step<'_>) -> Mark {
    Mark::steps(step.steps, step.of)
}

impl Case for Barnes {
    const NAME: &'static str = "app barnes";
    const TITLES: [&'static str; 2] = ["simulated Barnes", "sequential Barnes"];
    const THINGS: &'static str = "interactions";
    const TIME: Time = (
        "ns-per-pull",
        "20",
        "Computing time of an interaction, the pull of a body or a cell on a body, in \
         nanoseconds of virtual time",
    );
    type Options = Placed<barnes::Input>;
    type Input = Params;
    type Outcome = Outcome;
    type Error = Failure;

    fn usual(command: Command) -> Command {
        command
            .mut_arg("bodies", |bodies| bodies.default_value("4096"))
            .mut_arg("steps", |steps| steps.default_value("4"))
    }

    fn input(own: &Self::Options, given: &Given<'_>) -> Result<Params> {
        own.input.params(own.room.part(given.hosts()))
    }

    async fn program(
        env: Env,
        params: Rc<Params>,
        ns: f64,
        bar: Shown,
    ) -> Result<Outcome, Failure> {
        let tell = |step: Step<'_>| bar.at(mark(step));
        weft_barnes::run(&net(&env), &params, ns, &tell).await
    }

    fn sequential(params: &Params, bar: &Bar) -> Outcome {
        let sequential = weft_barnes::sequential(params, &|step| bar.told(mark(step)));
        sequential.expect("nobody stops it")
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn count(_: &Params, sequential: &Outcome) -> f64 {
        sequential.interactions as f64
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = barnes::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
