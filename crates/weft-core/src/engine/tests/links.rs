//! Links that are full, and the order of packets that they refused.

use super::*;

#[test]
fn refused__packets_keep_their_order_on_an_ordered_link() {
    for seed in 0..30 {
        let mut rng = Rng(seed);
        let mut net = Net::new(3, memory(), Config::default());
        let mut recvs = Vec::new();
        let mut sends = Vec::new();
        for i in 0..120 {
            let to = 1 + rng.below(2) as usize;
            let len = rng.below(30_000);
            sends.push((0, net.send(0, to, 1, &pattern(i, len))));
            recvs.push((to, net.recv(to, Some(0), 1, 30_000), i, len));
        }
        for _ in 0..3000 {
            net.room[0] = rng.below(40) as u32;
            net.flush(0);
            net.room[0] = 0;
            net.room[1] = rng.below(4) as u32;
            net.room[2] = rng.below(4) as u32;
            let until = net.now + Duration::from_micros(rng.below(60));
            while net.step(until) {}
        }
        net.room = vec![u32::MAX; 3];
        net.wait(&sends);
        let posted: Vec<_> = recvs.iter().map(|&(at, op, ..)| (at, op)).collect();
        net.wait(&posted);
        for (at, op, i, len) in recvs {
            assert_eq!(net.nodes[at].ok(op).len, len, "seed {seed}: message {i}");
            assert!(net.nodes[at].bytes(op)[..len as usize] == pattern(i, len));
        }
        net.settle(1000);
    }
}

#[test]
fn retry_blocked__goes_on_where_the_link_stopped() {
    for kind in every_kind() {
        let mut net = Net::open(kind);
        net.room[0] = 0;
        let recv = net.recv(1, None, 1, 100_000);
        net.send(0, 1, 1, &pattern(1, 100_000));
        net.run(1);
        assert!(net.nodes[0].engine.output().blocked());
        assert!(!net.nodes[0].engine.quiet());
        for _ in 0..400 {
            net.room[0] = 1;
            net.run(1);
        }
        net.wait(&[(1, recv)]);
        assert!(net.nodes[1].bytes(recv) == pattern(1, 100_000));
        net.room[0] = u32::MAX;
        net.run(2000);
        assert!(!net.nodes[0].engine.output().blocked());
        net.assert_clean();
    }
}

#[test]
fn hold__one_peer_waits_for_its_link_and_others_go_on() {
    let mut net = Net::new(3, memory(), Config::default());
    let (one, two) = (net.peer(0, 1), net.peer(0, 2));
    let got: Vec<_> = [1, 2].map(|to| net.recv(to, None, 1, 50_000)).into();
    net.nodes[0].engine.peer_mut(one).hold(true);
    net.nodes[0].engine.peer_mut(one).hold(true);
    assert!(net.nodes[0].engine.output().held());
    net.send(0, 1, 1, &pattern(1, 50_000));
    net.send(0, 2, 1, &pattern(2, 50_000));
    net.wait(&[(2, got[1])]);
    assert!(!net.nodes[1].done.contains_key(&got[0]));
    assert!(!net.nodes[0].engine.output().blocked(), "it is not tried again and again");
    net.nodes[0].engine.peer_mut(one).hold(false);
    net.nodes[0].engine.peer_mut(two).hold(false);
    assert!(!net.nodes[0].engine.output().held());
    net.wait(&[(1, got[0])]);
    assert!(net.nodes[1].bytes(got[0]) == pattern(1, 50_000));
    net.settle(2000);
}

#[test]
fn hold__of_a_peer_that_fails_ends_and_the_failure_is_reported() {
    let config = Config { peer_timeout_ms: 2_000, ..Config::default() };
    // The link does not see the peers' processes, like a link over an agent.
    let mut net = Net::new(2, LinkCaps { sees_end: false, ..memory() }, config);
    let peer = net.peer(0, 1);
    let recv = net.recv(1, None, 1, 10);
    net.send(0, 1, 1, &pattern(1, 10));
    net.wait(&[(1, recv)]);
    net.nodes[0].engine.peer_mut(peer).hold(true);
    let sent = net.send(0, 1, 2, &pattern(1, 10_000));
    let lost = net.recv(0, Some(1), 3, 10);
    net.run(5_000_000);
    assert!(net.nodes[0].done.contains_key(&sent) && net.nodes[0].done.contains_key(&lost));
    assert!(matches!(net.nodes[0].failed[..], [(_, PeerFailure::Silent { .. })]));
    assert!(!net.nodes[0].engine.output().held(), "nothing of it waits");
    net.nodes[0].engine.peer_mut(peer).hold(true);
    assert!(!net.nodes[0].engine.output().held());
}

#[test]
fn retransmit__the_same_packet_lost_again_and_again_is_sent_again() {
    // Type of the packet that is lost six times: it must get through without packets of other
    // types.
    use PacketType::*;
    for config in [Config::default(), go_back_n()] {
        for kind in [Eager, EagerFirst, EagerMore, Rts, Pull, Data, Fin, Put, Get, Atomic, Reply] {
            let mut net = Net::open((network(), config.clone()));
            let mut left = 6;
            let mut victim = None;
            net.script = Box::new(move |f| {
                let name = (f.from, f.header[8..12].to_vec());
                if left > 0 && f.kind() == kind && *victim.get_or_insert(name.clone()) == name {
                    left -= 1;
                    return vec![];
                }
                vec![DELAY]
            });
            let key = net.register(1, &[0; 4096]);
            let recvs = [(1, net.recv(1, None, 1, 100_000)), (1, net.recv(1, None, 2, 9000))];
            let start = net.now;
            let ops = [
                (0, net.send(0, 1, 1, &[1; 100_000])),
                (0, net.send(0, 1, 2, &[2; 9000])),
                (0, net.send(0, 1, 2, &[2; 9])),
                (0, net.put(0, 1, key, 0, &[3; 4096])),
                (0, net.get(0, 1, key, 0, 4096)),
                (0, net.fetch_add(0, 1, key, 0, 1)),
            ];
            net.wait(&recvs);
            net.wait(&ops);
            // Backing off from 20 ms: 6 timeouts, not 6 keep-alive intervals.
            let took = net.now.since(start);
            assert!(took < Duration::from_millis(2500), "{kind:?} {took:?}");
        }
    }
}

#[test]
fn sequence_numbers__come_round() {
    for (caps, config) in &every_kind()[1..] {
        let mut net = Net::open((*caps, config.clone()));
        for node in &mut net.nodes {
            node.engine.start_at(PeerId(0), crate::Seq(u32::MAX - 20));
        }
        net.script = rough(4, 10);
        for i in 0..8 {
            let len = 20_000 * (i % 3) + 7;
            let recv = net.recv(1, Some(0), i, len);
            let back = net.recv(0, Some(1), i, len);
            let send = net.send(0, 1, i, &pattern(i, len));
            net.send(1, 0, i, &pattern(i + 1, len));
            net.wait(&[(1, recv), (0, back), (0, send)]);
            assert!(net.nodes[1].bytes(recv) == pattern(i, len));
            assert!(net.nodes[0].bytes(back) == pattern(i + 1, len));
        }
        net.settle(5000);
    }
}

#[test]
fn path_changed__what_was_lost_goes_out_at_once() {
    for config in [Config::default(), go_back_n()] {
        let mut net = Net::open((network(), config));
        let recv = net.recv(1, Some(0), 5, 100);
        net.script = Box::new(|_| vec![]);
        let send = net.send(0, 1, 5, &[7; 100]);
        // Long enough for the timeout to be backed off far.
        net.run(400);
        let peer = net.peer(0, 1);
        let times: Vec<u32> = net.nodes[0].stalled.iter().map(|s| s.1).collect();
        assert!(times.len() > 3, "{times:?}");
        assert!((2..).zip(&times).all(|(want, &got)| want == got), "{times:?}");
        net.script = calm();
        let now = net.now;
        net.nodes[0].engine.peer_mut(peer).handle_path_change(now);
        net.flush(0);
        net.run(1);
        net.nodes[1].ok(recv);
        assert_eq!(net.nodes[1].bytes(recv), [7; 100]);
        net.wait(&[(0, send)]);
        net.assert_clean();
    }
}

#[test]
fn ask_size__a_question_that_may_vanish_leaves_the_acknowledgement_due() {
    let mut net = Net::with_a_message();
    let (peer, e) = (net.peer(1, 0), &mut net.nodes[1].engine);
    let due = |e: &Engine| e.peers[0].conn.windows.as_ref().unwrap().recv.ack_deadline();
    let before = due(e);
    assert!(before.is_some() && e.peer_mut(peer).ask_size(0, 1400).is_some());
    assert_eq!(due(e), before, "packets of that length may not get through");
}
