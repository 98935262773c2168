//! `weft sim app asp`.

use super::about::{self, About};
use super::bar::{Bar, Mark};
use super::case::{Case, Given, Host, Placed};
use super::hosts::Fault;
use super::report::Figures;
use crate::app::asp;
use anyhow::Result;
use clap::Command;
use std::rc::Rc;
use weft_apps::Stopped;
use weft_asp::{Graph, Outcome, Params};
use weft_run::misuse;

/// The options of the application.
pub type Asp = Placed<asp::Input>;

fn mark(done: u64, of: u64) -> Mark {
    Mark::steps(done, of)
}

impl Case for Asp {
    const ABOUT: &'static About = &about::ASP;
    type Input = Params;
    type Outcome = Outcome;

    fn usual(command: Command) -> Command {
        Self::ABOUT.usual(command).mut_arg("nodes", |nodes| nodes.visible_alias("size"))
    }

    fn input(&self, given: &Given<'_>) -> Result<Params> {
        let hosts = given.hosts();
        let memory = given.memory(&self.room);
        let params = Params {
            graph: self.input.graph(given.config.seed, hosts, memory)?,
            // The sequential program has all distances.
            memory_limit: memory.bytes().saturating_mul(hosts as u64),
            ns_per_cell: Some(given.ns_each),
            ..Params::default()
        };
        params.check(1).map_err(misuse::of)?;
        Ok(params)
    }

    async fn program(host: Host, params: Rc<Params>) -> Result<Outcome, Fault> {
        let (world, ns_per_cell) = (host.env.world(), params.ns_per_cell);
        // The first host sends the others their parts of the graph.
        let other = Params { graph: Graph::default(), ns_per_cell, ..Params::default() };
        let params = if host.env.host == 0 { &*params } else { &other };
        Ok(weft_asp::run(&world, params, &|done, of| host.at(mark(done, of))).await?)
    }

    fn sequential(params: &Params, bar: &Bar) -> Result<Outcome, Stopped> {
        Ok(weft_asp::sequential(params, &|done, of| bar.at(mark(done, of))))
    }

    fn count(_: &Params, sequential: &Outcome) -> f64 {
        (sequential.nodes as f64).powi(3)
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = asp::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
