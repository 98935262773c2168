//! Hosts that share several networks: links of their own that replace each other, and one link that
//! spreads data over all. Every message must arrive once and in order; plans check it.
#![allow(non_snake_case)]

use std::rc::Rc;
use weft_sim::plan::{Message, Plan};
use weft_sim::swarm::{run_plan, PlanReport};
use weft_sim::{test_sim, Env, Failure, Fault, SharedNetwork, Sim, SimConfig, Span, Wire};

/// Far and fast, in contrast to the near and slow first network.
const FAR: Wire = Wire { latency_ns: 50_000, ..Wire::ethernet(10) };
const NEAR: Wire = Wire::ethernet(1);

/// Configures two hosts on two networks: data spread over both, or each network a link.
fn two(striped: bool, first: Wire, second: Wire) -> SimConfig {
    let mut config = SimConfig::new(2, 7);
    (config.wire, config.more) = (first, vec![second]);
    (config.striped, config.train) = (striped, 8);
    config
}

/// Returns messages of all sizes in both directions, some of many trains.
fn plan(config: SimConfig) -> Plan {
    let sizes = [0, 16, 1400, 5_000, 40_000, 1 << 20, 3, 2 << 20];
    let message = |i: usize| Message {
        src: (i % 2) as u32,
        dst: (1 - i % 2) as u32,
        tag: (i % 3) as u64,
        len: sizes[i % sizes.len()],
        short: 0,
        pause_ns: if i.is_multiple_of(5) { 500_000 } else { 0 },
        sync: i.is_multiple_of(7),
        sized: false,
    };
    let mut plan = Plan::draw(0);
    (plan.config, plan.depth, plan.cancels) = (config, 4, 0);
    plan.messages = (0..48).map(message).collect();
    plan.actives.clear();
    plan.remotes.clear();
    plan.collectives.clear();
    plan
}

fn pass(config: SimConfig) -> PlanReport {
    let run = run_plan(&plan(config.clone()));
    let of_test = |e: Failure| e.of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
    let report = run.map_err(of_test).unwrap_or_else(|e| panic!("{config}: {e}"));
    assert_eq!((report.delivered, report.failed), (48, 0), "{config}");
    report
}

/// Returns both forms of two networks, equal and unlike, and data in long packets spread over both.
fn kinds() -> Vec<SimConfig> {
    let wires = [(Wire::ethernet(10), Wire::ethernet(10)), (NEAR, FAR), (FAR, NEAR)];
    let of = |striped| wires.map(|(first, second)| two(striped, first, second));
    let long = of(true).map(|config| SimConfig { train: 1, long: 30_000, ..config });
    [of(false), of(true), long].concat()
}

#[test]
fn networks__of_different_latency_keep_order() {
    kinds().into_iter().for_each(|config| drop(pass(config)));
}

#[test]
fn networks__one_loses_a_hundredth() {
    for config in kinds() {
        let lost = [0, 1].map(|network| {
            let config = config.clone().fault(Fault::loss(10_000).on(network));
            pass(config).outcome.counters.lost
        });
        // Of two equal networks with links of their own, one is enough.
        assert!(
            lost[0] > 0 && (lost[1] > 0 || config.wire == config.more[0]),
            "{lost:?}: {config}"
        );
    }
}

#[test]
fn networks__one_is_dead_from_the_start() {
    for (config, network) in kinds().into_iter().flat_map(|c| [(c.clone(), 0), (c, 1)]) {
        pass(config.fault(Fault::loss(1_000_000).on(network)));
    }
}

#[test]
fn networks__one_dies_under_way() {
    for (config, network) in kinds().into_iter().flat_map(|c| [(c.clone(), 0), (c, 1)]) {
        let span = Span { from: 2_000_000, until: u64::MAX };
        let spare = network == 1 && !config.striped && config.wire == config.more[0];
        let report = pass(config.fault(Fault::Loss { ppm: 1_000_000, span }.on(network)));
        assert!(spare || report.outcome.counters.lost > 0, "it was in use");
    }
}

/// A host that sends only acknowledgements finds that their network is dead: packets that it has
/// received come again.
#[test]
fn networks__one_loses_what_acknowledges() {
    for from_ms in [0, 5] {
        let span = Span::ms(from_ms, u64::MAX / 1_000_000);
        let back = Fault::Partition { side: vec![1], one_way: true, span };
        let mut config = two(false, Wire::ethernet(10), Wire::ethernet(10)).fault(back.on(0));
        config.settings = vec![("peer_timeout_ms", "1000".into())];
        let mut sim = test_sim!("acknowledgements", config);
        sim.spawn_all(move |env| async move {
            for _ in 0..20 {
                if env.host == 0 {
                    env.endpoint.send(env.peer(1), 1, vec![7; 1000]).await.0.expect("it arrives");
                } else {
                    env.endpoint.recv(Some(env.peer(0)), 1, 0, vec![0; 1000]).await.0.unwrap();
                }
                env.sleep(1_000_000).await;
            }
        });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Streams lose everything in flight when they break, and nothing else.
#[test]
fn streams__that_break_lose_and_double_nothing() {
    let stream = Wire { stream: true, ..Wire::ethernet(10) };
    for long in [0, 30_000] {
        let mut alone = SimConfig { train: 4, long, ..SimConfig::new(2, 7) };
        alone.wire = stream;
        let report = pass(alone.fault(Fault::loss(100_000)));
        assert!(report.outcome.counters.lost > 0, "no stream broke");
    }
}

#[test]
fn streams__serve_where_the_other_network_does_not() {
    let stream = Wire { stream: true, ..Wire::ethernet(10) };
    let arrived = |config| large(config).network().borrow().arrived_on(1);
    let idle = two(false, Wire::ethernet(10), stream);
    assert_eq!(arrived(idle.clone()), 0, "no connection is made without need");
    let dead = idle.fault(Fault::loss(1_000_000).on(0));
    assert!(arrived(dead.clone()) > 0);
    pass(dead);
    let faster = two(false, Wire::ethernet(10), Wire { bytes_per_us: 12_500, ..stream });
    assert!(arrived(faster.clone()) > 0, "the faster carries data");
    let span = Span { from: 2_000_000, until: u64::MAX };
    for network in [0, 1] {
        let dies = Fault::Loss { ppm: 1_000_000, span };
        pass(faster.clone().fault(dies.on(network)));
    }
}

#[test]
fn networks__each_dies_in_turn_and_comes_back() {
    for config in kinds() {
        let gone = |from, until, network| {
            Fault::Loss { ppm: 1_000_000, span: Span::ms(from, until) }.on(network)
        };
        pass(config.fault(gone(1, 40, 0)).fault(gone(60, 2_000, 1)).fault(gone(2_500, 2_600, 0)));
    }
}

#[test]
fn stripes__share_a_large_message() {
    let trains = two(true, Wire::ethernet(10), Wire::ethernet(10));
    let long = SimConfig { train: 1, long: 30_000, ..trains.clone() };
    for (config, least) in [(trains, 1000), (long, 50)] {
        let sim = large(config);
        let net = sim.network().borrow();
        let (first, second) = (net.arrived_on(0), net.arrived_on(1));
        // Trains and long packets take turns; small packets take the first network.
        assert!(second > least, "{first}, {second}");
    }
}

/// Sends four MiB from one host to the other.
fn large(config: SimConfig) -> Sim {
    let mut sim = test_sim!("networks", config);
    sim.spawn_all(|env: Env| async move {
        let peer = env.peer(1 - env.host);
        if env.host == 0 {
            let (sent, _) = env.endpoint.send(peer, 1, vec![7; 4 << 20]).await;
            assert!(sent.is_ok(), "{sent:?}");
        } else {
            let (got, data) = env.endpoint.recv(Some(peer), 1, 0, vec![0; 4 << 20]).await;
            assert!(got.is_ok() && data.iter().all(|&b| b == 7), "{got:?}");
        }
    });
    sim.run().unwrap_or_else(|e| panic!("{e}"));
    sim
}

#[test]
fn failover__is_said_and_the_network_is_used_again_when_it_is_back() {
    let span = Span::ms(1_000, 4_000);
    for network in [0, 1] {
        let config = two(false, NEAR, FAR);
        let dead = Fault::Loss { ppm: 1_000_000, span };
        let mut sim = test_sim!("networks", config.fault(dead.on(network)));
        let net = Rc::clone(sim.network());
        sim.spawn_all(move |env: Env| ticks(env, Rc::clone(&net), network));
        sim.run().unwrap_or_else(|e| panic!("network {network}: {e}"));
    }
}

#[test]
fn stripes__a_network_that_becomes_possible_later_shares_data() {
    let span = Span::ms(0, 4_000);
    for network in [0, 1] {
        let config = two(true, Wire::ethernet(10), Wire::ethernet(10));
        let dead = Fault::Loss { ppm: 1_000_000, span };
        let mut sim = test_sim!("networks", config.fault(dead.on(network)));
        let net = Rc::clone(sim.network());
        sim.spawn_all(move |env: Env| ticks(env, Rc::clone(&net), network));
        sim.run().unwrap_or_else(|e| panic!("network {network}: {e}"));
    }
}

/// Sends a small and a large message each way every 100 ms, for 30 s; checks that in the second
/// half frames pass over the network that was dead up to 4 s.
async fn ticks(env: Env, net: SharedNetwork, network: usize) {
    let peer = env.peer(1 - env.host);
    let mut half = 0;
    for turn in 0..300u64 {
        if turn == 150 {
            half = net.borrow().arrived_on(network);
        }
        for len in [16, 300_000] {
            let data = vec![turn as u8; len];
            let sent = env.endpoint.send(peer, turn, data.clone());
            let (got, came) = env.endpoint.recv(Some(peer), turn, 0, vec![0; len]).await;
            assert!(got.is_ok() && came == data, "turn {turn}: {got:?}");
            assert!(sent.await.0.is_ok());
        }
        env.sleep(100_000_000).await;
    }
    let end = net.borrow().arrived_on(network);
    assert!(end > half + 150, "{half} and {end} frames");
}
