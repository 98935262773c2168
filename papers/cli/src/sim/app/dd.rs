//! `weft sim app dd`.

use super::about::{self, About};
use super::bar::{Bar, Mark};
use super::case::{Case, Given, Host, Placed};
use super::hosts::Fault;
use super::report::Figures;
use crate::app::dd;
use anyhow::Result;
use std::rc::Rc;
use weft_apps::Stopped;
use weft_dd::{Outcome, Params, Step};

/// The options of the application.
pub type Dd = Placed<dd::Input>;

fn mark(step: Step) -> Mark {
    Mark { done: step.solution as u64, of: step.solutions as u64, change: step.change() }
}

impl Case for Dd {
    const ABOUT: &'static About = &about::DD;
    type Input = Params;
    type Outcome = Outcome;

    fn input(&self, given: &Given<'_>) -> Result<Params> {
        let params = self.input.params(given.hosts(), given.memory(&self.room))?;
        Ok(Params { ns_per_unit: Some(given.ns_each), ..params })
    }

    fn tolerance(params: &Params) -> Option<f64> {
        Some(params.tolerance)
    }

    async fn program(host: Host, params: Rc<Params>) -> Result<Outcome, Fault> {
        Ok(weft_dd::run(&host.env.world(), &params, &|step| host.at(mark(step))).await?)
    }

    fn sequential(params: &Params, bar: &Bar) -> Result<Outcome, Stopped> {
        Ok(weft_dd::sequential(params, &|step| bar.at(mark(step))))
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
