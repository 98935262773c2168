//! The parallel program on simulated clusters: the same bits as the sequential one.
#![allow(non_snake_case)]

use weft_radix::{run, sequential, Division, Generator, Outcome, Params, SEED};
use weft_sim::{test_sim, SimConfig};

/// Runs on all hosts; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig, division: Division) -> Vec<Outcome> {
    let sim = test_sim!("radix", config);
    sim.outcomes(
        params,
        move |net, params| async move { run(&net, &params, &division, &|_| {}).await },
    )
}

fn params(count: usize, below: u32, radix: u32) -> Params {
    Params { keys: Generator::new(0, below, SEED).take(count).collect(), radix }
}

#[test]
fn run__same_keys_as_sequential_on_any_number_of_ranks_and_under_loss() {
    for (count, below, radix, region, ranks) in [
        (1000, 1 << 12, 16, 32, 1),
        (1000, 1 << 12, 16, 32, 3),
        (777, 1 << 9, 8, 100, 4),
        (20, 1 << 20, 128, 64, 3),
        (0, 2, 2, 1, 2),
    ] {
        let params = params(count, below, radix);
        let expected = sequential(&params, &|_| Ok(())).unwrap();
        for config in [SimConfig::new(ranks, 1), SimConfig::new(ranks, 2).lossy()] {
            let one_by_one = config.seed == 2;
            let division = Division { region, ns_per_key: f64::from(ranks), one_by_one };
            let outcomes = simulate(&params, config, division);
            assert_eq!(outcomes.len(), ranks as usize);
            assert!(outcomes.iter().all(|o| o.agrees_with(&expected)), "{count} on {ranks}");
            assert_eq!(outcomes[0].keys, expected.keys, "{count} on {ranks}");
        }
    }
}
