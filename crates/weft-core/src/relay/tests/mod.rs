#![allow(non_snake_case)]

use super::*;
use crate::wire::{Ack, Eager, Nop, PacketType};
use std::collections::BTreeMap as Map;

mod ends;
mod requests;
mod shares;
extern crate std;

/// A rank's side of one session: a relay, delivered packets, and payloads by handle.
struct Side {
    relay: Relay,
    ahead: Map<u32, HeaderBuf>,
    got: Vec<u64>,
    acks: u32,
    byes: u32,
    asked: u32,
    given: u32,
    back: u32,
    room: bool,
    shares: Shares,
    /// True if the share is used up, as far as the rank knows.
    held: bool,
}

/// A link of low delay, and one of high rate.
const LINKS: [LinkTo; 2] = [
    LinkTo { link: 0, latency_ns: 2_000, bytes_per_us: 600, mtu: 1456 },
    LinkTo { link: 1, latency_ns: 9_000, bytes_per_us: 3_000, mtu: 1456 },
];
const PEER: PeerId = PeerId(3);
const SESSION: [u32; 2] = [wire::session_number(3, 7), wire::session_number(3, 9)];

impl Side {
    fn new(me: usize, cfg: &Config, links: &[LinkTo]) -> Side {
        let (mine, other) = (EndpointId(1 + me as u64), EndpointId(2 - me as u64));
        let mut relay = Relay::new(mine, cfg.clone());
        let mut shares = Shares::default();
        assert!(relay.connect(PEER, (SESSION[me], shares.open(PEER)), other, links));
        let mut side = Side {
            relay,
            ahead: Map::new(),
            got: Vec::new(),
            acks: 0,
            byes: 0,
            asked: 0,
            given: 0,
            back: 0,
            room: true,
            shares,
            held: false,
        };
        // Has the effect of an exchange of HELLOs.
        for to in links {
            side.relay.flow(PEER).unwrap().on_hello(Instant(1), to.link, true, SESSION[1 - me]);
        }
        side
    }

    fn send(&mut self, tag: u64) {
        assert!(self.try_send(tag), "the share is used up");
    }

    /// Sends a packet; false if it has to wait until others have left.
    fn try_send(&mut self, tag: u64) -> bool {
        let me = SESSION
            .iter()
            .position(|&s| s != self.relay.flow(PEER).unwrap().conn.session.number_in);
        let common = Common { session: SESSION[me.unwrap()], credit: 2000, ..Common::default() };
        let header = wire::emit(&common, &Packet::Eager(Eager { tag }));
        self.held = !self.shares.take(PEER, header.as_slice());
        if self.held {
            self.shares.note_full(PEER);
            return false;
        }
        self.given += 1;
        let handle = self.given;
        self.relay.from_rank(PEER, header.as_slice(), handle).unwrap();
        true
    }

    /// Sends HELLO as the rank does.
    fn say_hello(&mut self, answer: bool) {
        let flow = self.relay.flow(PEER).unwrap();
        let me = EndpointId(3 - flow.conn.endpoint.0);
        let (session, flags) =
            if answer { (flow.conn.session.number_out, flags::REPLY) } else { (0, 0) };
        let common = Common { session, flags, ..Common::default() };
        let hello = Hello {
            src_eid: me.0,
            dst_eid: flow.conn.endpoint.0,
            session_offer: flow.conn.session.number_in,
            mtu: 1500,
            version_min: 1,
            version_max: 1,
            credit: 0,
        };
        let header = wire::emit(&common, &Packet::Hello(hello));
        self.relay.from_rank(PEER, header.as_slice(), 0).unwrap();
    }

    fn arrive(&mut self, now: Instant, link: u8, header: &HeaderBuf) {
        let mut arrival = self.relay.from_wire(
            now,
            link,
            header.as_slice(),
            if self.room { CallerRoom::ANY } else { CallerRoom::NONE },
        );
        let mut header = *header;
        loop {
            match arrival {
                Arrival::Deliver(from) => self.take(from, &header),
                Arrival::Hold(peer, seq) => {
                    assert_eq!(peer, PEER);
                    self.ahead.insert(seq.0, header);
                    return;
                }
                Arrival::Drop | Arrival::Piece(..) => return,
            }
            let Some(next) = self.relay.next_held() else { return };
            header = self.ahead.remove(&next.1 .0).expect("held");
            arrival = Arrival::Deliver(Some(next.0));
        }
    }

    fn take(&mut self, from: Option<PeerId>, header: &HeaderBuf) {
        assert_eq!(from, Some(PEER));
        match wire::parse(header.as_slice()).unwrap().1 {
            Packet::Eager(eager) => self.got.push(eager.tag),
            Packet::Ack(_) => self.acks += 1,
            Packet::Bye(_) => self.byes += 1,
            Packet::Hello(_) if Hello::is_answer(header.as_slice()) => {}
            Packet::Hello(_) => self.asked += 1,
            other => panic!("{other}"),
        }
    }

    fn collect(&mut self) {
        while self.relay.poll_free().is_some() {
            self.back += 1;
        }
        while let Some(RelayEvent::Left(peer, left)) = self.relay.events.front().copied() {
            self.relay.poll_event();
            self.held &= !self.shares.on_left(peer, left);
        }
    }
}

/// A network of `delay` that loses, repeats and reorders as the seed decides.
struct Net {
    seed: u64,
    loss: u64,
    under_way: Map<(Instant, u64), (usize, u8, HeaderBuf)>,
    count: u64,
    dead_link: Option<u8>,
    /// Numbered packets by link.
    sent: [u32; 2],
}

impl Net {
    fn new(seed: u64, loss: u64) -> Net {
        Net { seed: seed | 1, loss, under_way: Map::new(), count: 0, dead_link: None, sent: [0; 2] }
    }

    fn random(&mut self, below: u64) -> u64 {
        // xorshift64
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }

    fn put(&mut self, now: Instant, to: usize, out: &Out) {
        let (_, packet, _) = wire::parse(out.header.as_slice()).unwrap();
        self.sent[usize::from(out.link)] += u32::from(packet.is_sequenced());
        if self.dead_link == Some(out.link) {
            return;
        }
        let copies = match self.random(100) {
            n if n < self.loss => 0,
            n if n < self.loss * 3 / 2 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let jitter = if self.loss > 0 { self.random(30_000) } else { 0 };
            self.count += 1;
            let at = now + Duration::from_nanos(5_000 + 4_000 * u64::from(out.link) + jitter);
            self.under_way.insert((at, self.count), (to, out.link, out.header));
        }
    }
}

/// Lets time pass until nothing is in flight or due, at most a minute.
fn run(sides: &mut [Side; 2], net: &mut Net, now: &mut Instant) {
    let end = *now + Duration::from_secs(60);
    loop {
        for (me, side) in sides.iter_mut().enumerate() {
            while let Some(out) = side.relay.poll_transmit(*now) {
                net.put(*now, 1 - me, &out);
            }
            side.collect();
        }
        let arrival = net.under_way.keys().next().map(|k| k.0);
        let due = sides.iter().filter_map(|s| s.relay.next_timeout()).min();
        let Some(next) = [arrival, due].into_iter().flatten().min().filter(|&at| at < end) else {
            return;
        };
        *now = (*now).max(next);
        while let Some((&(at, n), _)) = net.under_way.first_key_value().filter(|(k, _)| k.0 <= *now)
        {
            let (to, link, header) = net.under_way.remove(&(at, n)).unwrap();
            sides[to].arrive(*now, link, &header);
            // A rank that may send nothing does not ask.
            while sides[to].asked > 0 && !sides[to].held {
                sides[to].asked -= 1;
                sides[to].say_hello(true);
            }
        }
        sides.iter_mut().for_each(|s| s.relay.handle_timeout(*now));
    }
}

fn pair(cfg: &Config) -> [Side; 2] {
    [0, 1].map(|me| Side::new(me, cfg, &LINKS[..1]))
}

#[test]
fn relay__delivers_once_and_in_order_under_loss() {
    for seed in 1..60 {
        for reliability in [crate::Reliability::Selective, crate::Reliability::GoBackN] {
            let cfg = Config { reliability, window: 32, ..Config::default() };
            let (mut sides, mut net) = (pair(&cfg), Net::new(seed * 0x9e37_79b9, seed % 20));
            let mut now = Instant(1_000_000);
            for round in 0..20 {
                for i in 0..15 {
                    sides[0].send(round * 15 + i);
                    sides[1].send(1_000 + round * 15 + i);
                }
                run(&mut sides, &mut net, &mut now);
            }
            let expected: [Vec<u64>; 2] = [(1_000..1_300).collect(), (0..300).collect()];
            for (side, expected) in sides.iter().zip(expected) {
                assert_eq!(side.got, expected, "seed {seed} {reliability}");
                assert!(side.relay.is_quiet() && side.ahead.is_empty());
                assert_eq!(side.given, side.back, "every payload comes back");
            }
        }
    }
}

#[test]
fn relay__a_rank_without_room_holds_up_its_own_flow_only_until_it_has_some() {
    let cfg = Config { window: 8, ..Config::default() };
    let (mut sides, mut net) = (pair(&cfg), Net::new(5, 0));
    let mut now = Instant(1);
    sides[1].room = false;
    (0..40).for_each(|tag| sides[0].send(tag));
    for _ in 0..50 {
        run_for(&mut sides, &mut net, &mut now, 2_000_000);
    }
    assert!(sides[1].got.is_empty() && sides[1].relay.stats().no_room > 0);
    assert_eq!(sides[0].back, 0, "nothing is acknowledged that was not taken");
    sides[1].room = true;
    run(&mut sides, &mut net, &mut now);
    assert_eq!(sides[1].got, (0..40).collect::<Vec<_>>());
}

/// Carries packets between the sides for `ns` nanoseconds.
fn run_for(sides: &mut [Side; 2], net: &mut Net, now: &mut Instant, ns: u64) {
    let end = *now + Duration::from_nanos(ns);
    while *now < end {
        for (me, side) in sides.iter_mut().enumerate() {
            while let Some(out) = side.relay.poll_transmit(*now) {
                net.put(*now, 1 - me, &out);
            }
            side.collect();
        }
        *now = *now + Duration::from_micros(100);
        let due: Vec<_> = net.under_way.keys().copied().filter(|k| k.0 <= *now).collect();
        for key in due {
            let (to, link, header) = net.under_way.remove(&key).unwrap();
            sides[to].arrive(*now, link, &header);
            // A rank that may send nothing does not ask.
            while sides[to].asked > 0 && !sides[to].held {
                sides[to].asked -= 1;
                sides[to].say_hello(true);
            }
        }
        sides.iter_mut().for_each(|s| s.relay.handle_timeout(*now));
    }
}

#[test]
fn relay__moves_to_another_link_when_one_dies() {
    for (dead, more) in [(0, 10), (1, 10), (0, 240), (1, 240)] {
        let cfg = Config::default();
        let mut sides = [0, 1].map(|me| Side::new(me, &cfg, &LINKS));
        let (mut net, mut now) = (Net::new(9, 0), Instant(1));
        (0..10).for_each(|tag| sides[0].send(tag));
        run(&mut sides, &mut net, &mut now);
        net.dead_link = Some(dead);
        for tag in 10..10 + more {
            sides[0].send(tag);
            // In one burst, and one packet at a time.
            if more == 10 {
                run(&mut sides, &mut net, &mut now);
            }
        }
        run(&mut sides, &mut net, &mut now);
        assert_eq!(sides[1].got, (0..10 + more).collect::<Vec<_>>(), "{dead} {more}");
        let moved: u64 = sides.iter().map(|s| s.relay.stats().moved).sum();
        assert_eq!(moved > 0, dead == 0 || more > 10, "{dead} {more}");
    }
}

#[test]
fn relay__a_link_that_was_left_is_used_again_when_it_answers() {
    let mut sides = [0, 1].map(|me| Side::new(me, &Config::default(), &LINKS));
    let (mut net, mut now) = (Net::new(9, 0), Instant(1));
    sides[0].say_hello(false);
    sides[0].send(0);
    run(&mut sides, &mut net, &mut now);
    assert_eq!(net.sent, [1, 0]);
    net.dead_link = Some(0);
    sides[0].send(1);
    run_for(&mut sides, &mut net, &mut now, 3_000_000_000);
    assert_eq!(sides[1].got.len(), 2);
    net.dead_link = None;
    let mut next_over_quick = |sides: &mut [Side; 2], ns: u64, tag| {
        run_for(sides, &mut net, &mut now, ns);
        let before = net.sent[0];
        sides[0].send(tag);
        run_for(sides, &mut net, &mut now, 10_000_000);
        assert_eq!(sides[1].got.len() as u64, tag + 1);
        net.sent[0] > before
    };
    assert!(!next_over_quick(&mut sides, 500_000_000, 2), "it was asked twice, in vain");
    assert!(next_over_quick(&mut sides, 4_500_000_000, 3));
    assert_eq!(sides[0].relay.next_timeout(), None, "nobody is asked for ever");
}

#[test]
fn relay__what_queues_takes_the_wide_link_and_nothing_overtakes_it() {
    let mut sides = [0, 1].map(|me| Side::new(me, &Config::default(), &LINKS));
    let (mut net, mut now) = (Net::new(9, 0), Instant(1));
    sides[0].send(0);
    run(&mut sides, &mut net, &mut now);
    assert_eq!(net.sent, [1, 0]);
    (1..200).for_each(|tag| sides[0].send(tag));
    run_for(&mut sides, &mut net, &mut now, 1);
    sides[0].send(200);
    run(&mut sides, &mut net, &mut now);
    assert_eq!(net.sent, [1, 200]);
    assert_eq!((sides[1].relay.stats().held, sides[1].relay.stats().duplicates), (0, 0));
    sides[0].send(201);
    run(&mut sides, &mut net, &mut now);
    assert_eq!(net.sent, [2, 200]);
    assert_eq!(sides[1].got, (0..202).collect::<Vec<_>>());
}

#[test]
fn relay__follows_the_peer_only_when_it_repeats_itself() {
    let mut sides = [0, 1].map(|me| Side::new(me, &Config::default(), &LINKS));
    let mut now = Instant(1);
    let mut copies = |sides: &mut [Side; 2], tag, count, at_once| {
        sides[0].send(tag);
        let out = sides[0].relay.poll_transmit(now).unwrap();
        let mut answer = None;
        for _ in 0..=count {
            (0..at_once).for_each(|_| sides[1].arrive(now, 1, &out.header));
            now = now + Duration::from_micros(300);
            sides[1].relay.handle_timeout(now);
            while let Some(out) = sides[1].relay.poll_transmit(now) {
                answer = Some(out);
            }
        }
        // The last copy arrives.
        sides[0].arrive(now, 0, &answer.expect("it says that it has it").header);
        run(sides, &mut Net::new(9, 0), &mut now);
        sides[1].relay.stats().moved
    };
    for tag in 0..10 {
        assert_eq!(copies(&mut sides, tag, 2, 1), 0);
    }
    // A relay that did not run finds several at once.
    assert_eq!(copies(&mut sides, 10, 1, 9), 0);
    assert_eq!(copies(&mut sides, 11, 3, 1), 1);
}

#[test]
fn from_wire__hostile_bytes_change_nothing() {
    let mut side = Side::new(0, &Config::default(), &LINKS[..1]);
    let mut net = Net::new(77, 0);
    for _ in 0..20_000 {
        let len = net.random(70) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| net.random(256) as u8).collect();
        if let [version, kind, ..] = &mut bytes[..] {
            (*version, *kind) = (wire::VERSION, (*kind % 18).max(2));
        }
        let arrival = side.relay.from_wire(Instant(1), 0, &bytes, CallerRoom::ANY);
        assert_eq!(arrival, Arrival::Drop);
    }
    assert!(!side.relay.has_output());
}

#[test]
fn from_wire__an_acknowledgement_of_nothing_sent_is_ignored() {
    let mut side = Side::new(0, &Config::default(), &LINKS[..1]);
    let common = Common { session: SESSION[0], ack: Seq(99), ..Common::default() };
    let header = wire::emit(&common, &Packet::Ack(Ack { sack: [u64::MAX; 4] }));
    assert_eq!(
        side.relay.from_wire(Instant(1), 0, header.as_slice(), CallerRoom::ANY),
        Arrival::Drop
    );
    assert_eq!(header.as_slice()[1], PacketType::Ack as u8);
    assert!(side.relay.is_quiet());
}

#[test]
fn pulse__acknowledgements_say_what_the_rank_does() {
    let mut side = Side::new(0, &Config::default(), &LINKS[..1]);
    let nop = Common { session: SESSION[0], flags: flags::ACKNOW, ..Common::default() };
    let asked = |side: &mut Side, now: u64, seq: u32| {
        let header = wire::emit(&Common { seq: Seq(seq), ..nop }, &Packet::Nop(Nop));
        side.relay.from_wire(Instant(now), 0, header.as_slice(), CallerRoom::ANY);
        let out = side.relay.poll_transmit(Instant(now)).expect("an answer");
        let (common, packet, _) = wire::parse(out.header.as_slice()).unwrap();
        assert!(matches!(packet, Packet::Ack(_)));
        Pulse::of_code(common.imm)
    };
    assert_eq!(asked(&mut side, 1_000_000, 0), Pulse::Runs);
    for (seq, pulse) in (1..).zip([Pulse::Stopped, Pulse::Unseen, Pulse::Ended, Pulse::Runs]) {
        side.relay.set_pulse(pulse);
        assert_eq!(asked(&mut side, 1_000_000 * u64::from(seq + 1), seq), pulse);
    }
}
