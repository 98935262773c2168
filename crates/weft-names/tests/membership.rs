//! Membership of a cluster under faults.
#![allow(non_snake_case)]

mod world;

use std::time::Duration;
use weft_names::*;
use world::*;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Returns when each host was told of this step of another, in ms after `from`.
fn told_after(world: &World, of: usize, number: u32, from: u64) -> Vec<u64> {
    let hosts = world.hosts.iter().enumerate().filter(|(h, _)| *h != of);
    let at = |host: &Host| {
        let mut log = host.history.log.iter().rev();
        let found = log.find(|(_, e)| e.host == World::id(of) && e.number == number);
        found.map(|(at, _)| at.saturating_sub(from) / MS)
    };
    hosts.filter_map(|(_, host)| host.node.as_ref().and_then(|_| at(host))).collect()
}

#[test]
fn join__hosts_become_one_cluster() {
    for n in [1, 2, 3, 8, 40] {
        let world = World::joined(n as u64, n, Config::default());
        world.check_stories();
        for host in &world.hosts {
            assert_eq!(host.history.log.len(), n);
        }
    }
}

#[test]
fn join__under_loss_doubling_and_reordering() {
    let mut world = World::new(7, 12, Config::default());
    (world.loss, world.doubled, world.jitter) = (200, 100, 20 * MS);
    (0..12).for_each(|h| world.start(h, 5));
    let limit = world.now + 60_000 * MS;
    assert!(world.run_until(limit, World::is_settled));
    world.check_stories();
}

#[test]
fn death__is_reported_within_the_tolerance() {
    for (n, tolerance) in [(2, 1500), (3, 1500), (8, 1500), (50, 1500), (3, 50), (8, 50), (50, 50)]
    {
        let tolerance = Duration::from_millis(tolerance);
        let config = Config { tolerance, ..Config::default() };
        let mut world = World::joined(n as u64, n, config);
        world.run(seconds(2));
        let died = world.now;
        world.kill(1);
        world.run(tolerance * 2);
        let told = told_after(&world, 1, 2, died);
        assert_eq!(told.len(), n - 1, "{n} hosts");
        assert!(told.iter().all(|ms| *ms <= tolerance.as_millis() as u64), "{n}: {told:?}");
        world.check_stories();
        let limit = world.now + 10_000 * MS;
        assert!(world.run_until(limit, World::is_settled));
    }
}

#[test]
fn leave__is_reported_with_its_cause() {
    let mut world = World::joined(3, 6, Config::default());
    world.with(2, |node, now| node.leave(now));
    world.run(Duration::from_millis(20));
    for (h, host) in world.hosts.iter().enumerate().filter(|(h, _)| *h != 2) {
        let (_, last) = host.history.log.last().unwrap();
        assert_eq!((last.host, last.cause), (World::id(2), Cause::Left), "host {h}");
    }
}

#[test]
fn end__that_the_kernel_reports_is_passed_on_at_once() {
    let mut world = World::joined(3, 6, Config::default());
    world.kill(2);
    world.with(4, |node, now| node.report_ended(now, World::id(2), 9));
    world.run(Duration::from_millis(20));
    for host in world.hosts.iter().filter(|h| h.node.is_some()) {
        let (_, last) = host.history.log.last().unwrap();
        assert_eq!((last.host, last.cause), (World::id(2), Cause::Ended { status: 9 }));
    }
}

#[test]
fn restart__replaces_the_earlier_life_even_with_an_older_clock() {
    for incarnation in [3, 5, 9] {
        let mut world = World::joined(4, 5, Config::default());
        world.kill(3);
        world.start(3, incarnation);
        let limit = world.now + 20_000 * MS;
        assert!(world.run_until(limit, World::is_settled), "incarnation {incarnation}");
        world.check_stories();
        for host in world.hosts.iter().filter(|h| h.history.log.len() > 5) {
            let of = host.history.log.iter().filter(|(_, e)| e.host == World::id(3));
            let causes: Vec<Cause> = of.map(|(_, e)| e.cause).collect();
            assert!(matches!(causes[1], Cause::Replaced { .. }), "{causes:?}");
            assert_eq!(causes[2], Cause::Started);
        }
    }
}

#[test]
fn copy__of_a_running_host_is_distinguished() {
    let mut world = World::new(4, 6, Config::default());
    (0..5).for_each(|h| world.start(h, 5));
    let limit = world.now + 20_000 * MS;
    assert!(world.run_until(limit, World::is_settled));
    // Host 5 is a copy of host 3: same number, same incarnation, other start.
    let life = Life { incarnation: 5, nonce: 1 };
    world.start_as(5, World::id(3), life);
    let limit = world.now + 20_000 * MS;
    assert!(world.run_until(limit, |w| {
        let over = |h: usize| w.hosts[h].node.as_ref().is_some_and(Node::is_over);
        over(3) != over(5) && w.is_settled()
    }));
    let events = world.hosts[3].events.iter().chain(&world.hosts[5].events);
    assert_eq!(events.filter(|(_, e)| matches!(e, Event::Superseded { .. })).count(), 1);
}

#[test]
fn one_way_loss__between_two_hosts_changes_nothing() {
    for n in [3, 8, 60] {
        let mut world = World::joined(5, n, Config::default());
        world.cut.insert((0, 1));
        world.run(seconds(20));
        assert!(world.hosts.iter().all(|h| h.history.log.len() == n), "{n} hosts");
    }
}

#[test]
fn one_way_loss__a_deaf_host_is_lost_and_declares_no_other_lost() {
    let mut world = World::joined(6, 9, Config::default());
    world.deaf.insert(4);
    world.run(seconds(5));
    for (h, host) in world.hosts.iter().enumerate() {
        let steps: Vec<_> = host.history.log[9..].iter().map(|(_, e)| (e.host, e.number)).collect();
        let expected = if h == 4 { vec![] } else { vec![(World::id(4), 2)] };
        assert_eq!(steps, expected, "host {h}");
    }
    assert!(world.node(4).is_cut_off());
    world.deaf.clear();
    let limit = world.now + 20_000 * MS;
    assert!(world.run_until(limit, World::is_settled));
    world.check_stories();
    for host in &world.hosts {
        assert_eq!(host.history.log.len(), 11);
    }
}

#[test]
fn one_way_loss__a_mute_host_is_lost_and_returns() {
    let mut world = World::joined(6, 9, Config::default());
    world.mute.insert(4);
    world.run(seconds(5));
    assert!(world.hosts.iter().enumerate().all(|(h, host)| h == 4 || host.history.log.len() == 10));
    world.mute.clear();
    let limit = world.now + 20_000 * MS;
    assert!(world.run_until(limit, World::is_settled));
    world.check_stories();
}

#[test]
fn partition__heals_to_one_story() {
    for (seed, n, small) in [(1, 4, 2), (2, 9, 3), (3, 50, 25), (4, 12, 1)] {
        let mut world = World::joined(seed, n, Config::default());
        (0..small).for_each(|h| world.parts[h] = 1);
        world.run(seconds(6));
        for h in 0..n {
            let expected = if h < small { small } else { n - small };
            let node = world.node(h);
            let there = if node.is_cut_off() { 1 } else { node.members().ring().len() };
            assert_eq!(there, expected, "host {h} of {n}");
        }
        world.parts.fill(0);
        let healed = world.now;
        assert!(world.run_until(healed + 30_000 * MS, World::is_settled), "{n} hosts");
        world.check_stories();
        // Nobody sees hosts of its own part go.
        for (h, host) in world.hosts.iter().enumerate() {
            let own = |e: &MemberEvent| (e.host.0 as usize) <= small;
            let here = h < small;
            let gone = host
                .history
                .log
                .iter()
                .filter(|(at, e)| *at > healed && !e.is_up() && !e.passed && own(e) == here);
            assert_eq!(gone.count(), 0, "host {h} of {n}");
        }
    }
}

#[test]
fn idle__all_probes_of_a_cluster_come_together() {
    for seed in 0..20 {
        let mut world = World::new(seed, 8, Config::default());
        world.jitter = MS;
        for host in 0..8 {
            world.start(host, 5);
            let later = world.rng.below(700);
            world.run(Duration::from_millis(later));
        }
        world.run(seconds(30));
        let before: Vec<u64> = world.hosts.iter().map(|h| h.wake_ups).collect();
        world.run(seconds(30));
        let rounds = seconds(30).as_millis() / world.config.probe_every().as_millis();
        for (host, before) in world.hosts.iter().zip(before) {
            let wake_ups = u128::from(host.wake_ups - before);
            assert!(wake_ups <= 2 * rounds, "{wake_ups} in {rounds} rounds, seed {seed}");
        }
    }
}

#[test]
fn flapping__reports_each_step_once() {
    let mut world = World::joined(8, 10, Config::default());
    for _ in 0..5 {
        (0..4).for_each(|h| world.parts[h] = 1);
        world.run(seconds(3));
        world.parts.fill(0);
        world.run(Duration::from_millis(700));
    }
    let limit = world.now + 30_000 * MS;
    assert!(world.run_until(limit, World::is_settled));
    world.check_stories();
}

#[test]
fn pause__of_a_driver_is_not_silence_of_others() {
    let mut world = World::joined(9, 6, Config::default());
    world.pause(2);
    world.run(seconds(10));
    world.resume(2);
    let limit = world.now + 20_000 * MS;
    assert!(world.run_until(limit, World::is_settled));
    let gone = world.hosts[2].history.log.iter().filter(|(_, e)| !e.is_up() && !e.passed);
    assert_eq!(gone.count(), 0);
    world.check_stories();
}

#[test]
fn pause__between_question_and_verdict_is_not_silence_of_others() {
    let mut world = World::joined(11, 2, Config::default());
    world.cut.insert((0, 1));
    let limit = world.now + 5_000 * MS;
    let asks = |w: &World| w.hosts[1].node.as_ref().is_some_and(|n| n.stats().suspected > 0);
    assert!(world.run_until(limit, asks));
    world.cut.clear();
    world.pause(1);
    world.run(seconds(10));
    world.resume(1);
    let limit = world.now + 20_000 * MS;
    assert!(world.run_until(limit, World::is_settled));
    assert_eq!(world.node(1).stats().declared_lost, 0);
    world.check_stories();
}

#[test]
fn clock__may_jump() {
    let mut world = World::joined(10, 6, Config::default());
    for jump in [3_600_000, -3_000_000, 500, -400, 86_400_000_i64] {
        world.hosts[3].skew += jump * MS as i64;
        world.with(3, |node, now| node.handle_timeout(now));
        world.run(seconds(5));
        assert!(world.is_settled(), "after {jump} ms");
        assert!(world.hosts.iter().all(|h| h.history.log.len() == 6), "after {jump} ms");
    }
}
