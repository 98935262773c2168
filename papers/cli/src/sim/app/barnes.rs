//! `weft sim app barnes`.

use super::about::{self, About};
use super::bar::{Bar, Mark};
use super::case::{Case, Given, Host, Placed};
use super::hosts::Fault;
use super::report::Figures;
use crate::app::barnes;
use anyhow::Result;
use std::rc::Rc;
use weft_apps::Stopped;
use weft_barnes::{Outcome, Params, Step};

/// The options of the application.
pub type Barnes = Placed<barnes::Input>;

fn mark(step: Step<'_>) -> Mark {
    Mark::steps(step.steps, step.of)
}

impl Case for Barnes {
    const ABOUT: &'static About = &about::BARNES;
    type Input = Params;
    type Outcome = Outcome;

    fn input(&self, given: &Given<'_>) -> Result<Params> {
        self.input.params(given.memory(&self.room))
    }

    async fn program(host: Host, params: Rc<Params>) -> Result<Outcome, Fault> {
        Ok(weft_barnes::run(&host.net(), &params, host.ns_each, &|step| host.at(mark(step)))
            .await?)
    }

    fn sequential(params: &Params, bar: &Bar) -> Result<Outcome, Stopped> {
        weft_barnes::sequential(params, &|step| bar.told(mark(step)))
    }

    fn count(_: &Params, sequential: &Outcome) -> f64 {
        sequential.interactions as f64
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = barnes::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
