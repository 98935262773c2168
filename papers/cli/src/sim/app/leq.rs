//! `weft sim app leq`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case};
use super::report::Figures;
use super::{nanoseconds, Common};
use crate::app::{leq, numbers, Room};
use anyhow::Result;
use std::rc::Rc;
use weft_leq::{Outcome, Params, RunError, Step};
use weft_sim::{Env, SimConfig};

/// Linear equations by Jacobi's iteration, the vector a replicated object (LEQ)
#[derive(Debug, clap::Args)]
#[command(mut_args(numbers), mut_arg("equations", |equations| equations.default_value("200")))]
pub struct Leq {
    #[command(flatten)]
    input: leq::Input,
    /// Computing time of a product, of a coefficient and an unknown, in nanoseconds of virtual time
    #[arg(long, value_name = "NS", default_value_t = 2.0, value_parser = nanoseconds)]
    ns_per_product: f64,
    #[command(flatten)]
    room: Room,
    #[command(flatten)]
    common: Common,
}

fn mark(step: Step) -> Mark {
    Mark { done: step.iterations, of: step.max_iterations, change: step.change }
}

impl Case for Leq {
    const NAME: &'static str = "app leq";
    const TITLES: [&'static str; 2] = ["simulated LEQ", "sequential LEQ"];
    const THINGS: &'static str = "products";
    type Input = Params;
    type Outcome = Outcome;
    type Error = RunError;

    fn common(&self) -> &Common {
        &self.common
    }

    fn ns_each(&self) -> f64 {
        self.ns_per_product
    }

    fn input(&self, config: &SimConfig) -> Result<Params> {
        let hosts = config.hosts as usize;
        self.input.params(hosts, self.room.part(hosts))
    }

    fn tolerance(params: &Params) -> Option<f64> {
        Some(params.tolerance)
    }

    async fn program(
        env: Env,
        params: Rc<Params>,
        ns: f64,
        bar: Shown,
    ) -> Result<Outcome, RunError> {
        let tell = |step| bar.at(mark(step));
        weft_leq::run(&net(&env), &params, ns, &tell).await
    }

    fn sequential(params: &Params, bar: &Bar) -> Outcome {
        let sequential = weft_leq::sequential(params, &|step| bar.told(mark(step)));
        sequential.expect("nobody stops it")
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn count(_: &Params, sequential: &Outcome) -> f64 {
        (sequential.x.len() as f64).powi(2) * sequential.iterations as f64
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = leq::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
