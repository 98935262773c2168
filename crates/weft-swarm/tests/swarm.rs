//! The models on clusters of some seeds, and the checker of their histories.
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use weft_swarm::history::{Event, History, Past};
use weft_swarm::Model;

#[test]
fn run_seed__is_repeatable_and_each_model_passes() {
    for model in Model::ALL {
        for seed in 0..4 {
            let once = model.run_seed(seed).unwrap_or_else(|why| panic!("{model}: {why}"));
            let again = model.run_seed(seed).unwrap_or_else(|why| panic!("{model}: {why}"));
            let (one, other) = (once.outcome, again.outcome);
            assert_eq!((one, once.errors), (other, again.errors), "{model}, seed {seed}");
        }
    }
}

#[test]
fn explains__a_read_of_an_older_value_after_a_newer_one_elsewhere_is_found() {
    let event = |object, read: Option<u64>, wrote| Event { object, read, wrote, posted: false };
    // Rank 0 writes object 1, then 2. Rank 1 sees the second write, and not the first.
    let first = vec![event(1, None, Some(10)), event(2, None, Some(20))];
    let second = |old| vec![event(2, Some(20), None), event(1, Some(old), None)];
    let past = |old| {
        let writes = BTreeMap::from([(1, vec![10]), (2, vec![20])]);
        let past = Past { writes, live: vec![1, 2], lost: Vec::new(), seed: 0 };
        let history = History::default();
        *history.borrow_mut() = BTreeMap::from([(0, first.clone()), (1, second(old))]);
        past.explains(&history);
    };
    past(10);
    assert!(std::panic::catch_unwind(|| past(0)).is_err());
}
