//! Endpoints that speak MX over Ethernet, on a simulated network with faults.
#![allow(non_snake_case)]

use weft_mxoe::Dialect;
use weft_sim::mxoe::{run_seed, MxPlan};
use weft_sim::swarm::parse_seeds;

#[test]
fn run__every_seed_holds() {
    let text = std::env::var("WEFT_SEEDS").unwrap_or_else(|_| "0..60".into());
    let seeds = parse_seeds(&text).unwrap_or_else(|why| panic!("WEFT_SEEDS={text:?}: {why}"));
    let (mut received, mut pulled) = (0, 0);
    for seed in seeds {
        let report = run_seed(seed).unwrap_or_else(|failure| panic!("{failure}"));
        (received, pulled) = (received + report.received, pulled + report.pulled);
    }
    assert!(received + pulled > 0);
}

#[test]
fn of_seed__plans_have_both_dialects_and_each_fault() {
    let plans: Vec<MxPlan> = (0..60).map(MxPlan::of_seed).collect();
    for dialect in [Dialect::Compat, Dialect::Native] {
        assert!(plans.iter().any(|plan| plan.settings.dialect == dialect));
    }
    let all: String = plans.iter().map(|plan| plan.to_string()).collect();
    for fault in
        ["loss", "duplicate", "reorder", "corrupt", "partition", "pause", "death", "restart"]
    {
        assert!(all.contains(fault), "no plan has {fault}");
    }
}

#[test]
fn run__a_seed_is_one_simulation() {
    let of = |seed| run_seed(seed).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(of(7), of(7));
    assert_ne!(of(7).network, of(8).network);
}
