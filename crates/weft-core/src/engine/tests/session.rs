//! Opening a session: HELLO lost, repeated, from both sides, for other endpoints, of other
//! versions.

use super::*;
use crate::wire::{flags, Common, Hello};

fn hello(net: &Net, from: usize, to: usize) -> Hello {
    Hello {
        src_eid: net.nodes[from].engine.id().0,
        dst_eid: net.nodes[to].engine.id().0,
        session_offer: 77,
        mtu: 1456,
        version_min: 1,
        version_max: 1,
        credit: 8192,
    }
}

fn encode(hello: Hello, flags: u16) -> Vec<u8> {
    let common = Common { flags, ..Common::default() };
    wire::emit(&common, &Packet::Hello(hello)).as_slice().to_vec()
}

#[test]
fn hello__lost_requests_and_answers_are_repeated() {
    for kind in every_kind() {
        let mut net = Net::pair(kind);
        let mut left = 5;
        net.script = Box::new(move |f| {
            let lose = f.kind() == PacketType::Hello && left > 0;
            left -= u32::from(lose);
            if lose {
                vec![]
            } else {
                vec![DELAY]
            }
        });
        let recv = net.recv(1, None, 7, 100);
        let send = net.send(0, 1, 7, b"after all");
        net.wait(&[(0, send), (1, recv)]);
        assert_eq!(&net.nodes[1].bytes(recv)[..9], b"after all");
        assert_eq!((net.nodes[0].up.len(), net.nodes[1].up.len()), (1, 1));
    }
}

#[test]
fn hello__repeated_on_the_way_makes_one_session() {
    for kind in every_kind() {
        let mut net = Net::pair(kind);
        net.script = Box::new(|f| match f.kind() {
            PacketType::Hello => vec![DELAY, 3 * DELAY, 900_000],
            _ => vec![DELAY],
        });
        for i in 0..20 {
            net.send(0, 1, i, &[i as u8; 10]);
        }
        let recvs: Vec<_> = (0..20).map(|i| (1, net.recv(1, Some(0), i, 10))).collect();
        net.wait(&recvs);
        net.run(10);
        for (i, (_, op)) in recvs.iter().enumerate() {
            assert_eq!(net.nodes[1].bytes(*op), [i as u8; 10]);
        }
        assert_eq!(net.nodes[0].engine.peers().count(), 1);
        assert_eq!(net.nodes[1].up.len(), 1);
    }
}

#[test]
fn hello__from_both_sides_at_once_makes_one_session() {
    for kind in every_kind() {
        let mut net = Net::pair(kind);
        let recvs = [(0, net.recv(0, None, 1, 8)), (1, net.recv(1, None, 1, 8))];
        net.send(0, 1, 1, b"from 0");
        net.send(1, 0, 1, b"from 1");
        net.wait(&recvs);
        net.run(2000);
        assert_eq!(&net.nodes[0].bytes(recvs[0].1)[..6], b"from 1");
        assert_eq!(&net.nodes[1].bytes(recvs[1].1)[..6], b"from 0");
        assert!(net.nodes.iter().all(|n| n.up.len() == 1 && n.engine.quiet()));
        net.assert_clean();
    }
}

#[test]
fn hello__data_that_overtakes_the_answer_is_taken() {
    let mut net = Net::pair((network(), Config::default()));
    net.script = Box::new(|f| match f.kind() {
        PacketType::Hello if f.from == 1 => vec![500_000],
        _ => vec![DELAY],
    });
    let to = net.peer(0, 1);
    net.nodes[0].engine.peer_mut(to).open(net.now);
    let recv = net.recv(0, Some(1), 3, 8);
    net.send(1, 0, 3, b"early");
    net.wait(&[(0, recv)]);
    net.run(100);
    assert_eq!(&net.nodes[0].bytes(recv)[..5], b"early");
    net.assert_clean();
}

#[test]
fn hello__for_another_incarnation_is_dropped() {
    let mut net = Net::pair((network(), Config::default()));
    let stale = Hello { dst_eid: 0xdead, ..hello(&net, 0, 1) };
    net.inject(0, 1, &encode(stale, 0), Body::Fake(40));
    net.run(10);
    assert_eq!(net.nodes[1].engine.stats().stale_incarnation, 1);
    assert_eq!(net.nodes[1].engine.peers().count(), 0);
    assert!(net.log.is_empty());
}

#[test]
fn hello__of_a_failed_peer_does_not_revive_it() {
    let mut net = Net::open((network(), Config::default()));
    let peer = net.peer(1, 0);
    net.nodes[1].engine.peer_mut(peer).handle_failure(PeerFailure::Gone);
    net.inject(0, 1, &encode(hello(&net, 0, 1), 0), Body::Fake(40));
    net.run(100);
    assert_eq!(net.nodes[1].engine.peer(peer).failure(), Some(PeerFailure::Gone));
    assert_eq!(net.sent(1, PacketType::Hello), 0);
}

#[test]
fn hello__with_another_offer_does_not_divert_the_session() {
    let mut net = Net::open((network(), Config::default()));
    let forged = Hello { session_offer: 0x123, ..hello(&net, 0, 1) };
    net.inject(0, 1, &encode(forged, 0), Body::Fake(40));
    let none = Hello { session_offer: 0, ..hello(&net, 0, 1) };
    net.inject(0, 1, &encode(none, 0), Body::Fake(40));
    let recv = net.recv(0, None, 1, 8);
    net.send(1, 0, 1, b"still");
    net.wait(&[(0, recv)]);
    assert_eq!(net.nodes[1].engine.stats().violations, 2);
}

#[test]
fn version__mismatch_fails_the_peer_on_both_sides() {
    for kind in every_kind() {
        let mut net = Net::pair(kind);
        let send = net.send(0, 1, 1, b"x");
        let queued = net.send(0, 1, 2, &[0; 100_000]);
        // Node 0 has only version 2, and sends a HELLO with it; the answer is lost once.
        let theirs = Hello { version_min: 2, version_max: 3, ..hello(&net, 0, 1) };
        let session = net.nodes[0].engine.peer(PeerId(0)).info().unwrap().1;
        let theirs = Hello { session_offer: session, ..theirs };
        net.nodes[0].engine.poll_transmit(net.now);
        net.script = {
            let mut first = true;
            Box::new(move |_| if core::mem::take(&mut first) { vec![] } else { vec![DELAY] })
        };
        net.inject(0, 1, &encode(theirs, 0), Body::Fake(40));
        net.run(5);
        let version = |theirs| PeerFailure::Version { theirs };
        assert_eq!(net.nodes[1].failed, [(PeerId(0), version(3))]);
        assert_eq!(net.sent(1, PacketType::Hello), 1, "the refusing side answers");
        // A copy of the request is answered again, and the failure is not reported again.
        net.script = Box::new(|f| {
            // The answer that node 0 would get if node 1 had another version.
            assert_eq!(f.kind(), PacketType::Hello);
            vec![]
        });
        net.inject(0, 1, &encode(theirs, 0), Body::Fake(40));
        net.run(5);
        assert_eq!(net.sent(1, PacketType::Hello), 2);
        assert_eq!(net.nodes[1].failed.len(), 1);
        let answer = Hello { version_min: 4, version_max: 5, ..hello(&net, 1, 0) };
        net.inject(1, 0, &encode(answer, flags::REPLY), Body::Fake(40));
        net.run(5);
        assert_eq!(net.nodes[0].failed, [(PeerId(0), version(5))]);
        let error = OpError::Peer { peer: PeerId(0), failure: version(5) };
        assert_eq!(net.nodes[0].error(send), error);
        assert_eq!(net.nodes[0].error(queued), error);
        net.assert_clean();
    }
}

#[test]
fn mtu__of_the_peer_outlives_a_change_of_path() {
    let mut net = Net::pair((memory(), Config::default()));
    let small = Hello { mtu: 1000, ..hello(&net, 0, 1) };
    net.inject(0, 1, &encode(small, 0), Body::Fake(40));
    net.run(1);
    // The driver learns the link only now.
    net.nodes[1].engine.peer_mut(PeerId(0)).set_path(memory());
    net.nodes[1].engine.peer_mut(PeerId(0)).set_mtu(4096);
    let sizes = alloc::rc::Rc::new(core::cell::Cell::new(0));
    let seen = sizes.clone();
    net.script = Box::new(move |f| {
        seen.set(seen.get().max(f.header.len() as u64 + f.body.len()));
        vec![]
    });
    net.send(1, 0, 1, &[1; 3500]);
    net.run(1);
    assert_eq!(sizes.get(), 1000);
}

#[test]
fn mtu__absurdly_small_is_survived() {
    for mtu in [0, 1, 24, 47, 63, 64, 255] {
        let caps = LinkCaps { mtu, ..network() };
        let mut net = Net::open((caps, Config::default()));
        let peer = net.peer(0, 1);
        net.nodes[0].engine.peer_mut(peer).set_mtu(mtu);
        let data = pattern(1, 3000);
        let recv = net.recv(1, None, 1, 3000);
        net.send(0, 1, 1, &data);
        let big = net.recv(1, None, 2, 100_000);
        net.send(0, 1, 2, &pattern(2, 100_000));
        let key = net.register(1, &[0; 3000]);
        let put = net.put(0, 1, key, 0, &data);
        let get = net.get(0, 1, key, 0, 3000);
        net.wait(&[(1, recv), (1, big), (0, put), (0, get)]);
        assert_eq!(net.nodes[1].bytes(recv), data);
    }
}

#[test]
fn open__times_out_as_unreachable_after_a_warning() {
    let mut net = Net::pair((network(), Config::default()));
    net.script = Box::new(|_| vec![]);
    let send = net.send(0, 1, 1, b"x");
    let recv = net.recv(0, Some(1), 1, 10);
    net.run(61_500);
    assert_eq!(net.nodes[0].slow, [PeerId(0)]);
    let [(_, PeerFailure::Unreachable { after_ms })] = net.nodes[0].failed[..] else {
        panic!("{:?}", net.nodes[0].failed)
    };
    assert!((60_000..61_100).contains(&after_ms), "{after_ms}");
    for op in [send, recv] {
        assert!(matches!(net.nodes[0].error(op), OpError::Peer { .. }));
    }
    assert!(net.sent(0, PacketType::Hello) < 100, "intervals grow");
    net.assert_clean();
}

#[test]
fn open__with_a_short_timeout_goes_on_after_an_outage_and_ends_in_time() {
    let config = Config { connect_timeout_ms: 800, ..Config::default() };
    let mut net = Net::pair((network(), config.clone()));
    net.script = Box::new(|_| vec![]);
    let recv = net.recv(1, None, 7, 100);
    let send = net.send(0, 1, 7, b"after all");
    net.run(400);
    // Two answers are lost after the outage.
    let mut left = 2;
    net.script = Box::new(move |f| {
        let lose = f.kind() == PacketType::Hello && f.from == 1 && left > 0;
        left -= u32::from(lose);
        if lose {
            vec![]
        } else {
            vec![DELAY]
        }
    });
    net.wait(&[(0, send), (1, recv)]);
    assert!(net.nodes[0].failed.is_empty());
    // No answer at all: the timeout holds.
    let mut net = Net::pair((network(), config));
    net.script = Box::new(|_| vec![]);
    net.send(0, 1, 1, b"x");
    net.run(900);
    let [(_, PeerFailure::Unreachable { after_ms })] = net.nodes[0].failed[..] else {
        panic!("{:?}", net.nodes[0].failed)
    };
    assert!((800..810).contains(&after_ms), "{after_ms}");
    net.assert_clean();
}

#[test]
fn packets__of_unknown_sessions_are_dropped_and_counted() {
    let mut net = Net::open((network(), Config::default()));
    let header = forge(&mut net, 0, 1, 0, Packet::Nop(wire::Nop));
    for bit in 0..32 {
        let mut bytes = header.as_slice().to_vec();
        bytes[4 + bit / 8] ^= 1 << (bit % 8);
        net.inject(0, 1, &bytes, Body::Fake(0));
    }
    net.run(10);
    assert_eq!(net.nodes[1].engine.stats().stale_session, 32);
    assert!(net.log.is_empty(), "never answered");
}
