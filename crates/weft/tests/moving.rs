//! An endpoint closes its links in the middle of messages and opens them elsewhere, as it does when
//! its process moves to another host.
#![allow(non_snake_case)]

use std::time::{Duration, Instant};
use weft::job::{open_endpoint, Links};
use weft::{Config, Endpoint};

const KEY: [u8; 32] = [7; 32];
/// More than the runs that any test takes.
const RUNS: u64 = 1 << 10;

fn pair() -> [Endpoint; 2] {
    let udp = Links::parse("udp").unwrap();
    [0, 1].map(|rank| {
        let config = Config { rank: Some(rank), ..Config::default() };
        open_endpoint(config, udp, KEY).unwrap()
    })
}

/// Makes progress on both until `done`.
fn until(both: [&Endpoint; 2], mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "nothing ends");
        both.iter().for_each(|endpoint| _ = endpoint.progress());
    }
}

/// Makes `moved` go through a whole move, during which its peer sends on.
fn go_through(moved: &Endpoint, peer: &Endpoint, number: u32) {
    moved.moving().hold(number);
    until([moved, peer], || moved.moving().untold() == 0);
    moved.moving().close();
    for _ in 0..1000 {
        peer.progress();
    }
    let first = RUNS * u64::from(number);
    moved.moving().open(number, first..first + RUNS).unwrap();
    until([moved, peer], || moved.moving().tell() == 0);
}

#[test]
fn open__messages_of_both_sides_arrive_once_and_in_order() {
    let [a, b] = pair();
    let to_b = a.connect(&b.address()).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    let long = 300_000;
    for number in 1..=5u32 {
        let text = |i: u32| vec![(i + number) as u8; if i % 10 == 3 { long } else { 16 }];
        let receives: Vec<_> = (0..40)
            .map(|_| {
                [a.recv(Some(to_b), 1, 0, vec![0; long]), b.recv(Some(to_a), 1, 0, vec![0; long])]
            })
            .collect();
        let sends: Vec<_> =
            (0..40).map(|i| [a.send(to_b, 1, text(i)), b.send(to_a, 1, text(i))]).collect();
        for _ in 0..10 * number {
            a.progress();
            b.progress();
        }
        go_through(&a, &b, number);
        assert_eq!(a.address().moves, 2 * number);
        until([&a, &b], || receives.iter().flatten().all(|op| op.is_done()));
        for (i, [at_a, at_b]) in receives.into_iter().enumerate() {
            for op in [at_a, at_b] {
                let (result, data) = op.wait();
                let len = result.unwrap().len;
                assert_eq!(data[..len], text(i as u32), "message {i} of move {number}");
            }
        }
        until([&a, &b], || sends.iter().flatten().all(|op| op.is_done()));
    }
}

#[test]
fn open__runs_that_were_used_are_refused() {
    let [a, b] = pair();
    let to_b = a.connect(&b.address()).unwrap();
    let hello = a.send(to_b, 1, vec![1]);
    until([&a, &b], || hello.is_done());
    go_through(&a, &b, 1);
    a.moving().close();
    // The image of a move before has the runs of that move.
    assert!(a.moving().open(1, RUNS..2 * RUNS).is_err());
    a.moving().open(2, 2 * RUNS..3 * RUNS).unwrap();
    until([&a, &b], || a.moving().tell() == 0);
}

#[test]
fn hold__a_silent_peer_is_not_given_up() {
    let udp = Links::parse("udp").unwrap();
    let hasty = Config { peer_timeout_ms: 300, keepalive_ms: 50, ..Config::default() };
    let a = open_endpoint(Config::default(), udp, KEY).unwrap();
    let b = open_endpoint(hasty, udp, KEY).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    let hello = b.send(to_a, 1, vec![1]);
    until([&a, &b], || hello.is_done() && a.probe(None, 1, 0).is_some());
    a.moving().hold(1);
    until([&a, &b], || a.moving().untold() == 0);
    a.moving().close();
    let sent = b.send(to_a, 1, vec![2]);
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        b.progress();
    }
    assert_eq!(b.peer(to_a).failure(), None);
    a.moving().open(1, RUNS..2 * RUNS).unwrap();
    until([&a, &b], || sent.is_done());
}
