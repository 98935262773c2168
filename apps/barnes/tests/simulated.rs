//! The parallel program on simulated clusters: the same bits as the sequential one.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::rc::Rc;
use weft_barnes::{run, run_walk, sequential, two_clusters, Outcome, Params, Walk, SEED};
use weft_models::net::{Live, Net};
use weft_sim::{Fault, Sim, SimConfig, Span};

/// Runs on all hosts; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig, ns: f64) -> Vec<Outcome> {
    let all: Rc<RefCell<Vec<(usize, Outcome)>>> = Rc::default();
    let mut sim =
        Sim::new("barnes", config).of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
    let (shared, params) = (Rc::clone(&all), params.clone());
    sim.spawn_all(move |env| {
        let (all, params) = (Rc::clone(&shared), params.clone());
        async move {
            let net: Live = env.net().expect("no agent is chosen");
            let outcome = run(&net, &params, ns, &|_| {}).await.expect("no rank fails");
            all.borrow_mut().push((net.rank(), outcome));
            env.world().barrier().await.expect("no rank fails");
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    let mut all = all.take();
    all.sort_by_key(|(rank, _)| *rank);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

fn lossy(ranks: u32, seed: u64) -> SimConfig {
    SimConfig::new(ranks, seed)
        .fault(Fault::Loss { ppm: 20_000, span: Span::ALWAYS })
        .fault(Fault::Reorder { ppm: 50_000, by_ns: 50_000, span: Span::ALWAYS })
}

fn params(count: usize) -> Params {
    Params { bodies: two_clusters(count, SEED), steps: 3, ..Params::default() }
}

#[test]
fn run__same_bits_as_sequential_on_any_number_of_ranks_and_under_loss() {
    for (count, ranks) in [(300, 1), (300, 3), (500, 4), (1, 2)] {
        let params = params(count);
        let expected = sequential(&params, &|_| Ok(())).unwrap();
        for config in [SimConfig::new(ranks, 1), lossy(ranks, 2)] {
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
        let mut sim = Sim::new("barnes, walk", lossy(ranks, 3))
            .of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
        sim.spawn_all(move |env| {
            let walk = Rc::clone(&walk);
            async move {
                let net: Live = env.net().expect("no agent is chosen");
                let time = run_walk(&net, &walk, 100.0, &|_| {}).await.expect("no rank fails");
                assert!(time.as_nanos() as f64 >= least, "{time:?} of {least} ns");
                env.world().barrier().await.expect("no rank fails");
            }
        });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}
