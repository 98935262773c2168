//! Announced messages: limits, matching order, discarding, lengths beyond memory.

use super::*;
use crate::wire::{flags, reason, Data, Fin, Pull, Rts};

fn sync(a: SendArgs) -> SendArgs {
    SendArgs { sync: true, ..a }
}

#[test]
fn rts__more_than_the_peer_allows_wait_at_the_sender_and_follow() {
    for (caps, config) in every_kind() {
        let config = Config { rendezvous_max: 3, unexpected_max: 0, ..config };
        let mut net = Net::open((caps, config));
        let sends: Vec<_> =
            (0..10).map(|i| (0, net.send_with(0, 1, i, &[i as u8; 9], sync))).collect();
        net.run(100);
        assert_eq!(net.sent(0, PacketType::Rts), 3);
        // No other event wakes the sender: each FIN lets the next announcement go.
        let recvs: Vec<_> = (0..10).map(|i| (1, net.recv(1, None, i, 9))).collect();
        net.run(100);
        for (i, (&(_, s), &(_, r))) in sends.iter().zip(&recvs).enumerate() {
            net.nodes[0].ok(s);
            net.nodes[1].ok(r);
            assert_eq!(net.nodes[1].bytes(r), [i as u8; 9]);
        }
        net.assert_clean();
    }
}

#[test]
fn rts__beyond_the_limit_of_the_receiver_ends_the_session_on_both_sides() {
    for (caps, config) in every_kind() {
        let few = Config { rendezvous_max: 2, unexpected_max: 0, ..config.clone() };
        let mut net = Net::of(vec![config, few], caps);
        let sends: Vec<_> = (0..4).map(|i| (0, net.send_with(0, 1, i, &[0; 9], sync))).collect();
        net.wait(&sends);
        assert_eq!(net.nodes[1].failed, [(PeerId(0), PeerFailure::Protocol)]);
        assert_eq!(net.nodes[0].failed, [(PeerId(0), PeerFailure::Protocol)]);
        assert_eq!(net.sent(1, PacketType::Bye), 1);
        net.settle(1000);
    }
}

#[test]
fn matching__keeps_the_order_of_the_sender_across_protocols() {
    for (caps, config) in every_kind() {
        let mut net = Net::rough((caps, config), (8, 10));
        // All messages have one tag: large (announced), small, large, ...; half of the receives
        // come later.
        let len = |i: u64| if i.is_multiple_of(2) { 200_000 } else { 100 + i };
        let post = |net: &mut Net, i: u64| match i % 3 {
            0 => net.recv(1, None, 5, 200_000),
            1 => net.recv(1, Some(0), 5, 200_000),
            _ => net.recv_masked(1, None, 0, u64::MAX, 200_000),
        };
        let mut recvs: Vec<_> = (0..6).map(|i| (1, post(&mut net, i))).collect();
        for i in 0..12 {
            net.send(0, 1, 5, &pattern(i, len(i)));
        }
        net.run(3);
        recvs.extend((6..12).map(|i| (1, post(&mut net, i))));
        net.wait(&recvs);
        for (i, (_, op)) in recvs.iter().enumerate() {
            let n = len(i as u64);
            assert_eq!(net.nodes[1].ok(*op).len, n, "receive {i}");
            assert!(net.nodes[1].bytes(*op)[..n as usize] == pattern(i as u64, n));
        }
        net.settle(5000);
    }
}

#[test]
fn sync__of_no_bytes_completes_when_matched() {
    for kind in every_kind() {
        let mut net = Net::open(kind);
        let send = net.send_with(0, 1, 1, b"", sync);
        net.run(50);
        assert!(!net.nodes[0].done.contains_key(&send));
        let recv = net.recv(1, None, 1, 10);
        net.wait(&[(0, send), (1, recv)]);
        net.settle(1000);
    }
}

#[test]
fn fin__says_that_the_message_was_truncated() {
    let mut net = Net::open((memory(), Config::default()));
    let seen = alloc::rc::Rc::new(core::cell::RefCell::new(Vec::new()));
    let log = seen.clone();
    net.script = Box::new(move |f| {
        if let Ok((_, Packet::Fin(fin), _)) = wire::parse(&f.header) {
            log.borrow_mut().push(fin.status);
        }
        vec![DELAY]
    });
    let recvs = [(1, net.recv(1, None, 1, 10)), (1, net.recv(1, None, 1, 100_000))];
    net.send(0, 1, 1, &[0; 100_000]);
    net.send(0, 1, 1, &[0; 100_000]);
    net.wait(&recvs);
    net.run(10);
    assert_eq!(*seen.borrow(), [wire::status::TRUNCATED, wire::status::OK]);
}

#[test]
fn discard__in_each_state_releases_and_reports_nothing() {
    for (caps, config) in every_kind() {
        for steps in 0..60 {
            let mut net = Net::open((caps, config.clone()));
            let large = net.recv(1, Some(0), 1, 200_000);
            let small = net.recv(1, None, 2, 9000);
            let posted = net.recv(1, None, 99, 10);
            let sends = [
                (0, net.send(0, 1, 1, &pattern(1, 200_000))),
                (0, net.send(0, 1, 2, &pattern(2, 9000))),
            ];
            net.flush_all();
            let until = net.now + Duration::from_secs(1);
            for _ in 0..steps {
                net.step(until);
            }
            let before: Vec<_> = net.nodes[1].done.keys().copied().collect();
            for op in [large, small, posted] {
                net.nodes[1].engine.ops_mut().discard(op);
                net.nodes[1].engine.ops_mut().discard(op);
            }
            net.flush_all();
            // Messages that these receives do not take are received by others.
            net.run(20);
            let others = [net.recv(1, Some(0), 1, 200_000), net.recv(1, None, 2, 9000)];
            net.wait(&sends);
            net.run(2000);
            for op in [large, small, posted] {
                assert!(net.nodes[1].released.contains(&op), "released after {steps} steps");
                let told = net.nodes[1].done.get(&op);
                let cancelled = told.is_some_and(|c| c.error == Some(OpError::Cancelled));
                assert!(told.is_none() || cancelled || before.contains(&op));
            }
            for op in others {
                net.nodes[1].engine.ops_mut().discard(op);
            }
            net.settle(1);
        }
    }
}

#[test]
fn discard__of_a_send_lets_the_message_go_out() {
    for kind in every_kind() {
        let mut net = Net::open(kind);
        let send = net.send(0, 1, 1, &pattern(3, 200_000));
        net.nodes[0].engine.ops_mut().discard(send);
        net.run(10);
        assert!(!net.nodes[0].engine.quiet(), "somebody has yet to fetch it");
        let recv = net.recv(1, None, 1, 200_000);
        net.wait(&[(1, recv)]);
        net.run(1000);
        assert!(net.nodes[1].bytes(recv) == pattern(3, 200_000));
        assert!(!net.nodes[0].done.contains_key(&send));
        assert!(net.nodes[0].engine.quiet());
        net.assert_clean();
    }
}

#[test]
fn pull__messages_beyond_4_gib_are_known_by_their_offsets() {
    for caps in [LinkCaps { mtu: 64 << 20, ..memory() }, LinkCaps { mtu: 64 << 20, ..network() }] {
        let config = Config { pull_block: 256 << 20, ..Config::default() };
        let mut net = Net::pair((caps, config));
        let len = (5 << 30) + 123;
        let top = alloc::rc::Rc::new(core::cell::Cell::new(0));
        let seen = top.clone();
        net.script = Box::new(move |f| {
            if let Ok((_, Packet::Data(d), _)) = wire::parse(&f.header) {
                seen.set(seen.get().max(d.offset + f.body.len()));
            }
            vec![DELAY]
        });
        let recv = net.try_recv(1, None, 1, 0, Body::Fake(len)).unwrap();
        let to = net.peer(0, 1);
        let send = net.try_send(0, send_args(to, 1, len), Body::Fake(len)).unwrap();
        net.wait(&[(0, send), (1, recv)]);
        assert_eq!(net.nodes[1].ok(recv).len, len);
        assert_eq!(top.get(), len);
        net.settle(1000);
    }
}

#[test]
fn rts__of_absurd_length_is_only_a_number() {
    for kind in every_kind() {
        let mut net = Net::open(kind);
        let recv = net.recv(1, None, 1, 100);
        for (seq, addr) in [(0, 0), (1, u64::MAX), (2, 1 << 50)] {
            let rts = Rts { tag: 1, total: u64::MAX - 1, msg: 3, data: 0, addr };
            let header = forge(&mut net, 0, 1, seq, Packet::Rts(rts));
            net.inject(0, 1, header.as_slice(), Body::Fake(0));
        }
        net.run(10);
        let probed = net.nodes[1].engine.matching().probe(None, 1, 0).unwrap();
        assert_eq!(probed.len, u64::MAX - 1);
        let data = forge_with(&mut net, 0, 1, 3, Packet::Data(Data { offset: 96 }), recv.0, 0);
        net.inject(0, 1, data.as_slice(), Body::Bytes(vec![1; 5]));
        let data = Packet::Data(Data { offset: u64::MAX - 1 });
        let data = forge_with(&mut net, 0, 1, 4, data, recv.0, 0);
        net.inject(0, 1, data.as_slice(), Body::Bytes(vec![1; 5]));
        net.run(10);
        assert_eq!(net.nodes[1].bytes(recv), [0xee; 100]);
        assert!(net.nodes[1].engine.stats().violations >= 2);
    }
}

#[test]
fn pull__more_than_the_message_or_twice_is_refused() {
    let mut net = Net::open((memory(), Config::default()));
    let send = net.send_with(0, 1, 1, &pattern(1, 10_000), sync);
    net.run(1);
    net.log.clear();
    let ask = |net: &mut Net, offset, len, flags| {
        let pull = Packet::Pull(Pull { offset, len, recv: 1, addr: 64 });
        let header = forge_with(net, 1, 0, 0, pull, send.0, flags);
        net.inject(1, 0, header.as_slice(), Body::Fake(0));
        net.run(1);
    };
    for (offset, len) in [(0, 10_001), (u64::MAX, 2), (9_999, u64::MAX), (5, 0)] {
        for flags in [0, flags::DIRECT] {
            ask(&mut net, offset, len, flags);
        }
    }
    assert_eq!(net.nodes[0].engine.stats().violations, 8);
    assert_eq!(net.sent(0, PacketType::Data), 0);
    ask(&mut net, 0, 10_000, 0);
    let sent = net.sent(0, PacketType::Data);
    ask(&mut net, 0, 10_000, 0);
    assert_eq!(net.sent(0, PacketType::Data), sent, "each byte goes once");
    assert_eq!(net.nodes[0].engine.stats().violations, 9);
}

#[test]
fn fin__for_what_was_not_announced_ends_nothing() {
    let mut net = Net::pair((network(), Config::default()));
    let send = net.send(0, 1, 1, &[0; 9000]);
    let recv = net.recv(0, None, 1, 10);
    for imm in [send.0, recv.0, 0, u32::MAX] {
        let fin = Packet::Fin(Fin { status: 0 });
        let header = forge_with(&mut net, 1, 0, imm % 7, fin, imm, 0);
        net.inject(1, 0, header.as_slice(), Body::Fake(0));
    }
    net.run(1);
    assert!(!net.nodes[0].done.contains_key(&recv));
    assert!(net.nodes[0].engine.stats().violations > 0);
}

#[test]
fn bye__names_its_reason() {
    for (reason, failure) in [
        (reason::PROTOCOL, PeerFailure::Protocol),
        (reason::GONE, PeerFailure::Gone),
        (reason::LOST, PeerFailure::Lost),
        (reason::CLOSED, PeerFailure::Closed),
        (77, PeerFailure::Closed),
    ] {
        let mut net = Net::open((network(), Config::default()));
        let header = forge(&mut net, 0, 1, 0, Packet::Bye(wire::Bye { reason }));
        net.inject(0, 1, header.as_slice(), Body::Fake(0));
        net.run(1);
        assert_eq!(net.nodes[1].failed, [(PeerId(0), failure)]);
    }
}

#[test]
fn runs__the_same_messages_as_packet_by_packet() {
    for (caps, config) in every_kind() {
        for (seed, percent) in [(1, 0), (2, 3), (3, 15)] {
            let mut net = Net::open((caps, config.clone()));
            if !caps.reliable {
                net.script = rough(seed, percent);
            }
            let lens = [70_000, 1_000_000, 11 * 1424, 300_001];
            let sends: Vec<_> = lens
                .iter()
                .map(|&len| (0, net.send_with(0, 1, len, &pattern(len, len), sync)))
                .collect();
            let recvs: Vec<_> =
                lens.iter().map(|&len| (1, net.recv(1, Some(0), len, len))).collect();
            net.wait(&sends);
            net.wait(&recvs);
            for (&len, &(_, recv)) in lens.iter().zip(&recvs) {
                assert!(net.nodes[1].bytes(recv) == pattern(len, len), "{len} bytes");
            }
            net.settle(1000);
        }
    }
}

#[test]
fn handle_run__only_what_comes_next_and_was_asked_for() {
    let caps = LinkCaps { train: 8, ..network() };
    let mut net = Net::open((caps, Config::default()));
    let recv = net.recv(1, Some(0), 7, 100_000);
    let send = net.send_with(0, 1, 7, &pattern(7, 100_000), sync);
    // The announcement and the packets after it, but no data.
    net.script = Box::new(|f| if f.kind() == PacketType::Data { vec![] } else { vec![DELAY] });
    net.run(1);
    let peer = net.peer(1, 0);
    let node = &mut net.nodes[1].engine;
    let session = node.peer(peer).info().unwrap().1;
    let expected = node.peers[peer.0 as usize].conn.windows.as_ref().unwrap().recv.next_expected();
    let header = |seq: u32, imm: u32, offset: u64, session: u32| {
        let common = wire::Common { session, seq: crate::Seq(seq), imm, ..wire::Common::default() };
        wire::emit(&common, &Packet::Data(Data { offset }))
    };
    let next = expected.0;
    for (bad, len) in [
        (header(next + 511, recv.0, 0, session), 1000),
        (header(next.wrapping_sub(1), recv.0, 0, session), 1000),
        (header(next, recv.0 + 1, 0, session), 1000),
        (header(next, recv.0, 99_999, session), 2),
        (header(next, recv.0, u64::MAX, session), 2),
        (header(next, recv.0, 0, session + 1), 1000),
        (header(next, recv.0, 0, 0), 1000),
    ] {
        assert_eq!(node.handle_run(net.now, bad.as_slice(), 2, len), None);
        assert_eq!(node.handle_run(net.now, &bad.as_slice()[..20], 2, len), None);
    }
    let good = header(next, recv.0, 0, session);
    assert_eq!(node.handle_run(net.now, good.as_slice(), 5, 5 * 1424), Some((recv, 0)));
    let now = node.peers[peer.0 as usize].conn.windows.as_ref().unwrap().recv.next_expected();
    assert_eq!(now, expected.plus(5));
    assert_eq!(node.handle_run(net.now, good.as_slice(), 5, 5 * 1424), None, "a second time");
    // After a gap: placed, and reported with the gap.
    let ahead = header(next + 7, recv.0, 7 * 1424, session);
    assert_eq!(node.handle_run(net.now, ahead.as_slice(), 3, 3 * 1424), Some((recv, 7 * 1424)));
    assert_eq!(node.handle_run(net.now, ahead.as_slice(), 3, 3 * 1424), None, "a second time");
    let overlaps = header(next + 9, recv.0, 9 * 1424, session);
    assert_eq!(node.handle_run(net.now, overlaps.as_slice(), 2, 2 * 1424), None);
    let w = node.peers[peer.0 as usize].conn.windows.as_ref().unwrap();
    assert_eq!((w.recv.next_expected(), w.recv.sack().0[0]), (expected.plus(5), 0b1110));
    let _ = send;
}

#[test]
fn skip__takes_the_front_off_a_run() {
    let common = wire::Common { seq: crate::Seq(u32::MAX - 1), imm: 9, ..wire::Common::default() };
    let header = wire::emit(&common, &Packet::Data(Data { offset: 5000 }));
    let payload = Payload::Op { op: OpId(3), offset: 5000, len: 8 * 1424 };
    let mut run = Transmit {
        peer: PeerId(0),
        header,
        payload,
        packets: 8,
        bulk: true,
        stripe: 0,
        piece: None,
    };
    run.skip(3);
    let (after, packet, _) = wire::parse(run.header.as_slice()).unwrap();
    assert_eq!((run.packets, after.seq), (5, crate::Seq(1)));
    assert_eq!(after, wire::Common { seq: after.seq, ..common });
    let Packet::Data(data) = packet else { panic!("{packet:?}") };
    assert_eq!(data.offset, 5000 + 3 * 1424);
    let want = Payload::Op { op: OpId(3), offset: 5000 + 3 * 1424, len: 5 * 1424 };
    assert_eq!(run.payload, want);
}

#[test]
fn next_stream__waits_for_room_for_a_whole_train() {
    let caps = LinkCaps { train: 8, ..network() };
    // A window that is no multiple of trains, and acknowledgements at unusual intervals.
    let config = Config { window: 93, ack_every: 13, ..Config::default() };
    let mut net = Net::open((caps, config));
    let len = 400 * (1456 - wire::Data::LEN as u64) + 100;
    let recv = net.recv(1, Some(0), 7, len);
    let send = net.send_with(0, 1, 7, &pattern(7, len), sync);
    net.wait(&[(0, send), (1, recv)]);
    assert_eq!(net.nodes[1].bytes(recv), pattern(7, len));
    let stats = net.nodes[0].engine.stats();
    assert_eq!(stats.retransmitted, 0);
    // Except for the first round trips, in which the congestion window is small.
    let parts = net.runs.iter().filter(|&&packets| packets != 8).count();
    assert!(net.runs.len() <= 58 && parts <= 10, "{:?}", net.runs);
}

#[test]
fn next_stream__a_small_window_is_not_emptied_by_waiting() {
    let caps = LinkCaps { train: 44, ..network() };
    let config = Config { window: 48, ..Config::default() };
    let mut net = Net::open((caps, config));
    let len = 300_000;
    let recv = net.recv(1, Some(0), 7, len);
    let send = net.send_with(0, 1, 7, &pattern(7, len), sync);
    net.wait(&[(0, send), (1, recv)]);
    assert_eq!(net.nodes[0].engine.stats().retransmitted, 0);
    assert!(net.runs.iter().all(|&packets| packets <= 48), "{:?}", net.runs);
    assert!(net.runs.len() > 8, "{:?}", net.runs);
}
