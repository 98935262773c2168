//! The distributed program on simulated clusters: the same distances as the sequential one.
#![allow(non_snake_case)]

use weft_asp::{run, run_over, sequential, Graph, Keep, Outcome, Params};
use weft_sim::{test_sim, SimConfig};

/// Runs on all hosts, of which only the first has the graph; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig) -> Vec<Outcome> {
    let root = params.clone();
    let other = Params { graph: Graph::default(), keep: Keep::None, ..params.clone() };
    let mut sim = test_sim!("asp", config);
    let all = sim.results(move |env| {
        let params = if env.host == 0 { root.clone() } else { other.clone() };
        async move { run(&env.world(), &params, &|_, _| {}).await.expect("no rank fails") }
    });
    all.unwrap_or_else(|failure| panic!("{failure}"))
}

fn random(nodes: u32, degree: u32) -> Params {
    Params { graph: Graph::random(nodes, degree, 100, 5), keep: Keep::All, ..Params::default() }
}

#[test]
fn run__same_distances_as_sequential_on_any_number_of_ranks() {
    for (nodes, degree, ranks) in
        [(0, 0, 3), (1, 3, 2), (50, 3, 1), (50, 3, 2), (64, 2, 5), (9, 2, 12), (130, 90, 16)]
    {
        let params = random(nodes, degree);
        let expected = sequential(&params, &|_, _| {});
        let outcomes = simulate(&params, SimConfig::new(ranks, 7));
        for (rank, outcome) in outcomes.iter().enumerate() {
            assert!(outcome.agrees_with(&expected), "{rank} of {ranks}: {outcome:?}");
            assert_eq!(outcome.rows.len(), if rank == 0 { nodes as usize } else { 0 });
        }
        assert_eq!(outcomes[0].rows, expected.rows);
    }
}

#[test]
fn run__same_distances_on_a_network_that_loses_and_reorders() {
    let params = random(90, 4);
    let expected = sequential(&params, &|_, _| {});
    for seed in 0..3 {
        let outcomes = simulate(&params, SimConfig::new(5, seed).lossy());
        assert!(outcomes.iter().all(|outcome| outcome.agrees_with(&expected)), "seed {seed}");
        assert_eq!(outcomes[0].rows, expected.rows);
    }
}

#[test]
fn run__broadcasts_overlap_with_computation_in_virtual_time() {
    let elapsed = |ranks| {
        let params = Params { ns_per_cell: Some(10.0), ..random(128, 4) };
        simulate(&params, SimConfig::new(ranks, 1))[0].elapsed
    };
    let alone = elapsed(1);
    assert!(alone.as_nanos() >= 128 * 128 * 128 * 10);
    assert!(elapsed(4) < alone / 3, "{:?} of {alone:?}", elapsed(4));
}

#[test]
fn run_over__same_results_over_the_packet_interface() {
    let params = random(50, 3);
    let expected = sequential(&params, &|_, _| {});
    let lossy = SimConfig::new(4, 3).lossy();
    for config in [SimConfig::new(1, 1), SimConfig::new(3, 2), lossy] {
        let ranks = config.hosts as usize;
        let sim = test_sim!("asp over packets", config);
        let outcomes = sim.outcomes(&params, move |net, params| async move {
            run_over(&net, &params, &|_, _| {}).await
        });
        assert_eq!(outcomes[0].rows, expected.rows);
        assert!(outcomes.iter().all(|outcome| outcome.agrees_with(&expected)), "{ranks}");
    }
}
