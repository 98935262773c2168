//! `weft sim app dd`.

use super::about::{self, About};
use super::bar::{Bar, Mark};
use super::case::{Case, Given, Host, Placed};
use super::hosts::Fault;
use super::report::Figures;
use crate::app::dd;
use anyhow::Result;
use std::rc::Rc;
use weft_apps::Stopped;
use weft_dd::{Objects, Outcome, Params, Step};
use weft_run::misuse;

/// The options of the application.
pub type Dd = Placed<dd::Input>;

fn mark(step: Step) -> Mark {
    Mark { done: step.solution as u64, of: step.solutions as u64, change: step.change() }
}

impl Case for Dd {
    const ABOUT: &'static About = &about::DD;
    type Input = (Params, Option<Objects>);
    type Outcome = Outcome;

    fn input(&self, given: &Given<'_>) -> Result<Self::Input> {
        self.input.check_simulated().map_err(misuse::of)?;
        let params = self.input.params(given.hosts(), given.memory(&self.room))?;
        let params = Params { ns_per_unit: Some(given.ns_each), ..params };
        Ok((params, self.input.objects()))
    }

    fn tolerance((params, _): &Self::Input) -> Option<f64> {
        Some(params.tolerance)
    }

    async fn program(host: Host, input: Rc<Self::Input>) -> Result<Outcome, Fault> {
        let (params, objects) = &*input;
        let tell = |step| host.at(mark(step));
        Ok(match objects {
            None => weft_dd::run(&host.env.world(), params, &tell).await?,
            Some(objects) => weft_dd::run_objects(&host.net(), params, *objects, &tell).await?,
        })
    }

    fn sequential((params, _): &Self::Input, bar: &Bar) -> Result<Outcome, Stopped> {
        Ok(weft_dd::sequential(params, &|step| bar.at(mark(step))))
    }

    fn agrees(outcome: &Outcome, sequential: &Outcome) -> bool {
        outcome.agrees_with(sequential)
    }

    fn count(_: &Self::Input, sequential: &Outcome) -> f64 {
        sequential.rows.iter().map(|row| row.work).sum::<u64>() as f64
    }

    fn figures(outcome: &Outcome) -> Figures {
        let result = dd::result(outcome);
        Figures { checksum: outcome.checksum, elapsed: outcome.elapsed, result }
    }
}
