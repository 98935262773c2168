//! Keys of regions, whose bits messages may carry in fewer or more bytes.
#![allow(non_snake_case)]

use weft::Rights;
use weft_sim::{test_sim, SimConfig};

/// Returns the keys of two regions of each host.
fn keys(seed: u64) -> Vec<[u64; 2]> {
    let mut sim = test_sim!("keys", SimConfig::new(3, seed));
    let keys = sim.results(|env| async move {
        [8, 9].map(|len| env.endpoint.regions().register(len, Rights::ALL).expect("a key is left"))
    });
    keys.unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn register__the_keys_follow_from_the_seed() {
    let first = keys(1);
    assert_eq!(first, keys(1));
    assert!(first.iter().zip(keys(2)).all(|(one, other)| *one != other), "{first:?}");
    let mut all = first.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6);
}
