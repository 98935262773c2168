//! `weft sim app asp`.

use super::bar::{Bar, Mark, Shown};
use super::case::Case;
use super::report::Figures;
use super::{nanoseconds, Common};
use crate::app::{asp, numbers, Room};
use anyhow::Result;
use std::rc::Rc;
use weft::GroupError;
use weft_asp::{Graph, Outcome, Params};
use weft_run::misuse;
use weft_sim::{Env, SimConfig};

/// All-pairs shortest paths by pipelined broadcast (ASP)
#[derive(Debug, clap::Args)]
#[command(mut_args(numbers))]
#[command(mut_arg("nodes", |nodes| nodes.visible_alias("size").default_value("256")))]
pub struct Asp {
    #[command(flatten)]
    input: asp::Input,
    /// Computing time of a cell of the distances, in each step, in nanoseconds of virtual time
    #[arg(long, value_name = "NS", default_value_t = 0.5, value_parser = nanoseconds)]
    ns_per_cell: f64,
    #[command(flatten)]
    room: Room,
    #[command(flatten)]
    common: Common,
}

fn mark(done: u64, of: u64) -> Mark {
    Mark::steps(done, of)
}

impl Case for Asp {
    const NAME: &'static str = "app asp";
    const TITLES: [&'static str; 2] = ["simulated ASP", "sequential ASP"];
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
        let memory = self.room.part(hosts);
        let params = Params {
            graph: self.input.graph(config.seed, hosts, memory)?,
            // The sequential program has all distances.
            memory_limit: memory.bytes().saturating_mul(hosts as u64),
            ns_per_cell: Some(self.ns_per_cell),
            ..Params::default()
        };
        params.check(1).map_err(misuse::of)?;
        Ok(params)
    }

    async fn program(
        env: Env,
        params: Rc<Params>,
        _: f64,
        bar: Shown,
    ) -> Result<Outcome, GroupError> {
        let world = env.world();
        let tell = |done, of| bar.at(mark(done, of));
        if env.host == 0 {
            return weft_asp::run(&world, &params, &tell).await;
        }
        // The first host sends the others their parts of the graph.
        let ns_per_cell = params.ns_per_cell;
        let other = Params { graph: Graph::default(), ns_per_cell, ..Params::default() };
        weft_asp::run(&world, &other, &tell).await
    }

    fn sequential(params: &Params, bar: &Bar) -> Outcome {
        weft_asp::sequential(params, &|done, of| bar.at(mark(done, of)))
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn count(_: &Params, sequential: &Outcome) -> f64 {
        (sequential.nodes as f64).powi(3)
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = asp::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
