//! `weft sim app leq`.

use super::about::{self, About};
use super::bar::{Bar, Mark};
use super::case::{Case, Given, Host, Placed};
use super::hosts::Fault;
use super::report::Figures;
use crate::app::leq;
use anyhow::Result;
use std::rc::Rc;
use weft_apps::Stopped;
use weft_leq::{Outcome, Params, Step};

/// The options of the application.
pub type Leq = Placed<leq::Input>;

fn mark(step: Step) -> Mark {
    Mark { done: step.iterations, of: step.max_iterations, change: step.change }
}

impl Case for Leq {
    const ABOUT: &'static About = &about::LEQ;
    type Input = Params;
    type Outcome = Outcome;

    fn input(&self, given: &Given<'_>) -> Result<Params> {
        self.input.params(given.hosts(), given.memory(&self.room))
    }

    fn tolerance(params: &Params) -> Option<f64> {
        Some(params.tolerance)
    }

    async fn program(host: Host, params: Rc<Params>) -> Result<Outcome, Fault> {
        Ok(weft_leq::run(&host.net(), &params, host.ns_each, &|step| host.at(mark(step))).await?)
    }

    fn sequential(params: &Params, bar: &Bar) -> Result<Outcome, Stopped> {
        weft_leq::sequential(params, &|step| bar.told(mark(step)))
    }

    fn count(_: &Params, sequential: &Outcome) -> f64 {
        (sequential.x.len() as f64).powi(2) * sequential.iterations as f64
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = leq::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
