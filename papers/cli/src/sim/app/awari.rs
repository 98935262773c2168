//! `weft sim app awari`.

use super::about::{self, About};
use super::bar::{Bar, Mark};
use super::case::{Case, Given, Host, Placed};
use super::hosts::Fault;
use super::report::Figures;
use crate::app::awari;
use anyhow::Result;
use std::rc::Rc;
use weft_apps::Stopped;
use weft_awari::{Outcome, Params, Step};

/// Options of the application.
#[derive(Debug, clap::Args)]
pub struct Own {
    #[command(flatten)]
    input: awari::Input,
    #[command(flatten)]
    form: awari::Form,
}

/// The options of the application.
pub type Awari = Placed<Own>;

fn mark(step: Step) -> Mark {
    Mark::steps(step.done, step.positions)
}

type Input = (Params, awari::Form);

impl Case for Awari {
    const ABOUT: &'static About = &about::AWARI;
    type Input = Input;
    type Outcome = Outcome;

    fn input(&self, given: &Given<'_>) -> Result<Input> {
        self.input.form.check()?;
        Ok((self.input.input.params(given.memory(&self.room))?, self.input.form))
    }

    async fn program(host: Host, input: Rc<Input>) -> Result<Outcome, Fault> {
        let (params, form) = &*input;
        Ok(form.run(&host.net(), params, host.ns_each, &|step| host.at(mark(step))).await?)
    }

    fn sequential((params, _): &Input, bar: &Bar) -> Result<Outcome, Stopped> {
        weft_awari::sequential(params, &|step| bar.told(mark(step)))
    }

    fn count(_: &Input, sequential: &Outcome) -> f64 {
        (sequential.database.len() + sequential.updates) as f64
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = awari::result(outcome, &[]);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
