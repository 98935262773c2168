//! Jobs under faults: each is done once, a run ends when all are done, and a death ends it.

use crate::swarm::{enough, seeds, Cluster, MS};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use weft_models::jobs::{Aggregator, Jobs, Quiescence};
use weft_models::net::{Live, Net};
use weft_models::together::Together;

const MOST: u64 = 3_000;

/// The jobs that a job makes.
fn children(n: u64) -> impl Iterator<Item = u64> {
    [3 * n + 1, 3 * n + 2, 3 * n + 3].into_iter().filter(|m| *m < MOST)
}

fn owner(n: u64, ranks: usize) -> usize {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % ranks
}

/// Does all jobs below one; returns the sum of those done here, or the rank that failed.
async fn tree(net: &Live, jobs: &Jobs<Live, u64>, seed: u64) -> Result<(u64, u64), usize> {
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

#[test]
fn jobs__each_is_done_once_and_the_end_is_found_under_loss() {
    // The last seed has a rank that begins the next run before others know the end of this one.
    for seed in seeds(0..100).chain([36]) {
        let cluster = Cluster::of_seed(seed, 1..6, None);
        let per_message = [1, 4, 64][seed as usize % 3];
        let total = Rc::new(RefCell::new(BTreeMap::<u64, (u64, u64)>::new()));
        let all = Rc::clone(&total);
        cluster.run("jobs", move |env, net| {
            let total = Rc::clone(&all);
            async move {
                let jobs = Jobs::open(&net, 0, per_message);
                for round in 0..3 {
                    let (sum, count) = tree(&net, &jobs, seed).await.expect("no rank fails");
                    // Some begin the next run while others have not noticed the end of this one.
                    env.sleep(env.rng().below(MS)).await;
                    let mut total = total.borrow_mut();
                    let all = total.entry(round).or_default();
                    *all = (all.0 + sum, all.1 + count);
                }
                jobs
            }
        });
        for (round, sums) in total.borrow().iter() {
            assert_eq!(*sums, (MOST * (MOST - 1) / 2, MOST), "seed {seed}, run {round}");
        }
    }
}

#[test]
fn jobs__the_death_of_a_rank_ends_the_runs_of_all() {
    let mut died = 0;
    for seed in seeds(0..60) {
        let cluster = Cluster::of_seed(seed, 3..6, Some(0..6));
        let dies = cluster.dies.map(|host| host as usize);
        let outcome = cluster.run("jobs die", move |_, net| async move {
            let jobs = Jobs::open(&net, 1, 64);
            let end = loop {
                match tree(&net, &jobs, seed).await {
                    Ok(_) if dies.is_none() => break None,
                    Ok(_) => {}
                    Err(rank) => break Some(rank),
                }
            };
            assert_eq!(end, dies, "seed {seed}");
            jobs
        });
        died += outcome.died.len();
    }
    enough(died > 5, || format!("{died} died"));
}

/// Runs that all ranks which are cut off, or which miss others, end with an error. Where one rank
/// ends a run without an error, each job of the run was done once, on whatever rank.
#[test]
fn jobs__none_is_lost_or_done_twice_where_ranks_are_cut_off() {
    const ROUNDS: u64 = 8;
    let (mut ended, mut failed) = (0, 0);
    for seed in seeds(0..100) {
        let cluster = Cluster::rough(seed, 2..6);
        // The times that each job of each run was done; the runs that ended without an error.
        let (done, good) = (Rc::new(RefCell::new(BTreeMap::new())), Rc::new(RefCell::default()));
        let (all, fine) = (Rc::clone(&done), Rc::<RefCell<BTreeSet<u64>>>::clone(&good));
        let (faults, errors) = (Rc::new(cluster.clone()), Rc::new(Cell::new(0)));
        let error = Rc::clone(&errors);
        cluster.run("jobs cut off", move |_, net| {
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
                    assert!(faults.may_lose(rank), "seed {seed}: no fault concerns rank {rank}");
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
            ended += 1;
        }
        failed += errors.get();
    }
    enough(ended > 30 && failed > 20, || {
        format!("{ended} runs ended well, {failed} ranks had an error")
    });
}

#[test]
fn Aggregator__and_Quiescence__are_of_use_alone() {
    for seed in seeds(0..6) {
        let cluster = Cluster::of_seed(seed, 2..5, None);
        cluster.run("jobs parts", move |env, net| async move {
            let got = Rc::new(RefCell::new(BTreeMap::<usize, u32>::new()));
            let heard = Rc::clone(&got);
            let records = Aggregator::open(&net, 2, 4, 10, move |from, record| {
                let number = u32::from_le_bytes(record.try_into().unwrap());
                let next = heard.borrow().get(&from).copied().unwrap_or(0);
                assert_eq!(number, next, "in order, once");
                heard.borrow_mut().insert(from, next + 1);
            });
            let (quiescence, mut noted) = (Quiescence::open(&net, 2), 0);
            for number in 0..1_005u32 {
                for to in 0..net.size() {
                    records.room(to).await;
                    records.push(to, &number.to_le_bytes()).unwrap();
                    quiescence.sent(1);
                }
            }
            records.flush().unwrap();
            let ranks = net.size() as u64;
            assert_eq!(records.counts(), (1_005 * ranks, 101 * ranks));
            loop {
                let received = u64::from(got.borrow().values().sum::<u32>());
                quiescence.received(received - noted);
                noted = received;
                if quiescence.wave().await.unwrap() {
                    break;
                }
                env.sleep(env.rng().below(MS)).await;
            }
            assert!(got.borrow().values().all(|&count| count == 1_005), "seed {seed}");
            assert_eq!(got.borrow().len(), net.size());
            let together = Together::open(&net, 0);
            for root in 0..net.size() {
                let mine = vec![net.rank() as u8; 10_000];
                let bytes = together.broadcast(root, mine).await.unwrap();
                assert!(bytes == vec![root as u8; 10_000], "seed {seed}");
                let join = |all: Vec<u8>, other: &[u8]| [&all, other].concat();
                let mut ranks = together.reduce(vec![net.rank() as u8], join).await.unwrap();
                ranks.sort_unstable();
                assert!(ranks.iter().copied().eq(0..net.size() as u8));
            }
            together.barrier().await.unwrap();
            (records, quiescence, together)
        });
    }
}
