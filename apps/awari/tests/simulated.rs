//! The parallel program on simulated clusters: the same scores as the sequential one.
#![allow(non_snake_case)]

use std::rc::Rc;
use weft_awari::{positions, run, run_level_by_calls, sequential, Outcome, Params};
use weft_models::net::{Live, Net};
use weft_sim::{Sim, SimConfig};

/// Runs on all hosts; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig, ns: f64) -> Vec<Outcome> {
    let params = *params;
    let mut sim =
        Sim::new("awari", config).of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
    let all = sim.results(move |env| async move {
        let net: Live = env.net().expect("no agent is chosen");
        run(&net, &params, ns, &|_| {}).await.expect("no rank fails")
    });
    all.unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn run__same_scores_as_sequential_on_any_number_of_ranks_and_under_loss() {
    for (stones, ranks) in [(5, 1), (5, 2), (5, 3), (4, 7)] {
        let params = Params { stones, ..Params::default() };
        let expected = sequential(&params, &|_| Ok(())).unwrap();
        for config in [SimConfig::new(ranks, 1), SimConfig::new(ranks, 2).lossy()] {
            let outcomes = simulate(&params, config, 0.0);
            assert_eq!(outcomes.len(), ranks as usize);
            assert!(outcomes.iter().all(|o| o.agrees_with(&expected)), "{stones} on {ranks}");
            assert_eq!(outcomes[0].database.len(), (0..=stones).map(positions).sum::<u64>());
        }
    }
}

#[test]
fn run__less_time_on_more_ranks() {
    let params = Params { stones: 6, ..Params::default() };
    let alone = simulate(&params, SimConfig::new(1, 1), 500.0);
    let four = simulate(&params, SimConfig::new(4, 1), 500.0);
    let (one, four) = (alone[0].elapsed, four[0].elapsed);
    assert!(four < one / 2, "{four:?} of {one:?}");
}

#[test]
fn run_level_by_calls__same_scores_as_sequential_and_under_loss() {
    let params = Params { stones: 5, ..Params::default() };
    let expected = Rc::new(sequential(&params, &|_| Ok(())).unwrap().database);
    for (ranks, per_call) in [(1, 20), (3, 1), (4, 20)] {
        for config in [SimConfig::new(ranks, 1), SimConfig::new(ranks, 2).lossy()] {
            let sim = Sim::new("awari by calls", config);
            let mut sim = sim.of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
            let known = Rc::clone(&expected);
            let times = sim.results(move |env| {
                let known = Rc::clone(&known);
                async move {
                    let net: Live = env.net().expect("no agent is chosen");
                    let level = run_level_by_calls(&net, 5, &known, per_call, 100.0).await;
                    let (scores, time) = level.expect("no rank fails");
                    let all = known.scores(5).expect("it is there");
                    let mine = all.iter().copied().skip(net.rank()).step_by(net.size());
                    assert_eq!(scores, mine.collect::<Vec<i8>>(), "rank {}", net.rank());
                    time
                }
            });
            let times = times.unwrap_or_else(|failure| panic!("{failure}"));
            assert!(times.iter().all(|time| !time.is_zero()));
        }
    }
}
