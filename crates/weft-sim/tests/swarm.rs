//! Plans drawn from seeds, run by real endpoints.
#![allow(non_snake_case)]

use weft_sim::swarm::{run_seed, swarm};

#[test]
fn swarm__seeds_that_once_failed() {
    // A matched probe of a host that died in silence: it never ended.
    for seed in [205, 228] {
        run_seed(seed, 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn swarm__every_seed_holds() {
    let number =
        |name: &str, or: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(or);
    let first = number("WEFT_SEED", 0);
    let count = number("WEFT_SEEDS", 25);
    let mut delivered = 0;
    let result = swarm(first..first + count, 200, &mut |_, report| delivered += report.delivered);
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert!(delivered > 0);
}
