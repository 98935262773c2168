//! Names of a cluster: claims, look-ups, subscriptions, unique names.
#![allow(non_snake_case)]

mod world;

use std::time::Duration;
use weft_names::subscriptions::SubscribeError;
use weft_names::*;
use world::*;

const KIND: u32 = 1000;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn owner(user: u32, process: u32) -> Owner {
    Owner { user, process, serial: 1 }
}

fn name(instance: u32) -> Claim {
    Claim::new(owner(7, 1), KIND, instance..=instance).endpoint(u64::from(instance) + 1)
}

fn all() -> Filter {
    Filter { kind: KIND, lower: 0, upper: u32::MAX, mode: Mode::Each, timeout: None }
}

fn claim(world: &mut World, host: usize, claim: Claim) -> node::ClaimId {
    world.with(host, |n, now| n.claim(now, claim)).expect("granted").0
}

#[test]
fn claim__is_seen_on_all_hosts_and_ends_with_its_owner() {
    for n in [3, 40] {
        let mut world = World::joined(1, n, Config::default());
        let reader = world.watch(2, all());
        claim(&mut world, 1, name(5));
        world.run(Duration::from_millis(1));
        for h in 0..n {
            let found = world.node(h).look_up(7, KIND, 5, Pick::Turn).expect("published");
            assert_eq!((found.id.host, found.name.endpoint), (World::id(1), 6));
            assert!(world.node(h).look_up(7, KIND, 4, Pick::Turn).is_none());
        }
        let gone = directory::Gone::Killed { signal: 9 };
        world.with(1, |n, now| n.owner_ended(now, owner(7, 1), gone));
        world.run(Duration::from_millis(1));
        let log = &world.hosts[2].readers[reader].log;
        let notices: Vec<&Notice> = log.iter().map(|(_, n)| n).collect();
        assert!(matches!(notices[0], Notice::SnapshotEnd));
        assert!(matches!(notices[1], Notice::Published(b) if b.name.lower == 5));
        assert!(matches!(notices[2], Notice::Withdrawn(_, g) if *g == gone));
        world.check_names(KIND);
    }
}

#[test]
fn look_up__by_turns_nearest_first_all_and_alias() {
    let mut world = World::joined(1, 4, Config::default());
    for h in 0..3 {
        let wide = Claim::new(owner(7, 1), KIND, 10..=20).endpoint(h as u64 + 1).alias("pump");
        claim(&mut world, h, wide);
    }
    world.run(Duration::from_millis(5));
    let mut turns: Vec<u64> = (0..6)
        .map(|_| world.node(3).look_up(7, KIND, 15, Pick::Turn).unwrap().name.endpoint)
        .collect();
    turns.sort();
    assert_eq!(turns, [1, 1, 2, 2, 3, 3]);
    for _ in 0..4 {
        let found = world.node(1).look_up(7, KIND, 15, Pick::Nearest).unwrap();
        assert_eq!(found.id.host, World::id(1));
    }
    let (directory, policy) = world.node(3).directory();
    assert_eq!(directory.all(policy, 7, KIND, 20, 30).count(), 3);
    assert_eq!(directory.all(policy, 7, KIND, 21, 30).count(), 0);
    assert_eq!(directory.by_alias(policy, 7, "pump").count(), 3);
    assert_eq!(directory.by_alias(policy, 7, "pumps").count(), 0);
}

#[test]
fn scope__of_a_host_is_not_seen_by_others() {
    let mut world = World::joined(1, 3, Config::default());
    claim(&mut world, 1, name(5).on_host().unique());
    world.run(seconds(1));
    assert!(world.node(1).look_up(7, KIND, 5, Pick::Turn).is_some());
    assert!(world.node(2).look_up(7, KIND, 5, Pick::Turn).is_none());
    assert!(world.is_settled());
}

#[test]
fn claim__a_user_leaves_room_to_others() {
    let config = Config { claims_per_host: 8, ..Config::default() };
    let mut world = World::joined(1, 2, config);
    let mut add = |user: u32, i: u32| {
        let claim = Claim { owner: owner(user, 1), ..name(i) };
        world.with(0, |n, now| n.claim(now, claim)).map(drop)
    };
    let all = |i| (1..=3).map(move |user| (user, i));
    let taken = (0..8).flat_map(all).filter(|&(user, i)| add(user, 10 * user + i).is_ok());
    let mut of = [0; 3];
    taken.for_each(|(user, _)| of[user as usize - 1] += 1);
    assert_eq!(of, [2, 2, 2], "two places are left to others");
    (0..8).for_each(|i| drop(add(4, 100 + i)));
    assert_eq!(add(4, 200), Err(ClaimError::TooMany { bound: 8 }));
}

#[test]
fn claim__is_refused_with_a_reason() {
    let config = Config { claims_per_user: 3, ..Config::default() };
    let mut world = World::joined(1, 3, config);
    world.run(seconds(2));
    let mut refuse = |claim: Claim| world.with(0, |n, now| n.claim(now, claim)).unwrap_err();
    let backwards = Claim { lower: 9, upper: 8, ..name(9) };
    assert_eq!(refuse(backwards), ClaimError::EmptyRange);
    assert_eq!(refuse(name(1).alias(&"x".repeat(64))), ClaimError::Alias);
    assert_eq!(refuse(name(1).alias("a\nb")), ClaimError::Alias);
    assert_eq!(refuse(Claim { kind: 1, ..name(1) }), ClaimError::Forbidden);
    (0..3).for_each(|i| {
        claim(&mut world, 0, name(i));
    });
    let more = world.with(0, |n, now| n.claim(now, name(4))).unwrap_err();
    assert_eq!(more, ClaimError::TooMany { bound: 3 });
    world.run(Duration::from_millis(5));
    let taken = world.with(1, |n, now| n.claim(now, name(2).unique())).unwrap_err();
    assert_eq!(taken, ClaimError::Taken { holder: World::id(0), owner: owner(7, 1) });
}

#[test]
fn policy__hides_names_and_forbids_claims() {
    let mut world = World::joined(1, 2, Config::default());
    let secret =
        |claim| Rule { users: 1..=u32::MAX, kinds: KIND..=KIND, claim, see: directory::See::Own };
    world.node(0).set_policy(Policy::new(vec![secret(true)]));
    world.node(1).set_policy(Policy::new(vec![secret(false)]));
    claim(&mut world, 0, name(1));
    world.run(Duration::from_millis(5));
    assert!(world.node(1).look_up(7, KIND, 1, Pick::Turn).is_some());
    assert!(world.node(1).look_up(8, KIND, 1, Pick::Turn).is_none());
    let refused = world.with(1, |n, now| n.claim(now, name(2)));
    assert_eq!(refused.unwrap_err(), ClaimError::Forbidden);
}

#[test]
fn host_loss__withdraws_its_names_with_the_cause() {
    let mut world = World::joined(1, 5, Config::default());
    let reader = world.watch(0, all());
    claim(&mut world, 3, name(5));
    world.run(seconds(1));
    world.kill(3);
    world.run(seconds(2));
    let (_, last) = world.hosts[0].readers[reader].log.last().unwrap();
    let lost = |g: &directory::Gone| matches!(g, directory::Gone::Host(Cause::Lost { .. }));
    assert!(matches!(last, Notice::Withdrawn(_, g) if lost(g)), "{last:?}");
    world.check_names(KIND);
}

fn holders(world: &World, ids: &[(usize, node::ClaimId)]) -> Vec<usize> {
    let held = |(h, id): &&(usize, node::ClaimId)| {
        let node = world.hosts[*h].node.as_ref();
        node.is_some_and(|n| n.standing(*id) == Some(node::Standing::Held))
    };
    ids.iter().filter(held).map(|(h, _)| *h).collect()
}

#[test]
fn unique__of_claims_at_the_same_time_one_holds() {
    for seed in 0..12 {
        let mut world = World::joined(seed, 9, Config::default());
        world.run(seconds(2));
        (world.loss, world.jitter) = (100, 3 * MS);
        let mut ids = Vec::new();
        for h in 0..9 {
            let wanted = name(5).unique();
            if let Ok((id, _)) = world.with(h, |n, now| n.claim(now, wanted)) {
                ids.push((h, id));
            }
            world.run(Duration::from_micros(seed * 100));
        }
        let limit = world.now + 20_000 * MS;
        world.run_until(limit, |w| {
            assert!(holders(w, &ids).len() <= 1, "seed {seed}");
            false
        });
        assert_eq!(holders(&world, &ids).len(), 1, "seed {seed}");
    }
}

/// Checks that a host gets the name for itself.
fn is_free_for(world: &mut World, host: usize) {
    let id = claim(world, host, name(5).unique());
    world.run(seconds(1));
    assert_eq!(world.node(host).standing(id), Some(node::Standing::Held));
}

#[test]
fn unique__after_its_owner_ends_another_gets_it() {
    let mut world = World::joined(2, 5, Config::default());
    world.run(seconds(2));
    let first = claim(&mut world, 1, name(5).unique());
    world.run(seconds(1));
    world.with(1, |n, now| n.withdraw(now, first));
    world.run(Duration::from_millis(5));
    is_free_for(&mut world, 2);
}

#[test]
fn unique__when_parts_meet_the_older_claim_stays_and_the_other_owner_learns_of_it() {
    let mut world = World::joined(3, 8, Config::default());
    world.run(seconds(2));
    let old = claim(&mut world, 1, name(5).unique());
    world.run(seconds(1));
    (0..4).for_each(|h| world.parts[h] = 1);
    world.run(seconds(6));
    let new = claim(&mut world, 6, name(5).unique());
    world.run(seconds(3));
    let ids = [(1, old), (6, new)];
    assert_eq!(holders(&world, &ids), [1, 6]);
    world.parts.fill(0);
    let limit = world.now + 20_000 * MS;
    assert!(world.run_until(limit, |w| w.is_settled() && holders(w, &ids) == [1]));
    let gone = directory::Gone::Conflict { winner: World::id(1) };
    let lost = Event::ClaimLost { claim: new, gone };
    assert!(world.hosts[6].events.iter().any(|(_, e)| *e == lost));
    world.check_names(KIND);
}

#[test]
fn unique__an_agent_killed_in_the_middle_of_a_claim_leaves_the_name_free() {
    let mut world = World::joined(4, 6, Config::default());
    world.run(seconds(2));
    world.with(2, |n, now| n.claim(now, name(5).unique())).unwrap();
    world.kill(2);
    world.run(seconds(6));
    is_free_for(&mut world, 3);
}

#[test]
fn unique__no_host_decides_while_cut_off() {
    let mut world = World::joined(5, 4, Config::default());
    world.run(seconds(2));
    world.parts[2] = 1;
    world.run(seconds(4));
    let id = claim(&mut world, 2, name(5).unique());
    world.run(seconds(12));
    let told = |(_, e): &(u64, Event)| matches!(e, Event::Undecided { claim, .. } if *claim == id);
    assert!(world.hosts[2].events.iter().any(told));
}

#[test]
fn snapshot__comes_in_pieces_to_a_host_that_joins() {
    let config = Config { claims_per_user: 5000, ..Config::default() };
    let mut world = World::new(6, 4, config);
    (0..3).for_each(|h| world.start(h, 5));
    let limit = world.now + 20_000 * MS;
    assert!(world.run_until(limit, World::is_settled));
    for i in 0..2000 {
        let id = claim(&mut world, 1, name(i));
        if i % 3 == 0 {
            world.with(1, |n, now| n.withdraw(now, id));
        }
    }
    world.run(seconds(2));
    world.loss = 50;
    world.start(3, 5);
    world.watch(3, all());
    let limit = world.now + 60_000 * MS;
    assert!(world.run_until(limit, World::is_settled));
    world.check_names(KIND);
    assert_eq!(world.hosts[3].readers[0].names.len(), 1333);
    assert!(world.node(3).stats().snapshots > 0);
}

#[test]
fn subscription__a_slow_reader_is_named_and_catches_up() {
    let config = Config { queue_max: 16, ..Config::default() };
    let mut world = World::joined(7, 2, config);
    let reading = world.with(0, |n, now| n.subscribe(now, owner(3, 9), all())).unwrap();
    let mut ids: Vec<_> = (0..10).map(|i| claim(&mut world, 1, name(i))).collect();
    world.run(Duration::from_millis(5));
    let mut seq = 0;
    let mut names = std::collections::BTreeMap::new();
    let mut missed = 0;
    let mut read = |world: &mut World, names: &mut std::collections::BTreeMap<_, _>| {
        while let Some(event) = world.node(0).read(reading) {
            seq += 1;
            assert_eq!(event.seq, seq);
            match event.notice {
                Notice::Published(b) => assert!(names.insert(b.id, b).is_none()),
                Notice::Withdrawn(b, _) => assert!(names.remove(&b.id).is_some()),
                Notice::Missed { events } => missed += events,
                _ => {}
            }
        }
    };
    read(&mut world, &mut names);
    assert_eq!(names.len(), 10);
    // Now it does not read, while more changes come than it may have waiting.
    for i in 100..140 {
        ids.push(claim(&mut world, 1, name(i)));
        let first = ids.remove(0);
        world.with(1, |n, now| n.withdraw(now, first));
    }
    world.run(seconds(1));
    let slow: Vec<_> = world.node(0).subscriptions().slow().collect();
    assert_eq!((slow[0].id, slow[0].owner), (reading, owner(3, 9)));
    read(&mut world, &mut names);
    let mut present: Vec<u32> = names.values().map(|b: &Binding| b.name.lower).collect();
    present.sort();
    assert_eq!(present, (130..140).collect::<Vec<u32>>());
    assert_eq!(missed, 80);
    assert_eq!(world.node(0).subscriptions().slow().count(), 0);
}

#[test]
fn subscription__first_and_last_and_timeout() {
    let mut world = World::joined(8, 2, Config::default());
    let filter = Filter { mode: Mode::FirstLast, timeout: Some(seconds(5)), ..all() };
    let reader = world.watch(0, filter);
    let a = claim(&mut world, 1, name(1));
    let b = claim(&mut world, 1, name(2));
    world.run(Duration::from_millis(5));
    world.with(1, |n, now| n.withdraw(now, a));
    world.run(Duration::from_millis(5));
    // Its reader checks that the last to go is told, which is not the first that came.
    world.hosts[0].readers[reader].names.clear();
    let last = world.node(0).look_up(7, KIND, 2, Pick::Turn).unwrap().clone();
    world.hosts[0].readers[reader].names.insert(last.id, last);
    world.with(1, |n, now| n.withdraw(now, b));
    world.run(seconds(6));
    let log: Vec<&Notice> = world.hosts[0].readers[reader].log.iter().map(|(_, n)| n).collect();
    assert_eq!(log.len(), 4, "{log:?}");
    assert!(matches!(log[1], Notice::Published(b) if b.name.lower == 1));
    assert!(matches!(log[2], Notice::Withdrawn(b, _) if b.name.lower == 2));
    assert!(matches!(log[3], Notice::Timeout));
    assert!(world.node(0).subscriptions().is_empty());
}

#[test]
fn subscription__of_one_user_are_bounded() {
    let config = Config { subscriptions_per_user: 2, ..Config::default() };
    let mut world = World::joined(9, 1, config);
    let mut add = |user| world.with(0, |n, now| n.subscribe(now, owner(user, 1), all()));
    assert!(add(1).is_ok() && add(1).is_ok());
    assert_eq!(add(1), Err(SubscribeError::TooMany { bound: 2 }));
    assert!(add(2).is_ok());
    world.with(0, |n, now| n.owner_ended(now, owner(1, 1), directory::Gone::Withdrawn));
    assert_eq!(world.node(0).subscriptions().len(), 1);
}

#[test]
fn evict__ends_the_claim_of_a_slow_member() {
    let mut world = World::joined(10, 3, Config::default());
    let member = claim(&mut world, 1, name(1).group());
    let plain = claim(&mut world, 1, name(3));
    claim(&mut world, 2, name(2).group());
    world.run(seconds(1));
    let at = |w: &mut World, i| w.node(0).look_up(7, KIND, i, Pick::Turn).unwrap().id;
    let (slow, other) = (at(&mut world, 1), at(&mut world, 3));
    // Host 0 has no member of the group; what is no member cannot be evicted.
    world.with(0, |n, now| n.evict(now, slow, 7));
    world.with(2, |n, now| n.evict(now, other, 7));
    // A member of another user ends no membership of this one.
    let stranger = Claim { owner: owner(8, 1), ..name(4).group() };
    claim(&mut world, 2, stranger);
    world.run(Duration::from_millis(5));
    world.with(2, |n, now| n.evict(now, slow, 8));
    world.run(Duration::from_millis(5));
    assert!(world.node(1).standing(member).is_some() && world.node(1).standing(plain).is_some());
    world.with(2, |n, now| n.evict(now, slow, 7));
    world.run(Duration::from_millis(5));
    assert!(world.node(1).standing(member).is_none());
    let gone = directory::Gone::Evicted { by: World::id(2) };
    assert!(world.hosts[1]
        .events
        .iter()
        .any(|(_, e)| *e == Event::ClaimLost { claim: member, gone }));
}
