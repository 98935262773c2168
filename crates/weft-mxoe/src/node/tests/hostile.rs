//! Frames of strangers, and frames that lie.

use super::*;

#[test]
fn handle__hostile_frames_are_dropped_and_change_nothing() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    send(&mut net, 0, peer, 1, &message(1, 5000), 0).unwrap();
    let mut good = Vec::new();
    let mut frame = Vec::new();
    while net.nodes[0].poll_transmit(&mut frame).is_some() {
        good.push(core::mem::take(&mut frame));
    }
    let mut random = Random(9);
    for round in 0..100_000_u64 {
        let mut frame = good[round as usize % good.len()].clone();
        for _ in 0..=random.next() % 4 {
            let at = random.next() as usize % frame.len().min(40);
            frame[at] = random.next() as u8;
        }
        frame.truncate(1 + random.next() as usize % frame.len());
        net.nodes[1].handle(round, if round % 2 == 0 { A } else { B }, &frame);
        while net.nodes[1].poll_transmit(&mut Vec::new()).is_some() {}
        net.nodes[1].handle_timeout(round);
        assert!(net.nodes[1].peers.len() <= PEERS_MAX);
        net.nodes[1].events.clear();
    }
    assert!(net.nodes[1].counters().dropped > 10_000);
}

/// Requests by a hand that knows the format, and the session.
#[test]
fn pull__hostile_requests_are_dropped_and_counted() {
    use crate::packet::Pull;
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    announce(&mut net, peer, 1, message(1, 10_000), 9);
    let (offer, _) = offer(&mut net);
    let good = Pull {
        ends: Ends { to: 1, from: 3, generation: 0 },
        session: 0x11,
        total: 10_000,
        window: offer.window,
        handle: 7,
        magic: 8,
        first_offset: 0,
        block_len: 10_000,
        frame_index: 0,
    };
    let window = |id, seq, offset| Window { id, seq, offset };
    let Window { id, seq, .. } = offer.window;
    let wrong = [
        Pull { session: 0x12, ..good },
        Pull { window: window(id + 1, seq, 0), ..good },
        Pull { window: window(u32::MAX, seq, 0), ..good },
        Pull { window: window(id, seq + 1, 0), ..good },
        Pull { ends: Ends { from: 4, ..good.ends }, ..good },
        Pull { ends: Ends { to: 2, ..good.ends }, ..good },
        Pull { block_len: 10_001, ..good },
        Pull { block_len: u32::MAX, ..good },
        Pull { block_len: 0, ..good },
        Pull { frame_index: 7, block_len: 10, ..good },
        Pull { frame_index: u32::MAX, block_len: 1, ..good },
        Pull { first_offset: 1468, block_len: 1, ..good },
        Pull { first_offset: u32::MAX, ..good },
        Pull { window: window(id, seq, 5), block_len: 4, ..good },
    ];
    let dialect = Dialect::Native;
    for (number, pull) in (1..).zip(wrong) {
        let bytes = Frame::new(0, Packet::Pull(pull)).encode(dialect).unwrap();
        net.nodes[0].handle(0, B, &bytes);
        assert_eq!(net.nodes[0].counters().dropped, number, "{pull:?}");
        assert!(net.nodes[0].windows.is_quiet(), "{pull:?}");
    }
    // A request that comes again and again is answered once at a time.
    let bytes = Frame::new(0, Packet::Pull(good)).encode(dialect).unwrap();
    (0..1000).for_each(|_| net.nodes[0].handle(0, B, &bytes));
    let (mut frames, mut frame) = (0, Vec::new());
    while net.nodes[0].poll_transmit(&mut frame).is_some() {
        frames += usize::from(frame[2] == 42);
        frame.clear();
    }
    assert_eq!(frames, 10_000_usize.div_ceil(1468));
}

/// Answers by a hand that knows the format, and the handle.
#[test]
fn pull__hostile_answers_are_dropped_and_counted() {
    use crate::packet::PullReply;
    let dialect = Dialect::Native;
    let (mut net, peer) = Net::connected(dialect, 1500, 0, 1);
    announce(&mut net, peer, 1, message(1, 10_000), 9);
    let (offer, _) = offer(&mut net);
    net.nodes[1].pull(0, offer, u32::MAX, 5);
    while net.nodes[1].poll_transmit(&mut Vec::new()).is_some() {}
    let magic = 3 ^ 0x2107_1980;
    let handle = 0x22_u32.wrapping_mul(0x9e37_79b9) & ((1 << 22) - 1);
    let good = PullReply { seq: 1, len: 1468, offset: 1468, handle, magic };
    let wrong = [
        PullReply { handle: handle + 1, ..good },
        PullReply { handle: handle + (1 << 22), ..good },
        PullReply { handle: u32::MAX, ..good },
        PullReply { magic: magic + 1, ..good },
        PullReply { seq: 2, ..good },
        PullReply { offset: 1467, ..good },
        PullReply { offset: 1468 * 40, seq: 40, ..good },
        PullReply { offset: u32::MAX, ..good },
        PullReply { len: 1467, ..good },
        PullReply { len: 0, ..good },
        PullReply { len: 1469, ..good },
    ];
    let before = net.nodes[1].counters().dropped;
    for (number, reply) in (1..).zip(wrong) {
        let mut bytes = Frame::new(0, Packet::PullReply(reply)).encode(dialect).unwrap().to_vec();
        bytes.resize(bytes.len() + usize::from(reply.len), 0);
        net.nodes[1].handle(0, A, &bytes);
        assert_eq!(net.nodes[1].counters().dropped, before + number, "{reply:?}");
    }
    let mut bytes = Frame::new(0, Packet::PullReply(good)).encode(dialect).unwrap().to_vec();
    bytes.resize(bytes.len() + 1468, 0);
    net.nodes[1].handle(0, B, &bytes);
    assert_eq!(net.nodes[1].counters().dropped, before + 12, "from another address");
    net.nodes[1].handle(0, A, &bytes);
    net.nodes[1].handle(0, A, &bytes);
    assert_eq!(net.nodes[1].counters().dropped, before + 12);
    assert_eq!(net.nodes[1].counters().duplicates, 1);
}

#[test]
fn handle__hostile_pulls_and_announcements_change_nothing() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    announce(&mut net, peer, 1, message(1, 100_000), 0);
    let (offer, _) = offer(&mut net);
    net.nodes[1].pull(0, offer, u32::MAX, 5);
    // Frames of all kinds, of both sides.
    let (mut good, mut frame) = (Vec::new(), Vec::new());
    while net.nodes[1].poll_transmit(&mut frame).is_some() {
        good.push(core::mem::take(&mut frame));
        net.nodes[0].handle(0, B, good.last().unwrap());
    }
    while net.nodes[0].poll_transmit(&mut frame).is_some() {
        good.push(core::mem::take(&mut frame));
    }
    announce(&mut net, peer, 1, message(1, 10), 0);
    while net.nodes[0].poll_transmit(&mut frame).is_some() {
        good.push(core::mem::take(&mut frame));
    }
    let mut random = Random(9);
    for round in 0..100_000_u64 {
        let at = (round % 2) as usize;
        let mut frame = good[random.next() as usize % good.len()].clone();
        for _ in 0..=random.next() % 3 {
            let place = random.next() as usize % frame.len().min(46);
            frame[place] = random.next() as u8;
        }
        frame.truncate(1 + random.next() as usize % (2 * frame.len()));
        net.nodes[at].handle(round, if round % 3 == 0 { A } else { B }, &frame);
        while net.nodes[at].poll_transmit(&mut frame).is_some() {}
        net.nodes[at].handle_timeout(round);
        assert!(net.nodes[at].peers.len() <= PEERS_MAX);
        net.nodes[at].events.clear();
    }
    assert!(net.nodes.iter().all(|node| node.counters().dropped > 5_000));
}

#[test]
fn handle__events_that_nobody_takes_are_bounded() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    for number in 0..2 * EVENTS_MAX as u64 {
        send(&mut net, 0, peer, number, b"", number).unwrap();
        net.round();
        net.round();
    }
    assert!(net.nodes[1].events.len() <= EVENTS_MAX + usize::from(WINDOW));
    for number in 0..2 * EVENTS_MAX as u64 {
        let got = net.event(1);
        assert!(matches!(got, Event::Received { match_bits, .. } if match_bits == number));
    }
}

#[test]
fn refusal__of_a_session_that_others_provoke_ends_no_connection() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    let ends = Ends { to: 3, from: 1, generation: 0 };
    for round in 0..20 {
        send(&mut net, 0, peer, round, b"one", 0).unwrap();
        // A frame with the sender's address, the right number and another session.
        let seq = net.nodes[0].peers[0].incoming.next() & !0x3fff | (round + 1) as u16;
        let forged = crate::Message { ends, seq, session: 0x99, ..Default::default() };
        let forged = Frame::new(0, Packet::Tiny(forged)).encode(Dialect::Native).unwrap();
        net.nodes[1].handle(net.now, A, &forged);
        assert!(matches!(net.event(1), Event::Received { match_bits, .. } if match_bits == round));
        net.round();
        net.round();
    }
    let all = core::iter::from_fn(|| net.nodes[0].poll_event());
    assert!(all.into_iter().all(|event| matches!(event, Event::Sent { .. })));
    // One that has told no key is asked by a wrong one.
    let back = PeerIndex(0);
    let settings = net.nodes[0].settings;
    net.nodes[0] = Node::new(settings, 1, 0x55, 0x44);
    send(&mut net, 1, back, 5, b"late", 0).unwrap();
    while !matches!(net.event(1), Event::Failed(_, Failure::Closed)) {}
    assert!(net.now < 5_000_000, "{}", net.now);
}

#[test]
fn refusal__of_an_endpoint_that_was_there_before_is_a_question() {
    for refusal in [Refusal::BadEndpoint, Refusal::BadWindow, Refusal::BadSession] {
        let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
        let late = |seq| {
            let nack =
                crate::NackLib { from: 3, generation: 0, refusal, to: 1, peer_index: 0, seq };
            Frame::new(0, Packet::NackLib(nack)).encode(Dialect::Native).unwrap()
        };
        send(&mut net, 0, peer, 7, b"one", 0).unwrap();
        // A refusal has no session: this one names the message that is on its way.
        let seq = net.nodes[0].peers[0].outgoing.first_unacked();
        net.nodes[0].handle(net.now, B, &late(seq));
        assert!(matches!(net.event(1), Event::Received { match_bits: 7, .. }));
        assert!(matches!(net.event(0), Event::Sent { .. }), "{refusal:?}");
        send(&mut net, 0, peer, 8, b"two", 0).unwrap();
        assert!(matches!(net.event(1), Event::Received { match_bits: 8, .. }));
    }
}
