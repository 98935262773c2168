//! `weft sim swarm --model`: the programming models on random clusters.

use super::runs::Runs;
use serde_json::json;
use std::ops::Range;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Instant;
use weft_swarm::{Model, Report};

/// The models to run: one, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    One(Model),
    All,
}

impl FromStr for Chosen {
    type Err = String;

    fn from_str(text: &str) -> Result<Chosen, String> {
        if text == "all" {
            return Ok(Chosen::All);
        }
        let found = Model::ALL.into_iter().find(|model| model.name() == text);
        found.map(Chosen::One).ok_or_else(|| {
            let names: Vec<&str> = Model::ALL.iter().map(|model| model.name()).collect();
            format!("there is no such model: {}, or all", names.join(", "))
        })
    }
}

impl Chosen {
    fn models(self) -> Vec<Model> {
        match self {
            Chosen::One(model) => vec![model],
            Chosen::All => Model::ALL.to_vec(),
        }
    }
}

/// Prints the result of a seed.
fn print(model: Model, seed: u64, result: &Result<Report, String>, json: bool) {
    match result {
        Ok(report) if json => println!(
            "{}",
            json!({
                "scenario": "swarm", "model": model.name(), "seed": seed, "pass": true,
                "operations": report.operations, "failed_as_they_must": report.errors,
                "virtual_ns": report.outcome.at,
            })
        ),
        Ok(_) => {}
        Err(what) => {
            let replay = model.replay(seed);
            if json {
                let model = model.name();
                println!(
                    "{}",
                    json!({
                        "scenario": "swarm", "model": model, "seed": seed, "pass": false,
                        "what": what, "replay": replay,
                    })
                );
            }
            eprintln!("FAIL {model}: {what}\nseed {seed}; replay: {replay}");
        }
    }
}

/// Runs the seeds of each model.
pub fn run(chosen: Chosen, seeds: Range<u64>, jobs: usize, go_on: bool, json: bool) -> ExitCode {
    let all: Vec<(Model, u64)> = seeds
        .flat_map(|seed| chosen.models().into_iter().map(move |model| (model, seed)))
        .collect();
    let (count, start) = (all.len(), Instant::now());
    let run = |number: u64| {
        let (model, seed) = all[number as usize];
        model.run_seed(seed)
    };
    let (mut passed, mut failed, mut operations, mut errors) = (0, 0, 0, 0);
    let runs = Runs { numbers: 0..count as u64, jobs, keep_going: go_on, run };
    runs.all(|number, result| {
        let (model, seed) = all[number as usize];
        print(model, seed, &result, json);
        match result {
            Ok(report) => {
                passed += 1;
                operations += report.operations;
                errors += report.errors;
            }
            Err(_) => failed += 1,
        }
    });
    if !json {
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{operations} operations of models checked, {errors} ended with an error as they must, \
             {seconds:.1} s"
        );
        println!("{passed} passed, {failed} failed, {} skipped", count - passed - failed);
    }
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
