//! Packets that vanish because of their type or length while all others pass: the peer is heard,
//! and no operation with it may wait for ever.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::rc::Rc;
use weft::{AtomicCode, OpError, PeerFailure, Rights};
use weft_core::wire::PacketType;
use weft_sim::{test_sim, Env, Fault, SimConfig, Span};

/// Milliseconds without progress after which a peer counts as failed.
const PATIENCE_MS: u64 = 1000;
const MS: u64 = 1_000_000;

/// Two hosts under a fault, with an agent each if they are `served`.
fn two_hosts(served: bool, fault: Fault) -> SimConfig {
    let mut config = SimConfig { served, ..SimConfig::new(2, 3) }.fault(fault);
    let patience = PATIENCE_MS.to_string();
    config.settings = vec![("peer_timeout_ms", patience.clone()), ("connect_timeout_ms", patience)];
    config
}

/// The result of each host's work, and the end time in milliseconds.
type Ends = Rc<RefCell<Vec<(u32, OpError, u64)>>>;

/// Key of host 1's region, once it is registered.
type Key = Rc<RefCell<Option<u64>>>;

/// Lets host 0 send to host 1, and write and read its memory; both go on until something fails.
async fn work(env: &Env, key: &Key) -> OpError {
    let peer = env.peer(1 - env.host);
    if env.host == 1 {
        *key.borrow_mut() = env.endpoint.regions().register(100_000, Rights::ALL);
    }
    for round in 0.. {
        let result = match env.host {
            0 => send_round(env, peer, key, round).await,
            _ => recv_round(env, peer, round).await,
        };
        if let Err(error) = result {
            return error;
        }
    }
    unreachable!("rounds have no end")
}

const LENGTHS: [usize; 4] = [10, 5_000, 400_000, 1];

async fn send_round(env: &Env, peer: weft::PeerId, key: &Key, round: u64) -> Result<(), OpError> {
    for (tag, len) in (0..).zip(LENGTHS) {
        env.endpoint.send(peer, tag, vec![round as u8; len]).await.0?;
    }
    env.endpoint.send_sync(peer, 9, vec![round as u8; 100]).await.0?;
    let Some(key) = *key.borrow() else { return Ok(()) };
    env.endpoint.put(peer, key, 100, vec![round as u8; 4_000]).await.0?;
    let (got, bytes) = env.endpoint.get(peer, key, 100, vec![0; 4_000]).await;
    got?;
    assert!(bytes.iter().all(|&byte| byte == round as u8));
    env.endpoint.atomic(peer, key, 0, AtomicCode::FetchAdd, 1, 0).await.0?;
    // The peer asks if this host is alive.
    if round == 20 {
        env.sleep(900 * MS).await;
    }
    Ok(())
}

async fn recv_round(env: &Env, peer: weft::PeerId, round: u64) -> Result<(), OpError> {
    for (tag, len) in (0..).zip(LENGTHS).chain([(9, 100)]) {
        let (got, bytes) = env.endpoint.recv(Some(peer), tag, 0, vec![0; len]).await;
        assert_eq!(got?.len, len);
        assert!(bytes.iter().all(|&byte| byte == round as u8));
    }
    Ok(())
}

/// Returns the ends of the work of two hosts under a fault.
fn ends(served: bool, fault: Fault) -> Vec<(u32, OpError, u64)> {
    let mut sim = test_sim!("vanish", two_hosts(served, fault));
    let (ends, key) = (Ends::default(), Key::default());
    let log = Rc::clone(&ends);
    sim.spawn_all(move |env| {
        let (ends, key) = (Rc::clone(&log), Rc::clone(&key));
        async move {
            let error = work(&env, &key).await;
            ends.borrow_mut().push((env.host, error, env.now().0 / MS));
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    ends.take()
}

/// Types that are sent to host 0, and to host 1.
const KINDS: [&[PacketType]; 2] = [
    &[PacketType::Pull, PacketType::Fin, PacketType::Reply],
    &[
        PacketType::Eager,
        PacketType::EagerFirst,
        PacketType::EagerMore,
        PacketType::Rts,
        PacketType::Data,
        PacketType::Put,
        PacketType::Get,
        PacketType::Atomic,
    ],
];

/// Calls a test with and without an agent, for each host and each type that is sent to it.
fn each_kind(test: impl Fn(bool, u32, PacketType)) {
    for served in [false, true] {
        for (to, kinds) in (0..).zip(KINDS) {
            kinds.iter().for_each(|&kind| test(served, to, kind));
        }
    }
}

#[test]
fn kind__that_vanishes_is_named_within_the_timeout() {
    each_kind(name_kind);
}

fn name_kind(served: bool, to: u32, kind: PacketType) {
    let vanish = Fault::Kind { kind, to, span: Span::ms(5, u64::MAX / MS) };
    let ends = ends(served, vanish);
    let hosts: Vec<u32> = ends.iter().map(|end| end.0).collect();
    assert!(hosts.contains(&0) && hosts.contains(&1), "{}: {ends:?}", kind.name());
    let named = |failure: &PeerFailure| match *failure {
        PeerFailure::Stuck { kind: named, after_ms, .. } => {
            named == kind && u64::from(after_ms) < 2 * PATIENCE_MS
        }
        _ => false,
    };
    for (host, error, at) in &ends {
        assert!(*at < 3 * PATIENCE_MS, "{}: host {host} at {at} ms", kind.name());
        let OpError::Peer { failure, .. } = error else { panic!("{error}") };
        // The sender of the lost packets names their type, and the other host is informed.
        let right = match *host == to {
            true => *failure == PeerFailure::Unheard,
            false => named(failure),
        };
        assert!(right, "{}: host {host}: {failure}", kind.name());
    }
}

#[test]
fn kind__that_vanishes_for_a_while_is_made_good() {
    each_kind(make_good);
}

fn make_good(served: bool, to: u32, kind: PacketType) {
    let passing = Fault::Kind { kind, to, span: Span::ms(5, 5 + PATIENCE_MS / 2) };
    let mut sim = test_sim!("vanish for a while", two_hosts(served, passing));
    let (done, key) = (Rc::new(RefCell::new(0)), Key::default());
    let count = Rc::clone(&done);
    sim.spawn_all(move |env| {
        let (done, key) = (Rc::clone(&count), Key::clone(&key));
        async move {
            let peer = env.peer(1 - env.host);
            if env.host == 1 {
                *key.borrow_mut() = env.endpoint.regions().register(100_000, Rights::ALL);
            }
            for round in 0..20 {
                let result = match env.host {
                    0 => send_round(&env, peer, &key, round).await,
                    _ => recv_round(&env, peer, round).await,
                };
                result.unwrap_or_else(|error| panic!("{}: {error}", kind.name()));
            }
            *done.borrow_mut() += 1;
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{}: {failure}", kind.name()));
    assert_eq!(*done.borrow(), 2);
}

/// Runs at least `rounds` rounds of all types of operations, and until `until_ms`; the remaining
/// operations end well.
fn rounds_pass(
    name: &str,
    config: SimConfig,
    rounds: u64,
    until_ms: u64,
) -> weft_sim::runner::Outcome {
    let mut sim = test_sim!(name, config);
    let (done, key) = (Rc::new(RefCell::new(0)), Key::default());
    let (count, last) = (Rc::clone(&done), Rc::new(RefCell::new(None)));
    sim.spawn_all(move |env| {
        let (done, key, last) = (Rc::clone(&count), Key::clone(&key), Rc::clone(&last));
        async move {
            let peer = env.peer(1 - env.host);
            if env.host == 1 {
                *key.borrow_mut() = env.endpoint.regions().register(100_000, Rights::ALL);
            }
            for round in 0.. {
                // The sender announces the last round before it is received.
                let late = round >= rounds && env.now().0 >= until_ms * MS;
                if env.host == 0 && late && last.borrow().is_none() {
                    *last.borrow_mut() = Some(round);
                }
                let result = match env.host {
                    0 => send_round(&env, peer, &key, round).await,
                    _ => recv_round(&env, peer, round).await,
                };
                result.unwrap_or_else(|error| panic!("host {}: {error}", env.host));
                if until_ms > 0 && env.host == 0 {
                    env.sleep(200 * MS).await;
                }
                if last.borrow().is_some_and(|last| round >= last) {
                    break;
                }
            }
            *done.borrow_mut() += 1;
        }
    });
    let outcome = sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(*done.borrow(), 2);
    outcome
}

#[test]
fn longer__packets_that_vanish_are_sent_in_pieces_and_shorter_ones_follow() {
    [false, true].into_iter().for_each(cut_longer);
}

fn cut_longer(served: bool) {
    for bytes in [300, 600, 1_000, 1_400] {
        for reliability in ["selective", "gbn"] {
            for from in [0, 5] {
                let span = Span::ms(from, u64::MAX / MS);
                let mut config = two_hosts(served, Fault::Longer { bytes, span });
                config.settings.push(("reliability", reliability.to_string()));
                let outcome = rounds_pass("longer", config, 40, 0);
                assert!(outcome.counters.lost > 0);
                // Packets that are known to vanish are not sent.
                assert!(outcome.counters.lost < 10_000, "{bytes}: {}", outcome.counters.lost);
            }
        }
    }
}

#[test]
fn longer__they_are_sent_again_when_they_get_through() {
    [false, true].into_iter().for_each(lengthen_again);
}

fn lengthen_again(served: bool) {
    let config = two_hosts(served, Fault::Longer { bytes: 700, span: Span::ms(2, 3_000) });
    let short = rounds_pass("short", config.clone(), 1, 2_000).counters;
    let middle = rounds_pass("middle", config.clone(), 1, 13_000).counters;
    let long = rounds_pass("long", config, 1, 23_000).counters;
    let mean = |sent: u64, bytes: u64| bytes / sent;
    let late = mean(long.sent - middle.sent, long.sent_bytes - middle.sent_bytes);
    assert!(mean(short.sent, short.sent_bytes) + 200 < late, "{short:?} {long:?}");
}

#[test]
fn longer__and_lost_duplicated_and_out_of_order() {
    for seed in 0..20 {
        let longer = Fault::Longer { bytes: 900, span: Span::ms(3, u64::MAX / MS) };
        let mut config = two_hosts(seed % 2 == 1, longer);
        config.seed = seed;
        for fault in
            [Fault::loss(50_000), Fault::duplicate(50_000), Fault::reorder(50_000, 100_000)]
        {
            config = config.fault(fault);
        }
        rounds_pass("longer and lossy", config, 10, 0);
    }
}

/// Where there is another network, packets that vanish on one take the other.
#[test]
fn kind__that_vanishes_on_one_network_takes_the_other() {
    for (to, kinds) in (0..).zip(KINDS) {
        for &kind in kinds {
            for network in [0, 1] {
                let vanish = Fault::Kind { kind, to, span: Span::ms(5, u64::MAX / MS) };
                let mut config = two_hosts(false, vanish.on(network));
                config.more = vec![config.wire];
                rounds_pass(&format!("{} on network {network}", kind.name()), config, 20, 200);
            }
        }
    }
}

/// A receiver that only computes, or has posted nothing yet, is no lack of progress.
#[test]
fn progress__is_not_missed_while_the_peer_has_posted_nothing() {
    let mut sim = test_sim!("late", two_hosts(false, Fault::loss(1_000)));
    let done = Rc::new(RefCell::new(0));
    let count = Rc::clone(&done);
    sim.spawn_all(move |env| {
        let done = Rc::clone(&count);
        async move {
            let peer = env.peer(1 - env.host);
            if env.host == 0 {
                for (tag, len) in (0..).zip(LENGTHS) {
                    env.endpoint.send_sync(peer, tag, vec![7; len]).await.0.expect("it comes late");
                }
            } else {
                for (tag, len) in (0..).zip(LENGTHS) {
                    env.sleep(4 * PATIENCE_MS * MS).await;
                    let (got, _) = env.endpoint.recv(Some(peer), tag, 0, vec![0; len]).await;
                    got.expect("it was sent");
                }
            }
            *done.borrow_mut() += 1;
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(*done.borrow(), 2);
}
