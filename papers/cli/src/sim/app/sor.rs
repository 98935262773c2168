//! `weft sim app sor`.

use super::bar::{Bar, Mark, Shown};
use super::case::{Case, Given, Placed, Time};
use super::report::Figures;
use crate::app::sor;
use anyhow::Result;
use clap::Command;
use std::rc::Rc;
use weft::GroupError;
use weft_sim::Env;
use weft_sor::{Outcome, Params, Step};

/// The application.
#[derive(Debug)]
pub struct Sor;

fn mark(step: Step) -> Mark {
    Mark { done: step.iterations, of: step.max_iterations, change: step.residual }
}

impl Case for Sor {
    const NAME: &'static str = "app sor";
    const TITLES: [&'static str; 2] = ["simulated SOR", "sequential SOR"];
    const THINGS: &'static str = "cells";
    const TIME: Time = (
        "ns-per-cell",
        "2",
        "Computing time of a cell, each time it is relaxed, in nanoseconds of virtual time",
    );
    type Options = Placed<sor::Input>;
    type Input = Params;
    type Outcome = Outcome;
    type Error = GroupError;

    fn usual(command: Command) -> Command {
        command.mut_arg("size", |size| size.default_value("256"))
    }

    fn input(own: &Self::Options, given: &Given<'_>) -> Result<Params> {
        let hosts = given.hosts();
        let params = own.input.params(hosts, own.room.part(hosts), false)?;
        Ok(Params { ns_per_cell: Some(given.ns_each), ..params })
    }

    fn tolerance(params: &Params) -> Option<f64> {
        Some(params.tolerance)
    }

    async fn program(
        env: Env,
        params: Rc<Params>,
        _: f64,
        bar: Shown,
    ) -> Result<Outcome, GroupError> {
        weft_sor::run(&env.world(), &params, &|step| bar.at(mark(step))).await
    }

    fn sequential(params: &Params, bar: &Bar) -> Outcome {
        weft_sor::sequential(params, &|step| bar.at(mark(step)))
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn count(params: &Params, sequential: &Outcome) -> f64 {
        let cells = (params.rows - 2) as f64 * params.cols as f64;
        cells * sequential.iterations as f64
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = sor::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
