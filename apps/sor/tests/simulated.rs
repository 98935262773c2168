//! The distributed program on simulated clusters: the same bits as the sequential one.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::rc::Rc;
use weft_models::net::{Live, Net};
use weft_sim::{Fault, Sim, SimConfig, Span};
use weft_sor::{run, run_over, sequential, Exchange, Outcome, Params};

/// Runs on `config.hosts` ranks; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig) -> Vec<Outcome> {
    let outcomes = Rc::new(RefCell::new(vec![None; config.hosts as usize]));
    let mut sim = Sim::new("sor", config).of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
    let (shared, params) = (Rc::clone(&outcomes), params.clone());
    sim.spawn_all(move |env| {
        let (outcomes, params) = (Rc::clone(&shared), params.clone());
        async move {
            let world = env.world();
            let outcome = run(&world, &params, &|_| {}).await.expect("no rank fails");
            outcomes.borrow_mut()[world.rank()] = Some(outcome);
            world.barrier().await.expect("no rank fails");
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    let all = outcomes.borrow_mut().drain(..).collect::<Option<Vec<_>>>();
    all.expect("every rank has an outcome")
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
        let config = SimConfig::new(4, seed)
            .fault(Fault::Loss { ppm: 20_000, span: Span::ALWAYS })
            .fault(Fault::Reorder { ppm: 50_000, by_ns: 50_000, span: Span::ALWAYS });
        let outcomes = simulate(&params, config);
        assert!(outcomes.iter().all(|outcome| outcome.agrees_with(&expected)), "seed {seed}");
    }
}

#[test]
fn run__virtual_time_shows_the_speedup() {
    let elapsed = |ranks| {
        let params = Params {
            rows: 258,
            cols: 256,
            max_iterations: 10,
            tolerance: 0.0,
            ns_per_cell: Some(20.0),
            ..Params::default()
        };
        simulate(&params, SimConfig::new(ranks, 1))[0].elapsed
    };
    let alone = elapsed(1);
    assert!(alone.as_nanos() >= 10 * 256 * 256 * 20);
    assert!(elapsed(4) < alone / 2, "{:?} of {alone:?}", elapsed(4));
}

#[test]
fn run_over__same_results_over_the_packet_interface() {
    let params = small(31, 40);
    let expected = sequential(&params, &|_| {});
    let lossy = SimConfig::new(4, 3)
        .fault(Fault::Loss { ppm: 20_000, span: Span::ALWAYS })
        .fault(Fault::Reorder { ppm: 50_000, by_ns: 50_000, span: Span::ALWAYS });
    let paper = Exchange { whole_rows: true, early: false };
    for (config, exchange) in [
        (SimConfig::new(1, 1), Exchange::default()),
        (SimConfig::new(3, 2), paper),
        (SimConfig::new(40, 2), Exchange { early: true, ..paper }),
        (lossy, Exchange::default()),
    ] {
        let ranks = config.hosts as usize;
        let outcomes: Rc<RefCell<Vec<Outcome>>> = Rc::default();
        let (shared, params) = (Rc::clone(&outcomes), params.clone());
        let sim = Sim::new("sor over packets", config);
        let mut sim = sim.of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
        sim.spawn_all(move |env| {
            let (outcomes, params) = (Rc::clone(&shared), params.clone());
            async move {
                let net: Live = env.net().expect("no agent is chosen");
                let outcome =
                    run_over(&net, &params, exchange, &|_| {}).await.expect("no rank fails");
                if net.rank() == 0 {
                    assert_eq!(outcome.grid, sequential(&params, &|_| {}).grid);
                }
                outcomes.borrow_mut().push(outcome);
                env.world().barrier().await.expect("no rank fails");
            }
        });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"));
        let outcomes = outcomes.take();
        assert_eq!(outcomes.len(), ranks);
        assert!(outcomes.iter().all(|outcome| outcome.agrees_with(&expected)), "{ranks}");
    }
}
