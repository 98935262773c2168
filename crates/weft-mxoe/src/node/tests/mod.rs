//! Two endpoints over a network that loses, doubles and reorders frames, by a seed.
#![allow(non_snake_case)]

use super::*;
use alloc::vec;

mod ends;
mod hostile;
mod pulls;

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

/// Returns the frames that an endpoint sends now.
fn frames_of(net: &mut Net, of: usize) -> Vec<Vec<u8>> {
    let (mut all, mut frame) = (Vec::new(), Vec::new());
    while net.nodes[of].poll_transmit(&mut frame).is_some() {
        all.push(core::mem::take(&mut frame));
    }
    all
}
