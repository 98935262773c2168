//! `weft sim app qr`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case};
use super::report::Figures;
use super::{nanoseconds, Common};
use crate::app::{numbers, qr, Room};
use anyhow::Result;
use std::rc::Rc;
use weft_models::net::RankFailure;
use weft_qr::{Outcome, Params, Step};
use weft_sim::{Env, SimConfig};

/// QR factorisation with pivoted columns, by reductions and broadcasts (QR)
#[derive(Debug, clap::Args)]
#[command(mut_args(numbers), mut_arg("size", |size| size.default_value("256")))]
pub struct Qr {
    #[command(flatten)]
    input: qr::Input,
    /// Computing time of a value, each time it is reflected, in nanoseconds of virtual time
    #[arg(long, value_name = "NS", default_value_t = 2.0, value_parser = nanoseconds)]
    ns_per_value: f64,
    #[command(flatten)]
    room: Room,
    #[command(flatten)]
    common: Common,
}

fn mark(step: Step) -> Mark {
    Mark::steps(step.steps as u64, step.of as u64)
}

impl Case for Qr {
    const NAME: &'static str = "app qr";
    const TITLES: [&'static str; 2] = ["simulated QR", "sequential QR"];
    const THINGS: &'static str = "values";
    type Input = Params;
    type Outcome = Outcome;
    type Error = RankFailure;

    fn common(&self) -> &Common {
        &self.common
    }

    fn ns_each(&self) -> f64 {
        self.ns_per_value
    }

    fn input(&self, config: &SimConfig) -> Result<Params> {
        let hosts = config.hosts as usize;
        self.input.params(config.seed, hosts, 1, self.room.part(hosts))
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
