//! `weft sim app awari`.

use super::bar::{Bar, Mark, Shown};
use super::case::{net, Case, Given, Placed, Time};
use super::report::Figures;
use crate::app::awari;
use anyhow::Result;
use clap::Command;
use std::rc::Rc;
use weft_awari::{CallsError, Outcome, Params, Step};
use weft_sim::Env;

/// Options of the application.
#[derive(Debug, clap::Args)]
pub struct Own {
    #[command(flatten)]
    input: awari::Input,
    #[command(flatten)]
    form: awari::Form,
}

/// The application.
#[derive(Debug)]
pub struct Awari;

fn mark(step: Step) -> Mark {
    Mark::steps(step.done, step.positions)
}

type Input = (Params, awari::Form);

impl Case for Awari {
    const NAME: &'static str = "app awari";
    const TITLES: [&'static str; 2] = ["simulated Awari", "sequential Awari"];
    const THINGS: &'static str = "positions and updates";
    const TIME: Time = (
        "ns-per-update",
        "100",
        "Computing time of a position's captures, and of an update of a predecessor, in \
         nanoseconds of virtual time",
    );
    type Options = Placed<Own>;
    type Input = Input;
    type Outcome = Outcome;
    type Error = CallsError;

    fn usual(command: Command) -> Command {
        command.mut_arg("stones", |stones| stones.default_value("8"))
    }

    fn input(own: &Self::Options, given: &Given<'_>) -> Result<Input> {
        own.input.form.check()?;
        Ok((own.input.input.params(own.room.part(given.hosts()))?, own.input.form))
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
