#![allow(non_snake_case)]

use super::*;
use crate::wire::{Ack, Eager, Nop, PacketType};
use std::collections::BTreeMap as Map;
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
        let me = SESSION.iter().position(|&s| s != self.relay.flow(PEER).unwrap().session_in);
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
        let me = EndpointId(3 - flow.endpoint.0);
        let (session, flags) = if answer { (flow.session_out, flags::REPLY) } else { (0, 0) };
        let common = Common { session, flags, ..Common::default() };
        let hello = Hello {
            src_eid: me.0,
            dst_eid: flow.endpoint.0,
            session_offer: flow.session_in,
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

/// Does the same as `run`, for `ns` at most.
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
fn relay__a_probe_is_answered_though_the_rank_computes() {
    let (mut sides, mut net) = (pair(&Config::default()), Net::new(3, 0));
    let mut now = Instant(1);
    let common = Common { session: SESSION[1], flags: flags::ACKNOW, ..Common::default() };
    let header = wire::emit(&common, &Packet::Nop(Nop));
    sides[0].relay.from_rank(PEER, header.as_slice(), 0).unwrap();
    // The rank of the other side accepts nothing: the caller consumes NOPs.
    while let Some(out) = sides[0].relay.poll_transmit(now) {
        let arrival = sides[1].relay.from_wire(now, 0, out.header.as_slice(), CallerRoom::ANY);
        assert_eq!(arrival, Arrival::Deliver(Some(PEER)));
    }
    run(&mut sides, &mut net, &mut now);
    assert_eq!(sides[0].acks, 1);
}

#[test]
fn relay__answers_for_a_rank_whose_answer_would_wait_behind_its_data() {
    let mut sides = pair(&Config { window: 8, ..Config::default() });
    let mut now = Instant(1_000_000);
    // The first has answered, but the answer was lost, and sent more than is accepted: the second
    // does not know its session number, and acknowledges nothing.
    sides[0].say_hello(true);
    assert!(sides[0].relay.poll_transmit(now).is_some());
    sides[1].relay.flow(PEER).unwrap().session_out = 0;
    let (mut net, mut sent) = (Net::new(1, 0), 0);
    for _ in 0..2 {
        while sides[0].try_send(sent) {
            sent += 1;
        }
        run_for(&mut sides, &mut net, &mut now, 50_000_000);
    }
    assert_eq!((sides[1].got.len(), sides[0].back), (8, 0));
    assert!(sides[0].held && sent == u64::from(SHARE), "too few have left to tell of");
    // It asks again. The rank of the first would answer, but none of its packets is accepted.
    sides[1].say_hello(false);
    run_for(&mut sides, &mut net, &mut now, 50_000_000);
    assert_eq!(sides[1].got.len() as u64, sent);
    sides[0].collect();
    assert_eq!(u64::from(sides[0].back), sent);
    // The relay does not answer for a rank that has sent nothing: that rank has not answered yet.
    assert!(sides[1].relay.flow(PEER).unwrap().answer().is_none());
}

#[test]
fn relay__the_last_word_comes_after_everything_else() {
    for seed in 1..20 {
        let cfg = Config { window: 8, ..Config::default() };
        let (mut sides, mut net) = (pair(&cfg), Net::new(seed, 20));
        let mut now = Instant(1);
        (0..50).for_each(|tag| sides[0].send(tag));
        sides[0].relay.rank_gone();
        net.loss = 20;
        run(&mut sides, &mut net, &mut now);
        assert_eq!(sides[1].got, (0..50).collect::<Vec<_>>(), "seed {seed}");
        assert!(sides[0].relay.is_quiet());
        assert!((1..=8).contains(&sides[1].byes), "said four times; the network may repeat it");
    }
}

#[test]
fn relay__the_last_packet_is_not_repeated_to_a_peer_that_has_ended_too() {
    let (mut sides, mut net) = (pair(&Config::default()), Net::new(1, 0));
    let mut now = Instant(1);
    (0..3).for_each(|tag| sides[0].send(tag));
    run(&mut sides, &mut net, &mut now);
    sides[0].relay.rank_gone();
    assert!(!sides[0].relay.sent_byes());
    let said = sides[0].relay.poll_transmit(now);
    assert!(said.is_some_and(|out| out.header.as_slice()[1] == PacketType::Bye as u8));
    assert!(sides[0].relay.poll_transmit(now).is_none());
    assert!(!sides[0].relay.is_quiet() && sides[0].relay.sent_byes());
    let common = Common { session: SESSION[0], ..Common::default() };
    let bye = wire::emit(&common, &Packet::Bye(Bye { reason: reason::CLOSED }));
    sides[0].relay.from_wire(now, 0, bye.as_slice(), CallerRoom::ANY);
    assert!(sides[0].relay.is_quiet());
}

#[test]
fn relay__the_last_word_waits_without_a_timer_for_what_came_behind_it() {
    let (mut sides, mut net) = (pair(&Config::default()), Net::new(1, 0));
    let mut now = Instant(1);
    sides[0].send(0);
    run(&mut sides, &mut net, &mut now);
    let relay = &mut sides[0].relay;
    relay.rank_gone();
    assert!(relay.poll_transmit(now).is_some());
    // The answer of its counters; no peer accepts it.
    assert!(relay.inject(PEER, &Packet::Nop(Nop), 0, 0));
    let end = now + Duration::from_millis(500);
    let mut times = 0;
    while now < end {
        while relay.poll_transmit(now).is_some() {}
        now = relay.next_timeout().unwrap_or(end);
        relay.handle_timeout(now);
        times += 1;
    }
    assert!(times < 100, "{times} times in half a second");
}

/// Makes a fetch-and-add of a peer with this session number.
fn atomic(session: u32, seq: u32) -> HeaderBuf {
    let add = crate::wire::Atomic { code: wire::code::FETCH_ADD, ..Default::default() };
    let common = Common { session, seq: Seq(seq), imm: seq, ..Common::default() };
    wire::emit(&common, &Packet::Atomic(add))
}

/// Handles a request as a rank's agent does: true if it is answered.
fn ask(relay: &mut Relay, now: Instant, peer: PeerId, session: u32, seq: u32) -> bool {
    let arrival = relay.from_wire(now, 0, atomic(session, seq).as_slice(), CallerRoom::ANY);
    let taken = arrival == Arrival::Deliver(Some(peer));
    if taken {
        relay.reply(peer, seq, &Reply { value: seq.into(), status: wire::status::OK });
    }
    taken
}

#[test]
fn relay__a_peer_that_is_silent_is_given_up_in_time_though_the_rank_goes_on_sending() {
    let cfg = Config { peer_timeout_ms: 3000, ..Config::default() };
    let (mut sides, mut now) = (pair(&cfg), Instant(1));
    for tag in 0..7 {
        sides[0].send(tag);
        for _ in 0..50 {
            now = now + Duration::from_millis(10);
            sides[0].relay.handle_timeout(now);
            while sides[0].relay.poll_transmit(now).is_some() {}
        }
    }
    let lost = sides[0].relay.events.iter().any(|e| matches!(e, RelayEvent::Lost(PEER, _)));
    assert!(lost, "nothing was heard for 3.5 s");
}

#[test]
fn relay__a_request_that_overtakes_the_hello_is_answered_when_that_has_come() {
    let now = Instant(1);
    let mut relay = Relay::new(EndpointId(1), Config::default());
    assert!(relay.connect(PEER, (SESSION[0], 0), EndpointId(2), &LINKS[..1]));
    assert!(ask(&mut relay, now, PEER, SESSION[0], 0));
    let grant = Packet::Grant(wire::Grant::default());
    assert!(!relay.inject(PEER, &grant, 0, 0), "to whom?");
    assert!(relay.poll_transmit(now).is_none() && relay.poll_event().is_none());
    relay.handle_timeout(now + Duration::from_secs(1));
    assert!(relay.poll_transmit(now).is_none(), "nobody knows how the peer numbers this session");
    let hello = Hello {
        src_eid: 2,
        dst_eid: 1,
        session_offer: SESSION[1],
        mtu: 1500,
        version_min: 1,
        version_max: 1,
        credit: 0,
    };
    let common = Common { session: SESSION[0], flags: flags::REPLY, ..Common::default() };
    let header = wire::emit(&common, &Packet::Hello(hello));
    assert_eq!(
        relay.from_wire(now, 0, header.as_slice(), CallerRoom::ANY),
        Arrival::Deliver(Some(PEER))
    );
    assert_eq!(relay.poll_event(), Some(RelayEvent::Room), "the agent tries again");
    assert!(relay.inject(PEER, &grant, 0, 0));
    for kind in [PacketType::Reply, PacketType::Grant] {
        let out = relay.poll_transmit(now).unwrap();
        let (common, packet, _) = wire::parse(out.header.as_slice()).unwrap();
        assert_eq!((common.session, packet.packet_type()), (SESSION[1], kind));
    }
}

#[test]
fn relay__a_peer_that_takes_no_answers_is_not_served_alone_and_no_request_is_lost() {
    const PEERS: u32 = 300;
    let mut relay = Relay::new(EndpointId(1), Config { window: 64, ..Config::default() });
    let mut now = Instant(1);
    let session = |peer| wire::session_number(peer, 7);
    for peer in 0..=PEERS {
        let endpoint = EndpointId(100 + u64::from(peer));
        assert!(relay.connect(PeerId(peer), (session(peer), 0), endpoint, &LINKS[..1]));
        relay.flow(PeerId(peer)).unwrap().on_hello(now, 0, true, 9);
    }
    // All but the last accept nothing, and ask until their requests are refused.
    let most = ANSWERS_MAX + 64;
    let mut asked = [0; PEERS as usize];
    for _ in 0..2 * ANSWERS_MAX {
        for (peer, next) in (0..).zip(&mut asked) {
            *next += u32::from(ask(&mut relay, now, PeerId(peer), session(peer), *next));
        }
        while relay.poll_transmit(now).is_some() {}
    }
    assert!(asked.iter().all(|&n| (ANSWERS_MAX..=most).contains(&n)), "{asked:?}");
    // Answers do not count against the rank: there are no more packets than the windows hold.
    assert!(relay.kept_bytes() <= (PEERS * 64) as usize * size_of::<Kept>());
    // A peer that accepts answers is served.
    for n in 0..10_000 {
        assert!(ask(&mut relay, now, PeerId(PEERS), session(PEERS), n));
        while relay.poll_transmit(now).is_some() {}
        let common = Common { session: session(PEERS), ack: Seq(n + 1), ..Common::default() };
        let ack = wire::emit(&common, &Packet::Ack(Ack { sack: [0; 4] }));
        relay.from_wire(now, 0, ack.as_slice(), CallerRoom::ANY);
    }
    // One of the others accepts answers again, and repeats refused requests: each is answered once.
    let (mut next, mut answers) = (asked[7], 0);
    let end = 3 * ANSWERS_MAX;
    while answers < end {
        while next < end && ask(&mut relay, now, PeerId(7), session(7), next) {
            next += 1;
        }
        now = now + Duration::from_millis(5);
        relay.handle_timeout(now);
        while let Some(out) = relay.poll_transmit(now).filter(|out| out.peer == PeerId(7)) {
            let (common, packet, _) = wire::parse(out.header.as_slice()).unwrap();
            if common.seq == Seq(answers) && matches!(packet, Packet::Reply(_)) {
                assert_eq!(common.imm, answers);
                answers += 1;
            }
        }
        let common = Common { session: session(7), ack: Seq(answers), ..Common::default() };
        let ack = wire::emit(&common, &Packet::Ack(Ack { sack: [0; 4] }));
        relay.from_wire(now, 0, ack.as_slice(), CallerRoom::ANY);
    }
}

#[test]
fn inject__is_in_vain_at_a_bound_until_there_is_room() {
    let mut side = Side::new(0, &Config { window: 8, ..Config::default() }, &LINKS[..1]);
    let (mut now, mut count) = (Instant(1), 0);
    while side.relay.inject(PEER, &Packet::Nop(Nop), 0, 0) {
        count += 1;
    }
    assert_eq!(count, INJECTED_MAX);
    // Other peers are served, and the rank itself.
    side.send(1);
    for seq in 0..20 {
        let mut sent = 0;
        while side.relay.poll_transmit(now).is_some() {
            sent += 1;
        }
        assert!(sent > 0);
        let room = core::iter::from_fn(|| side.relay.poll_event());
        assert_eq!(room.filter(|e| *e == RelayEvent::Room).count(), usize::from(seq == 0));
        let common = Common { session: SESSION[0], ack: Seq(seq + 8), ..Common::default() };
        let ack = wire::emit(&common, &Packet::Ack(Ack { sack: [0; 4] }));
        side.relay.from_wire(now, 0, ack.as_slice(), CallerRoom::ANY);
        now = now + Duration::from_micros(10);
    }
    assert!(side.relay.inject(PEER, &Packet::Nop(Nop), 0, 0));
}

#[test]
fn relay__a_silent_peer_is_given_up_and_named() {
    let cfg = Config { peer_timeout_ms: 2_000, ..Config::default() };
    let (mut sides, mut net) = (pair(&cfg), Net::new(1, 0));
    let mut now = Instant(1);
    net.dead_link = Some(0);
    (0..3).for_each(|tag| sides[0].send(tag));
    run(&mut sides, &mut net, &mut now);
    let Some(RelayEvent::Lost(PEER, after)) = sides[0].relay.poll_event() else {
        panic!("no event")
    };
    assert!((2_000..4_000).contains(&after), "{after}");
    assert_eq!(sides[0].relay.peers(), 0);
    assert_eq!(sides[0].back, 3);
}

/// Runs both relays for so long, a millisecond at a time; loses packets for which `drops` is true.
fn drive(sides: &mut [Side; 2], now: &mut Instant, ms: u32, drops: impl Fn(&HeaderBuf) -> bool) {
    for _ in 0..ms {
        *now = *now + Duration::from_millis(1);
        for from in [0, 1] {
            sides[from].relay.handle_timeout(*now);
            while let Some(out) = sides[from].relay.poll_transmit(*now) {
                if !drops(&out.header) {
                    sides[1 - from].arrive(*now, 0, &out.header);
                }
            }
        }
    }
}

#[test]
fn relay__a_peer_that_is_heard_is_given_up_when_packets_do_not_get_through() {
    let cfg = Config { peer_timeout_ms: 2_000, ..Config::default() };
    let (mut sides, mut now) = (pair(&cfg), Instant(1));
    let eager = |header: &HeaderBuf| header.as_slice()[1] == PacketType::Eager as u8;
    sides[0].send(7);
    for _ in 0..30 {
        // The peer is heard, but its packets acknowledge nothing of the lost one.
        let nop = wire::emit(
            &Common { session: SESSION[0], ..Common::default() },
            &Packet::Ack(Ack::default()),
        );
        sides[0].arrive(now, 0, &nop);
        drive(&mut sides, &mut now, 100, eager);
    }
    let event = sides[0].relay.events.iter().find(|e| matches!(e, RelayEvent::Stuck(..)));
    let Some(&RelayEvent::Stuck(PEER, after, PacketType::Eager, 1)) = event else {
        panic!("{event:?}")
    };
    assert!((2_000..2_200).contains(&after), "{after}");
}

#[test]
fn relay__a_packet_that_waits_for_room_at_the_other_agent_is_no_lack_of_progress() {
    let cfg = Config { peer_timeout_ms: 2_000, ..Config::default() };
    let (mut sides, mut now) = (pair(&cfg), Instant(1));
    sides[1].room = false;
    (0..3).for_each(|tag| sides[0].send(tag));
    drive(&mut sides, &mut now, 10_000, |_| false);
    let lost = |e: &RelayEvent| matches!(e, RelayEvent::Stuck(..) | RelayEvent::Lost(..));
    assert!(!sides[0].relay.events.iter().any(lost));
    sides[1].room = true;
    drive(&mut sides, &mut now, 2_000, |_| false);
    assert_eq!(sides[1].got, [0, 1, 2]);
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

/// A second peer, which accepts packets.
const OTHER: PeerId = PeerId(5);

/// Makes a packet of the rank: numbered data, or an acknowledgement without a number.
fn of_rank(numbered: bool) -> HeaderBuf {
    let common = Common { session: SESSION[1], ..Common::default() };
    match numbered {
        true => wire::emit(&common, &Packet::Eager(Eager { tag: 1 })),
        false => wire::emit(&common, &Packet::Ack(Ack { sack: [0; 4] })),
    }
}

#[test]
fn relay__a_peer_that_takes_nothing_uses_up_its_own_share() {
    let mut side = Side::new(0, &Config { window: 8, ..Config::default() }, &LINKS[..1]);
    let (now, data) = (Instant(1), of_rank(true));
    let session = wire::session_number(5, 7);
    let given = side.shares.open(OTHER);
    assert!(side.relay.connect(OTHER, (session, given), EndpointId(77), &LINKS[..1]));
    let mut out = [0; 2];
    for _ in 0..2_000 {
        for (at, peer) in [PEER, OTHER].into_iter().enumerate() {
            if side.shares.take(peer, data.as_slice()) {
                side.relay.from_rank(peer, data.as_slice(), 0).unwrap();
            } else {
                side.shares.note_full(peer);
            }
            while let Some(sent) = side.relay.poll_transmit(now) {
                assert_eq!(sent.peer, [PEER, OTHER][at]);
                out[at] += 1;
            }
        }
        // The other acknowledges everything that arrived.
        let common = Common { session, ack: Seq(out[1]), ..Common::default() };
        let ack = wire::emit(&common, &Packet::Ack(Ack { sack: [0; 4] }));
        side.relay.from_wire(now, 0, ack.as_slice(), CallerRoom::ANY);
        side.collect();
    }
    assert_eq!(out, [8, 2_000]);
    let waiting = side.relay.flow(PEER).unwrap().backlog.len() as u32;
    assert_eq!(waiting, SHARE - 8, "what it was told of is no more than it was given");
}

#[test]
fn relay__what_is_beyond_the_share_is_refused_and_its_payload_free() {
    let mut side = Side::new(0, &Config { window: 8, ..Config::default() }, &LINKS[..1]);
    let data = of_rank(true);
    let hello = side.relay.flow(PEER).unwrap().session_in;
    for i in 0..SHARE {
        side.relay.from_rank(PEER, data.as_slice(), i + 1).unwrap();
    }
    for _ in 0..10 {
        let refused = side.relay.from_rank(PEER, data.as_slice(), 9_999);
        assert_eq!(refused, Err(WireError::Field));
    }
    // The number of waiting packets without numbers is bounded too.
    for _ in 0..1_000 {
        side.relay.from_rank(PEER, of_rank(false).as_slice(), 0).unwrap();
        let common = Common { session: hello, ..Common::default() };
        let bye = wire::emit(&common, &Packet::Bye(Bye { reason: reason::CLOSED }));
        side.relay.from_rank(PEER, bye.as_slice(), 0).unwrap();
    }
    assert_eq!(side.relay.kept.len() as u32, SHARE + 1);
    side.relay.disconnect(PEER);
    assert_eq!(side.relay.kept.len(), 0);
    side.collect();
    assert_eq!(side.back, SHARE);
}

#[test]
fn relay__the_rank_learns_now_and_then_of_a_peer_that_is_slow() {
    let cfg = Config { window: 8, peer_timeout_ms: 1_600, ..Config::default() };
    let (mut sides, mut net) = (pair(&cfg), Net::new(5, 0));
    let mut now = Instant(1);
    // Its rank accepts nothing: the other side gets only acknowledgements without news.
    sides[1].room = false;
    (0..40).for_each(|tag| sides[0].send(tag));
    run_for(&mut sides, &mut net, &mut now, 3_200_000_000);
    assert!((3..=32).contains(&sides[0].acks), "{}", sides[0].acks);
    assert_eq!(sides[0].relay.peers(), 1);
}

#[test]
fn relay__a_question_for_another_rank_changes_nothing() {
    let (mut sides, mut net) = (pair(&Config::default()), Net::new(3, 0));
    let mut now = Instant(1);
    let hello = Hello {
        src_eid: 1,
        dst_eid: 99,
        session_offer: wire::session_number(3, 1_000),
        mtu: 1500,
        version_min: 1,
        version_max: 1,
        credit: 0,
    };
    let header = wire::emit(&Common::default(), &Packet::Hello(hello));
    let arrival = sides[1].relay.from_wire(now, 0, header.as_slice(), CallerRoom::ANY);
    assert_eq!((arrival, sides[1].relay.has_output()), (Arrival::Drop, false));
    (0..100).for_each(|tag| sides[1].send(tag));
    run(&mut sides, &mut net, &mut now);
    assert_eq!(sides[0].got, (0..100).collect::<Vec<_>>());
}

#[test]
fn shares__what_the_agent_says_is_believed_only_if_it_can_be() {
    let (mut shares, data) = (Shares::default(), of_rank(true));
    shares.open(PEER);
    shares.start_at(PEER, u32::MAX - 100);
    assert_eq!(shares.open(PEER), u32::MAX - 100);
    let send = |shares: &mut Shares| shares.take(PEER, data.as_slice());
    for _ in 0..SHARE {
        assert!(send(&mut shares));
    }
    assert!(!send(&mut shares) && shares.take(PEER, of_rank(false).as_slice()));
    assert!(shares.note_full(PEER) && !shares.note_full(PEER), "said once");
    let first = u32::MAX - 100;
    for none in [first, first.wrapping_add(SHARE + 1), first - 1, first.wrapping_add(1 << 31)] {
        assert!(!shares.on_left(PEER, none), "{none}");
    }
    assert!(!send(&mut shares));
    assert!(shares.on_left(PEER, first.wrapping_add(64)));
    assert!(!shares.on_left(PEER, first.wrapping_add(70)), "it has room already");
    assert_eq!((0..SHARE).filter(|_| send(&mut shares)).count(), 70);
    // A packet that is not handed over does not count.
    shares.give_back(PEER, data.as_slice());
    assert!(send(&mut shares) && !send(&mut shares));
    // A packet to a forgotten peer waits for nothing, and does not count.
    assert!(shares.note_full(PEER) && shares.close(PEER) && !shares.close(PEER));
    assert!((0..1_000).all(|_| send(&mut shares)) && !shares.note_full(PEER));
    shares.give_back(PEER, data.as_slice());
    assert!(!shares.on_left(PEER, first.wrapping_add(SHARE)));
    // After opening again nothing waits, and earlier reports are stale.
    let given = shares.open(PEER);
    assert_eq!(given, first.wrapping_add(SHARE + 70));
    assert!(!shares.on_left(PEER, given.wrapping_sub(10)));
    assert_eq!((0..1_000).filter(|_| send(&mut shares)).count() as u32, SHARE);
    // A peer that was never opened is unknown.
    assert!(!shares.on_left(PeerId(900), 5) && shares.take(PeerId(900), data.as_slice()));
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
