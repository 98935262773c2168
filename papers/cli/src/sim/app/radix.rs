//! `weft sim app radix`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case, Given, Placed, Time};
use super::report::Figures;
use crate::app::radix;
use anyhow::Result;
use clap::Command;
use std::rc::Rc;
use weft_apps::Failure;
use weft_radix::{Division, Outcome, Params, Step};
use weft_sim::Env;

/// The application.
#[derive(Debug)]
pub struct Radix;

/// The parameters, and the division of the keys.
type Input = (Params, Division);

fn mark(step: Step) -> Mark {
    Mark::steps(step.passes.into(), step.of.into())
}

impl Case for Radix {
    const NAME: &'static str = "app radix";
    const TITLES: [&'static str; 2] = ["simulated Radix", "sequential Radix"];
    const THINGS: &'static str = "keys";
    const TIME: Time = (
        "ns-per-key",
        "10",
        "Computing time of a key, in each pass, in nanoseconds of virtual time",
    );
    type Options = Placed<radix::Input>;
    type Input = Input;
    type Outcome = Outcome;
    type Error = Failure;

    fn usual(command: Command) -> Command {
        command.mut_arg("keys", |keys| keys.default_value("1000000"))
    }

    fn input(own: &Self::Options, given: &Given<'_>) -> Result<Input> {
        let params = own.input.params(own.room.part(given.hosts()))?;
        Ok((params, own.input.division()))
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
