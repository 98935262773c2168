//! The parallel program on simulated clusters: the same bits as the sequential one.
#![allow(non_snake_case)]

use std::rc::Rc;
use weft_barnes::{run, run_walk, sequential, two_clusters, Outcome, Params, Walk, SEED};
use weft_models::net::Live;
use weft_sim::{test_sim, SimConfig};

/// Runs on all hosts; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig, ns: f64) -> Vec<Outcome> {
    let sim = test_sim!("barnes", config);
    sim.outcomes(params, move |net, params| async move { run(&net, &params, ns, &|_| {}).await })
}

fn params(count: usize) -> Params {
    Params { bodies: two_clusters(count, SEED), steps: 3, ..Params::default() }
}

#[test]
fn run__same_bits_as_sequential_on_any_number_of_ranks_and_under_loss() {
    for (count, ranks) in [(300, 1), (300, 3), (500, 4), (1, 2)] {
        let params = params(count);
        let expected = sequential(&params, &|_| Ok(())).unwrap();
        for config in [SimConfig::new(ranks, 1), SimConfig::new(ranks, 2).lossy()] {
            let outcomes = simulate(&params, config, 0.0);
            assert_eq!(outcomes.len(), ranks as usize);
            for outcome in outcomes {
                assert!(outcome.agrees_with(&expected), "{count} on {ranks}");
                assert_eq!(outcome.energies, expected.energies);
            }
        }
    }
}

#[test]
fn run__less_time_on_more_ranks() {
    let alone = simulate(&params(1000), SimConfig::new(1, 1), 50.0);
    let four = simulate(&params(1000), SimConfig::new(4, 1), 50.0);
    assert!(four[0].elapsed < alone[0].elapsed / 2, "{:?}", four[0].elapsed);
}

#[test]
fn run_walk__ends_on_any_number_of_ranks_and_takes_its_computing_at_least() {
    let params = params(300);
    for ranks in [1, 3, 5] {
        let walk = Rc::new(Walk::new(&params, ranks as usize));
        let least = walk.interactions() as f64 * 100.0 / f64::from(ranks) * 0.9;
        let mut sim = test_sim!("barnes, walk", SimConfig::new(ranks, 3).lossy());
        let times = sim.results(move |env| {
            let walk = Rc::clone(&walk);
            async move {
                let net: Live = env.net().expect("no agent is chosen");
                run_walk(&net, &walk, 100.0, &|_| {}).await.expect("no rank fails")
            }
        });
        for time in times.unwrap_or_else(|failure| panic!("{failure}")) {
            assert!(time.as_nanos() as f64 >= least, "{time:?} of {least} ns");
        }
    }
}
