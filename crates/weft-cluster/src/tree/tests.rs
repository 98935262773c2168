#![allow(non_snake_case)]

use super::*;
use weft_link::rng::Rng;

const MS: u64 = 1_000_000;

fn agent(n: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 7117))
}

fn number(agent: SocketAddr) -> usize {
    match agent {
        SocketAddr::V4(a) => usize::from(a.ip().octets()[2]) << 8 | usize::from(a.ip().octets()[3]),
        SocketAddr::V6(_) => unreachable!("all are IPv4"),
    }
}

fn life() -> Life {
    Life { incarnation: 1, nonce: 1 }
}

fn find(host: HostId) -> Option<(SocketAddr, Life)> {
    Some((agent(host.0 as usize - 1), life()))
}

/// Agents with one owner of the name each.
struct World {
    now: u64,
    rng: Rng,
    loss: u64,
    hosts: Vec<(Post, Trees)>,
    dead: Vec<bool>,
    flying: BTreeMap<(u64, u64), (usize, usize, Vec<u8>)>,
    serial: u64,
    got: Vec<u32>,
    /// Hosts whose owner has vanished.
    empty: Vec<usize>,
    verdict: Option<Verdict>,
}

impl World {
    fn new(seed: u64, n: usize, loss: u64) -> World {
        World {
            now: MS,
            rng: Rng::new(seed),
            loss,
            hosts: (0..n).map(|h| (Post::new(h as u64 * 1000), Trees::default())).collect(),
            dead: vec![false; n],
            flying: BTreeMap::new(),
            serial: 0,
            got: vec![0; n],
            empty: Vec::new(),
            verdict: None,
        }
    }

    fn begin(&mut self, len: usize) {
        let below = (1..self.hosts.len()).map(|h| HostId(h as u64 + 1)).collect();
        let id = (HostId(1), life(), 1);
        let (payload, floor) = (vec![7; len], 1);
        let (kind, lower, upper, alias) = (900, 0, 9, "word".to_string());
        let mail = TreeMail { id, floor, kind, lower, upper, alias, below, payload };
        let (now, (post, trees)) = (Instant(self.now), &mut self.hosts[0]);
        let above = Above::Request(1);
        trees.begin(now, post, (mail, Owner::default()), above, Verdict::DELIVERED, find);
        self.settle(0);
    }

    fn receive(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let now = Instant(self.now);
        let (post, trees) = &mut self.hosts[to];
        if let Some(letter) = post.receive(now, agent(from), bytes) {
            let mail = TreeMail::parse(&letter.payload).unwrap();
            let above = Above::Agent(agent(from), letter.id);
            if trees.arrive(&mail, above) == Arrival::New {
                let gone = Verdict { outcome: Outcome::Vanished, host: HostId(to as u64 + 1) };
                let is_empty = self.empty.contains(&to);
                let own = if is_empty { gone } else { Verdict::DELIVERED };
                self.got[to] += u32::from(!is_empty);
                trees.begin(now, post, (mail, letter.from), above, own, find);
            }
            post.hold(agent(from), &letter);
        }
        self.settle(to);
    }

    fn settle(&mut self, h: usize) {
        let (now, (post, trees)) = (Instant(self.now), &mut self.hosts[h]);
        loop {
            if let Some((number, verdict)) = post.poll_outcome() {
                assert!(trees.on_outcome(now, post, number, verdict, find));
            } else if let Some((above, verdict)) = trees.poll_verdict() {
                match above {
                    Above::Agent(agent, id) => post.answer(now, agent, id, verdict),
                    Above::Request(_) => {
                        assert!(self.verdict.replace(verdict).is_none(), "one answer");
                    }
                }
            } else {
                break;
            }
        }
        while let Some((to, bytes)) = post.poll_transmit() {
            for _ in 0..1 + u64::from(self.rng.below(20) == 0) {
                if self.rng.below(1000) >= self.loss {
                    self.serial += 1;
                    let at = self.now + MS / 10 + self.rng.below(MS);
                    self.flying.insert((at, self.serial), (h, number(to), bytes.clone()));
                }
            }
        }
    }

    /// Runs until the sender has its answer and nothing more is to be done.
    fn run(&mut self) {
        let alive = |world: &World, h: usize| !world.dead[h];
        loop {
            let message = self.flying.first_key_value().map(|(key, _)| key.0);
            let timers = (0..self.hosts.len()).filter(|h| alive(self, *h));
            let timer = timers.filter_map(|h| self.hosts[h].0.next_timeout()).min();
            let Some(at) = message.into_iter().chain(timer.map(|t| t.0)).min() else { return };
            self.now = self.now.max(at);
            if message == Some(at) {
                let Some((_, (from, to, bytes))) = self.flying.pop_first() else { return };
                if alive(self, to) {
                    self.receive(from, to, &bytes);
                }
                continue;
            }
            for h in 0..self.hosts.len() {
                let now = Instant(self.now);
                let due = self.hosts[h].0.next_timeout().is_some_and(|at| at <= now);
                if due && alive(self, h) {
                    self.hosts[h].0.handle_timeout(now);
                    self.settle(h);
                }
            }
        }
    }

    fn most_begun(&self) -> u64 {
        self.hosts.iter().map(|(post, _)| post.begun).max().unwrap_or(0)
    }
}

#[test]
fn begin__all_owners_get_it_once_and_no_agent_sends_more_than_its_fan_out() {
    for (seed, n) in [(1, 2), (2, 9), (3, 10), (4, 100), (5, 1000)] {
        let mut world = World::new(seed, n, 0);
        world.begin(100);
        world.run();
        assert_eq!(world.verdict, Some(Verdict::DELIVERED));
        assert!(world.got[1..].iter().all(|got| *got == 1));
        assert!(world.most_begun() <= FAN_OUT as u64, "{}", world.most_begun());
        let all: u64 = world.hosts.iter().map(|(post, _)| post.begun).sum();
        assert_eq!(all, n as u64 - 1, "one message a host");
    }
}

#[test]
fn begin__under_loss_and_death_the_living_get_it_once_and_the_reason_names_a_dead_host() {
    for seed in 0..20 {
        let mut world = World::new(seed, 60, 200);
        let dead: Vec<usize> =
            (0..seed as usize % 6).map(|_| 1 + world.rng.below(59) as usize).collect();
        dead.iter().for_each(|h| world.dead[*h] = true);
        world.begin([10, 66_000][seed as usize % 2]);
        world.run();
        for h in 1..60 {
            assert_eq!(world.got[h], u32::from(!world.dead[h]), "seed {seed}: host {h}");
        }
        let verdict = world.verdict.expect("an answer");
        match dead.is_empty() {
            true => assert_eq!(verdict, Verdict::DELIVERED),
            false => {
                assert_eq!(verdict.outcome, Outcome::Silent);
                assert!(world.dead[verdict.host.0 as usize - 1], "seed {seed}: {verdict:?}");
            }
        }
        assert!(world
            .hosts
            .iter()
            .enumerate()
            .all(|(h, (_, trees))| world.dead[h] || trees.is_empty()));
    }
}

#[test]
fn begin__an_owner_that_vanished_is_named() {
    let mut world = World::new(1, 40, 100);
    world.empty.push(33);
    world.begin(10);
    world.run();
    let gone = Verdict { outcome: Outcome::Vanished, host: HostId(34) };
    assert_eq!(world.verdict, Some(gone));
    assert_eq!(world.got.iter().sum::<u32>(), 38);
}

#[test]
fn arrive__a_message_that_is_over_is_delivered_nowhere_and_a_burst_is_bounded() {
    let (mut post, mut trees, now) = (Post::new(1), Trees::default(), Instant(MS));
    let above = Above::Agent(agent(0), 1);
    let mail = |host, incarnation, number, floor| {
        let id = (HostId(host), Life { incarnation, nonce: 1 }, number);
        TreeMail {
            id,
            floor,
            kind: 900,
            lower: 0,
            alias: String::new(),
            upper: 9,
            below: Vec::new(),
            payload: vec![1],
        }
    };
    let mut come = |mail: TreeMail| {
        let arrival = trees.arrive(&mail, above);
        if arrival == Arrival::New {
            let all = Verdict::DELIVERED;
            trees.begin(now, &mut post, (mail, Owner::default()), above, all, find);
        }
        assert_eq!(trees.poll_verdict().is_some(), arrival != Arrival::Full);
        (arrival, trees.done.values().map(|ended| ended.verdicts.len()).sum::<usize>())
    };
    // The sender waits for the first one all the time.
    let most = DONE_MAX as u64 / 2;
    assert!((1..=most).all(|n| come(mail(2, 5, n, 1)).0 == Arrival::New));
    assert_eq!(come(mail(2, 5, most + 1, 1)).0, Arrival::Full);
    assert_eq!(come(mail(3, 5, 1, 1)).0, Arrival::New, "of another host");
    assert_eq!(come(mail(2, 5, 1, 1)).0, Arrival::Known);
    // The tree's sender goes on, so the others are over: none of them is remembered, and none
    // delivered again.
    assert_eq!(come(mail(2, 5, most + 2, most + 2)), (Arrival::New, 2));
    assert_eq!(come(mail(2, 5, 1, 1)).0, Arrival::Known);
    assert_eq!(come(mail(2, 4, most + 9, 1)).0, Arrival::Known, "of an earlier life");
    assert_eq!(come(mail(2, 6, 1, 1)).0, Arrival::New, "of a later life");
    for host in 0..2 * HOSTS_MAX as u64 {
        come(mail(host, 9, 1, 1));
    }
    assert!(trees.done.len() <= HOSTS_MAX);
}

#[test]
fn floor__is_the_first_message_of_this_host_that_is_under_way() {
    let mut world = World::new(1, 9, 0);
    world.begin(10);
    let trees = &mut world.hosts[0].1;
    assert_eq!(trees.floor((HostId(1), life(), 5)), 1);
    assert_eq!(trees.floor((HostId(2), life(), 5)), 5);
    world.run();
    assert_eq!(world.hosts[0].1.floor((HostId(1), life(), 5)), 5);
}

#[test]
fn parse__hostile_bytes_are_refused_or_bounded() {
    let mut world = World::new(9, 1, 0);
    for _ in 0..20_000 {
        let len = world.rng.below(120) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| world.rng.below(256) as u8 & 3).collect();
        if let Ok(mail) = TreeMail::parse(&bytes) {
            assert!(mail.below.len() <= BELOW_MAX && mail.encode() == bytes);
        }
    }
}
