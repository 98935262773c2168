//! Plans drawn from seeds, run by real endpoints.
#![allow(non_snake_case)]

use weft_sim::swarm::{parse_seeds, run_seed, swarm};

#[test]
fn swarm__seeds_that_once_failed() {
    // A matched probe of a host that died in silence: it never ended. A selective sender to a
    // receiver that goes back: a packet for each timeout.
    for seed in [205, 228, 152, 221] {
        run_seed(seed, false, 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
    // The answer to a HELLO waited behind data that it would have set free; a HELLO found the
    // rank's way to its agent full each time.
    for seed in [396, 414] {
        run_seed(seed, true, 200).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Runs the seeds of `WEFT_SEEDS` (`A..B`, or a number of them), else `usual`.
fn every_seed_holds(agents: bool, usual: &str) {
    let text = std::env::var("WEFT_SEEDS").unwrap_or_else(|_| usual.to_string());
    let seeds = parse_seeds(&text).unwrap_or_else(|e| panic!("WEFT_SEEDS={text:?}: {e}"));
    let mut delivered = 0;
    let result = swarm(seeds, agents, 200, &mut |_, report| delivered += report.delivered);
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert!(delivered > 0);
}

#[test]
fn swarm__every_seed_holds() {
    every_seed_holds(false, "0..25");
}

#[test]
fn swarm__every_seed_holds_behind_agents() {
    every_seed_holds(true, "1000..1025");
}
