//! Two endpoints over a network that loses, doubles and reorders frames, by a seed.
#![allow(non_snake_case)]

use super::*;

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
            while let Some((to, frame)) = node.poll_transmit() {
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
            let idle = self.nodes.iter().all(|node| node.frames.is_empty());
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
            net.nodes[0].send(net.now, peer, number as u64, &data, 7).unwrap();
            let got = net.event(1);
            let from = PeerIndex(0);
            assert_eq!(got, Event::Received { peer: from, match_bits: number as u64, data });
        }
        (0..lens.len()).for_each(|_| {
            assert_eq!(net.event(0), Event::Sent { peer, context: 7 }, "{dialect:?}");
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
                match net.nodes[0].send(net.now, peer, sent as u64, &data, sent as u64) {
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
                    net.nodes[1].send(net.now, peer, 0, b"answer", 0).unwrap();
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
    assert_eq!(net.nodes[0].send(0, wrong, 0, b"", 0), Err(NotSent::NotConnected));
    let peer = net.nodes[0].connect(0, B, 3, KEY).unwrap();
    assert_eq!(net.event(0), Event::Connected(peer));
    let long = [0; 32_769];
    assert_eq!(net.nodes[0].send(0, peer, 0, &long, 0), Err(NotSent::TooLong));
    for _ in 0..WINDOW {
        net.nodes[0].send(0, peer, 0, b"", 0).unwrap();
    }
    assert_eq!(net.nodes[0].send(0, peer, 0, b"", 0), Err(NotSent::Busy));
}

#[test]
fn fail__a_peer_that_is_silent_or_opened_anew() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    net.faults = 100;
    net.nodes[0].send(0, peer, 0, b"lost", 0).unwrap();
    assert_eq!(net.event(0), Event::Failed(peer));
    net.faults = 0;
    let peer = net.nodes[0].connect(net.now, B, 3, KEY).unwrap();
    assert_eq!(net.event(0), Event::Connected(peer));
    // Another endpoint in its place does not know the session.
    let settings = net.nodes[1].settings;
    net.nodes[1] = Node::new(settings, 3, KEY, 0x33);
    net.nodes[0].send(net.now, peer, 0, b"late", 0).unwrap();
    assert_eq!(net.event(0), Event::Failed(peer));
    let peer = net.nodes[0].connect(net.now, B, 3, KEY).unwrap();
    assert_eq!(net.event(0), Event::Connected(peer));
    net.nodes[0].send(net.now, peer, 5, b"new", 0).unwrap();
    let got = net.event(1);
    assert!(matches!(&got, Event::Received { match_bits: 5, .. }), "{got:?}");
}

#[test]
fn handle__hostile_frames_are_dropped_and_change_nothing() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    net.nodes[0].send(0, peer, 1, &message(1, 5000), 0).unwrap();
    let mut good = Vec::new();
    while let Some((_, frame)) = net.nodes[0].poll_transmit() {
        good.push(frame);
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
        while net.nodes[1].poll_transmit().is_some() {}
        net.nodes[1].handle_timeout(round);
        assert!(net.nodes[1].peers.len() <= PEERS_MAX);
        net.nodes[1].events.clear();
    }
    assert!(net.nodes[1].counters().dropped > 10_000);
}
