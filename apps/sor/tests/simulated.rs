//! The distributed program on simulated clusters: the same bits as the sequential one.
#![allow(non_snake_case)]

use weft_sim::{test_sim, SimConfig};
use weft_sor::{run, run_over, sequential, Exchange, Outcome, Params};

/// Runs on all hosts; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig) -> Vec<Outcome> {
    let params = params.clone();
    let mut sim = test_sim!("sor", config);
    let all = sim.results(move |env| {
        let params = params.clone();
        async move { run(&env.world(), &params, &|_| {}).await.expect("no rank fails") }
    });
    all.unwrap_or_else(|failure| panic!("{failure}"))
}

fn small(rows: usize, cols: usize) -> Params {
    Params { rows, cols, tolerance: 0.01, max_iterations: 60, keep_grid: true, ..Params::default() }
}

#[test]
fn run__same_bits_as_sequential_on_any_number_of_ranks() {
    for (rows, cols, ranks) in [(30, 40, 1), (30, 40, 2), (31, 17, 5), (9, 3000, 12), (40, 9, 38)] {
        let params = small(rows, cols);
        let expected = sequential(&params, &|_| {});
        let outcomes = simulate(&params, SimConfig::new(ranks, 7));
        for (rank, outcome) in outcomes.iter().enumerate() {
            assert!(outcome.agrees_with(&expected), "{rank} of {ranks}: {outcome:?}");
            assert_eq!(outcome.converged, expected.converged);
            assert_eq!(outcome.grid.is_some(), rank == 0);
        }
        assert_eq!(outcomes[0].grid, expected.grid);
    }
}

#[test]
fn run__same_bits_on_a_network_that_loses_and_reorders() {
    let params = small(20, 400);
    let expected = sequential(&params, &|_| {});
    for seed in 0..3 {
        let outcomes = simulate(&params, SimConfig::new(4, seed).lossy());
        assert!(outcomes.iter().all(|outcome| outcome.agrees_with(&expected)), "seed {seed}");
    }
}

#[test]
fn run__virtual_time_shows_the_speedup() {
    let of = |ranks, late| {
        let params = Params {
            rows: 258,
            cols: 256,
            max_iterations: 10,
            tolerance: 0.0,
            ns_per_cell: Some(20.0),
            late,
            ..Params::default()
        };
        let outcome = simulate(&params, SimConfig::new(ranks, 1)).remove(0);
        assert!(outcome.agrees_with(&sequential(&params, &|_| {})), "{ranks}, late: {late}");
        outcome.elapsed
    };
    let elapsed = |ranks| of(ranks, false);
    let alone = elapsed(1);
    assert!(alone.as_nanos() >= 10 * 256 * 256 * 20);
    assert!(elapsed(4) < alone / 2, "{:?} of {alone:?}", elapsed(4));
    // Rows that leave after all were computed are waited for.
    assert!(of(4, true) > elapsed(4), "{:?}, {:?}", of(4, true), elapsed(4));
}

#[test]
fn run_over__same_results_over_the_packet_interface() {
    let params = small(31, 40);
    let expected = sequential(&params, &|_| {});
    let lossy = SimConfig::new(4, 3).lossy();
    let paper = Exchange { whole_rows: true, early: false };
    for (config, exchange) in [
        (SimConfig::new(1, 1), Exchange::default()),
        (SimConfig::new(3, 2), paper),
        (SimConfig::new(40, 2), Exchange { early: true, ..paper }),
        (lossy, Exchange::default()),
    ] {
        let ranks = config.hosts as usize;
        let sim = test_sim!("sor over packets", config);
        let outcomes = sim.outcomes(&params, move |net, params| async move {
            run_over(&net, &params, exchange, &|_| {}).await
        });
        assert_eq!(outcomes[0].grid, expected.grid);
        assert!(outcomes.iter().all(|outcome| outcome.agrees_with(&expected)), "{ranks}");
    }
}
