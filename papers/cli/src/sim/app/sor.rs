//! `weft sim app sor`.

use super::bar::{Bar, Mark, Shown};
use super::case::Case;
use super::report::Figures;
use super::{nanoseconds, Common};
use crate::app::{numbers, sor, Room};
use anyhow::Result;
use std::rc::Rc;
use weft::GroupError;
use weft_sim::{Env, SimConfig};
use weft_sor::{Outcome, Params, Step};

/// Red-black successive over-relaxation of a heated plate (SOR)
#[derive(Debug, clap::Args)]
#[command(mut_args(numbers), mut_arg("size", |size| size.default_value("256")))]
pub struct Sor {
    #[command(flatten)]
    input: sor::Input,
    /// Computing time of a cell, each time it is relaxed, in nanoseconds of virtual time
    #[arg(long, value_name = "NS", default_value_t = 2.0, value_parser = nanoseconds)]
    ns_per_cell: f64,
    #[command(flatten)]
    room: Room,
    #[command(flatten)]
    common: Common,
}

fn mark(step: Step) -> Mark {
    Mark { done: step.iterations, of: step.max_iterations, change: step.residual }
}

impl Case for Sor {
    const NAME: &'static str = "app sor";
    const TITLES: [&'static str; 2] = ["simulated SOR", "sequential SOR"];
    const THINGS: &'static str = "cells";
    type Input = Params;
    type Outcome = Outcome;
    type Error = GroupError;

    fn common(&self) -> &Common {
        &self.common
    }

    fn ns_each(&self) -> f64 {
        self.ns_per_cell
    }

    fn input(&self, config: &SimConfig) -> Result<Params> {
        let hosts = config.hosts as usize;
        let params = self.input.params(hosts, self.room.part(hosts), false)?;
        Ok(Params { ns_per_cell: Some(self.ns_per_cell), ..params })
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
