//! `weft sim app puzzle`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case};
use super::report::Figures;
use super::{nanoseconds, Common};
use crate::app::{numbers, puzzle};
use anyhow::Result;
use std::rc::Rc;
use weft_puzzle::{Division, Outcome, Params, RunError, Step};
use weft_sim::{Env, SimConfig};

/// Shortest solutions of the 15-puzzle, jobs pushed to the owners of positions (Puzzle)
#[derive(Debug, clap::Args)]
#[command(mut_args(numbers), mut_arg("korf", |korf| korf.default_value("79")))]
pub struct Puzzle {
    #[command(flatten)]
    input: puzzle::Input,
    /// Computing time of a position that is made, in nanoseconds of virtual time
    #[arg(long, value_name = "NS", default_value_t = 10.0, value_parser = nanoseconds)]
    ns_per_position: f64,
    #[command(flatten)]
    common: Common,
}

/// The parameters, and the division of the work.
type Input = (Params, Division);

fn mark(step: Step) -> Mark {
    Mark::steps(step.threshold.into(), weft_puzzle::MOST_MOVES as u64)
}

impl Case for Puzzle {
    const NAME: &'static str = "app puzzle";
    const TITLES: [&'static str; 2] = ["simulated Puzzle", "sequential Puzzle"];
    const THINGS: &'static str = "positions";
    type Input = Input;
    type Outcome = Outcome;
    type Error = RunError;

    fn common(&self) -> &Common {
        &self.common
    }

    fn ns_each(&self) -> f64 {
        self.ns_per_position
    }

    fn input(&self, _: &SimConfig) -> Result<Input> {
        Ok((self.input.params()?, self.input.division()))
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
