#![allow(non_snake_case)]

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use weft_link::rng::Rng;
use weft_names::{Claim, HostId, Owner};

const MS: u64 = 1_000_000;

fn member(n: usize) -> BindingId {
    BindingId { host: HostId(n as u64 + 1), life: Life { incarnation: 1, nonce: 1 }, claim: 7 }
}

fn binding(n: usize) -> Binding {
    let name = Claim::new(Owner::default(), 900, n as u32 % 2..=n as u32 % 2).group();
    Binding { id: member(n), stamp: n as u64, name }
}

fn event(notice: Notice) -> NameEvent {
    NameEvent { seq: 1, notice }
}

/// Members whose agents lose, double and reorder datagrams, and whose programs check what they are
/// told.
struct World {
    now: u64,
    rng: Rng,
    loss: u64,
    members: Vec<Option<Membership>>,
    flying: Vec<(u64, BindingId, GroupDatagram)>,
    /// Members that each program was told of, and the last message that it took of each.
    there: Vec<BTreeSet<BindingId>>,
    last: BTreeMap<(usize, BindingId), u64>,
    seq: Vec<u64>,
    /// Messages that each program took; those that came back; those that are settled.
    taken: BTreeMap<(usize, u64), u32>,
    returned: BTreeSet<(usize, u64, BindingId)>,
    settled: Vec<BTreeSet<u64>>,
    named: Vec<BTreeSet<BindingId>>,
    asleep: BTreeSet<usize>,
}

impl World {
    fn new(seed: u64, n: usize, config: &GroupConfig) -> World {
        let mut world = World {
            now: MS,
            rng: Rng::new(seed),
            loss: 0,
            members: (0..n)
                .map(|m| Some(Membership::new(900, member(m), config.clone())))
                .collect(),
            flying: Vec::new(),
            there: vec![BTreeSet::new(); n],
            last: BTreeMap::new(),
            seq: vec![0; n],
            taken: BTreeMap::new(),
            returned: BTreeSet::new(),
            settled: vec![BTreeSet::new(); n],
            named: vec![BTreeSet::new(); n],
            asleep: BTreeSet::new(),
        };
        for m in 0..n {
            (0..n).for_each(|o| world.told(m, Notice::Published(binding(o))));
            world.told(m, Notice::SnapshotEnd);
        }
        world
    }

    fn told(&mut self, m: usize, notice: Notice) {
        let now = Instant(self.now);
        if let Some(membership) = &mut self.members[m] {
            membership.on_name(now, event(notice));
        }
        self.settle(m);
    }

    /// Ends a program without a word, and tells the others.
    fn kill(&mut self, m: usize, gone: Gone) {
        self.members[m] = None;
        for other in 0..self.members.len() {
            self.told(other, Notice::Withdrawn(binding(m), gone));
        }
    }

    fn send(&mut self, m: usize, to: To, message: u64, len: usize) -> Option<u64> {
        let mut payload = message.to_le_bytes().to_vec();
        payload.resize(len.max(8), message as u8);
        let now = Instant(self.now);
        let sent = self.members[m].as_mut().unwrap().send(now, to, payload, Duration::ZERO);
        self.settle(m);
        match sent {
            Sending::Sent(number) => Some(number),
            _ => None,
        }
    }

    /// Takes what a membership has, and checks what its program is told.
    fn settle(&mut self, m: usize) {
        let Some(membership) = &mut self.members[m] else { return };
        let now = Instant(self.now);
        while !self.asleep.contains(&m) {
            let Some((seq, notice)) = membership.poll_event() else { break };
            self.seq[m] += 1;
            assert_eq!(seq, self.seq[m], "events are numbered without a gap");
            match notice {
                GroupNotice::Joined(b) => assert!(self.there[m].insert(b.id), "joined twice"),
                GroupNotice::Left(id, _) => assert!(self.there[m].remove(&id), "left twice"),
                GroupNotice::Message { from, payload, .. } => {
                    assert!(self.there[m].contains(&from), "a message of no member");
                    let message = u64::from_le_bytes(payload[..8].try_into().unwrap());
                    assert!(payload[8..].iter().all(|b| *b == message as u8));
                    let last = self.last.insert((m, from), message);
                    assert!(last < Some(message), "{message} after {last:?}");
                    *self.taken.entry((m, message)).or_default() += 1;
                    membership.took(now, 1);
                }
                GroupNotice::Settled(n) => assert!(self.settled[m].insert(n), "settled twice"),
                GroupNotice::Returned(n, to, _) => {
                    assert!(self.returned.insert((m, n, to)), "returned twice");
                }
                GroupNotice::Slow(id, _) => drop(self.named[m].insert(id)),
                _ => {}
            }
        }
        assert!(membership.incoming.bytes <= IN_BYTES + MAIL_MAX, "{}", membership.incoming.bytes);
        while membership.has_transmit() {
            for datagram in membership.poll_transmit() {
                for _ in 0..1 + u64::from(self.rng.below(10) == 0) {
                    if self.rng.below(1000) >= self.loss {
                        let at = self.now + self.rng.below(5 * MS);
                        self.flying.push((at, member(m), datagram.clone()));
                    }
                }
            }
        }
    }

    fn run(&mut self, time: u64) {
        let end = self.now + time * MS;
        loop {
            let message = self.flying.iter().map(|f| f.0).min();
            let timer = self.members.iter().flatten().filter_map(Membership::next_timeout).min();
            let next = message.into_iter().chain(timer.map(|t| t.0)).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            let now = Instant(self.now);
            if let Some(i) = self.flying.iter().position(|f| f.0 <= self.now) {
                let (_, from, datagram) = self.flying.swap_remove(i);
                let to = datagram.to.host.0 as usize - 1;
                let part = Part::parse(&datagram.bytes).unwrap();
                assert_eq!((part.to, part.from), (datagram.to.claim, from.claim));
                if let Some(membership) = &mut self.members[to] {
                    membership.receive(now, from, &part);
                }
                self.settle(to);
            }
            for m in 0..self.members.len() {
                let due = |m: &Membership| m.next_timeout().is_some_and(|at| at <= now);
                if let Some(membership) = self.members[m].as_mut().filter(|m| due(m)) {
                    membership.handle_timeout(now);
                    self.settle(m);
                }
            }
        }
        self.now = end;
    }
}

fn usual() -> GroupConfig {
    config(Duration::from_secs(1), None)
}

#[test]
fn send__each_member_takes_each_message_once_and_in_order_under_loss_and_death() {
    for seed in 0..30 {
        let mut world = World::new(seed, 5, &usual());
        world.loss = 150;
        let (mut message, mut of_all) = (0, Vec::new());
        for round in 0..60 {
            for m in 0..5 {
                if world.members[m].is_none() {
                    continue;
                }
                message += 1;
                let len = [8, 700, 3000, 40_000][world.rng.below(4) as usize];
                let to = match world.rng.below(4) {
                    0 => To::Member(member((m + 1) % 4)),
                    1 => To::One(0..=9),
                    2 => To::Each(0..=0),
                    _ => To::All,
                };
                let is_all = to == To::All;
                if world.send(m, to, message, len).is_some() && is_all {
                    of_all.push((m, message));
                }
            }
            if round == 30 {
                world.kill(4, Gone::Killed { signal: 9 });
            }
            let pause = world.rng.below(20);
            world.run(pause);
        }
        world.run(120_000);
        assert!(world.taken.values().all(|n| *n == 1));
        for (m, message) in of_all {
            for o in (0..4).filter(|o| *o != m && m != 4) {
                assert_eq!(world.taken.get(&(o, message)), Some(&1), "seed {seed}: {message}");
            }
        }
        for m in (0..4).map(|m| world.members[m].as_ref().unwrap()) {
            assert_eq!(
                (m.outgoing.under_way.len(), m.outgoing.bytes, m.incoming.bytes),
                (0, 0, 0),
                "seed {seed}"
            );
            assert!(m.incoming.parts.is_empty() && m.incoming.whole.is_empty());
        }
        for m in 0..4 {
            let sent = world.members[m].as_ref().unwrap().outgoing.last;
            assert_eq!(world.settled[m].len() as u64, sent, "each one is settled");
        }
    }
}

#[test]
fn members__that_lose_each_other_from_sight_go_on_in_order() {
    for seed in 0..30 {
        let mut world = World::new(seed, 3, &usual());
        world.loss = 150;
        let mut message = 0;
        for _ in 0..40 {
            for m in 0..3 {
                message += 1;
                world.send(m, To::All, message, 2000);
            }
            let (m, o) = (world.rng.below(3) as usize, world.rng.below(3) as usize);
            if world.rng.below(4) == 0 && m != o {
                world.told(m, Notice::Withdrawn(binding(o), Gone::CutOff));
                let pause = world.rng.below(100);
                world.run(pause);
                world.told(m, Notice::Published(binding(o)));
            }
            let pause = world.rng.below(20);
            world.run(pause);
        }
        world.run(60_000);
        world.taken.clear();
        for m in 0..3 {
            world.send(m, To::All, message + 1 + m as u64, 5000).expect("there is credit");
        }
        world.run(60_000);
        assert_eq!(world.taken.len(), 6, "seed {seed}");
        assert!(world.there.iter().all(|there| there.len() == 2));
    }
}

#[test]
fn send__a_program_that_takes_nothing_stops_and_names_itself_and_goes_on_later() {
    let mut world = World::new(1, 3, &usual());
    world.asleep.insert(1);
    let mut sent = 0;
    while world.send(0, To::All, sent + 1, 60_000).is_some() {
        sent += 1;
        world.run(500);
        assert!(sent < 1000, "it is bounded");
    }
    world.run(3000);
    assert_eq!(world.named[0], BTreeSet::from([member(1)]));
    assert_eq!(world.taken.len() as u64, sent);
    world.asleep.clear();
    world.settle(1);
    world.run(10_000);
    assert_eq!(world.taken.len() as u64, 2 * sent);
    world.send(0, To::All, sent + 1, 8).expect("there is credit again");
}

#[test]
fn receive__memory_of_a_member_is_bounded_however_many_others_send() {
    let mut world = World::new(1, 41, &usual());
    world.asleep.insert(0);
    for m in 1..41 {
        let sent = world.send(m, To::Member(member(0)), m as u64, MAIL_MAX);
        sent.expect("there is credit");
    }
    world.run(1500);
    let held = world.members[0].as_ref().unwrap().held_bytes();
    assert!((IN_BYTES - MAIL_MAX..=IN_BYTES + MAIL_MAX).contains(&held), "{held}");
    // A sender that ends in the middle of the message beyond holds nobody up.
    let beyond = world.members[0].as_ref().unwrap().incoming.beyond.as_ref().map(|b| b.from);
    let ends = beyond.unwrap().host.0 as usize - 1;
    world.kill(ends, Gone::Killed { signal: 9 });
    world.asleep.clear();
    world.settle(0);
    world.run(10_000);
    let taken = (1..41).filter(|m| world.taken.get(&(0, *m)) == Some(&1)).count();
    assert!(taken >= 39, "{taken} of 40");
    let one = world.members[0].as_ref().unwrap();
    assert!(one.incoming.bytes == 0 && one.incoming.beyond.is_none());
}

#[test]
fn send__waits_for_credit_and_fails_in_time() {
    let mut world = World::new(1, 2, &usual());
    world.asleep.insert(1);
    while world.send(0, To::All, world.now, 8).is_some() {
        world.run(1);
    }
    let wait = |world: &mut World| {
        let now = Instant(world.now);
        let one = world.members[0].as_mut().unwrap();
        let payload = u64::MAX.to_le_bytes().to_vec();
        assert_eq!(one.send(now, To::All, payload, Duration::from_secs(2)), Sending::Waits);
        let second = one.send(now, To::All, vec![], Duration::from_secs(2));
        assert_eq!(second, Sending::Refused(NotSent::Second));
    };
    wait(&mut world);
    world.run(3000);
    let busy = SendError::Busy { slow: member(1) };
    let sent = world.members[0].as_mut().unwrap().poll_sent();
    assert_eq!(sent, Some(Err(NotSent::Group(busy))));
    wait(&mut world);
    world.asleep.clear();
    world.settle(1);
    world.run(1000);
    assert!(matches!(world.members[0].as_mut().unwrap().poll_sent(), Some(Ok(_))));
}

#[test]
fn receive__hostile_parts_are_bounded() {
    let mut world = World::new(3, 2, &usual());
    world.send(0, To::All, 1, 5000);
    let genuine: Vec<Vec<u8>> = world.flying.drain(..).map(|f| f.2.bytes).collect();
    for n in 0..20_000 {
        let mut bytes = genuine[n % genuine.len()].clone();
        for _ in 0..1 + world.rng.below(4) {
            let at = world.rng.below(bytes.len().min(100) as u64) as usize;
            bytes[at] ^= 1 << world.rng.below(8);
        }
        if let Ok(part) = Part::parse(&bytes) {
            let now = Instant(world.now);
            let membership = world.members[1].as_mut().unwrap();
            membership.receive(now, member(0), &part);
            let parts: usize =
                membership.incoming.parts.values().flatten().flatten().map(Vec::len).sum();
            assert!(
                parts <= IN_BYTES
                    && membership.incoming.bytes <= IN_BYTES
                    && membership.incoming.parts.len() <= 2 * WINDOW as usize
            );
        }
        let one = world.members[1].as_mut().unwrap();
        while one.has_transmit() {
            one.poll_transmit();
        }
        while one.poll_event().is_some() {
            one.took(Instant(world.now), 1);
        }
    }
}

#[test]
fn receive__a_member_that_begins_anew_for_ever_is_bounded_and_reported_in_pairs() {
    let mut world = World::new(1, 2, &usual());
    world.send(1, To::All, 1, 10).unwrap();
    let genuine =
        world.flying.iter().find(|(_, from, _)| *from == member(1)).unwrap().2.bytes.clone();
    let victim = world.members[0].as_mut().unwrap();
    let (record, heard) = (52 + 32, 52 + 36);
    for n in 1..20_000u32 {
        let mut bytes = genuine.clone();
        bytes[record..heard].copy_from_slice(&n.to_le_bytes());
        bytes[heard..heard + 4].copy_from_slice(&0u32.to_le_bytes());
        victim.receive(Instant(MS), member(1), &Part::parse(&bytes).unwrap());
        while victim.has_transmit() {
            victim.poll_transmit();
        }
    }
    assert!(victim.dropped() > 0);
    let events: Vec<_> = std::iter::from_fn(|| victim.poll_event()).collect();
    assert!((100..3 * EVENTS_MAX).contains(&events.len()), "{}", events.len());
    let mut is_there = true;
    for (_, event) in events {
        match event {
            GroupNotice::Joined(_) => assert!(!std::mem::replace(&mut is_there, true)),
            GroupNotice::Left(..) => assert!(std::mem::replace(&mut is_there, false)),
            _ => {}
        }
    }
    assert!(victim.events.notices == 0);
}
