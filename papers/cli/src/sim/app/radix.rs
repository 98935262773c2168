//! `weft sim app radix`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case};
use super::report::Figures;
use super::{nanoseconds, Common};
use crate::app::{numbers, radix, Room};
use anyhow::Result;
use std::rc::Rc;
use weft_apps::Failure;
use weft_radix::{Division, Outcome, Params, Step};
use weft_sim::{Env, SimConfig};

/// Radix sort, the keys in coherent regions (Radix)
#[derive(Debug, clap::Args)]
#[command(mut_args(numbers), mut_arg("keys", |keys| keys.default_value("1000000")))]
pub struct Radix {
    #[command(flatten)]
    input: radix::Input,
    /// Computing time of a key, in each pass, in nanoseconds of virtual time
    #[arg(long, value_name = "NS", default_value_t = 10.0, value_parser = nanoseconds)]
    ns_per_key: f64,
    #[command(flatten)]
    room: Room,
    #[command(flatten)]
    common: Common,
}

/// The parameters, and the division of the keys.
type Input = (Params, Division);

fn mark(step: Step) -> Mark {
    Mark::steps(step.passes.into(), step.of.into())
}

impl Case for Radix {
    const NAME: &'static str = "app radix";
    const TITLES: [&'static str; 2] = ["simulated Radix", "sequential Radix"];
    const THINGS: &'static str = "keys";
    type Input = Input;
    type Outcome = Outcome;
    type Error = Failure;

    fn common(&self) -> &Common {
        &self.common
    }

    fn ns_each(&self) -> f64 {
        self.ns_per_key
    }

    fn input(&self, config: &SimConfig) -> Result<Input> {
        let params = self.input.params(self.room.part(config.hosts as usize))?;
        Ok((params, self.input.division()))
    }

    async fn program(env: Env, input: Rc<Input>, ns: f64, bar: Shown) -> Result<Outcome, Failure> {
        let (params, division) = &*input;
        let division = Division { ns_per_key: ns, ..*division };
        let tell = |step| bar.at(mark(step));
        weft_radix::run(&net(&env), params, &division, &tell).await
    }

    fn sequential((params, _): &Input, bar: &Bar) -> Outcome {
        let sequential = weft_radix::sequential(params, &|step| bar.told(mark(step)));
        sequential.expect("nobody stops it")
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        // The first host alone has the keys.
        let same = outcome.keys.is_empty() || outcome.keys == sequential.keys;
        outcome.agrees_with(sequential) && same
    }

    fn count(_: &Input, sequential: &Outcome) -> f64 {
        sequential.count as f64 * f64::from(sequential.passes)
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = radix::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
