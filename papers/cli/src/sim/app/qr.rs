//! `weft sim app qr`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case, Given, Placed, Time};
use super::report::Figures;
use crate::app::qr;
use anyhow::Result;
use clap::Command;
use std::rc::Rc;
use weft_models::net::RankFailure;
use weft_qr::{Outcome, Params, Step};
use weft_sim::Env;

/// The application.
#[derive(Debug)]
pub struct Qr;

fn mark(step: Step) -> Mark {
    Mark::steps(step.steps as u64, step.of as u64)
}

impl Case for Qr {
    const NAME: &'static str = "app qr";
    const TITLES: [&'static str; 2] = ["simulated QR", "sequential QR"];
    const THINGS: &'static str = "values";
    const TIME: Time = (
        "ns-per-value",
        "2",
        "Computing time of a value, each time it is reflected, in nanoseconds of virtual time",
    );
    type Options = Placed<qr::Input>;
    type Input = Params;
    type Outcome = Outcome;
    type Error = RankFailure;

    fn usual(command: Command) -> Command {
        command.mut_arg("size", |size| size.default_value("256"))
    }

    fn input(own: &Self::Options, given: &Given<'_>) -> Result<Params> {
        let hosts = given.hosts();
        own.input.params(given.config.seed, hosts, 1, own.room.part(hosts))
    }

    async fn program(
        env: Env,
        params: Rc<Params>,
        ns: f64,
        bar: Shown,
    ) -> Result<Outcome, RankFailure> {
        let tell = |step| bar.at(mark(step));
        weft_qr::run(&net(&env), &params, ns, &tell).await
    }

    fn sequential(params: &Params, bar: &Bar) -> Outcome {
        let sequential = weft_qr::sequential(params, &|step| bar.told(mark(step)));
        sequential.expect("nobody stops it")
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn count(params: &Params, _: &Outcome) -> f64 {
        let (rows, cols) = (params.matrix.rows, params.matrix.cols);
        let values = |step: usize| ((cols - step - 1) * (rows - step)) as f64;
        (0..rows.min(cols)).map(values).sum()
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = qr::result(outcome, None);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
