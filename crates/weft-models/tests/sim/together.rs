//! Operations of all ranks, whose hosts end as soon as they are done.

use std::time::Duration;
use weft_models::net::{Live, Net};
use weft_models::together::Together;
use weft_sim::{Fault, Sim, SimConfig, Span};

#[test]
fn barrier__ranks_that_end_at_once_cause_no_failure() {
    // Host 2 passes the end of the barrier on to host 3, and stands still for a while before.
    for from in (0..500_000).step_by(3_000) {
        let span = Span { from, until: from + 5_000_000 };
        let config = SimConfig::new(4, 1).fault(Fault::Pause { host: 2, span });
        let sim = Sim::new("early end", config);
        let mut sim = sim.of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
        sim.spawn_all(move |env| async move {
            let net: Live = env.net().expect("no agent is chosen");
            // All know each other, so that each notices the end of all.
            net.handle(1, |_| {});
            for to in (0..net.size()).filter(|&to| to != net.rank()) {
                net.try_send(to, 1, 0, b"hello").expect("there is room");
            }
            let together = Together::open(&net, 0);
            for round in 0..3 {
                let ended = together.barrier().await;
                assert_eq!(ended, Ok(()), "host {}, round {round}, pause {from}", env.host);
            }
            env.endpoint.closed(Duration::from_millis(1)).await;
        });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn reduce__results_by_multicast_are_those_along_a_tree_also_under_loss() {
    let lossy = SimConfig::new(6, 2)
        .fault(Fault::Loss { ppm: 30_000, span: Span::ALWAYS })
        .fault(Fault::Reorder { ppm: 50_000, by_ns: 50_000, span: Span::ALWAYS });
    for config in [SimConfig::new(1, 1), SimConfig::new(5, 1), lossy] {
        let sim = Sim::new("results by multicast", config);
        let mut sim = sim.of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
        sim.spawn_all(move |env| async move {
            let net: Live = env.net().expect("no agent is chosen");
            let together = Together::with_multicast(&net, 1);
            let join = |all: Vec<u8>, other: &[u8]| [&all, other].concat();
            for round in 0..20usize {
                // Some are too long for a packet: those go along the tree.
                let length = if round % 5 == 4 { 3_000 } else { round };
                let mine = vec![net.rank() as u8; length];
                let mut all = together.reduce(mine, join).await.expect("no rank fails");
                all.sort_unstable();
                let expected: Vec<u8> =
                    (0..net.size()).flat_map(|rank| vec![rank as u8; length]).collect();
                assert_eq!(all, expected, "host {}, round {round}", env.host);
                let root = round % net.size();
                let bytes = together.broadcast(root, vec![round as u8; length]).await;
                assert_eq!(bytes.expect("no rank fails"), vec![round as u8; length]);
            }
            env.world().barrier().await.expect("no rank fails");
        });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}
