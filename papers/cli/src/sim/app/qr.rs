//! `weft sim app qr`.

use super::about::{self, About};
use super::bar::{Bar, Mark};
use super::case::{Case, Given, Host, Placed};
use super::hosts::Fault;
use super::report::Figures;
use crate::app::qr;
use anyhow::Result;
use std::rc::Rc;
use weft_apps::Stopped;
use weft_qr::{Outcome, Params, Step};

/// The options of the application.
pub type Qr = Placed<qr::Input>;

fn mark(step: Step) -> Mark {
    Mark::steps(step.steps as u64, step.of as u64)
}

impl Case for Qr {
    const ABOUT: &'static About = &about::QR;
    type Input = Params;
    type Outcome = Outcome;

    fn input(&self, given: &Given<'_>) -> Result<Params> {
        self.input.params(given.config.seed, given.hosts(), 1, given.memory(&self.room))
    }

    async fn program(host: Host, params: Rc<Params>) -> Result<Outcome, Fault> {
        Ok(weft_qr::run(&host.net(), &params, host.ns_each, &|step| host.at(mark(step))).await?)
    }

    fn sequential(params: &Params, bar: &Bar) -> Result<Outcome, Stopped> {
        weft_qr::sequential(params, &|step| bar.told(mark(step)))
    }

    fn count(params: &Params, _: &Outcome) -> f64 {
        let (rows, cols) = (params.matrix.rows, params.matrix.cols);
        let values = |step: usize| ((cols - step - 1) * (rows - step)) as f64;
        (0..rows.min(cols)).map(values).sum()
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = qr::result(outcome, None);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
