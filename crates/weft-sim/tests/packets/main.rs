//! The packet interface on simulated hosts: packets, multicast, fetch-and-add and remote-memory
//! copy under faults.
#![allow(non_snake_case)]

mod agents;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use weft::choices::Tree;
use weft::{Config, OpError};
use weft_core::{Instant, Reliability};
use weft_packets::{Counter, MulticastError, Packets, Settings};
use weft_sim::runner::Outcome;
use weft_sim::{test_sim, Env, Fault, Sim, SimConfig, Span};

const MS: u64 = 1_000_000;
const GROUP: u16 = 7;

fn faulty(hosts: u32, seed: u64, loss: f64) -> SimConfig {
    let mut config = SimConfig::new(hosts, seed);
    if loss > 0.0 {
        let (ppm, span) = ((loss * 1e6) as u32, Span::ALWAYS);
        config.faults = vec![
            Fault::loss(ppm),
            Fault::Duplicate { ppm: ppm / 2, by_ns: 50_000, span },
            Fault::Reorder { ppm, by_ns: 50_000, span },
        ];
    }
    config
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31).wrapping_add(seed * 7 + (i >> 8))) as u8).collect()
}

fn packets(env: &Env) -> Packets {
    env.packets().expect("no agent is chosen")
}

fn credit(multicast_credit: u32) -> Settings {
    Settings { multicast_credit, ..Settings::default() }
}

fn multicast(config: SimConfig) -> Sim {
    test_sim!("multicast", config)
}

fn members(env: &Env) -> Vec<weft::PeerId> {
    (0..env.hosts).map(|host| env.peer(host)).collect()
}

async fn until(env: &Env, done: impl Fn() -> bool) {
    while !done() {
        env.sleep(20_000).await;
    }
}

fn run(mut sim: Sim) -> Outcome {
    sim.run().unwrap_or_else(|failure| panic!("{failure}"))
}

/// Lets every host multicast `count` packets, each over another tree than the one before; all
/// arrive everywhere, once and in the order of their root.
fn everybody_multicasts(mut sim: Sim, count: u32) -> Outcome {
    sim.spawn_all(move |env| async move {
        let packets = packets(&env);
        let got: Rc<RefCell<Vec<u32>>> = Rc::new(RefCell::new(vec![0; env.hosts as usize]));
        let peers = members(&env);
        let (heard, who) = (Rc::clone(&got), peers.clone());
        packets.handle(3, move |_, packet| {
            let root = who.iter().position(|&p| p == packet.source()).expect("a member");
            assert_eq!(packet.argument(), heard.borrow()[root], "order of root {root}");
            assert_eq!(packet.data(), bytes(packet.argument().into(), 10 + root * 90));
            heard.borrow_mut()[root] += 1;
        });
        let group = packets.group(GROUP, peers, env.host as usize).expect("a new group");
        let tree = |n: u32| Tree::ALL[n as usize % Tree::ALL.len()];
        for n in 0..count {
            let data = bytes(n.into(), 10 + env.host as usize * 90);
            group.send_over(tree(n / 3), 3, n, &data).await.expect("all live");
        }
        let me = env.host as usize;
        until(&env, || got.borrow().iter().enumerate().all(|(r, &n)| r == me || n == count)).await;
        // Packets to others still pass through this host.
        env.world().barrier().await.unwrap();
    });
    run(sim)
}

#[test]
fn multicast__all_trees_all_roots_in_order() {
    for hosts in [2, 3, 8, 13] {
        everybody_multicasts(multicast(SimConfig::new(hosts, 1)), 40);
    }
}

#[test]
fn multicast__under_loss_with_both_kinds_of_retransmission() {
    for reliability in [Reliability::GoBackN, Reliability::Selective] {
        for seed in 1..4 {
            let sim = multicast(faulty(6, seed, 0.03)).packets(credit(4));
            let settings = Config { reliability, ..Config::default() };
            let outcome = everybody_multicasts(sim.settings(settings), 60);
            assert!(outcome.counters.lost > 0, "{outcome:?}");
        }
    }
}

#[test]
fn multicast__one_credit_an_edge_is_no_deadlock() {
    everybody_multicasts(multicast(faulty(9, 5, 0.01)).packets(credit(1)), 50);
}

#[test]
fn multicast__lost_credit_is_asked_for_and_comes_back() {
    let mut sim = test_sim!("credit leak", SimConfig::new(3, 1)).packets(credit(4));
    let asked = Rc::new(Cell::new(0));
    let note = Rc::clone(&asked);
    sim.spawn_all(move |env| {
        let asked = Rc::clone(&note);
        async move {
            let packets = packets(&env);
            let got = Rc::new(Cell::new(0));
            let heard = Rc::clone(&got);
            packets.handle(0, move |_, _| heard.set(heard.get() + 1));
            // The packets are dropped, as if the network had lost them.
            packets.lose_credits(3);
            let group = packets.group(GROUP, members(&env), env.host as usize).unwrap();
            if env.host == 0 {
                for n in 0..100 {
                    group.send_over(Tree::Chain, 0, n, &[1; 100]).await.unwrap();
                }
                asked.set(packets.stats().credits_asked);
            } else {
                until(&env, || got.get() == 100).await;
            }
            env.world().barrier().await.unwrap();
        }
    });
    run(sim);
    assert!(asked.get() > 0, "no credit was asked for");
}

#[test]
fn multicast__a_slow_receiver_is_named_and_memory_stays_bounded() {
    let settings = Config { warn_after_ms: 50, ..Config::default() };
    let sim = test_sim!("slow receiver", SimConfig::new(4, 1)).settings(settings);
    let mut sim = sim.packets(credit(8));
    let named: Rc<RefCell<Vec<(u32, usize)>>> = Rc::default();
    let note = Rc::clone(&named);
    sim.spawn_all(move |env| {
        let named = Rc::clone(&note);
        async move {
            let packets = packets(&env);
            let (kept, got) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
            let (keep, heard, slow) = (Rc::clone(&kept), Rc::clone(&got), env.host == 2);
            packets.handle(0, move |_, packet| {
                heard.set(heard.get() + 1);
                if slow {
                    // The slow host keeps all packets.
                    keep.borrow_mut().push(packet.keep().ok().expect("fewer than the bound"));
                }
            });
            let group = packets.group(GROUP, members(&env), env.host as usize).unwrap();
            match env.host {
                0 => {
                    let mut sent = 0;
                    while group.try_send(Tree::Chain, 0, sent, &[0; 64]).is_ok() {
                        sent += 1;
                        env.sleep(100_000).await;
                    }
                    // One window for each edge on the route, and the packets forwarded before.
                    assert!((8..=24).contains(&sent), "{sent} packets were taken");
                    for n in sent..60 {
                        group.send_over(Tree::Chain, 0, n, &[0; 64]).await.unwrap();
                    }
                }
                2 => {
                    env.sleep(200 * MS).await;
                    assert!(kept.borrow().len() <= 8, "{} kept", kept.borrow().len());
                    while got.get() < 60 {
                        kept.borrow_mut().clear();
                        env.sleep(100_000).await;
                    }
                    kept.borrow_mut().clear();
                }
                _ => {
                    until(&env, || got.get() == 60 || !group.slow().is_empty()).await;
                    for (rank, _) in group.slow() {
                        named.borrow_mut().push((env.host, rank));
                    }
                    until(&env, || got.get() == 60).await;
                }
            }
            env.world().barrier().await.unwrap();
        }
    });
    run(sim);
    assert_eq!(*named.borrow(), [(1, 2)], "its parent names it");
}

#[test]
fn multicast__a_member_that_dies_fails_the_group_by_name() {
    for visible in [true, false] {
        // In a chain only member 1 communicates with member 2.
        let death = Fault::Death { host: 2, at: 5 * MS, visible };
        let config = SimConfig { faults: vec![death], ..SimConfig::new(4, 1) };
        let settings = Config { peer_timeout_ms: 1000, keepalive_ms: 50, ..Config::default() };
        let mut sim = test_sim!("dead member", config).settings(settings).packets(credit(4));
        let errors: Rc<RefCell<Vec<MulticastError>>> = Rc::default();
        let note = Rc::clone(&errors);
        sim.spawn_all(move |env| {
            let errors = Rc::clone(&note);
            async move {
                let packets = packets(&env);
                packets.handle(0, |_, _| {});
                let group = packets.group(GROUP, members(&env), env.host as usize).unwrap();
                if env.host == 0 {
                    let error = loop {
                        match group.send_over(Tree::Chain, 0, 0, &[0; 64]).await {
                            Ok(()) => env.sleep(100_000).await,
                            Err(error) => break error,
                        }
                    };
                    errors.borrow_mut().push(error);
                } else {
                    until(&env, || group.failed().is_some()).await;
                }
            }
        });
        run(sim);
        let errors = errors.borrow();
        assert!(
            matches!(errors[..], [MulticastError::Member { rank: 2, .. }]),
            "visible {visible}: {errors:?}"
        );
    }
}

#[test]
fn multicast__a_group_made_late_gets_everything() {
    let mut sim = test_sim!("late group", SimConfig::new(3, 1));
    sim.spawn_all(|env| async move {
        let packets = packets(&env);
        let got = Rc::new(Cell::new(0));
        let heard = Rc::clone(&got);
        packets.handle(0, move |_, packet| {
            assert_eq!(packet.argument(), heard.get());
            heard.set(heard.get() + 1);
        });
        if env.host != 0 {
            env.sleep(u64::from(env.host) * 10 * MS).await;
        }
        let group = packets.group(GROUP, members(&env), env.host as usize).unwrap();
        if env.host == 0 {
            for n in 0..50 {
                group.send(0, n, &[3; 8]).await.unwrap();
            }
        } else {
            until(&env, || got.get() == 50).await;
        }
        env.world().barrier().await.unwrap();
    });
    run(sim);
}

/// Sends rounds of packets gathered from shared memory, which is free and used again after each.
async fn gather_rounds(env: &Env, packets: &Packets, rounds: u32, each: u32) {
    let to = env.peer(1);
    let mut memory: Rc<[u8]> = vec![0; 200 * each as usize].into();
    for round in 0..rounds {
        let own = Rc::get_mut(&mut memory).expect("nobody else uses it after a flush");
        own.copy_from_slice(&bytes(round.into(), 200 * each as usize));
        for n in 0..each {
            // Packets of other types keep their order among them.
            if n % 7 == 3 {
                let part = &memory[200 * n as usize..][..200];
                packets.send_async(to, 1, round * each + n, part).await.unwrap();
                continue;
            }
            let part = 200 * n as usize..200 * (n as usize + 1);
            packets.gather_async(to, 1, round * each + n, &memory, part).await.unwrap();
        }
        packets.flush_async().await.unwrap();
        assert_eq!(packets.lent(), 0);
    }
}

#[test]
fn gather__in_order_whole_and_free_after_a_flush_under_loss() {
    for reliability in [Reliability::GoBackN, Reliability::Selective] {
        for (seed, loss) in [(1, 0.0), (2, 0.02), (3, 0.05)] {
            let settings = Config { reliability, eager_credit: 128 << 10, ..Config::default() };
            let mut sim = test_sim!("gather", faulty(2, seed, loss)).settings(settings);
            sim.spawn_all(|env| async move {
                let packets = packets(&env);
                let got = Rc::new(Cell::new(0));
                let heard = Rc::clone(&got);
                packets.handle(1, move |_, packet| {
                    let (n, round) = (packet.argument(), packet.argument() / 300);
                    assert_eq!(n, heard.get());
                    let all = bytes(round.into(), 200 * 300);
                    assert_eq!(packet.data(), &all[200 * (n as usize % 300)..][..200], "{n}");
                    heard.set(n + 1);
                });
                match env.host {
                    0 => gather_rounds(&env, &packets, 5, 300).await,
                    _ => until(&env, || got.get() == 1500).await,
                }
                env.world().barrier().await.unwrap();
            });
            let outcome = run(sim);
            assert!(loss == 0.0 || outcome.counters.lost > 0, "{outcome:?}");
        }
    }
}

#[test]
fn gather__memory_comes_back_from_a_peer_that_dies_and_the_flush_names_it() {
    let death = Fault::Death { host: 1, at: MS, visible: false };
    let config = SimConfig { faults: vec![death], ..SimConfig::new(2, 1) };
    let settings = Config { peer_timeout_ms: 1000, keepalive_ms: 50, ..Config::default() };
    let mut sim = test_sim!("gather and death", config).settings(settings);
    sim.spawn_all(|env| async move {
        let packets = packets(&env);
        packets.handle(1, |_, _| {});
        if env.host == 1 {
            return until(&env, || false).await;
        }
        let (to, memory) = (env.peer(1), Rc::<[u8]>::from(vec![5; 1000]));
        let failed = loop {
            match packets.gather_async(to, 1, 0, &memory, 0..1000).await {
                Ok(()) => env.sleep(20_000).await,
                Err(error) => break error,
            }
        };
        assert!(matches!(failed, OpError::Peer { peer, .. } if peer == to), "{failed}");
        let flushed = packets.flush_async().await;
        assert!(matches!(flushed, Err(OpError::Peer { peer, .. }) if peer == to), "{flushed:?}");
        assert_eq!((packets.lent(), Rc::strong_count(&memory)), (0, 1));
        assert_eq!(packets.flush_async().await, Ok(()), "said once");
    });
    run(sim);
}

#[test]
fn gather__with_transfer_copy_memory_is_free_at_once() {
    let settings = Config { transfer: weft::choices::Transfer::Copy, ..Config::default() };
    let mut sim = test_sim!("copied", SimConfig::new(2, 1)).settings(settings);
    sim.spawn_all(|env| async move {
        let packets = packets(&env);
        let got = Rc::new(Cell::new(0));
        let heard = Rc::clone(&got);
        packets.handle(1, move |_, _| heard.set(heard.get() + 1));
        let (to, memory) = (env.peer(1 - env.host), Rc::<[u8]>::from(vec![5; 1000]));
        for n in 0..50 {
            packets.gather_async(to, 1, n, &memory, 0..1000).await.unwrap();
            assert_eq!((packets.lent(), Rc::strong_count(&memory)), (0, 1));
        }
        let outside = packets.try_gather(to, 1, 0, &memory, 900..1001);
        assert_eq!(outside, Err(OpError::Refused));
        until(&env, || got.get() == 50).await;
        env.world().barrier().await.unwrap();
    });
    run(sim);
}

#[test]
fn packets__kept_beyond_the_bound_are_refused_and_credit_comes_back() {
    let settings = Config { eager_credit: 128 << 10, ..Config::default() };
    let sim = test_sim!("kept", faulty(2, 3, 0.01)).settings(settings);
    let mut sim = sim.packets(Settings { packets_kept: 5, ..Settings::default() });
    sim.spawn_all(|env| async move {
        let packets = packets(&env);
        let other = env.peer(1 - env.host);
        if env.host == 0 {
            for n in 0..2000 {
                packets.send_async(other, 1, n, &bytes(n.into(), 1000)).await.unwrap();
            }
            env.world().barrier().await.unwrap();
            return;
        }
        let (kept, next) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
        let (keep, count) = (Rc::clone(&kept), Rc::clone(&next));
        packets.handle(1, move |_, packet| {
            assert_eq!(packet.argument(), count.get());
            assert_eq!(packet.data(), bytes(packet.argument().into(), 1000));
            count.set(count.get() + 1);
            match packet.keep() {
                Ok(packet) => keep.borrow_mut().push(packet),
                Err((_, packet)) => assert_eq!(packet.data().len(), 1000),
            }
        });
        until(&env, || next.get() == 2000).await;
        assert_eq!(kept.borrow().len(), 5);
        for packet in kept.borrow().iter() {
            assert_eq!(packet.data(), bytes(packet.argument().into(), 1000));
        }
        assert_eq!(packets.stats().keeps_refused, 1995);
        kept.borrow_mut().clear();
        env.world().barrier().await.unwrap();
    });
    run(sim);
}

/// Returns a counter that host 0 makes, with value 100, as all hosts know it.
async fn counter_of_host_0(env: &Env, packets: &Packets) -> Counter {
    let key = match env.host {
        0 => packets.counter(100).unwrap().key.to_le_bytes().to_vec(),
        _ => Vec::new(),
    };
    let key = env.world().broadcast(0, key).await.unwrap();
    Counter { key: u64::from_le_bytes(key.try_into().unwrap()) }
}

#[test]
fn fetch_add__every_ticket_once_under_loss() {
    for reliability in [Reliability::GoBackN, Reliability::Selective] {
        let settings = Config { reliability, ..Config::default() };
        let mut sim = test_sim!("tickets", faulty(5, 2, 0.02)).settings(settings);
        let tickets: Rc<RefCell<Vec<u64>>> = Rc::default();
        let note = Rc::clone(&tickets);
        sim.spawn_all(move |env| {
            let tickets = Rc::clone(&note);
            async move {
                let packets = packets(&env);
                let counter = counter_of_host_0(&env, &packets).await;
                for _ in 0..100 {
                    let ticket = packets.fetch_add(env.peer(0), counter, 1).await.unwrap();
                    tickets.borrow_mut().push(ticket);
                }
                env.world().barrier().await.unwrap();
                if env.host == 0 {
                    assert_eq!(packets.counter_value(counter), Some(600));
                }
                let wrong = Counter { key: counter.key ^ 1 };
                let refused = packets.fetch_add(env.peer(0), wrong, 1).await;
                assert_eq!(refused, Err(OpError::Refused));
                env.world().barrier().await.unwrap();
            }
        });
        run(sim);
        let mut tickets = tickets.take();
        tickets.sort_unstable();
        assert!(tickets.into_iter().eq(100..600));
    }
}

#[test]
fn rcpy__places_bytes_counts_hits_and_invalidates() {
    const LEN: usize = 300_000;
    let settings = Settings { rcpy_tlb: 3, ..Settings::default() };
    let mut sim = test_sim!("rcpy", faulty(2, 4, 0.02)).packets(settings);
    sim.spawn_all(|env| async move {
        let (packets, world) = (packets(&env), env.world());
        if env.host == 1 {
            let memory = packets.exports().make(LEN).unwrap();
            world.send(0, 1, memory.key.to_le_bytes().to_vec()).await.unwrap();
            for round in 0..4 {
                world.barrier().await.unwrap();
                let mut got = vec![0; LEN - 1000];
                assert!(packets.exports().read(memory, 1000, &mut got));
                assert!(got == bytes(round, LEN - 1000), "round {round}");
                assert!(!packets.exports().read(memory, 1001, &mut got), "out of bounds");
                world.barrier().await.unwrap();
            }
            assert_eq!(packets.exports().end(memory).await.map(|v| v.len()), Some(LEN));
            world.barrier().await.unwrap();
            world.barrier().await.unwrap();
            return;
        }
        let key = world.recv(1, 1, 8).await.unwrap();
        let (key, to) = (u64::from_le_bytes(key.try_into().unwrap()), env.peer(1));
        for round in 0..4 {
            let data = bytes(round, LEN - 1000);
            packets.rcpy_async(to, key, 1000, &data).await.unwrap();
            world.barrier().await.unwrap();
            world.barrier().await.unwrap();
        }
        let stats = packets.stats();
        // Five pages and three translations: some are found again, some were evicted.
        assert!(stats.rcpy_hits > 0 && stats.rcpy_evictions > 0, "{stats:?}");
        assert!(stats.rcpy_misses >= 5, "{stats:?}");
        let beyond = packets.rcpy_async(to, key, LEN as u64 - 10, &[1; 11]).await;
        assert_eq!(beyond, Err(OpError::Refused));
        world.barrier().await.unwrap();
        assert!(packets.stats().rcpy_invalidations > 0);
        let gone = packets.rcpy_async(to, key, 0, &[1; 10]).await;
        assert_eq!(gone, Err(OpError::Refused));
        world.barrier().await.unwrap();
    });
    run(sim);
}

/// Makes both hosts trust the network; returns the fate of 3000 packets of host 0.
fn trusted(loss: f64) -> (u32, Option<OpError>) {
    let settings =
        Config { reliability: Reliability::None, eager_credit: 128 << 10, ..Config::default() };
    let mut config = SimConfig::new(2, 1);
    if loss > 0.0 {
        config.faults = vec![Fault::loss((loss * 1e6) as u32)];
    }
    let mut sim = test_sim!("trusted", config).settings(settings);
    let outcome = Rc::new(RefCell::new((0, None)));
    let note = Rc::clone(&outcome);
    sim.spawn_all(move |env| {
        let outcome = Rc::clone(&note);
        async move {
            let packets = packets(&env);
            let other = env.peer(1 - env.host);
            if env.host == 0 {
                for n in 0..3000 {
                    if let Err(error) = packets.send_async(other, 0, n, &[1; 100]).await {
                        outcome.borrow_mut().1 = Some(error);
                        return;
                    }
                }
                env.sleep(10 * MS).await;
                return;
            }
            let got = Rc::new(Cell::new(0));
            let heard = Rc::clone(&got);
            packets.handle(0, move |_, packet| {
                assert_eq!(packet.argument(), heard.get());
                heard.set(heard.get() + 1);
            });
            let failed = || env.endpoint.peer(other).failure().is_some();
            until(&env, || got.get() == 3000 || failed()).await;
            outcome.borrow_mut().0 = got.get();
            let retransmitted = env.endpoint.stats().retransmitted;
            assert_eq!(retransmitted, 0);
            env.sleep(10 * MS).await;
        }
    });
    run(sim);
    outcome.take()
}

#[test]
fn reliability_none__a_network_that_keeps_its_promise_and_one_that_does_not() {
    assert_eq!(trusted(0.0), (3000, None));
    let (got, error) = trusted(0.01);
    assert!(got < 3000, "{got}");
    assert!(matches!(error, Some(OpError::Peer { .. })), "{error:?}");
}

#[test]
fn mtu__the_smaller_of_what_is_chosen_and_carried() {
    for (chosen, most) in [(0, SimConfig::MTU), (1024, 1024), (4096, SimConfig::MTU)] {
        let settings = Config { mtu: chosen, ..Config::default() };
        let mut sim = test_sim!("mtu", SimConfig::new(2, 1)).settings(settings);
        sim.spawn_all(move |env| async move {
            let packets = packets(&env);
            let other = env.peer(1 - env.host);
            assert_eq!(packets.packet_max(other), most as usize - 32);
            let world = env.world();
            if env.host == 0 {
                world.send(1, 1, bytes(1, 100_000)).await.unwrap();
            } else {
                assert!(world.recv(0, 1, 100_000).await.unwrap() == bytes(1, 100_000));
            }
            env.endpoint.sleep(Duration::from_millis(1)).await;
        });
        run(sim);
    }
}
