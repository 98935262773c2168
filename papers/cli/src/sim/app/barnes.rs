//! `weft sim app barnes`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case};
use super::report::Figures;
use super::{nanoseconds, Common};
use crate::app::{barnes, numbers, Room};
use anyhow::Result;
use std::rc::Rc;
use weft_apps::Failure;
use weft_barnes::{Outcome, Params, Step};
use weft_sim::{Env, SimConfig};

/// Gravitation of many bodies by the method of Barnes and Hut, in coherent regions (Barnes)
#[derive(Debug, clap::Args)]
#[command(mut_args(numbers), mut_arg("bodies", |bodies| bodies.default_value("4096")))]
#[command(mut_arg("steps", |steps| steps.default_value("4")))]
pub struct Barnes {
    #[command(flatten)]
    input: barnes::Input,
    /// Computing time of an interaction, the pull of a body or a cell on a body, in nanoseconds of
    /// virtual time
    #[arg(long, value_name = "NS", default_value_t = 20.0, value_parser = nanoseconds)]
    ns_per_pull: f64,
    #[command(flatten)]
    room: Room,
    #[command(flatten)]
    common: Common,
}

fn mark(step: Step<'_>) -> Mark {
    Mark::steps(step.steps, step.of)
}

impl Case for Barnes {
    const NAME: &'static str = "app barnes";
    const TITLES: [&'static str; 2] = ["simulated Barnes", "sequential Barnes"];
    const THINGS: &'static str = "interactions";
    type Input = Params;
    type Outcome = Outcome;
    type Error = Failure;

    fn common(&self) -> &Common {
        &self.common
    }

    fn ns_each(&self) -> f64 {
        self.ns_per_pull
    }

    fn input(&self, config: &SimConfig) -> Result<Params> {
        self.input.params(self.room.part(config.hosts as usize))
    }

    async fn program(
        env: Env,
        params: Rc<Params>,
        ns: f64,
        bar: Shown,
    ) -> Result<Outcome, Failure> {
        let tell = |step: Step<'_>| bar.at(mark(step));
        weft_barnes::run(&net(&env), &params, ns, &tell).await
    }

    fn sequential(params: &Params, bar: &Bar) -> Outcome {
        let sequential = weft_barnes::sequential(params, &|step| bar.told(mark(step)));
        sequential.expect("nobody stops it")
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn count(_: &Params, sequential: &Outcome) -> f64 {
        sequential.interactions as f64
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = barnes::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
