#![allow(non_snake_case)]

use super::*;
use crate::directory::Claim;
use crate::id::{HostId, Life, Owner};

const MS: u64 = 1_000_000;

fn id(host: u64) -> BindingId {
    BindingId { host: HostId(host), life: Life { incarnation: 1, nonce: 1 }, claim: host }
}

fn binding(host: u64) -> Binding {
    let name = Claim::new(Owner::default(), 900, host as u32 % 2..=host as u32 % 2);
    Binding { id: id(host), stamp: host, name: name.endpoint(host).group() }
}

/// Members over a network that loses, doubles and reorders.
struct World {
    now: u64,
    random: u64,
    loss: u64,
    groups: Vec<GroupEnd>,
    flying: Vec<(u64, BindingId, usize, GroupTransmit)>,
    /// Payload numbers kept by receiver, sender and number.
    kept: BTreeMap<(usize, BindingId, u64), u64>,
    /// The messages that each member took from each.
    got: BTreeMap<(usize, BindingId), Vec<(Kind, u64)>>,
    events: Vec<Vec<GroupEvent>>,
    /// Members whose program takes nothing.
    asleep: BTreeSet<usize>,
}

impl World {
    fn new(seed: u64, n: usize, config: &GroupConfig) -> World {
        let mut groups: Vec<GroupEnd> =
            (0..n).map(|g| GroupEnd::new(900, id(g as u64), config.clone())).collect();
        for group in &mut groups {
            (0..n as u64).for_each(|m| group.member_joined(Instant(0), binding(m)));
        }
        World {
            now: 0,
            random: seed * 2 + 1,
            loss: 0,
            groups,
            flying: Vec::new(),
            kept: BTreeMap::new(),
            got: BTreeMap::new(),
            events: (0..n).map(|_| Vec::new()).collect(),
            asleep: BTreeSet::new(),
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random = crate::id::mix(self.random);
        self.random % n
    }

    fn settle(&mut self) {
        for g in 0..self.groups.len() {
            while let Some(event) = self.groups[g].poll_event() {
                if let GroupEvent::Deliver { from, number, kind } = event {
                    if !self.asleep.contains(&g) {
                        let payload = self.kept.remove(&(g, from, number)).expect("kept");
                        self.got.entry((g, from)).or_default().push((kind, payload));
                        self.groups[g].taken(from, number);
                    }
                }
                self.events[g].push(event);
            }
            while let Some(t) = self.groups[g].poll_transmit() {
                let copies = 1 + u64::from(self.below(10) == 0);
                for _ in 0..copies {
                    if self.below(1000) >= self.loss {
                        let at = self.now + self.below(5 * MS);
                        let to = t.to.host.0 as usize;
                        self.flying.push((at, id(g as u64), to, t.clone()));
                    }
                }
            }
        }
    }

    /// Goes on for some time.
    fn run(&mut self, time: u64) {
        let end = self.now + time * MS;
        self.settle();
        loop {
            let message = self.flying.iter().map(|f| f.0).min();
            let timer = self.groups.iter().filter_map(GroupEnd::next_timeout).min().map(|i| i.0);
            let next = message.into_iter().chain(timer).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            if let Some(i) = self.flying.iter().position(|f| f.0 <= self.now) {
                let (_, from, to, t) = self.flying.swap_remove(i);
                let take = self.groups[to].handle_message(Instant(self.now), from, &t.head);
                if let (Take::Keep(number), Some(payload)) = (take, t.payload) {
                    self.kept.insert((to, from, number), payload);
                }
            }
            let now = Instant(self.now);
            self.groups.iter_mut().for_each(|g| g.handle_timeout(now));
            self.settle();
        }
        self.now = end;
    }
}

#[test]
fn send__order_is_kept_across_modes_under_loss() {
    for seed in 0..20 {
        let mut world = World::new(seed, 5, &GroupConfig::default());
        world.loss = 200;
        let (mut payload, mut done) = (0, 0);
        while done < 200 {
            let now = Instant(world.now);
            payload += 1;
            let (mode, instance) = (world.below(4), world.below(2) as u32);
            let group = &mut world.groups[0];
            let sent = match mode {
                0 => group.unicast(now, id(3), payload),
                1 => group.anycast(now, instance..=instance, payload),
                2 => group.multicast(now, instance..=instance, payload),
                _ => group.broadcast(now, payload),
            };
            match sent {
                Ok(()) => done += 1,
                Err(_) => world.run(20),
            }
            world.settle();
        }
        world.run(60_000);
        for g in 1..5 {
            let got: Vec<u64> = world.got[&(g, id(0))].iter().map(|(_, p)| *p).collect();
            assert!(got.is_sorted_by(|a, b| a < b), "seed {seed}: {got:?}");
        }
        let finished = world.events[0].iter().filter(|e| matches!(e, GroupEvent::Done { .. }));
        assert_eq!(finished.count(), 200, "seed {seed}");
        assert!(world.groups[0].open.is_empty());
    }
}

#[test]
fn send__a_slow_member_is_named_and_evicted() {
    let config = GroupConfig {
        window: 8,
        evict_after: Some(Duration::from_secs(3)),
        ..GroupConfig::default()
    };
    let mut world = World::new(1, 4, &config);
    world.asleep.insert(2);
    for payload in 0..8 {
        world.groups[0].broadcast(Instant(world.now), payload).unwrap();
    }
    world.run(100);
    let busy = world.groups[0].broadcast(Instant(world.now), 8);
    assert_eq!(busy, Err(SendError::Busy { slow: id(2) }));
    // Others still get what is for them alone.
    world.groups[0].unicast(Instant(world.now), id(1), 9).unwrap();
    world.run(10_000);
    let told: Vec<&GroupEvent> = world.events[0]
        .iter()
        .filter(|e| matches!(e, GroupEvent::Slow { .. } | GroupEvent::Evicted { .. }))
        .collect();
    assert!(matches!(told[0], GroupEvent::Slow { member, .. } if *member == id(2)));
    assert_eq!(told[1..], [&GroupEvent::Evicted { member: id(2) }]);
    world.groups[0].member_joined(Instant(world.now), binding(2));
    assert_eq!(world.groups[0].members().count(), 2);
    // The slow member goes on with the others, and does not wait for the one that put it out.
    let gone = Gone::Evicted { by: id(0).host };
    assert!(world.events[2].contains(&GroupEvent::Left(id(0), gone)));
    world.groups[2].broadcast(Instant(world.now), 11).unwrap();
    world.run(1000);
    assert!(world.events[2].contains(&GroupEvent::Done { payload: 11 }));
    assert!(!world.got.contains_key(&(0, id(2))) && world.got[&(1, id(2))].len() == 1);
    world.groups[0].broadcast(Instant(world.now), 10).unwrap();
    world.run(1000);
    assert_eq!(world.got[&(1, id(0))].len(), 10);
}

#[test]
fn anycast__goes_past_members_without_credit() {
    let config = GroupConfig { window: 2, ..GroupConfig::default() };
    let mut world = World::new(1, 4, &config);
    world.asleep.insert(1);
    for payload in 0..20 {
        // Members 1 and 3 have instance 1.
        world.groups[0].anycast(Instant(world.now), 1..=1, payload).unwrap();
        world.run(200);
    }
    assert_eq!(world.got[&(3, id(0))].len(), 18);
    assert_eq!(world.groups[0].anycast(Instant(0), 7..=7, 99), Err(SendError::Nobody));
}

#[test]
fn member_gone__messages_under_way_come_back() {
    let mut world = World::new(1, 3, &GroupConfig::default());
    world.groups[0].broadcast(Instant(0), 1).unwrap();
    world.groups[0].member_gone(id(2), Gone::Killed { signal: 9 });
    world.flying.retain(|f| f.2 != 2);
    world.run(1000);
    let gone = Gone::Killed { signal: 9 };
    assert!(world.events[0].contains(&GroupEvent::Returned { payload: 1, to: id(2), gone }));
    assert!(world.events[0].contains(&GroupEvent::Done { payload: 1 }));
}

#[test]
fn handle_message__hostile_bytes_are_dropped() {
    let mut world = World::new(1, 2, &GroupConfig::default());
    for _ in 0..20_000 {
        let len = world.below(40) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| world.below(256) as u8).collect();
        if len > 8 && world.below(2) == 0 {
            bytes[..4].copy_from_slice(&[1 + world.below(7) as u8, 1, 0, 0]);
            bytes[4..8].copy_from_slice(&900u32.to_le_bytes());
        }
        world.groups[0].handle_message(Instant(0), id(1), &bytes);
        assert!(world.groups[0].members[&id(1)].ahead.len() <= 64);
        while world.groups[0].poll_transmit().is_some() {}
    }
}

#[test]
fn member_joined__again_begins_anew_on_both_sides() {
    for seed in 0..40 {
        let mut world = World::new(seed, 2, &GroupConfig::default());
        world.loss = 200;
        for round in 0..6 {
            for payload in 0..10 {
                let now = Instant(world.now);
                for g in 0..2 {
                    let _ = world.groups[g].broadcast(now, round * 100 + payload);
                }
                let pause = world.below(20);
                world.run(pause);
            }
            // One of them loses the other from sight, or both do.
            let lost = 1 + world.below(3);
            for g in (0..2).filter(|g| lost & 1 << g != 0) {
                world.groups[g].member_gone(id(1 - g as u64), Gone::CutOff);
                world.settle();
                world.groups[g].member_joined(Instant(world.now), binding(1 - g as u64));
            }
        }
        world.run(60_000);
        world.got.clear();
        for g in 0..2 {
            world.groups[g].broadcast(Instant(world.now), 1000).unwrap();
        }
        world.run(60_000);
        for g in 0..2 {
            let got = &world.got[&(g, id(1 - g as u64))];
            assert_eq!(*got, [(Kind::Broadcast, 1000)], "seed {seed}");
            assert!(world.groups[g].open.is_empty(), "seed {seed}");
        }
    }
}
