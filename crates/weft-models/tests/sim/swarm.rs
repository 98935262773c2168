//! Clusters drawn from seeds.

use std::ops::Range;
pub use weft_swarm::cluster::{first, Cluster, MS};
use weft_swarm::Report;

/// Returns the seeds of `WEFT_SEEDS` (`A..B`, or a number of them), else `usual`.
pub fn seeds(usual: Range<u64>) -> Range<u64> {
    match std::env::var("WEFT_SEEDS") {
        Ok(text) => weft_sim::swarm::parse_seeds(&text).unwrap_or_else(|e| panic!("{text}: {e}")),
        Err(_) => usual,
    }
}

/// Returns the operations and the errors of runs with so many seeds, or those of `WEFT_SEEDS`.
pub fn totals(usual: Range<u64>, run: impl Fn(u64) -> Report) -> (u64, u64) {
    seeds(usual).map(run).fold((0, 0), |(operations, errors), report| {
        (operations + report.operations, errors + report.errors)
    })
}

/// Checks that the usual seeds have shown enough. Other seeds may be few.
pub fn enough(is_enough: bool, shown: impl Fn() -> String) {
    assert!(is_enough || std::env::var_os("WEFT_SEEDS").is_some(), "too little: {}", shown());
}
