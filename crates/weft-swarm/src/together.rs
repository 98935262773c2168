//! Operations of all ranks under faults: right results on all ranks, or an error.

use crate::cluster::{Cluster, Ends, MS};
use crate::Report;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use weft_models::net::{Live, Net, RankFailure};
use weft_models::together::Together;

/// The ranks that have begun each operation.
type Begun = Rc<RefCell<Vec<usize>>>;

/// Calls random operations until one fails, and checks their results.
async fn operations(
    net: &Live,
    together: &Together<Live>,
    begun: &Begun,
    seed: u64,
) -> Result<(), usize> {
    let (me, size) = (net.rank(), net.size());
    for round in 0..40usize {
        // All ranks have the same random numbers in a round.
        let mut rng = weft_sim::Rng::stream(seed, 900 + round as u64);
        let (kind, root) = (rng.below(3), rng.below(size as u64) as usize);
        let long = [20, 4_000][rng.below(2) as usize];
        let length = 1 + rng.below(long) as usize;
        begun.borrow_mut()[round] += 1;
        let failure = |failure: RankFailure| failure.rank;
        match kind {
            0 => {
                together.barrier().await.map_err(failure)?;
                assert_eq!(begun.borrow()[round], size, "seed {seed}: not all are at the barrier");
            }
            1 => {
                let mine = if me == root { vec![round as u8; length] } else { Vec::new() };
                let bytes = together.broadcast(root, mine).await.map_err(failure)?;
                assert_eq!(bytes, vec![round as u8; length], "seed {seed}");
            }
            _ => {
                let join = |all: Vec<u8>, other: &[u8]| [&all, other].concat();
                let all = together.reduce(vec![me as u8; length], join).await;
                let mut all = all.map_err(failure)?;
                all.sort_unstable();
                let each = (0..size).flat_map(|rank| vec![rank as u8; length]);
                assert!(all.into_iter().eq(each), "seed {seed}");
            }
        }
        net.sleep(Duration::from_nanos(rng.below(MS))).await;
    }
    Ok(())
}

/// Runs random operations on all ranks until one fails.
///
/// # Panics
/// A promise does not hold.
pub fn run(cluster: &Cluster, ends: Ends) -> Report {
    let seed = cluster.config.seed;
    let begun: Begun = Rc::new(RefCell::new(vec![0; 40]));
    let (whole, failed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (good, bad, faults) = (Rc::clone(&whole), Rc::clone(&failed), Rc::new(cluster.clone()));
    let outcome = cluster.run_to(ends, "operations of all ranks", move |_, net| {
        let (good, bad, begun) = (Rc::clone(&good), Rc::clone(&bad), Rc::clone(&begun));
        let faults = Rc::clone(&faults);
        async move {
            let together = match seed % 3 {
                0 => Together::open(&net, 0),
                1 => Together::with_exchange(&net, 0),
                _ => Together::with_multicast(&net, 0),
            };
            match operations(&net, &together, &begun, seed).await {
                Ok(()) => good.set(good.get() + 1),
                Err(rank) => {
                    let may_fail = ends == Ends::AtOnce || faults.may_lose(rank);
                    assert!(may_fail, "seed {seed}: no fault concerns rank {rank}");
                    bad.set(bad.get() + 1);
                }
            }
            together
        }
    });
    Report { operations: whole.get(), errors: failed.get(), outcome }
}
