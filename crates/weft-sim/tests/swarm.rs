//! Plans drawn from seeds, run by real endpoints.
#![allow(non_snake_case)]

use weft_sim::plan::Plan;
use weft_sim::swarm::{run_plan, run_seed, swarm};
use weft_sim::LinkKind;

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

#[test]
fn swarm__every_seed_holds_behind_agents() {
    let mut delivered = 0;
    for seed in 1000..1025 {
        let mut plan = Plan::draw(seed);
        (plan.config.served, plan.config.kind) = (true, LinkKind::Network);
        match run_plan(&plan) {
            Ok(report) => delivered += report.delivered,
            Err(failure) => panic!("seed {seed}, served by agents: {failure}"),
        }
    }
    assert!(delivered > 0);
}
