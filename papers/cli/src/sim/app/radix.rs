//! `weft sim app radix`.

use super::about::{self, About};
use super::bar::{Bar, Mark};
use super::case::{Case, Given, Host, Placed};
use super::hosts::Fault;
use super::report::Figures;
use crate::app::radix;
use anyhow::Result;
use std::rc::Rc;
use weft_apps::Stopped;
use weft_radix::{Division, Outcome, Params, Step};

/// The options of the application.
pub type Radix = Placed<radix::Input>;

/// The parameters, and the division of the keys.
type Input = (Params, Division);

fn mark(step: Step) -> Mark {
    Mark::steps(step.passes.into(), step.of.into())
}

impl Case for Radix {
    const ABOUT: &'static About = &about::RADIX;
    type Input = Input;
    type Outcome = Outcome;

    fn input(&self, given: &Given<'_>) -> Result<Input> {
        let params = self.input.params(given.memory(&self.room))?;
        Ok((params, self.input.division()))
    }

    async fn program(host: Host, input: Rc<Input>) -> Result<Outcome, Fault> {
        let (params, division) = &*input;
        let division = Division { ns_per_key: host.ns_each, ..*division };
        Ok(weft_radix::run(&host.net(), params, &division, &|step| host.at(mark(step))).await?)
    }

    fn sequential((params, _): &Input, bar: &Bar) -> Result<Outcome, Stopped> {
        weft_radix::sequential(params, &|step| bar.told(mark(step)))
    }

    fn count(_: &Input, sequential: &Outcome) -> f64 {
        sequential.count as f64 * f64::from(sequential.passes)
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        // The first host alone has the keys.
        let same = outcome.keys.is_empty() || outcome.keys == sequential.keys;
        outcome.agrees_with(sequential) && same
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = radix::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
