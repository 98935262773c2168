//! Jobs under faults: each is done once, a run ends when all are done, and a death ends it.

use crate::swarm::{enough, seeds, totals, Cluster, MS};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_models::jobs::{Aggregator, Jobs, Quiescence};
use weft_models::net::Net;
use weft_models::rpc::Rpc;
use weft_models::together::Together;
use weft_sim::{test_sim, Fault, SimConfig};
use weft_swarm::cluster::Ends;
use weft_swarm::jobs::{run, tree, MOST};

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
    let rough = |seed| run(&Cluster::rough(seed, 2..6), Ends::Together);
    let (ended, failed) = totals(0..100, rough);
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

#[test]
fn run__names_the_rank_that_died_and_not_one_that_left_because_of_it() {
    let death = Fault::Death { host: 3, at: 20 * MS, visible: true };
    let mut config = SimConfig::new(4, 1).fault(death);
    config.settings = vec![("peer_timeout_ms", "400".to_string())];
    let mut sim = test_sim!("the first cause", config);
    sim.spawn_all(|env| async move {
        let net = env.net().expect("no agent is chosen");
        let (rpc, jobs) = (Rpc::open(&net), Jobs::<_, u64>::open(&net, 0, 64));
        let kept = RefCell::new(Vec::new());
        rpc.serve(1, move |request, _| kept.borrow_mut().push(request));
        match net.rank() {
            // Rank 1 learns of the death by a call, and leaves without a word to the others.
            1 => {
                assert_eq!(rpc.call(3, 1, b"").await.unwrap_err().rank, 3);
                drop((rpc, jobs));
                env.endpoint.closed(std::time::Duration::from_millis(10)).await;
            }
            0 => {
                let failure = jobs.run(|_, _| {}).await.unwrap_err();
                assert_eq!(failure.rank, 3, "{failure}");
            }
            _ => env.sleep(3_000 * MS).await,
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
}
