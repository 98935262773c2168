//! Messages sent at once, and without credit.

use super::*;
use crate::wire::{flags, EagerMore};

/// Returns sizes around every possible limit.
pub fn sizes(mtu: u64, eager: u64) -> Vec<u64> {
    let mut all = vec![0, 1, 7, 63, 64, 65];
    for edge in [mtu - 48, mtu - 32, mtu, 2 * mtu - 80, 2 * mtu - 64, eager, 2 * eager] {
        all.extend([edge - 1, edge, edge + 1]);
    }
    all.extend([128 << 10, (128 << 10) + 1, 300_001]);
    all
}

#[test]
fn send__every_size_arrives_over_every_kind_of_link() {
    for (caps, config) in every_kind() {
        let eager = crate::transfer::select::eager_max(&config, &caps);
        for percent in [0, 1, 5, 20] {
            let mut net = Net::pair((caps, config.clone()));
            if !caps.reliable {
                net.script = rough(percent + 1, percent);
            } else if percent > 0 {
                continue;
            }
            let mut ops = Vec::new();
            for (i, len) in sizes(caps.mtu.into(), eager.into()).into_iter().enumerate() {
                let data = pattern(i as u64, len);
                let early = (i % 2 == 0).then(|| net.recv(1, Some(0), i as u64, len));
                ops.push((0, net.send(0, 1, i as u64, &data)));
                ops.push((1, early.unwrap_or_else(|| net.recv(1, None, i as u64, len))));
                net.run(u64::from(i % 3 == 0));
            }
            net.wait(&ops);
            for (i, len) in sizes(caps.mtu.into(), eager.into()).into_iter().enumerate() {
                let (_, recv) = ops[2 * i + 1];
                assert!(net.nodes[1].bytes(recv) == pattern(i as u64, len), "{len} bytes");
                let status = net.nodes[1].ok(recv);
                assert_eq!((status.len, status.tag), (len, i as u64));
                assert_eq!(net.nodes[0].ok(ops[2 * i].1).len, len);
            }
            net.settle(5000);
            assert!(net.nodes.iter().all(|n| n.engine.quiet()));
        }
    }
}

/// Messages in both directions acknowledge each other, whatever part of the first window they fill.
/// Once, a message that filled three fifths of it asked each time, and the window never grew.
#[test]
fn send__messages_that_answer_one_another_need_no_acknowledgements() {
    for packets in 1..16 {
        let mut net = Net::open((network(), Config::default()));
        let data = pattern(packets, packets * 1400);
        let before: Vec<_> = net.nodes.iter().map(|n| n.engine.stats().acks_sent).collect();
        for turn in 0..100 {
            let (from, to) = (turn % 2, 1 - turn % 2);
            let recv = net.recv(to, Some(from), 1, data.len() as u64);
            let args =
                SendArgs { inject: true, ..send_args(net.peer(from, to), 1, data.len() as u64) };
            net.try_send(from, args, Body::Bytes(data.clone())).unwrap();
            net.wait(&[(to, recv)]);
        }
        for (node, before) in net.nodes.iter().zip(before) {
            let acks = node.engine.stats().acks_sent - before;
            assert!(acks < 10, "{acks} acknowledgements for 50 messages of {packets} packets");
        }
    }
}

#[test]
fn send__both_ways_under_loss() {
    for (caps, config) in &every_kind()[1..] {
        for percent in [1, 5, 10, 20] {
            let mut net = Net::pair((*caps, config.clone()));
            net.script = rough(percent * 31, percent);
            let mut ops = Vec::new();
            let mut rng = Rng(percent);
            for i in 0..60 {
                let (from, to) = if rng.chance(50) { (0, 1) } else { (1, 0) };
                let len = rng.below(60_000);
                ops.push((from, net.send(from, to, i, &pattern(i, len))));
                ops.push((to, net.recv(to, Some(from), i, len)));
            }
            net.wait(&ops);
            for (i, pair) in ops.chunks(2).enumerate() {
                let (at, op) = pair[1];
                let got = net.nodes[at].bytes(op);
                assert!(got == pattern(i as u64, got.len() as u64));
            }
            net.settle(5000);
        }
    }
}

#[test]
fn credit__exhaustion_demotes_to_rendezvous_and_recovers() {
    for (caps, config) in every_kind() {
        let mut net = Net::open((caps, config));
        let window = u64::from(Config::default().eager_credit);
        let n = 3 * window / 4096;
        let sends: Vec<_> = (0..n).map(|i| (0, net.send(0, 1, i, &pattern(i, 4000)))).collect();
        net.run(20);
        let stalls = net.nodes[0].engine.stats().demoted;
        assert!(stalls > n / 2, "{stalls} of {n} announced");
        assert_eq!(net.sent(0, PacketType::Rts) as u64, stalls);
        let stored: u64 = net.nodes[1].stored.values().map(Body::len).sum();
        assert!(stored <= window, "{stored} bytes stored");
        let recvs: Vec<_> = (0..n).map(|i| (1, net.recv(1, Some(0), i, 4000))).collect();
        net.wait(&recvs);
        net.wait(&sends);
        for (i, (_, op)) in recvs.iter().enumerate() {
            assert!(net.nodes[1].bytes(*op) == pattern(i as u64, 4000));
        }
        net.run(10);
        net.log.clear();
        let recv = net.recv(1, None, 9, 4000);
        net.send(0, 1, 9, &[9; 4000]);
        net.wait(&[(1, recv)]);
        assert_eq!(net.sent(0, PacketType::Rts), 0, "eager again");
        net.settle(1000);
    }
}

#[test]
fn credit__is_waited_for_while_the_receiver_takes_messages() {
    // The receiver is first late by more than the credit allows; then it takes one message for each
    // that is sent.
    for (caps, config) in every_kind() {
        let mut net = Net::open((caps, config));
        let ahead = 2 * u64::from(Config::default().eager_credit) / 4096;
        let mut sends: Vec<_> =
            (0..ahead).map(|i| (0, net.send(0, 1, i, &pattern(i, 4000)))).collect();
        net.run(20);
        let mut announced = net.nodes[0].engine.stats().demoted;
        assert!(announced > 0);
        for i in 0..3 * ahead {
            if i == ahead {
                announced = net.nodes[0].engine.stats().demoted;
            }
            sends.push((0, net.send(0, 1, ahead + i, &pattern(i, 4000))));
            let recv = net.recv(1, Some(0), i, 4000);
            net.wait(&[(1, recv)]);
        }
        let more = net.nodes[0].engine.stats().demoted - announced;
        assert!(more < 10, "{more} of {} announced", 2 * ahead);
    }
}

#[test]
fn credit__used_up_behind_a_gap_is_waited_for() {
    // Messages that the receiver holds after a missing packet use up the credit; announcing
    // messages then would slow down all that follow.
    let mut net = Net::open((network(), Config::default()));
    let mut left = 4;
    net.script = Box::new(move |f| {
        let lose = f.from == 0 && f.header[8..12] == [0; 4] && left > 0;
        left -= u32::from(lose);
        if lose {
            vec![]
        } else {
            vec![DELAY]
        }
    });
    let recvs: Vec<_> = (0..900).map(|_| (1, net.recv(1, Some(0), 1, 1000))).collect();
    for i in 0..900 {
        net.send(0, 1, 1, &pattern(i, 1000));
        if i == 50 {
            net.run(1);
        }
    }
    net.wait(&recvs);
    assert_eq!(net.sent(0, PacketType::Rts), 0);
}

#[test]
fn credit__lost_announcement_does_not_stop_active_messages() {
    let config = Config { eager_credit: 64 << 10, ..Config::default() };
    let mut net = Net::open((network(), config));
    // All packets of node 1 are lost for a while, and its grants with them.
    let lossy_until = net.now.0 + 30_000_000;
    let start = net.now.0;
    let clock = alloc::rc::Rc::new(core::cell::Cell::new(start));
    let time = clock.clone();
    net.script = Box::new(move |f| {
        let lost = f.from == 1 && time.get() < lossy_until;
        if lost {
            vec![]
        } else {
            vec![DELAY]
        }
    });
    let data = pattern(1, 60_000);
    let active = |a| SendArgs { active: true, tag: 5, ..a };
    let sends: Vec<_> = (0..4).map(|_| (0, net.send_with(0, 1, 5, &data, active))).collect();
    net.run(30);
    clock.set(lossy_until);
    net.wait(&sends);
    net.run(10);
    assert_eq!(net.nodes[1].upcalls.len(), 4);
}

#[test]
fn active__messages_of_every_length_reach_the_handler() {
    for (caps, config) in every_kind() {
        // Less credit configured than one active message costs.
        let mut net = Net::rough((caps, Config { eager_credit: 1000, ..config }), (3, 5));
        let lens = [0, 1, 1000, 1424, 1425, 20_000, 65_535, 65_536];
        let active = |a| SendArgs { active: true, ..a };
        let sends: Vec<_> = (0..lens.len() as u64)
            .map(|i| (0, net.send_with(0, 1, i, &pattern(i, lens[i as usize]), active)))
            .collect();
        net.wait(&sends);
        net.run(100);
        assert_eq!(net.nodes[1].upcalls.len(), lens.len());
        for (i, (peer, tag, body)) in net.nodes[1].upcalls.iter().enumerate() {
            let Body::Bytes(body) = body else { panic!() };
            assert_eq!((*peer, *tag), (PeerId(0), i as u64));
            assert!(*body == pattern(i as u64, lens[i]), "{} bytes", lens[i]);
        }
        net.settle(1000);
        let peer = net.peer(0, 1);
        let long = SendArgs { active: true, ..send_args(peer, 1, 65_537) };
        assert_eq!(net.try_send(0, long, Body::Fake(65_537)), Err(Refused::TooLong));
    }
}

#[test]
fn inject__completes_at_once_and_releases_later() {
    for kind in every_kind() {
        let mut net = Net::open(kind);
        let send = net.send_with(0, 1, 1, b"copy", |a| SendArgs { inject: true, ..a });
        assert_eq!(net.nodes[0].ok(send).len, 4);
        assert!(!net.nodes[0].released.contains(&send));
        assert!(!net.nodes[0].engine.quiet());
        net.run(10);
        assert!(net.nodes[0].released.contains(&send));
        let recv = net.recv(1, None, 1, 4);
        assert_eq!(net.nodes[1].bytes(recv), b"copy");
    }
}

#[test]
fn reserve__gives_the_same_message_or_nothing() {
    let mut net = Net::open((memory(), Config::default()));
    let peer = net.peer(0, 1);
    let (e, now) = (&mut net.nodes[0].engine, net.now);
    let mut header = wire::HeaderBuf::new();
    assert!(e.reserve(&send_args(peer, 1, u64::from(u32::MAX)), &mut header).is_none());
    assert!(e.reserve(&send_args(PeerId(9), 1, 1), &mut header).is_none());
    let args = SendArgs { data: Some(99), ..send_args(peer, 4, 5) };
    for _ in 0..3 {
        let before = (*e.stats(), e.peers[0].conn.credit.inward.available());
        let refused = e.reserve(&args, &mut header).unwrap();
        refused.roll_back(e);
        assert_eq!((*e.stats(), e.peers[0].conn.credit.inward.available()), before);
    }
    let reserved = e.reserve(&args, &mut header).unwrap();
    assert_eq!(reserved.commit(e, now, &args), None);
    net.carry(0, peer, header.as_slice(), Body::Bytes(b"quick".to_vec()));
    let recv = net.recv(1, None, 4, 5);
    net.wait(&[(1, recv)]);
    assert_eq!(net.nodes[1].bytes(recv), b"quick");
    assert_eq!(net.nodes[1].ok(recv).data, Some(99));
    // Messages queued before go first.
    net.send(0, 1, 5, b"slow");
    assert!(net.nodes[0].engine.reserve(&send_args(peer, 5, 5), &mut header).is_none());
}

#[test]
fn recv__buffer_shorter_than_the_message_is_truncated() {
    for kind in every_kind() {
        for (sent, room) in [(100, 10), (20_000, 5000), (300_000, 1000), (300_000, 0), (9, 0)] {
            for early in [true, false] {
                let mut net = Net::open(kind.clone());
                let data = pattern(sent, sent);
                let post = |net: &mut Net| net.recv(1, Some(0), 1, room);
                let posted = early.then(|| post(&mut net));
                let send = net.send(0, 1, 1, &data);
                net.run(5);
                let recv = posted.unwrap_or_else(|| post(&mut net));
                net.wait(&[(0, send), (1, recv)]);
                assert_eq!(net.nodes[1].error(recv), OpError::Truncated { sent });
                assert_eq!(net.nodes[1].done[&recv].status.len, room);
                assert!(net.nodes[1].bytes(recv) == &data[..room as usize]);
                assert_eq!(net.nodes[0].ok(send).len, sent);
                net.settle(1000);
            }
        }
    }
}

/// Returns the packets that a node sends now, run by run, accepted by the link and lost.
fn sent(net: &mut Net, at: usize) -> Vec<Transmit> {
    let now = net.now;
    core::iter::from_fn(|| net.nodes[at].engine.poll_transmit(now)).collect()
}

fn two_ways() -> LinkCaps {
    LinkCaps { bulk_min: 5_000, ..network() }
}

#[test]
fn send__a_long_message_is_a_first_packet_and_runs_on_the_way_of_data() {
    let mut net = Net::open((two_ways(), Config::default()));
    net.send(0, 1, 7, &pattern(7, 16_000));
    let out = sent(&mut net, 0);
    let kinds: Vec<_> = out.iter().map(|t| (t.header.as_slice()[1], t.packets)).collect();
    let (first, more) = (PacketType::EagerFirst as u8, PacketType::EagerMore as u8);
    assert_eq!(kinds[0], (first, 1));
    assert!(kinds[1..].iter().all(|k| k.0 == more) && kinds.len() < 6, "{kinds:?}");
    let packets: u32 = out.iter().map(|t| t.packets).sum();
    assert!(packets > 8 && out.iter().any(|t| t.packets > 2), "{kinds:?}");
    assert!(out.iter().all(|t| t.bulk));
}

#[test]
fn send__what_follows_goes_the_same_way_until_that_is_acknowledged() {
    let mut net = Net::open((two_ways(), Config::default()));
    let recv =
        [net.recv(1, Some(0), 7, 6_000), net.recv(1, Some(0), 8, 8), net.recv(1, Some(0), 9, 8)];
    let short = pattern(8, 8);
    net.send(0, 1, 7, &pattern(7, 6_000));
    net.send(0, 1, 8, &short);
    let now = net.now;
    let out: Vec<_> = core::iter::from_fn(|| net.nodes[0].engine.poll_transmit(now)).collect();
    assert_eq!(out.last().unwrap().header.as_slice()[1], PacketType::Eager as u8);
    assert!(out.iter().all(|t| t.bulk), "it would wait at the receiver");
    // Lost, sent again, and acknowledged.
    net.wait(&[(1, recv[0]), (1, recv[1])]);
    net.run(10);
    net.send(0, 1, 9, &short);
    let out: Vec<_> = core::iter::from_fn(|| net.nodes[0].engine.poll_transmit(now)).collect();
    assert_eq!(out.iter().map(|t| t.bulk).collect::<Vec<_>>(), [false]);
}

#[test]
fn send__many_small_messages_that_wait_go_the_way_of_data_and_few_the_quick_one() {
    for (count, way) in [(7, false), (8, true), (10, true)] {
        let mut net = Net::open((two_ways(), Config::default()));
        let recv: Vec<_> = (0..count).map(|tag| net.recv(1, Some(0), tag, 16)).collect();
        (0..count).for_each(|tag| _ = net.send(0, 1, tag, &pattern(tag, 16)));
        let out = sent(&mut net, 0);
        assert_eq!(out.len() as u64, count);
        assert!(out.iter().all(|t| t.bulk == way), "{count}");
        // All are lost, and sent again in order.
        for (tag, &op) in (0..).zip(&recv) {
            net.wait(&[(1, op)]);
            assert_eq!(net.nodes[1].bytes(op), pattern(tag, 16));
        }
        net.settle(1000);
    }
}

#[test]
fn send__an_only_message_asks_for_no_acknowledgement_while_there_is_room() {
    // Half a window, and more than one.
    for (len, asks) in [(7_000, false), (60_000, true)] {
        let mut net = Net::open((network(), Config::default()));
        net.send_with(0, 1, 7, &pattern(7, len), |a| SendArgs { inject: true, ..a });
        let asked =
            |t: &Transmit| wire::parse(t.header.as_slice()).unwrap().0.flags & flags::ACKNOW != 0;
        let out = sent(&mut net, 0);
        let count = out.iter().filter(|t| asked(t)).count();
        assert_eq!(count > 0, asks, "{len}: {count} of {}", out.len());
        assert!(out.iter().all(|t| t.packets == 1 || !asked(t)), "a run asks nothing");
    }
}

#[test]
fn handle_run__only_the_fragments_that_come_next_of_the_message_that_arrives() {
    let mut net = Net::open((network(), Config::default()));
    let recv = net.recv(1, Some(0), 7, 16_000);
    net.send(0, 1, 7, &pattern(7, 16_000));
    // The first packet alone.
    net.script = Box::new(|f| match f.kind() {
        PacketType::EagerFirst => vec![DELAY],
        _ => vec![],
    });
    net.run(1);
    let peer = net.peer(1, 0);
    let node = &mut net.nodes[1].engine;
    let session = node.peer(peer).info().unwrap().1;
    let partial = node.peers[peer.0 as usize].incoming.partial.unwrap();
    let next = node.peers[peer.0 as usize].conn.windows.as_ref().unwrap().recv.next_expected();
    let header = |seq: crate::Seq, imm: u32, offset: u64| {
        let common = wire::Common { session, seq, imm, ..wire::Common::default() };
        wire::emit(&common, &Packet::EagerMore(EagerMore { offset }))
    };
    let (msg, got) = (partial.msg, partial.got);
    for (bad, len) in [
        (header(next.plus(1), msg, got), 100),
        (header(next, msg.wrapping_add(1), got), 100),
        (header(next, msg, got + 1), 100),
        (header(next, msg, 0), 100),
        (header(next, msg, got), 16_001 - got),
        (header(next, msg, got), u64::MAX),
    ] {
        assert_eq!(node.handle_run(net.now, bad.as_slice(), 2, len), None);
    }
    let half = (16_000 - got) / 2;
    let run = header(next, msg, got);
    assert_eq!(node.handle_run(net.now, run.as_slice(), 3, half), Some((recv, got)));
    assert_eq!(node.handle_run(net.now, run.as_slice(), 3, half), None, "a second time");
    let rest = header(next.plus(3), msg, got + half);
    let left = 16_000 - got - half;
    assert_eq!(node.handle_run(net.now, rest.as_slice(), 4, left), Some((recv, got + half)));
    assert!(node.peers[peer.0 as usize].incoming.partial.is_none());
    let Some(Event::Complete(done)) = node.poll_event() else { panic!("not complete") };
    assert_eq!((done.op, done.status.len), (recv, 16_000));
}

#[test]
fn reserve__of_numbered_packets_keeps_the_order_and_loses_nothing() {
    for (caps, config) in &every_kind()[1..] {
        for percent in [0, 1, 5, 20] {
            let mut net = Net::open((*caps, config.clone()));
            net.script = rough(percent * 7 + 3, percent);
            let mut rng = Rng(percent);
            let (mut fast, mut ops, mut sent) = (0, Vec::new(), [0, 0]);
            for _ in 0..400 {
                let from = rng.below(2) as usize;
                let bytes = pattern(sent[from], rng.below(600));
                sent[from] += 1;
                if rng.chance(80) {
                    fast += u32::from(net.inject_now(from, 1 - from, 1, &bytes));
                } else {
                    ops.push((from, net.send(from, 1 - from, 1, &bytes)));
                }
                // Leaves time to answer, or none at all.
                net.run(u64::from(rng.chance(30)));
            }
            for at in [0, 1] {
                for _ in 0..sent[1 - at] {
                    ops.push((at, net.recv(at, Some(1 - at), 1, 600)));
                }
            }
            net.wait(&ops);
            for at in [0, 1] {
                let mine = ops
                    .iter()
                    .filter(|(of, op)| *of == at && net.nodes[at].done[op].kind == OpKind::Recv);
                for (i, (_, op)) in mine.enumerate() {
                    let got = net.nodes[at].bytes(*op);
                    let len = net.nodes[at].ok(*op).len;
                    assert!(got[..len as usize] == pattern(i as u64, len), "message {i}");
                }
            }
            // Memory answers need no windows: there the ordinary latency path is used.
            assert!(fast > 20 || caps.reliable, "{fast} the fast way at {percent} % loss");
            net.settle(5000);
            assert!(net.nodes.iter().all(|n| n.engine.quiet()));
        }
    }
}

#[test]
fn acknowledgement__of_an_answer_is_taken_in_when_no_operation_waits() {
    let mut net = Net::with_a_message();
    let back = net.recv(0, Some(1), 2, 5);
    assert!(net.inject_now(1, 0, 2, b"54321"));
    net.run_until(|net| net.nodes[0].done.contains_key(&back));
    // The next packet acknowledges at the latest.
    assert!(net.inject_now(0, 1, 3, b"again"));
    net.run(5000);
    assert_eq!(net.nodes[0].engine.stats().retransmitted, 0);
    assert!(net.nodes[0].engine.quiet());
}

#[test]
fn has_urgent__an_acknowledgement_asked_for_is_and_one_taken_in_late_is_not() {
    let mut net = Net::with_a_message();
    // The answer acknowledges, and the acknowledgement can be handled later.
    let peer = net.peer(0, 1);
    let session = net.nodes[0].engine.peer(peer).info().unwrap().1;
    let common = wire::Common { session, ack: crate::Seq(1), ..Default::default() };
    let answer = wire::emit(&common, &Packet::Eager(wire::Eager { tag: 2 }));
    let caps = network();
    net.nodes[0].engine.handle_packet(net.now, None, &caps, answer.as_slice(), 0);
    assert!(net.nodes[0].engine.output().any() && !net.nodes[0].engine.output().urgent());
    // A packet that asks for an acknowledgement gets it now.
    let asks = wire::Common { seq: crate::Seq(1), flags: flags::ACKNOW, ..common };
    let asks = wire::emit(&asks, &Packet::Eager(wire::Eager { tag: 2 }));
    net.nodes[0].engine.handle_packet(net.now, None, &caps, asks.as_slice(), 0);
    assert!(net.nodes[0].engine.output().urgent());
    net.flush(0);
    assert!(!net.nodes[0].engine.output().any() && !net.nodes[0].engine.output().urgent());
}
