//! The parallel program on simulated clusters: the same bits as the sequential one.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::rc::Rc;
use weft_apps::Matrix;
use weft_models::net::{Live, Net};
use weft_qr::{run, sequential, Outcome, Params};
use weft_sim::{Fault, Sim, SimConfig, Span};

/// Runs on all hosts; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig, ns: f64) -> Vec<Outcome> {
    let all: Rc<RefCell<Vec<(usize, Outcome)>>> = Rc::default();
    let mut sim = Sim::new("qr", config).of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
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

#[test]
fn run__same_bits_as_sequential_on_any_number_of_ranks_and_under_loss() {
    for (rows, cols, ranks) in [(12, 12, 1), (20, 30, 3), (30, 7, 4), (5, 3, 6)] {
        let params = Params { matrix: Matrix::random(rows, cols, 3) };
        let expected = sequential(&params, &|_| Ok(())).unwrap();
        for config in [SimConfig::new(ranks, 1), lossy(ranks, 2)] {
            let outcomes = simulate(&params, config, 0.0);
            assert_eq!(outcomes.len(), ranks as usize);
            for outcome in outcomes {
                assert!(outcome.agrees_with(&expected), "{rows} x {cols} on {ranks}");
                assert_eq!(outcome.factors, expected.factors);
            }
        }
    }
}

#[test]
fn run__less_time_on_more_ranks() {
    let params = Params { matrix: Matrix::random(64, 64, 1) };
    let alone = simulate(&params, SimConfig::new(1, 1), 200.0);
    let four = simulate(&params, SimConfig::new(4, 1), 200.0);
    assert!(four[0].elapsed < alone[0].elapsed / 2, "{:?}", four[0].elapsed);
}
