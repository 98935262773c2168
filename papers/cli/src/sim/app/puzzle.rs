//! `weft sim app puzzle`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case, Given, Time};
use super::report::Figures;
use crate::app::puzzle;
use anyhow::Result;
use clap::Command;
use std::rc::Rc;
use weft_puzzle::{Division, Outcome, Params, RunError, Step};
use weft_sim::Env;

/// The application.
#[derive(Debug)]
pub struct Puzzle;

/// The parameters, and the division of the work.
type Input = (Params, Division);

fn mark(step: Step) -> Mark {
    Mark::steps(step.threshold.into(), weft_puzzle::MOST_MOVES as u64)
}

impl Case for Puzzle {
    const NAME: &'static str = "app puzzle";
    const TITLES: [&'static str; 2] = ["simulated Puzzle", "sequential Puzzle"];
    const THINGS: &'static str = "positions";
    const TIME: Time = (
        "ns-per-position",
        "10",
        "Computing time of a position that is made, in nanoseconds of virtual time",
    );
    type Options = puzzle::Input;
    type Input = Input;
    type Outcome = Outcome;
    type Error = RunError;

    fn usual(command: Command) -> Command {
        command.mut_arg("korf", |korf| korf.default_value("79"))
    }

    fn input(own: &Self::Options, _: &Given<'_>) -> Result<Input> {
        Ok((own.params()?, own.division()))
    }

    async fn program(env: Env, input: Rc<Input>, ns: f64, bar: Shown) -> Result<Outcome, RunError> {
        let (params, division) = &*input;
        let division = Division { ns_per_node: ns, ..*division };
        let tell = |step| bar.at(mark(step));
        weft_puzzle::run(&net(&env), params, &division, &tell).await
    }

    fn sequential((params, _): &Input, bar: &Bar) -> Outcome {
        let sequential = weft_puzzle::sequential(params, &|step| bar.told(mark(step)));
        sequential.expect("nobody stops it")
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn count(_: &Input, sequential: &Outcome) -> f64 {
        (sequential.nodes() - 1) as f64
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = puzzle::result(outcome);
        Figures { checksum: puzzle::checksum(outcome), elapsed: outcome.elapsed, result }
    }
}
