//! Agents of several hosts on a simulated wire that loses, repeats and overtakes: multicast and
//! fetch-and-add in their ranks' place, over the relay that they run on.
#![allow(non_snake_case)]

use super::counters::Counters;
use super::groups::{Groups, Port, WINDOW};
use super::payloads::Payloads;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use weft_core::group::tree::{self, Tree};
use weft_core::relay::{Arrival, LinkTo, Relay, RelayEvent, Room};
use weft_core::wire::{self, code, flags, Common, HeaderBuf, Hello, Packet};
use weft_core::{Config, EndpointId, Instant, PeerId};
use weft_link::agent::{Control, GroupRole};
use weft_link::rng::Rng;
use weft_link::Bytes;

const GROUP: u64 = 77;
const KEY: u64 = 5;
const LINK: LinkTo = LinkTo { link: 0, latency_ns: 2_000, bytes_per_us: 600 };
/// Simulated time after which something has gone wrong.
const LONG: Instant = Instant(60_000_000_000);
const US: Duration = Duration::from_micros(1);

fn endpoint(host: usize) -> EndpointId {
    EndpointId(100 + host as u64)
}

/// The session number in packets to a host from another, which every host calls by its number.
fn session(from: usize) -> u32 {
    wire::session_number(from as u32, 7)
}

/// An agent with one rank, as a seat has them.
struct Host {
    me: usize,
    relay: Relay,
    payloads: Payloads,
    groups: Groups,
    counters: Counters,
    held: BTreeMap<(u32, u32), (HeaderBuf, Vec<u8>)>,
    /// What the rank was told, and what it has done with it.
    told: VecDeque<Control>,
    got: Vec<u32>,
    granted: u32,
    named: Vec<(u32, bool)>,
    /// Answers to the rank's requests: number, value.
    answers: Vec<(u32, u64)>,
    lost: Vec<PeerId>,
}

/// What groups reach the outside by.
struct Outside<'a>(&'a mut Relay, &'a mut Payloads, &'a mut VecDeque<Control>, Instant);

impl Port for Outside<'_> {
    fn send(&mut self, peer: PeerId, packet: &Packet, bytes: &[u8]) -> bool {
        let handle = self.1.keep(Bytes::from_slice(bytes));
        let taken = self.0.inject(self.3, peer, packet, 0, handle);
        if !taken {
            self.1.release(handle);
        }
        taken
    }

    fn tell(&mut self, message: Control) {
        self.2.push_back(message);
    }

    fn has_room(&self) -> bool {
        self.2.len() < 64
    }
}

impl Host {
    fn new(me: usize, hosts: usize) -> Host {
        let config = Config { window: 32, peer_timeout_ms: 3_000, ..Config::default() };
        let mut relay = Relay::new(endpoint(me), config);
        for other in (0..hosts).filter(|&other| other != me) {
            let known = (session(other), 0);
            assert!(relay.connect(PeerId(other as u32), known, endpoint(other), &[LINK]));
        }
        let mut counters = Counters::default();
        assert!(counters.open(KEY, 1, 0, 1));
        Host {
            me,
            relay,
            payloads: Payloads::default(),
            groups: Groups::default(),
            counters,
            held: BTreeMap::new(),
            told: VecDeque::new(),
            got: Vec::new(),
            granted: 0,
            named: Vec::new(),
            answers: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// Its rank joins the group; sessions are open by then.
    fn join(&mut self, hosts: usize, tree: Tree) {
        let (me, peer) = (self.me, |member: usize| PeerId(member as u32));
        let role = GroupRole {
            group: GROUP,
            tree,
            size: hosts as u32,
            me: me as u32,
            parent: tree::parent(tree, 0, me, hosts).map_or(PeerId(u32::MAX), peer),
            children: tree::children(tree, 0, me, hosts).map(peer).collect(),
        };
        assert!(self.groups.join(role, 1));
    }

    fn hello(&mut self, now: Instant, to: usize, answer: bool) {
        let (session, flags) = if answer { (session(self.me), flags::REPLY) } else { (0, 0) };
        let hello = Hello {
            src_eid: endpoint(self.me).0,
            dst_eid: endpoint(to).0,
            session_offer: self::session(to),
            mtu: 1500,
            version_min: 1,
            version_max: 1,
            credit: 0,
        };
        let common = Common { session, flags, ..Common::default() };
        let header = wire::emit(&common, &Packet::Hello(hello));
        self.relay.from_rank(now, PeerId(to as u32), header.as_slice(), 0).unwrap();
    }

    /// The rank adds to the word at another host's agent.
    fn add(&mut self, now: Instant, to: usize, op: u32) {
        let add =
            wire::Atomic { key: KEY, code: code::FETCH_ADD, operand: 1, ..Default::default() };
        let common = Common { session: session(self.me), imm: op, ..Common::default() };
        let header = wire::emit(&common, &Packet::Atomic(add));
        self.relay.from_rank(now, PeerId(to as u32), header.as_slice(), 0).unwrap();
    }

    fn outside(&mut self, now: Instant, act: impl FnOnce(&mut Groups, &mut Outside<'_>)) {
        act(
            &mut self.groups,
            &mut Outside(&mut self.relay, &mut self.payloads, &mut self.told, now),
        );
    }

    fn arrive(&mut self, now: Instant, header: &HeaderBuf, payload: &[u8]) {
        match self.relay.from_wire(now, 0, header.as_slice(), Room::ANY) {
            Arrival::Drop => {}
            Arrival::Hold(peer, seq) => {
                self.held.insert((peer.0, seq.0), (*header, payload.to_vec()));
            }
            Arrival::Deliver(from) => {
                self.take(now, from, header, payload);
                while let Some((peer, seq)) = self.relay.next_held() {
                    let (header, payload) = self.held.remove(&(peer.0, seq.0)).expect("held");
                    self.take(now, Some(peer), &header, &payload);
                }
            }
        }
    }

    fn take(&mut self, now: Instant, from: Option<PeerId>, header: &HeaderBuf, payload: &[u8]) {
        let (common, packet, _) = wire::parse(header.as_slice()).unwrap();
        let Some(peer) = from else { return };
        match packet {
            Packet::Atomic(atomic) => {
                let reply = self.counters.serve(&atomic).expect("the word is here");
                self.relay.reply(peer, common.imm, &reply);
            }
            Packet::Reply(reply) => self.answers.push((common.imm, reply.value)),
            Packet::Mcast(mcast) => self.groups.on_mcast(peer, &mcast, payload),
            Packet::Grant(grant) => self.groups.on_grant(peer, &grant),
            Packet::Hello(_) if !Hello::is_answer(header.as_slice()) => {
                self.hello(now, peer.0 as usize, true);
            }
            Packet::Hello(_) | Packet::Ack(_) | Packet::Nop(_) => {}
            other => panic!("{other}"),
        }
    }

    /// What is due: timers, groups, what the relay has noticed.
    fn run(&mut self, now: Instant) {
        self.relay.handle_timeout(now);
        while let Some(handle) = self.relay.poll_free() {
            self.payloads.release(handle);
        }
        while let Some(event) = self.relay.poll_event() {
            match event {
                RelayEvent::Left(..) => {}
                RelayEvent::Room => self.groups.look_again(),
                RelayEvent::Lost(peer, _) => {
                    self.lost.push(peer);
                    self.relay.disconnect(peer);
                    self.outside(now, |groups, outside| groups.on_lost(peer, outside));
                }
            }
        }
        if self.groups.is_due(now) {
            self.outside(now, |groups, outside| groups.progress(now, outside));
        }
    }

    /// The rank looks at what it was told.
    fn look(&mut self) {
        while let Some(message) = self.told.pop_front() {
            match message {
                Control::GroupPacket(GROUP, number, bytes) => {
                    assert_eq!(bytes, number.to_le_bytes());
                    self.got.push(number);
                    self.groups.rank_granted(GROUP, number + 1 + WINDOW);
                    self.groups.look_again();
                }
                Control::GroupGrant(GROUP, granted) => self.granted = granted,
                Control::GroupMember(GROUP, member, slow) => self.named.push((member, slow)),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A wire that does to some frames in a hundred what it should not.
struct Net {
    hosts: Vec<Host>,
    frames: BTreeMap<(Instant, u64), (usize, HeaderBuf, Vec<u8>)>,
    sent: u64,
    lost: u64,
    twice: u64,
    late: u64,
    dead: Option<usize>,
    /// Its rank does not look.
    asleep: Option<usize>,
    rng: Rng,
    now: Instant,
}

impl Net {
    /// Hosts that know each other.
    fn new(hosts: usize, tree: Tree, lost: u64, seed: u64) -> Net {
        let mut net = Net {
            hosts: (0..hosts).map(|me| Host::new(me, hosts)).collect(),
            frames: BTreeMap::new(),
            sent: 0,
            lost: 0,
            twice: 0,
            late: 0,
            dead: None,
            asleep: None,
            rng: Rng::new(seed),
            now: Instant(1),
        };
        for (a, b) in (0..hosts).flat_map(|a| (0..a).map(move |b| (a, b))) {
            net.hosts[a].hello(net.now, b, false);
        }
        (0..100).for_each(|_| net.step());
        net.hosts.iter_mut().for_each(|host| host.join(hosts, tree));
        if lost > 0 {
            (net.lost, net.twice, net.late) = (lost, 2, 5);
        }
        net
    }

    fn step(&mut self) {
        self.now = self.now + US * (1 + self.rng.below(30) as u32);
        assert!(self.now < LONG, "it does not end");
        while let Some(first) = self.frames.first_entry() {
            if first.key().0 > self.now {
                break;
            }
            let (to, header, payload) = first.remove();
            if self.dead != Some(to) {
                self.hosts[to].arrive(self.now, &header, &payload);
            }
        }
        let dead = self.dead;
        for me in (0..self.hosts.len()).filter(|&me| dead != Some(me)) {
            self.hosts[me].run(self.now);
            if self.asleep != Some(me) && self.rng.below(3) == 0 {
                self.hosts[me].look();
            }
            self.transmit(me);
        }
    }

    fn transmit(&mut self, me: usize) {
        while let Some(out) = self.hosts[me].relay.poll_transmit(self.now) {
            let payload = self.hosts[me].payloads.get(out.payload).to_vec();
            if out.last {
                self.hosts[me].payloads.release(out.payload);
            }
            let percent = |rng: &mut Rng, share: u64| rng.below(100) < share;
            if percent(&mut self.rng, self.lost) {
                continue;
            }
            for _ in 0..1 + u32::from(percent(&mut self.rng, self.twice)) {
                let late = if percent(&mut self.rng, self.late) { self.rng.below(500) } else { 0 };
                self.sent += 1;
                let at = self.now + US * (10 + late as u32);
                let frame = (out.peer.0 as usize, out.header, payload.clone());
                self.frames.insert((at, self.sent), frame);
            }
        }
    }

    /// The root sends as it is granted, up to this number; whether it has.
    fn cast(&mut self, next: &mut u32, end: u32) -> bool {
        let root = &mut self.hosts[0];
        while *next < end && *next < root.granted {
            root.groups.root_sends(GROUP, *next, &next.to_le_bytes());
            *next += 1;
        }
        *next == end
    }

    fn have(&self, members: impl IntoIterator<Item = usize>, count: u32) -> bool {
        members.into_iter().all(|m| self.hosts[m].got.len() >= count as usize)
    }
}

#[test]
fn groups__everything_in_order_over_a_wire_that_loses_repeats_and_overtakes() {
    for &tree in Tree::ALL {
        for (lost, seed) in [(0, 1), (2, 2), (5, 3), (20, 4)] {
            let (mut net, mut next) = (Net::new(8, tree, lost, seed), 0);
            while !(net.cast(&mut next, 500) && net.have(1..8, 500)) {
                net.step();
            }
            for host in &net.hosts[1..] {
                assert_eq!(host.got, (0..500).collect::<Vec<_>>(), "{tree}, {lost} %");
            }
            assert!(net.hosts.iter().all(|host| host.groups.refused == 0 && host.lost.is_empty()));
            let again: u64 = net.hosts.iter().map(|host| host.relay.stats().retransmitted).sum();
            assert_eq!(again > 0, lost > 0, "{tree}, {lost} %: {again} sent again");
        }
    }
}

#[test]
fn groups__a_slow_rank_holds_up_the_root_and_is_named_over_a_bad_wire() {
    for &tree in Tree::ALL {
        let (mut net, mut next) = (Net::new(8, tree, 5, 7), 0);
        net.asleep = Some(5);
        let end = net.now + Duration::from_secs(3);
        while net.now < end {
            net.cast(&mut next, 100_000);
            net.step();
        }
        assert!(next < 10 * 8 * WINDOW, "{tree}: nothing holds the root up");
        assert!(net.hosts[0].named.contains(&(5, true)), "{tree}: {:?}", net.hosts[0].named);
        let most = net.hosts.iter().map(|host| host.payloads.bytes()).max().unwrap();
        assert!(most < 64 << 10, "{tree}: {most} bytes wait");
        net.asleep = None;
        let end = next + 100;
        while !(net.cast(&mut next, end) && net.have(1..8, end)) {
            net.step();
        }
        assert_eq!(net.hosts[5].got, (0..end).collect::<Vec<_>>(), "{tree}");
    }
}

#[test]
fn groups__a_host_that_dies_is_told_to_the_root_over_a_bad_wire() {
    for &tree in Tree::ALL {
        for dead in [1, 6] {
            let (mut net, mut next) = (Net::new(8, tree, 5, 11), 0);
            while !(net.cast(&mut next, 50) && net.have(1..8, 50)) {
                net.step();
            }
            net.dead = Some(dead);
            while !net.hosts[0].named.contains(&(dead as u32, false)) {
                net.cast(&mut next, 100_000);
                net.step();
            }
        }
    }
}

#[test]
fn counters__every_ticket_once_over_a_wire_that_loses_repeats_and_overtakes() {
    for (lost, seed) in [(0, 1), (2, 2), (5, 3), (20, 4)] {
        const EACH: usize = 200;
        let (mut net, mut asked) = (Net::new(4, Tree::Flat, lost, seed), [0; 4]);
        while net.hosts[1..].iter().any(|host| host.answers.len() < EACH) {
            for (me, asked) in asked.iter_mut().enumerate().skip(1) {
                let under_way = *asked - net.hosts[me].answers.len();
                if *asked < EACH && under_way < 1 + me {
                    net.hosts[me].add(net.now, 0, *asked as u32);
                    *asked += 1;
                }
            }
            net.step();
        }
        let mut tickets = Vec::new();
        for host in &net.hosts[1..] {
            let ops: Vec<_> = host.answers.iter().map(|&(op, _)| op).collect();
            assert_eq!(ops, (0..EACH as u32).collect::<Vec<_>>(), "each is answered once");
            tickets.extend(host.answers.iter().map(|&(_, value)| value));
        }
        tickets.sort_unstable();
        assert_eq!(tickets, (0..3 * EACH as u64).collect::<Vec<_>>(), "{lost} %");
        assert_eq!(net.hosts[0].counters.read(KEY, 0), Some(3 * EACH as u64));
    }
}
