//! Two endpoints over a network that loses, doubles and reorders frames, by a seed.
#![allow(non_snake_case)]

use super::*;
use alloc::vec;

const BOTH: [Dialect; 2] = [Dialect::Compat, Dialect::Native];
const A: Mac = [2, 0, 0, 0, 0, 1];
const B: Mac = [2, 0, 0, 0, 0, 2];
const KEY: u32 = 0x99;

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn is(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// Two endpoints and the frames between them.
struct Net {
    nodes: [Node; 2],
    frames: Vec<(usize, Vec<u8>)>,
    random: Random,
    faults: u64,
    now: Time,
}

impl Net {
    fn new(dialect: Dialect, mtu: u16, faults: u64, seed: u64) -> Net {
        let settings = Settings { resends_max: 100, ..Settings::of(dialect, mtu) };
        let nodes = [Node::new(settings, 1, 0, 0x11), Node::new(settings, 3, KEY, 0x22)];
        Net { nodes, frames: Vec::new(), random: Random(seed), faults, now: 0 }
    }

    /// Moves all frames that there are.
    fn round(&mut self) {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let mut frame = Vec::new();
            while let Some(to) = node.poll_transmit(&mut frame) {
                let frame = core::mem::take(&mut frame);
                assert_eq!(to, [B, A][at]);
                if self.random.is(self.faults) {
                    continue;
                }
                if self.random.is(self.faults) {
                    self.frames.push((1 - at, frame.clone()));
                }
                self.frames.push((1 - at, frame));
            }
        }
        while !self.frames.is_empty() {
            let reorders = self.random.is(self.faults);
            let at = if reorders { self.random.next() as usize % self.frames.len() } else { 0 };
            let (to, frame) = self.frames.remove(at);
            self.nodes[to].handle(self.now, [B, A][to], &frame);
        }
    }

    /// Runs until an event of an endpoint.
    fn event(&mut self, of: usize) -> Event {
        loop {
            if let Some(event) = self.nodes[of].poll_event() {
                return event;
            }
            self.round();
            let idle = self.nodes.iter().all(Node::has_sent);
            if idle && self.nodes[of].events.is_empty() {
                let next = self.nodes.iter().filter_map(Node::next_timeout).min();
                self.now = next.expect("nothing will happen any more").max(self.now);
                let now = self.now;
                self.nodes.iter_mut().for_each(|node| node.handle_timeout(now));
            }
        }
    }

    fn connected(dialect: Dialect, mtu: u16, faults: u64, seed: u64) -> (Net, PeerIndex) {
        let mut net = Net::new(dialect, mtu, faults, seed);
        let peer = net.nodes[0].connect(0, B, 3, KEY).unwrap();
        assert_eq!(net.event(0), Event::Connected(peer));
        (net, peer)
    }
}

fn send(
    net: &mut Net,
    from: usize,
    to: PeerIndex,
    match_bits: u64,
    data: &[u8],
    context: u64,
) -> Result<(), NotSent> {
    let outgoing = Outgoing { match_bits, data: data.to_vec(), context, is_sync: false };
    net.nodes[from].send(net.now, to, outgoing)
}

fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7 + at / 251) as u8).collect()
}

#[test]
fn messages__of_all_lengths_in_order_and_once_in_both_dialects() {
    let lens = [0, 1, 32, 33, 128, 129, 1452, 1453, 4096, 4097, 8192, 20_000, 32_768];
    for (dialect, mtu) in [(BOTH[0], 9000), (BOTH[1], 1500), (BOTH[1], 9000)] {
        let (mut net, peer) = Net::connected(dialect, mtu, 0, 1);
        for (number, len) in lens.into_iter().enumerate() {
            let data = message(number, len);
            send(&mut net, 0, peer, number as u64, &data, 7).unwrap();
            let got = net.event(1);
            let from = PeerIndex(0);
            assert_eq!(got, Event::Received { peer: from, match_bits: number as u64, data });
        }
        (0..lens.len()).for_each(|_| {
            let sent = net.event(0);
            assert!(matches!(sent, Event::Sent { context: 7, .. }), "{dialect:?}: {sent:?}");
        });
        assert_eq!(net.nodes[1].counters(), Counters::default());
    }
}

#[test]
fn messages__arrive_once_and_in_order_whatever_the_network_does() {
    for seed in 0..60 {
        let dialect = BOTH[seed as usize % 2];
        let (mut net, peer) = Net::connected(dialect, 1500, 5 + seed % 20, seed);
        let (mut sent, mut next) = (0, 0);
        while next < 40 {
            while sent < 40 {
                let data = message(sent, sent * 97 % 6000);
                match send(&mut net, 0, peer, sent as u64, &data, sent as u64) {
                    Ok(()) => sent += 1,
                    Err(why) => {
                        assert_eq!(why, NotSent::Busy);
                        break;
                    }
                }
            }
            if let Event::Received { match_bits, data, peer } = net.event(1) {
                assert_eq!((match_bits, data), (next as u64, message(next, next * 97 % 6000)));
                // Answers carry acknowledgements.
                if next % 3 == 0 {
                    send(&mut net, 1, peer, 0, b"answer", 0).unwrap();
                }
                next += 1;
            }
        }
        let mut contexts = Vec::new();
        while contexts.len() < 40 {
            if let Event::Sent { context, .. } = net.event(0) {
                contexts.push(context);
            }
        }
        assert!(contexts.iter().copied().eq(0..40), "seed {seed}: {contexts:?}");
    }
}

#[test]
fn connect__refusals_say_why() {
    let mut net = Net::new(Dialect::Native, 1500, 0, 1);
    let wrong = net.nodes[0].connect(0, B, 3, KEY + 1).unwrap();
    assert_eq!(net.event(0), Event::Refused(wrong, BAD_KEY));
    let closed = net.nodes[0].connect(0, B, 4, KEY).unwrap();
    assert_eq!(net.event(0), Event::Refused(closed, 12));
    assert_eq!(send(&mut net, 0, wrong, 0, b"", 0), Err(NotSent::NotConnected));
    let peer = net.nodes[0].connect(0, B, 3, KEY).unwrap();
    assert_eq!(net.event(0), Event::Connected(peer));
    for _ in 0..WAITING_MAX {
        send(&mut net, 0, peer, 0, b"", 0).unwrap();
    }
    assert_eq!(send(&mut net, 0, peer, 0, b"", 0), Err(NotSent::Busy));
}

#[test]
fn fail__a_peer_that_is_silent_or_opened_anew() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    net.faults = 100;
    send(&mut net, 0, peer, 0, b"lost", 0).unwrap();
    assert_eq!(net.event(0), Event::Failed(peer, Failure::Silent));
    net.faults = 0;
    let peer = net.nodes[0].connect(net.now, B, 3, KEY).unwrap();
    assert_eq!(net.event(0), Event::Connected(peer));
    // Another endpoint in its place does not know the session.
    let settings = net.nodes[1].settings;
    net.nodes[1] = Node::new(settings, 3, KEY, 0x33);
    send(&mut net, 0, peer, 0, b"late", 0).unwrap();
    assert_eq!(net.event(0), Event::Failed(peer, Failure::Closed));
    let peer = net.nodes[0].connect(net.now, B, 3, KEY).unwrap();
    assert_eq!(net.event(0), Event::Connected(peer));
    send(&mut net, 0, peer, 5, b"new", 0).unwrap();
    let got = net.event(1);
    assert!(matches!(&got, Event::Received { match_bits: 5, .. }), "{got:?}");
}

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

/// Sends a message that is announced.
fn announce(net: &mut Net, to: PeerIndex, bits: u64, data: Vec<u8>, context: u64) {
    let outgoing = Outgoing { match_bits: bits, data, context, is_sync: true };
    net.nodes[0].send(net.now, to, outgoing).unwrap();
}

/// Runs until an announcement at the second endpoint.
fn offer(net: &mut Net) -> (Offer, u64) {
    match net.event(1) {
        Event::Announced { offer, match_bits } => (offer, match_bits),
        other => panic!("{other:?} and no announcement"),
    }
}

#[test]
fn pull__messages_of_all_lengths_in_both_dialects_and_with_all_blocks() {
    let lens = [1, 8, 4095, 4096, 4097, 32_768, 32_769, 131_072, 1_000_003];
    for (dialect, mtu, block, depth) in [
        (BOTH[0], 9000, 8, 4),
        (BOTH[0], 9000, 64, 1),
        (BOTH[1], 1500, 32, 4),
        (BOTH[1], 1500, 1, 1),
        (BOTH[1], 9000, 64, 8),
        (BOTH[1], 9000, 3, 2),
    ] {
        let mut net = Net::new(dialect, mtu, 0, 1);
        let settings = Settings { block, depth, ..net.nodes[0].settings };
        net.nodes = [Node::new(settings, 1, 0, 0x11), Node::new(settings, 3, KEY, 0x22)];
        let peer = net.nodes[0].connect(0, B, 3, KEY).unwrap();
        assert_eq!(net.event(0), Event::Connected(peer));
        for (number, len) in (0..).zip(lens) {
            let data = message(number, len);
            announce(&mut net, peer, number as u64, data.clone(), 70 + number as u64);
            let (offer, bits) = offer(&mut net);
            assert_eq!((offer.len, bits), (len as u32, number as u64));
            net.nodes[1].pull(net.now, offer, offer.len, 5);
            let len = data.len() as u32;
            let pulled = Event::Pulled { peer: offer.peer, context: 5, data, len };
            assert_eq!(net.event(1), pulled, "{dialect:?} {mtu} {block} {depth}");
            let sent = Event::Sent { peer, context: 70 + number as u64, len };
            assert_eq!(net.event(0), sent);
        }
        assert_eq!(net.nodes.map(|node| node.counters()), [Counters::default(); 2]);
    }
}

#[test]
fn pull__a_part_or_nothing_ends_the_send() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    for (want, got) in [(100, 100), (0, 0), (50_000, 50_000), (u32::MAX, 100_000)] {
        announce(&mut net, peer, 1, message(1, 100_000), 9);
        let (offer, _) = offer(&mut net);
        net.nodes[1].pull(net.now, offer, want, 5);
        let mut data = message(1, 100_000);
        data.truncate(got);
        let len = data.len() as u32;
        assert_eq!(net.event(1), Event::Pulled { peer: offer.peer, context: 5, data, len });
        assert_eq!(net.event(0), Event::Sent { peer, context: 9, len: got as u32 });
    }
    // A message that was taken is gone.
    announce(&mut net, peer, 1, message(1, 10), 9);
    let (offer, _) = offer(&mut net);
    net.nodes[1].pull(net.now, offer, 0, 5);
    assert!(matches!(net.event(0), Event::Sent { len: 0, .. }));
    net.nodes[1].pull(net.now, offer, 10, 6);
    assert!(matches!(net.event(1), Event::Pulled { context: 5, .. }));
    assert_eq!(net.event(1), Event::NotPulled { peer: offer.peer, context: 6 });
}

#[test]
fn pull__a_message_at_any_offset_of_its_frame() {
    for (dialect, mtu) in [(BOTH[0], 9000), (BOTH[1], 1500)] {
        for offset in [1, 100, 1467, 1468, 1469, 4095] {
            let (mut net, peer) = Net::connected(dialect, mtu, 0, 1);
            announce(&mut net, peer, 1, message(1, 70_000), 9);
            let (mut offer, _) = offer(&mut net);
            offer.window.offset = offset;
            net.nodes[1].pull(net.now, offer, 70_000, 5);
            let data = message(1, 70_000);
            let len = data.len() as u32;
            assert_eq!(net.event(1), Event::Pulled { peer: offer.peer, context: 5, data, len });
        }
    }
}

/// Messages of all kinds and lengths by a seed: even numbers wait until they are taken.
fn length_of(number: usize) -> usize {
    [10, 200, 7000, 40_000, 3, 150_000, 90, 33_000][number % 8] + number
}

/// Takes one event of the receiver; returns true if a message was received whole.
fn take(net: &mut Net, announced: &mut Vec<usize>, next: &mut usize) -> bool {
    let (number, data) = match net.event(1) {
        Event::Received { match_bits, data, .. } => {
            assert_eq!(match_bits as usize, *next, "the order");
            *next += 1;
            (match_bits as usize, data)
        }
        Event::Announced { offer, match_bits } => {
            assert_eq!(match_bits as usize, *next, "the order");
            *next += 1;
            announced.push(match_bits as usize);
            net.nodes[1].pull(net.now, offer, u32::MAX, match_bits);
            return false;
        }
        Event::Pulled { context, data, .. } => {
            announced.retain(|of| *of != context as usize);
            (context as usize, data)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(data, message(number, length_of(number)), "message {number}");
    true
}

#[test]
fn pull__messages_arrive_once_and_in_order_whatever_the_network_does() {
    const COUNT: usize = 40;
    for seed in 0..60 {
        let dialect = BOTH[seed as usize % 2];
        let (mut net, peer) = Net::connected(dialect, 1500, 1 + seed % 12, seed);
        for number in 0..COUNT {
            let data = message(number, length_of(number));
            let context = number as u64;
            let is_sync = number % 2 == 0;
            let outgoing = Outgoing { match_bits: context, data, context, is_sync };
            net.nodes[0].send(net.now, peer, outgoing).unwrap();
        }
        let (mut whole, mut next, mut announced) = (0, 0, Vec::new());
        while whole < COUNT {
            whole += usize::from(take(&mut net, &mut announced, &mut next));
        }
        let mut contexts = Vec::new();
        while contexts.len() < COUNT {
            if let Event::Sent { context, len, .. } = net.event(0) {
                assert_eq!(len as usize, length_of(context as usize));
                contexts.push(context);
            }
        }
        contexts.sort_unstable();
        assert!(contexts.iter().copied().eq(0..COUNT as u64), "seed {seed}: {contexts:?}");
        assert!(net.nodes[0].windows.has_room() && net.nodes[1].pulls.is_quiet());
    }
}

#[test]
fn send__more_messages_than_windows_wait_for_their_turn() {
    let (mut net, peer) = Net::connected(Dialect::Native, 9000, 0, 1);
    (0..600).for_each(|number| announce(&mut net, peer, number, vec![7; 10], number));
    let mut offers = VecDeque::new();
    while offers.len() < 256 {
        offers.push_back(offer(&mut net));
    }
    // All windows are in use: the next one is announced when one is free.
    net.round();
    assert_eq!(net.nodes[1].poll_event(), None);
    for number in 0..600 {
        if offers.is_empty() {
            offers.push_back(offer(&mut net));
        }
        let (offer, bits) = offers.pop_front().unwrap();
        assert_eq!(bits, number);
        net.nodes[1].pull(net.now, offer, 10, number);
        while !matches!(net.event(0), Event::Sent { context, .. } if context == number) {}
        while let Some(event) = net.nodes[1].poll_event() {
            if let Event::Announced { offer, match_bits } = event {
                offers.push_back((offer, match_bits));
            }
        }
    }
}

#[test]
fn pull__one_frame_lost_is_asked_for_before_the_timeout() {
    let (mut net, peer) = Net::connected(Dialect::Native, 9000, 0, 1);
    announce(&mut net, peer, 1, message(1, 2_000_000), 9);
    let (offer, _) = offer(&mut net);
    net.nodes[1].pull(net.now, offer, u32::MAX, 5);
    let (mut lost, mut asked, mut frame) = (0, 0, Vec::new());
    while net.nodes[1].events.is_empty() {
        while net.nodes[1].poll_transmit(&mut frame).is_some() {
            asked += usize::from(frame[2] == 41);
            net.nodes[0].handle(0, B, &core::mem::take(&mut frame));
        }
        while net.nodes[0].poll_transmit(&mut frame).is_some() {
            lost += usize::from(frame[2] == 42);
            if lost != 5 {
                net.nodes[1].handle(0, A, &frame);
            }
            frame.clear();
        }
    }
    let blocks = 2_000_000_usize.div_ceil(8968 * 32);
    assert_eq!((asked, net.now), (blocks + 1, 0), "one block was asked for twice");
    assert!(net.nodes[1].counters().duplicates > 0);
}

#[test]
fn fail__a_peer_that_dies_while_a_message_is_pulled_or_waits() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    announce(&mut net, peer, 1, message(1, 1_000_000), 9);
    announce(&mut net, peer, 2, message(2, 10), 10);
    let ((first, _), (second, _)) = (offer(&mut net), offer(&mut net));
    net.now += 20_000;
    net.nodes[1].handle_timeout(net.now);
    net.round();
    assert!(net.nodes[0].peers[0].next_timeout(&net.nodes[0].settings) > Some(1_000_000));
    net.nodes[1].pull(net.now, first, u32::MAX, 5);
    // The receiver dies while the sender, whose announcements have arrived, waits for it.
    net.faults = 100;
    assert_eq!(net.event(0), Event::Failed(peer, Failure::Silent));
    // The sender answers no more.
    assert_eq!(net.event(1), Event::NotPulled { peer: first.peer, context: 5 });
    assert_eq!(net.event(1), Event::Failed(first.peer, Failure::Silent));
    net.nodes[1].pull(net.now, second, u32::MAX, 6);
    assert_eq!(net.event(1), Event::NotPulled { peer: first.peer, context: 6 });
    assert!(net.nodes[0].windows.announcement(0).is_none() && net.nodes[1].pulls.is_quiet());
}

#[test]
fn fail__a_sender_that_was_opened_anew_has_no_window() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    announce(&mut net, peer, 1, message(1, 1_000_000), 9);
    let (first, _) = offer(&mut net);
    let settings = net.nodes[0].settings;
    net.nodes[0] = Node::new(settings, 1, 0, 0x44);
    net.nodes[1].pull(net.now, first, u32::MAX, 5);
    assert_eq!(net.event(1), Event::NotPulled { peer: first.peer, context: 5 });
}

#[test]
fn probe__a_silent_peer_that_lives_keeps_its_messages() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    announce(&mut net, peer, 1, message(1, 10), 9);
    let (offer, _) = offer(&mut net);
    for _ in 0..20 {
        // The endpoint asks, and gets answers.
        net.now = net.nodes[0].next_timeout().expect("a time to ask");
        net.nodes.iter_mut().for_each(|node| node.handle_timeout(net.now));
        net.round();
        net.round();
    }
    assert!(net.now > 60_000_000, "{}", net.now);
    assert!(net.nodes.iter().all(|node| node.events.is_empty()));
    // One that connected by itself asks without knowing the key.
    let outgoing = Outgoing { match_bits: 0, data: vec![1], context: 3, is_sync: true };
    net.nodes[1].send(net.now, offer.peer, outgoing).unwrap();
    assert!(matches!(net.event(0), Event::Announced { .. }));
    for _ in 0..20 {
        net.now = net.nodes[1].next_timeout().expect("a time to ask").max(net.now);
        net.nodes.iter_mut().for_each(|node| node.handle_timeout(net.now));
        net.round();
        net.round();
    }
    assert!(net.nodes.iter().all(|node| node.events.is_empty()));
}

#[test]
fn set_full__messages_wait_at_their_sender() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    net.nodes[1].set_full(true);
    send(&mut net, 0, peer, 1, b"one", 0).unwrap();
    announce(&mut net, peer, 2, vec![2; 10], 0);
    (0..10).for_each(|_| {
        net.round();
        net.now += 500_000;
        net.nodes[0].handle_timeout(net.now);
    });
    assert_eq!(net.nodes[1].poll_event(), None);
    net.nodes[1].set_full(false);
    assert!(matches!(net.event(1), Event::Received { match_bits: 1, .. }));
    assert!(matches!(net.event(1), Event::Announced { match_bits: 2, .. }));
}

#[test]
fn misdirected__an_endpoint_beside_others_refuses_nobody_by_itself() {
    let mut net = Net::new(Dialect::Native, 1500, 0, 1);
    let settings = Settings { is_shared: true, ..net.nodes[1].settings };
    net.nodes[1] = Node::new(settings, 3, KEY, 0x22);
    let peer = net.nodes[0].connect(0, B, 4, KEY).unwrap();
    let Event::Misdirected(misdirected) = net.event(1) else { panic!("no event") };
    assert_eq!((misdirected.number, net.nodes[1].counters()), (4, Counters::default()));
    net.nodes[1].refuse(misdirected);
    assert_eq!(net.event(0), Event::Refused(peer, 12));
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
    // The same request again is answered once at a time.
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
fn close__peers_learn_of_it_at_once() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    send(&mut net, 0, peer, 1, b"one", 0).unwrap();
    assert!(matches!(net.event(1), Event::Received { .. }));
    announce(&mut net, peer, 2, message(2, 100), 9);
    let (_, _) = offer(&mut net);
    net.nodes[1].close();
    while !matches!(net.event(0), Event::Failed(of, Failure::Closed) if of == peer) {}
    assert_eq!(net.now, 0);
    let late = send(&mut net, 0, peer, 3, b"late", 0);
    assert_eq!(late, Err(NotSent::Failed(Failure::Closed)));
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

/// Returns the frames that an endpoint sends now.
fn frames_of(net: &mut Net, of: usize) -> Vec<Vec<u8>> {
    let (mut all, mut frame) = (Vec::new(), Vec::new());
    while net.nodes[of].poll_transmit(&mut frame).is_some() {
        all.push(core::mem::take(&mut frame));
    }
    all
}

#[test]
fn fail__late_frames_of_an_endpoint_that_was_opened_anew_bring_nothing() {
    let mut net = Net::new(Dialect::Native, 1500, 0, 1);
    let settings = net.nodes[0].settings;
    let peer = net.nodes[0].connect(0, B, 3, KEY).unwrap();
    let mut late = frames_of(&mut net, 0);
    net.nodes[1].handle(0, A, &late[0]);
    assert_eq!(net.event(0), Event::Connected(peer));
    send(&mut net, 0, peer, 1, b"one", 0).unwrap();
    late.extend(frames_of(&mut net, 0));
    net.nodes[1].handle(0, A, &late[1]);
    assert!(matches!(net.event(1), Event::Received { match_bits: 1, .. }));
    net.nodes[0] = Node::new(settings, 1, 0, 0x44);
    let peer = net.nodes[0].connect(0, B, 3, KEY).unwrap();
    assert_eq!(net.event(0), Event::Connected(peer));
    assert_eq!(net.event(1), Event::Failed(PeerIndex(0), Failure::Closed));
    // The request and the message of the session before come once more.
    late.iter().for_each(|frame| net.nodes[1].handle(0, A, frame));
    assert_eq!(net.nodes[1].poll_event(), None);
    assert_eq!(net.nodes[1].counters().dropped, 2);
    send(&mut net, 0, peer, 2, b"two", 0).unwrap();
    assert!(matches!(net.event(1), Event::Received { match_bits: 2, .. }));
}

#[test]
fn disconnect__the_same_endpoints_connect_anew() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    send(&mut net, 0, peer, 1, b"one", 0).unwrap();
    let Event::Received { peer: back, .. } = net.event(1) else { panic!("no message") };
    for bits in 2..5 {
        send(&mut net, 1, back, bits, b"answer", 0).unwrap();
        while !matches!(net.event(0), Event::Received { match_bits, .. } if match_bits == bits) {}
    }
    // One side forgets the connection, and asks for another.
    net.nodes[0].disconnect(net.now, peer);
    net.nodes[0].connect(net.now, B, 3, KEY).unwrap();
    while net.event(0) != Event::Connected(peer) {}
    send(&mut net, 1, back, 7, b"again", 0).unwrap();
    while !matches!(net.event(0), Event::Received { match_bits: 7, .. }) {}
    send(&mut net, 0, peer, 8, b"forth", 0).unwrap();
    while !matches!(net.event(1), Event::Received { match_bits: 8, .. }) {}
    // The other side does not know that, and asks by itself.
    net.nodes[0].disconnect(net.now, peer);
    net.nodes[1].connect(net.now, A, 1, 0).unwrap();
    while net.event(1) != Event::Connected(back) {}
    send(&mut net, 1, back, 9, b"once more", 0).unwrap();
    while !matches!(net.event(0), Event::Received { match_bits: 9, .. }) {}
    send(&mut net, 0, peer, 10, b"forth", 0).unwrap();
    while !matches!(net.event(1), Event::Received { match_bits: 10, .. }) {}
}

/// Bytes that the caller keeps.
struct Kept(alloc::rc::Rc<Vec<u8>>);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn pull_into__lent_bytes_go_from_place_to_place() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    let data = alloc::rc::Rc::new(message(3, 200_000));
    let mut into = vec![0; 150_000];
    net.nodes[0].send_lent(0, peer, (1, 9), Box::new(Kept(data.clone()))).unwrap();
    let (offer, _) = offer(&mut net);
    net.nodes[1].pull_into(0, offer, 150_000, 5);
    let mut ended = None;
    while ended.is_none() {
        for at in [1, 0] {
            while let Some(Transmit { head, payload, .. }) = net.nodes[at].poll_transmit_parts() {
                let frame = [head, payload].concat();
                let mut place = |context, at: usize, bytes: &[u8]| {
                    assert_eq!(context, 5);
                    into[at..at + bytes.len()].copy_from_slice(bytes);
                };
                net.nodes[1 - at].handle_into(0, [A, B][at], &frame, &mut place);
            }
        }
        ended = net.nodes[1].poll_event();
    }
    let peer = offer.peer;
    assert_eq!(ended, Some(Event::Pulled { peer, context: 5, data: vec![], len: 150_000 }));
    assert!(into[..] == data[..150_000]);
    while !matches!(net.event(0), Event::Sent { context: 9, len: 150_000, .. }) {}
    assert_eq!(alloc::rc::Rc::strong_count(&data), 1, "the bytes were given back");
}

#[test]
fn own__bytes_that_the_caller_wants_back_are_copied() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    let data = alloc::rc::Rc::new(message(3, 50_000));
    // The second one waits for the window.
    for context in 0..300 {
        let lent = Box::new(Kept(data.clone()));
        net.nodes[0].send_lent(0, peer, (context, context), lent).unwrap();
    }
    (0..300).for_each(|context| net.nodes[0].own(context));
    assert_eq!(alloc::rc::Rc::strong_count(&data), 1);
    let (offer, _) = offer(&mut net);
    net.nodes[1].pull(net.now, offer, u32::MAX, 5);
    loop {
        match net.event(1) {
            Event::Pulled { data: came, .. } => return assert!(came == *data),
            event => assert!(matches!(event, Event::Announced { .. })),
        }
    }
}

#[test]
fn refusal__of_a_session_that_others_provoke_ends_no_connection() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    let ends = Ends { to: 3, from: 1, generation: 0 };
    for round in 0..20 {
        send(&mut net, 0, peer, round, b"one", 0).unwrap();
        // A frame with the sender's address, the right number and another session.
        let seq = net.nodes[0].peers[0].recv_next() & !0x3fff | (round + 1) as u16;
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
        let seq = net.nodes[0].peers[0].first_unacked();
        net.nodes[0].handle(net.now, B, &late(seq));
        assert!(matches!(net.event(1), Event::Received { match_bits: 7, .. }));
        assert!(matches!(net.event(0), Event::Sent { .. }), "{refusal:?}");
        send(&mut net, 0, peer, 8, b"two", 0).unwrap();
        assert!(matches!(net.event(1), Event::Received { match_bits: 8, .. }));
    }
}
