//! `weft sim app puzzle`.

use super::about::{self, About};
use super::bar::{Bar, Mark};
use super::case::{Case, Given, Host};
use super::hosts::Fault;
use super::report::Figures;
use crate::app::puzzle;
use anyhow::Result;
use std::rc::Rc;
use weft_apps::Stopped;
use weft_puzzle::{Division, Outcome, Params, Step};

/// The options of the application.
pub type Puzzle = puzzle::Input;

/// The parameters, and the division of the work.
type Input = (Params, Division);

fn mark(step: Step) -> Mark {
    Mark::steps(step.threshold.into(), weft_puzzle::MOST_MOVES as u64)
}

impl Case for Puzzle {
    const ABOUT: &'static About = &about::PUZZLE;
    type Input = Input;
    type Outcome = Outcome;

    fn input(&self, _: &Given<'_>) -> Result<Input> {
        Ok((self.params()?, self.division()))
    }

    async fn program(host: Host, input: Rc<Input>) -> Result<Outcome, Fault> {
        let (params, division) = &*input;
        let division = Division { ns_per_node: host.ns_each, ..*division };
        Ok(weft_puzzle::run(&host.net(), params, &division, &|step| host.at(mark(step))).await?)
    }

    fn sequential((params, _): &Input, bar: &Bar) -> Result<Outcome, Stopped> {
        weft_puzzle::sequential(params, &|step| bar.told(mark(step)))
    }

    fn count(_: &Input, sequential: &Outcome) -> f64 {
        (sequential.nodes() - 1) as f64
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = puzzle::result(outcome);
        Figures { checksum: puzzle::checksum(outcome), elapsed: outcome.elapsed, result }
    }
}
