//! Sizes: messages and links of a host grow like the root of the number of hosts.
#![allow(non_snake_case)]

mod world;

use std::time::Duration;
use weft_names::wire::{emit, Head, List, Members, Message};
use weft_names::*;
use world::*;

/// A cluster that is told who is there, instead of finding out.
fn preset(n: usize) -> World {
    let mut world = World::new(n as u64, n, Config::default());
    let life = Life { incarnation: 5, nonce: 1 };
    (0..n).for_each(|h| world.start_as(h, World::id(h), life));
    let records: Vec<Record> = world.hosts.iter().map(|h| *h.node.as_ref().unwrap().me()).collect();
    for h in 0..n {
        let head = Head { relay: 0, host: World::id((h + 1) % n), life };
        for chunk in records.chunks(20) {
            let message = Message::Members(Members { items: List::Items(chunk) });
            let bytes = emit(&head, &message);
            world.with(h, |node, now| node.handle_message(now, address((h + 1) % n), &bytes));
        }
    }
    world
}

#[test]
fn scale__messages_and_links_of_a_host_grow_like_the_root() {
    let mut rows: Vec<(usize, f64, f64)> = Vec::new();
    for n in [16, 64, 256, 1000] {
        let mut world = preset(n);
        let period = Config::default().probe_every();
        world.run(period + Duration::from_millis(1));
        assert!(world.is_settled());
        let sent = |w: &World| w.hosts.iter().map(|h| h.sent).sum::<u64>();
        let bytes = |w: &World| {
            w.hosts.iter().map(|h| h.node.as_ref().unwrap().stats().bytes_sent).sum::<u64>()
        };
        let (before, bytes_before) = (sent(&world), bytes(&world));
        world.run(period);
        let probes = sent(&world) - before;
        let probe_bytes = bytes(&world) - bytes_before;
        let messages = probes as f64 / n as f64 / period.as_secs_f64();
        let sizes: Vec<_> =
            world.hosts.iter().map(|h| h.node.as_ref().unwrap().footprint()).collect();
        let links = sizes.iter().map(|f| f.links).max().unwrap();
        assert!(sizes.iter().all(|f| f.timers <= f.links + 2), "timers are those of links");
        assert_eq!(sizes[0].members, n);
        println!("{n} hosts: {links} links, {messages:.0} messages a second and host");
        let rate = probe_bytes as f64 / n as f64 / period.as_secs_f64();
        let bytes_before = bytes(&world);
        let cost = claim_cost(&mut world, probes);
        let of_claim = (bytes(&world) - bytes_before).saturating_sub(probe_bytes) / n as u64;
        let memory = world.hosts[0].node.as_ref().unwrap().memory();
        println!("bytes a host: {rate:.0} a second, {of_claim} for a claim; {memory:?}");
        assert!(memory.hosts >= 100 * n && memory.names > 0);
        println!("a claim costs {cost:.2} messages a host");
        assert!(cost < 3.0, "{n} hosts: {cost}");
        rows.push((n, messages, links as f64));
    }
    // A probe and its answer for each link; half of them where two hosts watch each other.
    let each = |(_, messages, links): &(usize, f64, f64)| {
        messages * Config::default().probe_every().as_secs_f64() / links
    };
    assert!(each(&rows[0]) <= 1.1, "all watch all: {rows:?}");
    assert!(rows.iter().all(|row| each(row) <= 2.1), "{rows:?}");
    // Beyond the threshold of the full mesh: no more than the root of the ratio, and a tenth.
    for pair in rows[1..].windows(2) {
        let [(n, _, links), (m, _, more_links)] = [pair[0], pair[1]];
        let root = (m as f64 / n as f64).sqrt() * 1.1;
        assert!(more_links <= links * root, "{n} to {m}: {links} to {more_links}");
    }
}

/// Has one host claim a name, and returns the messages of that by host.
fn claim_cost(world: &mut World, probes: u64) -> f64 {
    let n = world.hosts.len();
    let received = |w: &World| w.hosts.iter().map(|h| h.received).sum::<u64>();
    let owner = Owner { user: 1, process: 1, serial: 1 };
    let claim = Claim::new(owner, 1000, 1..=1).endpoint(1);
    world.with(3, |node, now| node.claim(now, claim)).unwrap();
    let begun = received(world);
    world.run(Config::default().probe_every());
    for h in 0..n {
        assert!(world.node(h).look_up(1, 1000, 1, Pick::Turn).is_some(), "host {h} of {n}");
    }
    (received(world) - begun).saturating_sub(probes) as f64 / n as f64
}

#[test]
fn scale__names_converge_after_a_partition_of_half() {
    // More hosts take minutes here; `docs/results/records.md` has figures of 250 hosts and more.
    for n in [64] {
        let mut world = preset(n);
        world.run(Duration::from_millis(301));
        for h in 0..n {
            for i in 0..10u32 {
                let owner = Owner { user: 1, process: i, serial: 1 };
                let claim = Claim::new(owner, 1000 + i, h as u32..=h as u32).endpoint(1);
                world.with(h, |node, now| node.claim(now, claim)).unwrap();
            }
        }
        let filter =
            Filter { kind: 1003, lower: 0, upper: u32::MAX, mode: Mode::Each, timeout: None };
        world.watch(1, filter.clone());
        world.watch(n - 1, filter);
        let claimed = world.now;
        assert!(world.run_until(claimed + 20_000 * MS, World::is_settled));
        println!("{n} hosts: names of all on all after {} ms", (world.now - claimed) / MS);
        world.check_names(1003);
        (0..n / 2).for_each(|h| world.parts[h] = 1);
        let parted = world.now;
        let apart = |w: &World| {
            let rings = w.hosts.iter().filter_map(|h| h.node.as_ref());
            rings.into_iter().all(|n| n.members().ring().len() == w.hosts.len() / 2)
        };
        assert!(world.run_until(parted + 20_000 * MS, apart), "{n} hosts");
        println!("{n} hosts: parted after {} ms", (world.now - parted) / MS);
        assert_eq!(world.hosts[1].readers[0].names.len(), n / 2);
        world.parts.fill(0);
        let sent = |w: &World| w.hosts.iter().map(|h| h.sent).sum::<u64>();
        let (healed, before) = (world.now, sent(&world));
        assert!(world.run_until(healed + 60_000 * MS, World::is_settled), "{n} hosts");
        let messages = (sent(&world) - before) / n as u64;
        let time = (world.now - healed) / MS;
        println!("{n} hosts, {} names: healed in {time} ms, {messages} messages a host", 10 * n);
        world.check_names(1003);
        world.check_stories();
    }
}
