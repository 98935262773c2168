//! Receives, probes and claims against messages in every state of arrival.

use super::*;

#[test]
fn claim__in_every_state_of_arrival_receives_the_message() {
    for kind in every_kind() {
        for len in [0, 100, 9000, 200_000] {
            for steps in 0..14 {
                let mut net = Net::open(kind.clone());
                let data = pattern(len, len);
                // In more than four bytes, but for the shortest message.
                let of = Some(5 | len << 40);
                let send = net.send_with(0, 1, 1, &data, |a| SendArgs { data: of, ..a });
                net.send(0, 1, 1, b"second");
                net.flush(0);
                let until = net.now + Duration::from_millis(1);
                for _ in 0..steps {
                    net.step(until);
                }
                let Some((claimed, probed)) = net.nodes[1].engine.matching_mut().claim(None, 0, !0)
                else {
                    continue;
                };
                assert_eq!((probed.len, probed.tag, probed.data), (len, 1, of));
                // A receive posted now must not get the claimed message.
                let other = net.recv(1, Some(0), 1, 6);
                net.run(steps % 3);
                let recv = net.recv_claimed(1, claimed, len);
                net.wait(&[(0, send), (1, recv), (1, other)]);
                assert!(net.nodes[1].bytes(recv) == data);
                assert_eq!(net.nodes[1].bytes(other), b"second");
                assert_eq!(net.nodes[1].ok(recv).data, of);
                net.settle(1000);
            }
        }
    }
}

#[test]
fn untagged__messages_and_receives_meet_only_each_other() {
    for kind in every_kind() {
        for len in [0, 100, 9000, 200_000] {
            for posted in [false, true] {
                let mut net = Net::open(kind.clone());
                let (with, without) = (pattern(1, len), pattern(2, len));
                let any = RecvArgs {
                    source: None,
                    tag: 0,
                    ignore: !0,
                    len: 0,
                    addr: 0,
                    context: 0,
                    untagged: true,
                };
                let post = |net: &mut Net| {
                    let body = || Body::Bytes(vec![0xee; len as usize]);
                    let untagged = net.try_recv_with(1, any, body()).unwrap();
                    let tagged = RecvArgs { untagged: false, ..any };
                    (untagged, net.try_recv_with(1, tagged, body()).unwrap())
                };
                let early = posted.then(|| post(&mut net));
                let first = net.send(0, 1, 0, &with);
                let untag = |a| SendArgs { untagged: true, ..a };
                let second = net.send_with(0, 1, 0, &without, untag);
                net.run(10);
                if !posted {
                    let peer = net.peer(1, 0);
                    let probed = net.nodes[1].engine.matching().probe_untagged(Some(peer)).unwrap();
                    assert_eq!(probed.len, len);
                }
                let (untagged, tagged) = early.unwrap_or_else(|| post(&mut net));
                net.wait(&[(0, first), (0, second), (1, untagged), (1, tagged)]);
                assert!(net.nodes[1].bytes(untagged) == without);
                assert!(net.nodes[1].bytes(tagged) == with);
                assert!(net.nodes[1].engine.matching_mut().claim_untagged(None).is_none());
                net.settle(1000);
            }
        }
    }
}

#[test]
fn recv__refused_for_a_full_send_queue_would_deadlock() {
    let mut net = Net::open((memory(), Config::default()));
    net.room[0] = 0;
    let peer = net.peer(0, 1);
    while let Ok(op) = net.nodes[0].engine.send(net.now, send_args(peer, 1, 0)) {
        net.nodes[0].begin(op, Body::Bytes(vec![]));
    }
    assert_eq!(net.try_send(0, send_args(peer, 1, 0), Body::Fake(0)), Err(Refused::Busy));
    let recv = net.recv(0, Some(1), 1, 4);
    net.send(1, 0, 1, b"more");
    net.wait(&[(0, recv)]);
}

#[test]
fn recv__from_an_unknown_or_failed_peer_is_refused() {
    let mut net = Net::open((memory(), Config::default()));
    let refused = net.try_recv(0, Some(PeerId(5)), 1, 0, Body::Fake(0));
    assert_eq!(refused, Err(Refused::UnknownPeer));
    net.send(1, 0, 1, b"left");
    net.run(1);
    let peer = net.peer(0, 1);
    net.nodes[0].engine.peer_mut(peer).handle_failure(PeerFailure::Gone);
    let left = net.recv(0, Some(1), 1, 4);
    assert_eq!(net.nodes[0].bytes(left), b"left");
    let refused = net.try_recv(0, Some(peer), 1, 0, Body::Fake(0));
    assert_eq!(refused, Err(Refused::Peer(peer, PeerFailure::Gone)));
    assert_eq!(net.nodes[0].engine.ops().count(), 0);
}

#[test]
fn cancel__only_while_posted() {
    for kind in every_kind() {
        let mut net = Net::open(kind);
        let posted = net.recv(1, Some(0), 1, 10);
        assert!(net.nodes[1].engine.ops_mut().cancel(posted));
        assert!(!net.nodes[1].engine.ops_mut().cancel(posted));
        net.nodes[1].settle();
        assert_eq!(net.nodes[1].error(posted), OpError::Cancelled);
        let matched = net.recv(1, None, 2, 200_000);
        net.send(0, 1, 2, &[7; 200_000]);
        net.run_until(|net| net.sent(1, PacketType::Pull) > 0);
        assert!(!net.nodes[1].engine.ops_mut().cancel(matched));
        net.wait(&[(1, matched)]);
        net.settle(1000);
    }
}
