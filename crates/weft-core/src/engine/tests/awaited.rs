//! Messages that are awaited without an operation.

use super::*;
use crate::matching::RecvSpec;

fn spec(source: Option<PeerId>, tag: u64) -> RecvSpec {
    RecvSpec { source, tag, ignore: 0 }
}

fn wait_for(net: &mut Net, spec: RecvSpec, len: u64) -> bool {
    net.nodes[1].await_len = len;
    net.nodes[1].engine.matching_mut().await_message(spec, len, 0)
}

/// Returns the awaited message that came, and its bytes.
fn came(net: &mut Net) -> Option<(Awaited, Vec<u8>)> {
    net.nodes[1].awaited.take()
}

#[test]
fn await_message__one_packet_comes_without_an_operation() {
    for kind in every_kind() {
        let mut net = Net::open(kind);
        let peer = net.peer(1, 0);
        for source in [Some(peer), None] {
            for len in [0, 1, 300] {
                assert!(wait_for(&mut net, spec(source, 7), 300));
                assert!(!wait_for(&mut net, spec(source, 7), 300), "one at a time");
                let data = pattern(len, len);
                net.send_with(0, 1, 7, &data, |a| SendArgs { data: Some(5), ..a });
                net.run(10);
                let (awaited, bytes) = came(&mut net).unwrap();
                assert_eq!((awaited.error, awaited.status.data), (None, Some(5)));
                assert_eq!((awaited.status.source, awaited.status.tag), (Some(peer), 7));
                assert!(bytes == data && !net.nodes[1].engine.matching().awaits());
            }
        }
        assert_eq!(net.nodes[1].engine.stats().messages_received, 6);
        net.settle(1000);
    }
}

#[test]
fn await_message__too_long_is_truncated() {
    let mut net = Net::open((memory(), Config::default()));
    assert!(wait_for(&mut net, spec(None, 7), 3));
    net.send(0, 1, 7, b"12345");
    net.run(10);
    let (awaited, bytes) = came(&mut net).unwrap();
    assert_eq!(awaited.error, Some(OpError::Truncated { sent: 5 }));
    assert_eq!((awaited.status.len, &bytes[..]), (3, &b"123"[..]));
}

#[test]
fn await_message__others_go_where_they_would() {
    for kind in every_kind() {
        let mut net = Net::open(kind);
        let earlier = net.recv(1, Some(0), 7, 5);
        assert!(wait_for(&mut net, spec(None, 7), 10));
        net.send(0, 1, 8, b"other");
        net.send(0, 1, 7, b"first");
        net.run(10);
        assert_eq!(net.nodes[1].bytes(earlier), b"first", "posted before");
        assert!(came(&mut net).is_none() && net.nodes[1].engine.matching().awaits());
        net.send(0, 1, 7, b"second");
        net.send(0, 1, 7, b"third");
        net.run(10);
        assert_eq!(came(&mut net).unwrap().1, b"second");
        // A message that has arrived already is not awaited.
        assert!(!wait_for(&mut net, spec(None, 7), 10));
        let (other, third) = (net.recv(1, Some(0), 8, 5), net.recv(1, None, 7, 5));
        assert_eq!(net.nodes[1].bytes(other), b"other");
        assert_eq!(net.nodes[1].bytes(third), b"third");
        net.settle(1000);
    }
}

#[test]
fn await_message__of_several_packets_or_announced_is_posted_when_it_comes() {
    for kind in every_kind() {
        for (len, room) in [(40_000, 40_000), (40_000, 39), (2_000_000, 2_000_000), (2_000_000, 5)]
        {
            let mut net = Net::open(kind.clone());
            let data = pattern(1, len);
            assert!(wait_for(&mut net, spec(None, 7), room));
            let long = net.send(0, 1, 7, &data);
            // The short message matches as well, but comes later.
            let short = net.send(0, 1, 7, b"short");
            net.run(10);
            assert!(!net.nodes[1].engine.matching().awaits());
            let rest = net.recv(1, None, 7, 5);
            // On a link of long packets it is one packet.
            let taken = match (came(&mut net), net.nodes[1].posted.take()) {
                (Some((_, bytes)), None) => bytes,
                (None, Some(recv)) => {
                    net.run_until(|net| net.nodes[1].done.contains_key(&recv));
                    let done = net.nodes[1].done[&recv];
                    let cut = (len > room).then_some(OpError::Truncated { sent: len });
                    assert_eq!((done.error, done.status.tag, done.context), (cut, 7, 0));
                    net.nodes[1].bytes(recv).to_vec()
                }
                other => panic!("{other:?}"),
            };
            assert!(taken == data[..room as usize], "in order, and no more than there is room");
            net.wait(&[(0, long), (0, short), (1, rest)]);
            assert_eq!(&net.nodes[1].bytes(rest)[..5], b"short");
            assert_eq!(net.nodes[1].engine.stats().unexpected, 1, "the short one alone");
            net.settle(1000);
        }
    }
}

#[test]
fn set_context__is_what_the_completion_carries() {
    let mut net = Net::open((network(), Config::default()));
    assert!(wait_for(&mut net, spec(None, 7), 2_000_000));
    let long = net.send(0, 1, 7, &pattern(1, 2_000_000));
    net.run_until(|net| net.nodes[1].posted.is_some());
    let recv = net.nodes[1].posted.take().unwrap();
    assert!(net.nodes[1].engine.ops_mut().set_context(recv, 12));
    net.wait(&[(0, long), (1, recv)]);
    assert_eq!(net.nodes[1].done[&recv].context, 12);
    assert!(!net.nodes[1].engine.ops_mut().set_context(recv, 13), "it has ended");
}

#[test]
fn await_message__a_failure_ends_it_and_strangers_are_not_awaited() {
    let mut net = Net::pair((network(), Config::default()));
    let peer = net.peer(1, 0);
    assert!(!wait_for(&mut net, spec(Some(peer), 7), 10), "not open yet");
    let mut net = Net::open((network(), Config::default()));
    let peer = net.peer(1, 0);
    assert!(wait_for(&mut net, spec(Some(peer), 7), 10));
    net.nodes[0].engine.close().into_iter().for_each(|t| {
        net.inject(0, 1, t.header.as_slice(), Body::Bytes(Vec::new()));
    });
    net.run(10);
    assert!(!net.nodes[1].engine.matching().awaits());
    assert!(!wait_for(&mut net, spec(Some(peer), 7), 10));
}

#[test]
fn take_awaited__every_message_comes_once_and_in_order_over_rough_networks() {
    for (caps, config) in every_kind() {
        let loss = if caps.reliable { &[0][..] } else { &[0, 2, 20] };
        for &percent in loss {
            let mut net = Net::open((caps, config.clone()));
            net.script = rough(percent + 11, percent);
            let (peer, mut rng) = (net.peer(1, 0), Rng(percent + 1));
            let (mut awaited, mut sent) = (0, 0);
            for i in 0..200 {
                // Some arrive before they are awaited.
                while sent < i + 1 + rng.below(2) {
                    net.inject_now(0, 1, 7, &pattern(sent, 40));
                    sent += 1;
                }
                let mut got = None;
                if wait_for(&mut net, spec(Some(peer), 7), 40) {
                    for _ in 0..rng.below(30) {
                        net.run(1);
                        got = got.or_else(|| came(&mut net));
                        // Answers, which acknowledges and lets the sender's window empty.
                        if got.is_some() && rng.chance(50) {
                            net.inject_now(1, 0, 8, b"an answer");
                        }
                    }
                    net.nodes[1].engine.matching_mut().end_await();
                }
                awaited += u32::from(got.is_some());
                let bytes = match got {
                    Some((_, bytes)) => bytes,
                    None => {
                        let op = net.recv(1, Some(0), 7, 40);
                        net.wait(&[(1, op)]);
                        net.nodes[1].bytes(op).to_vec()
                    }
                };
                assert!(bytes[..40] == pattern(i, 40)[..], "message {i} at {percent} % loss");
            }
            assert!(awaited > 50, "{awaited} were awaited");
        }
    }
}
