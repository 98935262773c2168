//! Jobs over each link.

use crate::ranks::{run, LINKS};
use std::sync::atomic::{AtomicU64, Ordering};
use weft_models::jobs::Jobs;
use weft_models::net::Net;

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
