//! `weft sim app awari`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case};
use super::report::Figures;
use super::{nanoseconds, Common};
use crate::app::{awari, numbers, Room};
use anyhow::Result;
use std::rc::Rc;
use weft_awari::{CallsError, Outcome, Params, Step};
use weft_sim::{Env, SimConfig};

/// Endgame databases of Awari, positions at their owners (Awari)
#[derive(Debug, clap::Args)]
#[command(mut_args(numbers), mut_arg("stones", |stones| stones.default_value("8")))]
pub struct Awari {
    #[command(flatten)]
    input: awari::Input,
    #[command(flatten)]
    form: awari::Form,
    /// Computing time of a position's captures, and of an update of a predecessor, in nanoseconds
    /// of virtual time
    #[arg(long, value_name = "NS", default_value_t = 100.0, value_parser = nanoseconds)]
    ns_per_update: f64,
    #[command(flatten)]
    room: Room,
    #[command(flatten)]
    common: Common,
}

fn mark(step: Step) -> Mark {
    Mark::steps(step.done, step.positions)
}

type Input = (Params, awari::Form);

impl Case for Awari {
    const NAME: &'static str = "app awari";
    const TITLES: [&'static str; 2] = ["simulated Awari", "sequential Awari"];
    const THINGS: &'static str = "positions and updates";
    type Input = Input;
    type Outcome = Outcome;
    type Error = CallsError;

    fn common(&self) -> &Common {
        &self.common
    }

    fn ns_each(&self) -> f64 {
        self.ns_per_update
    }

    fn input(&self, config: &SimConfig) -> Result<Input> {
        self.form.check()?;
        Ok((self.input.params(self.room.part(config.hosts as usize))?, self.form))
    }

    async fn program(
        env: Env,
        input: Rc<Input>,
        ns: f64,
        bar: Shown,
    ) -> Result<Outcome, CallsError> {
        let tell = |step| bar.at(mark(step));
        let (params, form) = &*input;
        form.run(&net(&env), params, ns, &tell).await
    }

    fn sequential((params, _): &Input, bar: &Bar) -> Outcome {
        let sequential = weft_awari::sequential(params, &|step| bar.told(mark(step)));
        sequential.expect("nobody stops it")
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn count(_: &Input, sequential: &Outcome) -> f64 {
        (sequential.database.len() + sequential.updates) as f64
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = awari::result(outcome, &[]);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
