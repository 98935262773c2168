//! Peers that fall silent, end or disappear while operations of every type are in progress.

use super::*;

fn error(net: &Net, at: usize, op: OpId) -> PeerFailure {
    match net.nodes[at].error(op) {
        OpError::Peer { failure, .. } => failure,
        other => panic!("{other:?}"),
    }
}

/// Returns links of every type that see nothing of a peer's process, as an agent's that lose
/// nothing.
fn unseen() -> [(LinkCaps, Config); 4] {
    every_kind().map(|(caps, config)| (LinkCaps { sees_end: false, ..caps }, config))
}

/// Starts operations of every type between nodes 0 and 1; returns node 0's.
fn busy(net: &mut Net, seed: u64) -> Vec<OpId> {
    let key = net.register(1, &[0; 100_000]);
    let mut rng = Rng(seed);
    let mut ops = Vec::new();
    for i in 0..6 {
        let len = rng.below(200_000);
        let small = rng.below(9000);
        ops.push(net.send(0, 1, i, &pattern(i, len)));
        ops.push(net.send_with(0, 1, i, &pattern(i, small), |a| SendArgs { inject: true, ..a }));
        ops.push(net.send_with(0, 1, i, &[0; 5000], |a| SendArgs { active: true, ..a }));
        ops.push(net.recv(0, Some(1), i, len));
        ops.push(net.put(0, 1, key, 0, &[1; 20_000]));
        ops.push(net.get(0, 1, key, 0, 20_000));
        ops.push(net.fetch_add(0, 1, key, 0, 1));
        net.send(1, 0, i, &pattern(i, len));
        net.send(1, 0, 100 + i, &pattern(i, small));
        if rng.chance(50) {
            net.recv(1, None, i, len);
        }
    }
    ops
}

#[test]
fn peer_failed__in_every_state_ends_everything_once() {
    for (caps, config) in every_kind().into_iter().chain([(direct(), Config::default())]) {
        for steps in (0..400).step_by(13) {
            let mut net = Net::rough((caps, config.clone()), (steps, 5));
            net.nodes[0].attentive = steps % 2 == 0;
            let ops = busy(&mut net, steps);
            // The link is full half of the time.
            net.room[0] = if steps % 2 == 0 { u32::MAX } else { steps as u32 };
            net.flush_all();
            let until = net.now + Duration::from_secs(2);
            for _ in 0..steps {
                net.step(until);
            }
            for (at, why) in [(0, PeerFailure::Gone), (1, PeerFailure::Closed)] {
                let peer = net.peer(at, 1 - at);
                net.nodes[at].engine.peer_mut(peer).handle_failure(why);
                net.nodes[at].engine.peer_mut(peer).handle_failure(PeerFailure::Gone);
                net.nodes[at].settle();
            }
            net.room[0] = u32::MAX;
            net.run(2000);
            for (i, op) in ops.iter().enumerate() {
                let done = net.nodes[0].done.get(op).unwrap_or_else(|| panic!("{i} not done"));
                assert!(done.error.is_none_or(|e| matches!(e, OpError::Peer { .. })), "{done:?}");
            }
            // Messages that have arrived whole can still be received; nothing else is kept.
            for node in [0, 1] {
                let mut wild = Vec::new();
                while net.nodes[node].engine.matching().probe(None, 0, u64::MAX).is_some() {
                    wild.push(net.recv_masked(node, None, 0, u64::MAX, 10));
                }
                for op in wild {
                    assert!(net.nodes[node].done.contains_key(&op));
                }
                assert!(net.nodes[node].stored.is_empty());
                let posted: Vec<_> = net.nodes[node].buffers.keys().copied().collect();
                for op in posted {
                    net.nodes[node].engine.ops_mut().cancel(op);
                }
                net.nodes[node].settle();
                assert_eq!(net.nodes[node].failed.len(), 1);
            }
            net.assert_clean();
        }
    }
}

#[test]
fn peer_failed__what_was_sent_after_a_message_that_is_lost_does_not_come_in_its_place() {
    for kind in every_kind() {
        let mut net = Net::open(kind);
        net.send(1, 0, 7, &pattern(1, 50));
        net.send(1, 0, 7, &pattern(2, 500_000));
        net.send(1, 0, 7, &pattern(3, 60));
        // Long enough for short messages and for the announcement.
        net.run(1);
        let peer = net.peer(0, 1);
        net.nodes[0].engine.peer_mut(peer).handle_failure(PeerFailure::Gone);
        net.nodes[0].settle();
        let first = net.recv(0, Some(1), 7, 100);
        net.run(1);
        assert!(net.nodes[0].done[&first].error.is_none());
        assert!(
            net.nodes[0].engine.matching().probe(None, 7, 0).is_none(),
            "the last comes as the second"
        );
        assert!(net.nodes[0].stored.is_empty());
    }
}

#[test]
fn silent__peer_fails_after_probes_and_a_warning() {
    for kind in unseen() {
        let mut net = Net::open(kind);
        net.script = Box::new(|_| vec![]);
        let recv = net.recv(0, Some(1), 1, 10);
        net.run(299_000);
        assert!(net.nodes[0].done.is_empty());
        assert_eq!(net.nodes[0].slow, [PeerId(0)]);
        let nops = net.sent(0, PacketType::Nop);
        assert!(nops > 0);
        net.run(3000);
        assert!(matches!(
            error(&net, 0, recv),
            PeerFailure::Silent { after_ms: 300_000..=301_000 }
        ));
        net.assert_clean();
    }
}

#[test]
fn watch__a_silent_peer_fails_although_nothing_is_posted() {
    for kind in unseen() {
        let mut net = Net::open(kind);
        net.script = Box::new(|_| vec![]);
        let (now, peer) = (net.now, net.peer(0, 1));
        assert!(net.nodes[0].engine.peer_mut(peer).watch(now));
        net.run(302_000);
        let failure = net.nodes[0].engine.peer(peer).failure();
        assert!(matches!(failure, Some(PeerFailure::Silent { .. })), "{failure:?}");
        net.nodes[0].engine.peer_mut(peer).unwatch();
        let now = net.now;
        assert!(!net.nodes[0].engine.peer_mut(peer).watch(now));
        net.assert_clean();
    }
}

#[test]
fn unwatch__no_packet_goes_to_the_silent_peer() {
    let mut net = Net::open(every_kind()[0].clone());
    net.script = Box::new(|_| vec![]);
    let (now, peer) = (net.now, net.peer(0, 1));
    assert!(net.nodes[0].engine.peer_mut(peer).watch(now));
    net.nodes[0].engine.peer_mut(peer).unwatch();
    net.run(302_000);
    assert_eq!(net.nodes[0].engine.peer(peer).failure(), None);
}

#[test]
fn silent__in_the_middle_of_a_message_for_any_source() {
    // Not one operation names the peer; the receive got a first fragment and waits for the rest.
    for kind in unseen() {
        let mut net = Net::open(kind);
        let recv = net.recv(1, None, 1, 10_000);
        net.send(0, 1, 1, &[1; 10_000]);
        net.flush(0);
        net.script = Box::new(|_| vec![]);
        net.nodes[0] = Node::new(Config::default(), 1);
        let first = net.queue.pop_first().unwrap();
        net.queue.clear();
        net.queue.insert(first.0, first.1);
        net.run(302_000);
        assert!(matches!(error(&net, 1, recv), PeerFailure::Silent { .. }));
    }
}

#[test]
fn silent__while_only_answering_a_get() {
    // The target of a get waits for nothing, and yet its packets are not sent for ever.
    for config in [Config::default(), go_back_n()] {
        let mut net = Net::open((network(), config));
        let key = net.register(1, &[0; 50_000]);
        net.get(0, 1, key, 0, 50_000);
        net.flush(0);
        net.script = Box::new(|_| vec![]);
        net.nodes[0] = Node::new(Config::default(), 1);
        net.run(310_000);
        assert_eq!(net.nodes[1].failed.len(), 1);
        assert!(net.nodes[1].engine.quiet());
    }
}

#[test]
fn alive__but_busy_peer_is_not_declared_silent() {
    // The peer answers probes and receives nothing for an hour: messages wait for credit and room.
    for (caps, config) in every_kind() {
        let config = Config { eager_credit: 64 << 10, rendezvous_max: 1, ..config };
        let mut net = Net::open((caps, config));
        let sync = |a| SendArgs { sync: true, ..a };
        let sends: Vec<_> = (0..3).map(|i| net.send_with(0, 1, i, b"later", sync)).collect();
        net.send_with(0, 1, 9, &[0; 100], |a| SendArgs { active: true, ..a });
        net.run(3_600_000);
        assert!(net.nodes.iter().all(|n| n.failed.is_empty()));
        assert!(net.log.len() < 200_000);
        let recvs: Vec<_> = (0..3).map(|i| (1, net.recv(1, None, i, 5))).collect();
        net.wait(&recvs);
        net.run(10);
        assert!(sends.iter().all(|op| net.nodes[0].ok(*op).len == 5));
    }
}

#[test]
fn claimed__message_of_a_failed_sender() {
    for kind in every_kind() {
        for len in [100, 9000, 200_000] {
            for steps in 0..12 {
                let mut net = Net::open(kind.clone());
                net.send(0, 1, 1, &pattern(1, len));
                net.flush(0);
                let until = net.now + Duration::from_millis(1);
                for _ in 0..steps {
                    net.step(until);
                }
                let Some((claimed, probed)) = net.nodes[1].engine.matching_mut().claim(None, 1, 0)
                else {
                    continue;
                };
                assert_eq!((probed.len, probed.source), (len, PeerId(0)));
                assert!(net.nodes[1].engine.matching().probe(None, 1, 0).is_none());
                net.nodes[1].engine.peer_mut(PeerId(0)).handle_failure(PeerFailure::Gone);
                net.nodes[1].settle();
                let recv = net.recv_claimed(1, claimed, len);
                match net.nodes[1].done[&recv].error {
                    None => assert!(net.nodes[1].bytes(recv) == pattern(1, len)),
                    Some(_) => assert_eq!(error(&net, 1, recv), PeerFailure::Gone),
                }
                assert!(net.nodes[1].stored.is_empty());
                assert_eq!(net.nodes[1].engine.ops().count(), 0);
            }
        }
    }
}

/// Returns shared memory, and the same where packets are lost on purpose.
fn seen() -> [LinkCaps; 2] {
    let memory = LinkCaps::memory("test", 4096);
    [memory, LinkCaps { reliable: false, ordered: false, ..memory }]
}

#[test]
fn seen__a_peer_that_runs_may_be_silent_for_ever() {
    for caps in seen() {
        let mut net = Net::open((caps, Config::default()));
        net.script = Box::new(|_| vec![]);
        let recv = net.recv(0, Some(1), 1, 10);
        net.send(0, 1, 1, &[1; 10]);
        net.run(4_000_000);
        let peer = net.peer(0, 1);
        assert_eq!(net.nodes[0].engine.peer(peer).failure(), None);
        assert!(!net.nodes[0].done.contains_key(&recv));
        assert_eq!(net.nodes[0].slow, [PeerId(0)]);
        // Its ring is not filled with questions.
        assert!(!caps.reliable || net.sent(0, PacketType::Nop) == 1);
    }
}

#[test]
fn seen__a_peer_that_runs_may_leave_the_first_packet_unanswered() {
    let caps = LinkCaps::memory("test", 4096);
    let mut net = Net::pair((caps, Config::default()));
    net.script = Box::new(|_| vec![]);
    net.recv(0, Some(1), 1, 10);
    net.run(4_000_000);
    let peer = net.peer(0, 1);
    assert_eq!(net.nodes[0].engine.peer(peer).failure(), None);
    assert_eq!(net.nodes[0].slow, [PeerId(0)]);
    net.nodes[0].pulse = Pulse::Stopped;
    net.run(62_000);
    let failure = net.nodes[0].engine.peer(peer).failure();
    assert!(matches!(failure, Some(PeerFailure::Stopped { after_ms: 60_000..=61_000 })));
}

#[test]
fn unseen__a_peer_that_answers_is_there() {
    let mut net = Net::open((seen()[0], Config::default()));
    net.nodes[0].pulse = Pulse::Unseen;
    let recv = net.recv(0, Some(1), 1, 10);
    net.run(1_000_000);
    let peer = net.peer(0, 1);
    assert_eq!(net.nodes[0].engine.peer(peer).failure(), None);
    net.script = Box::new(|_| vec![]);
    net.run(302_000);
    assert!(matches!(error(&net, 0, recv), PeerFailure::Silent { .. }));
}

#[test]
fn unseen__a_peer_that_does_not_answer_the_first_packet_is_unreachable() {
    let mut net = Net::pair((seen()[0], Config::default()));
    net.nodes[0].pulse = Pulse::Unseen;
    net.script = Box::new(|_| vec![]);
    let recv = net.recv(0, Some(1), 1, 10);
    net.run(62_000);
    assert!(matches!(error(&net, 0, recv), PeerFailure::Unreachable { .. }));
}

#[test]
fn seen__a_peer_that_stands_still_fails_after_the_timeout() {
    for caps in seen() {
        for pulse in [Pulse::Stopped, Pulse::Ended, Pulse::Unseen] {
            let mut net = Net::open((caps, Config::default()));
            net.script = Box::new(|_| vec![]);
            let recv = net.recv(0, Some(1), 1, 10);
            // Only the time of standing still counts, however long it ran before.
            net.run(1_000_000);
            net.nodes[0].pulse = pulse;
            net.run(299_000);
            assert!(net.nodes[0].done.is_empty());
            net.nodes[0].pulse = Pulse::Runs;
            net.run(1_000);
            net.nodes[0].pulse = pulse;
            net.run(299_000);
            assert!(net.nodes[0].done.is_empty());
            net.run(3_000);
            match (pulse, error(&net, 0, recv)) {
                (Pulse::Stopped, PeerFailure::Stopped { after_ms: 300_000..=301_000 }) => {}
                (Pulse::Ended, PeerFailure::Gone) => {}
                (Pulse::Unseen, PeerFailure::Silent { after_ms: 300_000..=301_000 }) => {}
                (_, other) => panic!("{other:?}"),
            }
            net.assert_clean();
        }
    }
}

#[test]
fn seen__what_was_seen_before_it_spoke_does_not_count() {
    let mut net = Net::open((seen()[0], Config::default()));
    net.nodes[0].pulse = Pulse::Stopped;
    let first = net.recv(0, Some(1), 1, 10);
    net.script = Box::new(|_| vec![]);
    net.run(200_000);
    net.script = Box::new(|_| vec![1_000]);
    net.send(1, 0, 1, &[1; 10]);
    net.wait(&[(0, first)]);
    net.script = Box::new(|_| vec![]);
    let second = net.recv(0, Some(1), 1, 10);
    net.run(290_000);
    assert!(!net.nodes[0].done.contains_key(&second));
    net.run(13_000);
    assert!(matches!(error(&net, 0, second), PeerFailure::Stopped { .. }));
}

#[test]
fn stuck__is_a_packet_sent_again_in_vain_to_a_peer_that_is_heard() {
    let message = |f: &Flight| matches!(f.kind(), PacketType::Eager | PacketType::Rts);
    for (lost, heard) in [(0, false), (1, true)] {
        let mut net = Net::open((network(), Config::default()));
        // Either the whole peer is absent, or only messages to it get lost.
        net.script = Box::new(move |f| match (f.from, lost) {
            (0, 0) => vec![],
            (0, _) if message(f) => vec![],
            _ => vec![DELAY],
        });
        net.send(0, 1, 1, &pattern(1, 300));
        let key = net.register(0, &[0; 8]);
        for _ in 0..40 {
            if heard {
                net.fetch_add(1, 0, key, 0, 1);
            }
            let until = net.now + Duration::from_millis(60);
            while net.step(until) {}
        }
        let stuck = &net.nodes[0].stuck;
        assert!(!stuck.is_empty());
        assert_eq!(stuck.iter().any(|(_, h)| *h), heard, "{stuck:?}");
    }
}
