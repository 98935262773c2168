//! Clusters drawn from seeds.

use std::ops::Range;
pub use weft_swarm::cluster::{first, Cluster, MS};

/// Returns the seeds of `WEFT_SEEDS` (`A..B`, or a number of them), else `usual`.
pub fn seeds(usual: Range<u64>) -> Range<u64> {
    match std::env::var("WEFT_SEEDS") {
        Ok(text) => weft_sim::swarm::parse_seeds(&text).unwrap_or_else(|e| panic!("{text}: {e}")),
        Err(_) => usual,
    }
}

/// Checks that the usual seeds have shown enough. Other seeds may be few.
pub fn enough(is_enough: bool, shown: impl Fn() -> String) {
    assert!(is_enough || std::env::var_os("WEFT_SEEDS").is_some(), "too little: {}", shown());
}
