//! Operations of all ranks, whose hosts end as soon as they are done.

use crate::swarm::{enough, seeds, totals, Cluster, MS};
use std::future::Future;
use std::time::Duration;
use weft_models::net::{Live, Net};
use weft_models::together::Together;
use weft_sim::{test_sim, Env, Fault, SimConfig, Span};
use weft_swarm::cluster::Ends;
use weft_swarm::together::run;

/// Runs a program on all hosts of a cluster.
pub fn on_all<F: Future<Output = ()> + 'static>(
    name: &str,
    config: SimConfig,
    program: impl Fn(Env, Live) -> F + Clone + 'static,
) {
    let mut sim = test_sim!(name, config);
    sim.spawn_all(move |env| {
        let program = program.clone();
        async move {
            let net = env.net().expect("no agent is chosen");
            program(env, net).await;
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn barrier__ranks_that_end_at_once_cause_no_failure() {
    // Host 2 passes the end of the barrier on to host 3, and stands still for a while before.
    for (from, exchange) in (0..500_000).step_by(6_000).zip([false, true].into_iter().cycle()) {
        let span = Span { from, until: from + 5_000_000 };
        let config = SimConfig::new(4, 1).fault(Fault::Pause { host: 2, span });
        on_all("early end", config, move |env, net| async move {
            // All know each other, so that each notices the end of all.
            net.handle(1, |_| {});
            for to in (0..net.size()).filter(|&to| to != net.rank()) {
                net.try_send(to, 1, 0, b"hello").expect("there is room");
            }
            let together = match exchange {
                true => Together::with_exchange(&net, 0),
                false => Together::open(&net, 0),
            };
            for round in 0..3 {
                let ended = together.barrier().await;
                assert_eq!(ended, Ok(()), "host {}, round {round}, pause {from}", env.host);
            }
            env.endpoint.closed(Duration::from_millis(1)).await;
        });
    }
}

#[test]
fn broadcast__ranks_that_drop_their_operations_at_once_have_passed_all_on() {
    const LENGTH: usize = 3 << 20;
    for root in 0..4 {
        let config = SimConfig::new(4, 1);
        on_all("early drop", config, move |env, net| async move {
            let together = Together::open(&net, 0);
            let bytes = if net.rank() == root { vec![7; LENGTH] } else { Vec::new() };
            let bytes = together.broadcast(root, bytes).await.expect("no rank fails");
            drop(together);
            assert!(bytes.len() == LENGTH && bytes.iter().all(|&byte| byte == 7));
            // Others need this host for what it has sent.
            env.world().barrier().await.expect("all hosts live");
        });
    }
}

fn lossy(hosts: u32, seed: u64) -> SimConfig {
    SimConfig::new(hosts, seed)
        .fault(Fault::Loss { ppm: 30_000, span: Span::ALWAYS })
        .fault(Fault::Reorder { ppm: 50_000, by_ns: 50_000, span: Span::ALWAYS })
}

/// Returns the length of a part of a result: some are too long for a packet.
fn length_in(round: usize) -> usize {
    if round % 5 == 4 {
        3_000
    } else {
        round
    }
}

/// Returns the parts of all ranks, joined.
fn joined(ranks: usize, length: usize) -> Vec<u8> {
    (0..ranks).flat_map(|rank| vec![rank as u8; length]).collect()
}

#[test]
fn reduce__results_by_multicast_are_those_along_a_tree_also_under_loss() {
    for config in [SimConfig::new(1, 1), SimConfig::new(5, 1), lossy(6, 2)] {
        on_all("results by multicast", config, move |env, net| async move {
            let together = Together::with_multicast(&net, 1);
            let join = |all: Vec<u8>, other: &[u8]| [&all, other].concat();
            for round in 0..20usize {
                let length = length_in(round);
                let mine = vec![net.rank() as u8; length];
                let mut all = together.reduce(mine, join).await.expect("no rank fails");
                all.sort_unstable();
                assert_eq!(all, joined(net.size(), length), "host {}, round {round}", env.host);
                let root = round % net.size();
                let bytes = together.broadcast(root, vec![round as u8; length]).await;
                assert_eq!(bytes.expect("no rank fails"), vec![round as u8; length]);
            }
            env.world().barrier().await.expect("no rank fails");
        });
    }
}

#[test]
fn reduce__results_of_exchanges_are_those_along_a_tree_also_under_loss() {
    for config in [SimConfig::new(1, 1), SimConfig::new(2, 1), lossy(7, 2), lossy(8, 3)] {
        on_all("results of exchanges", config, move |env, net| async move {
            let together = Together::with_exchange(&net, 0);
            // Shows the order in which they were combined.
            let join = |all: Vec<u8>, other: &[u8]| [&all, other].concat();
            for round in 0..20usize {
                let length = length_in(round);
                let all = together.reduce(vec![net.rank() as u8; length], join).await;
                assert_eq!(all, Ok(joined(net.size(), length)), "host {}, round {round}", env.host);
                together.barrier().await.expect("no rank fails");
            }
            env.world().barrier().await.expect("no rank fails");
        });
    }
}

#[test]
fn operations__that_differ_end_on_all_ranks_with_the_names_of_both() {
    // The function of rank 1, that of the others, and what all are told.
    let cases = [
        ("barrier", "reduce", ["a barrier at rank", "a reduction at rank"]),
        ("from 0", "from 1", ["a broadcast from rank 0 at", "a broadcast from rank 1 at"]),
        // No rank has sent anything, so that one has to ask.
        ("from 0", "barrier", ["a broadcast from rank 0 at", "a barrier at rank"]),
    ];
    for ((one, others, told), exchange) in cases.into_iter().flat_map(|c| [(c, false), (c, true)]) {
        on_all("operations that differ", SimConfig::new(4, 1), move |env, net| async move {
            let together = match exchange {
                true => Together::with_exchange(&net, 0),
                false => Together::open(&net, 0),
            };
            together.barrier().await.expect("all call it");
            let first = match if net.rank() == 1 { one } else { others } {
                "barrier" => together.barrier().await,
                "reduce" => together.reduce(Vec::new(), |all, _| all).await.map(drop),
                root => together.broadcast(usize::from(root == "from 1"), vec![1]).await.map(drop),
            };
            // A rank that needs nothing from the others learns of it in its next operation.
            let failure = match first {
                Err(failure) => failure,
                Ok(()) => together.barrier().await.expect_err("the calls differ"),
            };
            for part in ["operation 2 of all ranks is", told[0], told[1]] {
                assert!(failure.why.contains(part), "host {}: {failure}", env.host);
            }
            env.world().barrier().await.expect("no rank fails");
        });
    }
}

#[test]
fn operations__of_all_ranks_under_faults_that_take_no_rank_away() {
    for seed in seeds(0..100) {
        let cluster = Cluster::of_seed(seed, 1..8, None);
        let hosts = u64::from(cluster.config.hosts);
        let report = run(&cluster, Ends::Together);
        assert_eq!((report.operations, report.errors), (hosts, 0), "seed {seed}");
    }
}

#[test]
fn operations__end_with_right_results_or_an_error_where_ranks_are_cut_off() {
    let rough = |seed| run(&Cluster::rough(seed, 2..8), Ends::Together);
    let (whole, failed) = totals(0..200, rough);
    enough(whole > 10 && failed > 40, || {
        format!("{whole} ranks ended well, {failed} with an error")
    });
}

#[test]
fn broadcast__a_failure_that_one_rank_has_noticed_is_passed_on_to_those_it_cannot_reach() {
    let span = weft_sim::Span::ALWAYS;
    let mut cluster = Cluster::of_seed(0, 3..4, None);
    cluster.config.limit_ns = 100_000 * MS;
    cluster.config.faults = vec![Fault::Cut { hosts: [1, 2], one_way: false, span }];
    cluster.run("passed on", |_, net| async move {
        let together = Together::open(&net, 0);
        // Rank 1 waits for rank 2, and ends. Rank 2 is done, and then waits for rank 0, which rank
        // 1 has told.
        let bytes = if net.rank() == 2 { vec![1] } else { Vec::new() };
        let mut ended = together.broadcast(2, bytes).await.err();
        if ended.is_none() {
            ended = together.barrier().await.err();
        }
        let failure = ended.expect("ranks 1 and 2 are cut off from each other");
        assert!([1, 2].contains(&failure.rank), "{failure}");
        let by_itself = net.rank() == 1;
        assert_eq!(failure.why.contains("rank 1 reports: "), !by_itself, "{failure}");
        together
    });
}
