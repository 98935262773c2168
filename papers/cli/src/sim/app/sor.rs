//! `weft sim app sor`.

use super::about::{self, About};
use super::bar::{Bar, Mark};
use super::case::{Case, Given, Host, Placed};
use super::hosts::Fault;
use super::report::Figures;
use crate::app::sor;
use anyhow::Result;
use std::rc::Rc;
use weft_apps::Stopped;
use weft_sor::{Outcome, Params, Step};

/// The options of the application.
pub type Sor = Placed<sor::Input>;

fn mark(step: Step) -> Mark {
    Mark { done: step.iterations, of: step.max_iterations, change: step.residual }
}

impl Case for Sor {
    const ABOUT: &'static About = &about::SOR;
    type Input = Params;
    type Outcome = Outcome;

    fn input(&self, given: &Given<'_>) -> Result<Params> {
        let params = self.input.params(given.hosts(), given.memory(&self.room), false)?;
        Ok(Params { ns_per_cell: Some(given.ns_each), ..params })
    }

    fn tolerance(params: &Params) -> Option<f64> {
        Some(params.tolerance)
    }

    async fn program(host: Host, params: Rc<Params>) -> Result<Outcome, Fault> {
        Ok(weft_sor::run(&host.env.world(), &params, &|step| host.at(mark(step))).await?)
    }

    fn sequential(params: &Params, bar: &Bar) -> Result<Outcome, Stopped> {
        Ok(weft_sor::sequential(params, &|step| bar.at(mark(step))))
    }

    fn count(params: &Params, sequential: &Outcome) -> f64 {
        let cells = (params.rows - 2) as f64 * params.cols as f64;
        cells * sequential.iterations as f64
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = sor::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
