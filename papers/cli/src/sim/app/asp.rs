//! `weft sim app asp`.

use super::bar::{Bar, Mark, Shown};
use super::case::{Case, Given, Placed, Time};
use super::report::Figures;
use crate::app::asp;
use anyhow::Result;
use clap::Command;
use std::rc::Rc;
use weft::GroupError;
use weft_asp::{Graph, Outcome, Params};
use weft_run::misuse;
use weft_sim::Env;

/// The application.
#[derive(Debug)]
pub struct Asp;

fn mark(done: u64, of: u64) -> Mark {
    Mark::steps(done, of)
}

impl Case for Asp {
    const NAME: &'static str = "app asp";
    const TITLES: [&'static str; 2] = ["simulated ASP", "sequential ASP"];
    const THINGS: &'static str = "cells";
    const TIME: Time = (
        "ns-per-cell",
        "0.5",
        "Computing time of a cell of the distances, in each step, in nanoseconds of virtual time",
    );
    type Options = Placed<asp::Input>;
    type Input = Params;
    type Outcome = Outcome;
    type Error = GroupError;

    fn usual(command: Command) -> Command {
        command.mut_arg("nodes", |nodes| nodes.visible_alias("size").default_value("256"))
    }

    fn input(own: &Self::Options, given: &Given<'_>) -> Result<Params> {
        let hosts = given.hosts();
        let memory = own.room.part(hosts);
        let params = Params {
            graph: own.input.graph(given.config.seed, hosts, memory)?,
            // The sequential program has all distances.
            memory_limit: memory.bytes().saturating_mul(hosts as u64),
            ns_per_cell: Some(given.ns_each),
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
