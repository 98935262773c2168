//! Jobs over each link.

use crate::ranks::{run, LINKS};
use std::sync::atomic::{AtomicU64, Ordering};
use weft_models::jobs::{Jobs, QUEUES};
use weft_models::net::Net;
use weft_models::together::{Together, NUMBERS};

#[test]
fn jobs__a_tree_over_each_link() {
    const RANKS: usize = 3;
    const MOST: u64 = 100_000;
    for link in LINKS {
        let (sum, pushed) = (AtomicU64::new(0), AtomicU64::new(0));
        run(link, RANKS, |net, _| {
            let jobs = Jobs::open(&net, 0, 64);
            if net.rank() == 0 {
                jobs.push(1, &1u64);
            }
            let work = |n: u64, next: &weft_models::jobs::Next<'_, _, u64>| {
                sum.fetch_add(n, Ordering::Relaxed);
                for m in [2 * n, 2 * n + 1].into_iter().filter(|m| *m < MOST) {
                    next.push(m as usize % RANKS, &m);
                }
            };
            let done = jobs.run_blocking(work).expect("no rank fails");
            assert!(done.jobs > 0 && done.messages < done.pushed);
            pushed.fetch_add(done.jobs, Ordering::Relaxed);
        });
        let all = (sum.into_inner(), pushed.into_inner());
        assert_eq!(all, (MOST * (MOST - 1) / 2, MOST - 1), "{link}");
    }
}

#[test]
fn open__as_many_queues_as_there_are_numbers() {
    run("shm", 2, |net, world| {
        let open = |number| Jobs::<_, u64>::open(&net, number, 64);
        let queues: Vec<_> = (0..QUEUES).map(open).collect();
        for jobs in queues.iter().rev().step_by(51) {
            jobs.push(1 - net.rank(), &7);
            let done = jobs.run_blocking(|job, _| assert_eq!(job, 7)).expect("no rank fails");
            assert_eq!(done.jobs, 1);
        }
        let together = Together::open(&net, NUMBERS - 1);
        together.barrier_blocking().expect("no rank fails");
        world.barrier_blocking().expect("no rank fails");
    });
}
