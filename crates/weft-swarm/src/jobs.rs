//! Jobs under faults: each is done once, a run ends when all are done, and a death ends it.

use crate::cluster::{Cluster, Ends};
use crate::Report;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use weft_models::jobs::Jobs;
use weft_models::net::{Live, Net};

/// The number of jobs of a run.
pub const MOST: u64 = 3_000;

/// The jobs that a job makes.
fn children(n: u64) -> impl Iterator<Item = u64> {
    [3 * n + 1, 3 * n + 2, 3 * n + 3].into_iter().filter(|m| *m < MOST)
}

fn owner(n: u64, ranks: usize) -> usize {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % ranks
}

/// Does all jobs below one; returns the sum of those done here, or the rank that failed.
pub async fn tree(net: &Live, jobs: &Jobs<Live, u64>, seed: u64) -> Result<(u64, u64), usize> {
    tree_of(net, jobs, seed, drop).await
}

/// Does what [`tree`] does, and notes each job.
async fn tree_of(
    net: &Live,
    jobs: &Jobs<Live, u64>,
    seed: u64,
    note: impl Fn(u64),
) -> Result<(u64, u64), usize> {
    let (ranks, sum) = (net.size(), Cell::new(0));
    if net.rank() == owner(0, ranks) {
        jobs.push(net.rank(), &0);
    }
    let done = jobs.run(|n, next| {
        assert_eq!(owner(n, ranks), net.rank(), "seed {seed}");
        sum.set(sum.get() + n);
        note(n);
        next.compute(Duration::from_micros(n % 7));
        children(n).for_each(|m| next.push(owner(m, ranks), &m));
    });
    done.await.map(|done| (sum.get(), done.jobs)).map_err(|failure| failure.rank)
}

/// Does jobs on all ranks in several runs, until one fails: none is done twice. Where one rank ends
/// a run without an error, each job of the run was done once, on whatever rank.
///
/// # Panics
/// A promise does not hold.
pub fn run(cluster: &Cluster, ends: Ends) -> Report {
    const ROUNDS: u64 = 8;
    let seed = cluster.config.seed;
    // The times that each job of each run was done; the runs that ended without an error.
    let (done, good) = (Rc::new(RefCell::new(BTreeMap::new())), Rc::new(RefCell::default()));
    let (all, fine) = (Rc::clone(&done), Rc::<RefCell<BTreeSet<u64>>>::clone(&good));
    let (faults, errors) = (Rc::new(cluster.clone()), Rc::new(Cell::new(0)));
    let error = Rc::clone(&errors);
    let outcome = cluster.run_to(ends, "jobs cut off", move |_, net| {
        let (all, fine, faults) = (Rc::clone(&all), Rc::clone(&fine), Rc::clone(&faults));
        let error = Rc::clone(&error);
        async move {
            let jobs = Jobs::open(&net, 1, [1, 4, 64][seed as usize % 3]);
            for round in 0..ROUNDS {
                let note = |n| *all.borrow_mut().entry((round, n)).or_insert(0) += 1;
                let Err(rank) = tree_of(&net, &jobs, seed, note).await else {
                    fine.borrow_mut().insert(round);
                    continue;
                };
                let may_fail = ends == Ends::AtOnce || faults.may_lose(rank);
                assert!(may_fail, "seed {seed}: no fault concerns rank {rank}");
                error.set(error.get() + 1);
                break;
            }
            jobs
        }
    });
    let done = done.borrow();
    assert!(done.values().all(|&times| times == 1), "seed {seed}: a job was done twice");
    for &round in good.borrow().iter() {
        let all = done.keys().filter(|(of, _)| *of == round).count() as u64;
        assert_eq!(all, MOST, "seed {seed}, run {round}");
    }
    let operations = good.borrow().len() as u64;
    Report { operations, errors: errors.get(), outcome }
}
