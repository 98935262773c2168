//! The parallel program on simulated clusters: the same bits as the sequential one.
#![allow(non_snake_case)]

use weft_apps::Matrix;
use weft_qr::{run, sequential, Outcome, Params};
use weft_sim::{test_sim, SimConfig};

/// Runs on all hosts; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig, ns: f64) -> Vec<Outcome> {
    let sim = test_sim!("qr", config);
    sim.outcomes(params, move |net, params| async move { run(&net, &params, ns, &|_| {}).await })
}

#[test]
fn run__same_bits_as_sequential_on_any_number_of_ranks_and_under_loss() {
    for (rows, cols, ranks) in [(12, 12, 1), (20, 30, 3), (30, 7, 4), (5, 3, 6)] {
        let params = Params { matrix: Matrix::random(rows, cols, 3) };
        let expected = sequential(&params, &|_| Ok(())).unwrap();
        for config in [SimConfig::new(ranks, 1), SimConfig::new(ranks, 2).lossy()] {
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
