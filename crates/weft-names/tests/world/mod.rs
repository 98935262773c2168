//! A small deterministic cluster: nodes, a network with faults, and checkers, in virtual time.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use weft_names::*;

pub const MS: u64 = 1_000_000;

/// Numbers from a seed (xorshift64*).
pub struct Rng(pub u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n.max(1)
    }
}

pub fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, (host >> 16) as u8, (host >> 8) as u8, host as u8], 7117))
}

pub fn index(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(a) => {
            let o = a.ip().octets();
            usize::from(o[1]) << 16 | usize::from(o[2]) << 8 | usize::from(o[3])
        }
        _ => panic!("an address of nobody"),
    }
}

/// The events that a host was told of others, checked as they come.
#[derive(Default)]
pub struct History {
    seq: u64,
    last: BTreeMap<HostId, (Life, u32)>,
    /// Causes by host, life and step.
    pub told: BTreeMap<(HostId, Life, u32), Cause>,
    pub log: Vec<(u64, MemberEvent)>,
}

impl History {
    fn take(&mut self, now: u64, event: MemberEvent) {
        assert_eq!(event.seq, self.seq + 1, "events of membership are numbered without a gap");
        self.seq += 1;
        let step = (event.life, event.number);
        if let Some(last) = self.last.insert(event.host, step) {
            assert!(last < step, "{event:?} after {last:?}");
            if last.0 == event.life {
                assert_eq!(last.1 + 1 + event.missed, event.number, "{event:?} after {last:?}");
            }
        }
        self.told.insert((event.host, event.life, event.number), event.cause);
        self.log.push((now, event));
    }
}

/// A subscriber that reads, and checks its events.
pub struct Reader {
    pub id: SubscriptionId,
    seq: u64,
    pub names: BTreeMap<BindingId, Binding>,
    pub log: Vec<(u64, Notice)>,
}

impl Reader {
    fn take(&mut self, now: u64, event: NameEvent) {
        assert_eq!(event.seq, self.seq + 1, "events of a subscription are numbered without a gap");
        self.seq += 1;
        match &event.notice {
            Notice::Published(b) => {
                assert!(self.names.insert(b.id, b.clone()).is_none(), "published twice: {b:?}");
            }
            Notice::Withdrawn(b, _) => {
                assert!(self.names.remove(&b.id).is_some(), "withdrawn, not published: {b:?}");
            }
            _ => {}
        }
        self.log.push((now, event.notice));
    }
}

pub struct Host {
    pub node: Option<Node>,
    pub starts: u64,
    pub is_paused: bool,
    pub skew: i64,
    inbox: VecDeque<(SocketAddr, Vec<u8>)>,
    armed: Option<u64>,
    pub history: History,
    pub readers: Vec<Reader>,
    pub events: Vec<(u64, Event)>,
    /// Unique names held: claim by kind and instance.
    pub sent: u64,
    pub received: u64,
    /// Times at which its driver woke: it stays awake for [`AWAKE`] for what comes next.
    pub wake_ups: u64,
    awake: u64,
}

/// Time for which a driver takes what comes without another wake-up.
const AWAKE: u64 = 2 * MS;

impl Host {
    fn wake(&mut self, now: u64) {
        self.wake_ups += u64::from(now > self.awake);
        self.awake = now + AWAKE;
    }
}

pub struct World {
    pub now: u64,
    pub rng: Rng,
    pub config: Config,
    pub hosts: Vec<Host>,
    flying: BTreeMap<(u64, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    timers: BTreeSet<(u64, usize)>,
    serial: u64,
    /// Per mille.
    pub loss: u64,
    pub doubled: u64,
    /// Most delay of a message in ns.
    pub jitter: u64,
    /// Part of each host; hosts of different parts do not hear each other.
    pub parts: Vec<u32>,
    /// Directed pairs that lose all.
    pub cut: BTreeSet<(usize, usize)>,
    /// Hosts that hear nothing; hosts that nobody hears.
    pub deaf: BTreeSet<usize>,
    pub mute: BTreeSet<usize>,
}

impl World {
    pub fn new(seed: u64, n: usize, config: Config) -> World {
        let host = || Host {
            node: None,
            starts: 0,
            is_paused: false,
            skew: 0,
            inbox: VecDeque::new(),
            armed: None,
            history: History::default(),
            readers: Vec::new(),
            events: Vec::new(),
            sent: 0,
            received: 0,
            wake_ups: 0,
            awake: 0,
        };
        World {
            now: 1_000 * MS,
            rng: Rng::new(seed),
            config,
            hosts: (0..n).map(|_| host()).collect(),
            flying: BTreeMap::new(),
            timers: BTreeSet::new(),
            serial: 0,
            loss: 0,
            doubled: 0,
            jitter: MS / 10,
            parts: vec![0; n],
            cut: BTreeSet::new(),
            deaf: BTreeSet::new(),
            mute: BTreeSet::new(),
        }
    }

    /// A world in which all hosts have started and know each other.
    pub fn joined(seed: u64, n: usize, config: Config) -> World {
        let mut world = World::new(seed, n, config);
        (0..n).for_each(|h| world.start(h, 5));
        let limit = world.now + 60_000 * MS;
        world.run_until(limit, |w| w.is_settled());
        assert!(world.is_settled(), "the hosts did not become a cluster");
        world
    }

    pub fn id(host: usize) -> HostId {
        HostId(host as u64 + 1)
    }

    /// Starts the agent of a host with a guess of its incarnation.
    pub fn start(&mut self, host: usize, incarnation: u64) {
        let nonce = self.rng.next();
        self.start_as(host, World::id(host), Life { incarnation, nonce });
    }

    pub fn start_as(&mut self, host: usize, id: HostId, life: Life) {
        let now = self.time(host);
        let mut node = Node::new(self.config.clone(), id, life, address(host), now);
        node.join(now, [address(0), address(1)]);
        let h = &mut self.hosts[host];
        h.node = Some(node);
        h.starts += 1;
        h.history = History::default();
        h.readers.clear();
        h.inbox.clear();
        self.drain(host);
    }

    /// Ends the agent of a host without a word.
    pub fn kill(&mut self, host: usize) {
        self.hosts[host].node = None;
        self.rearm(host);
    }

    pub fn pause(&mut self, host: usize) {
        self.hosts[host].is_paused = true;
        self.rearm(host);
    }

    pub fn resume(&mut self, host: usize) {
        self.hosts[host].is_paused = false;
        while let Some((from, bytes)) = self.hosts[host].inbox.pop_front() {
            self.deliver(from, host, bytes);
        }
        self.rearm(host);
    }

    pub fn time(&self, host: usize) -> Instant {
        Instant((self.now as i64 + self.hosts[host].skew) as u64)
    }

    pub fn node(&mut self, host: usize) -> &mut Node {
        self.hosts[host].node.as_mut().expect("the host runs")
    }

    /// Calls a node, and does what it wants.
    pub fn with<T>(&mut self, host: usize, call: impl FnOnce(&mut Node, Instant) -> T) -> T {
        let now = self.time(host);
        let result = call(self.node(host), now);
        self.drain(host);
        result
    }

    pub fn watch(&mut self, host: usize, filter: Filter) -> usize {
        let owner = Owner { user: 0, process: 1, serial: 1 };
        let id = self.with(host, |n, now| n.subscribe(now, owner, filter)).expect("allowed");
        let reader = Reader { id, seq: 0, names: BTreeMap::new(), log: Vec::new() };
        self.hosts[host].readers.push(reader);
        self.read(host);
        self.hosts[host].readers.len() - 1
    }

    pub fn read(&mut self, host: usize) {
        let now = self.now;
        let Host { node: Some(node), readers, .. } = &mut self.hosts[host] else { return };
        for reader in readers {
            while let Some(event) = node.read(reader.id) {
                reader.take(now, event);
            }
        }
    }

    fn drain(&mut self, host: usize) {
        let now = self.now;
        let Some(node) = self.hosts[host].node.as_mut() else { return };
        let mut out = Vec::new();
        while let Some(t) = node.poll_transmit() {
            out.push(t);
        }
        let mut events = Vec::new();
        while let Some(e) = node.poll_event() {
            events.push(e);
        }
        let h = &mut self.hosts[host];
        h.sent += out.len() as u64;
        for event in events {
            if let Event::Member(e) = &event {
                h.history.take(now, *e);
            }
            h.events.push((now, event));
        }
        out.into_iter().for_each(|t| self.fly(host, t));
        self.read(host);
        self.rearm(host);
    }

    fn fly(&mut self, host: usize, t: Transmit) {
        let copies = 1 + u64::from(self.rng.below(1000) < self.doubled);
        for _ in 0..copies {
            if self.rng.below(1000) < self.loss {
                continue;
            }
            let at = self.now + MS / 20 + self.rng.below(self.jitter.max(1));
            self.serial += 1;
            self.flying.insert((at, self.serial), (address(host), t.to, t.bytes.clone()));
        }
    }

    fn rearm(&mut self, host: usize) {
        let h = &mut self.hosts[host];
        if let Some(at) = h.armed.take() {
            self.timers.remove(&(at, host));
        }
        let node = h.node.as_ref().filter(|_| !h.is_paused);
        if let Some(at) = node.and_then(Node::next_timeout) {
            let at = ((at.0 as i64 - h.skew).max(0) as u64).max(self.now);
            h.armed = Some(at);
            self.timers.insert((at, host));
        }
    }

    fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.parts[from] != self.parts[to]
            || self.cut.contains(&(from, to))
            || self.deaf.contains(&to)
            || self.mute.contains(&from)
    }

    fn deliver(&mut self, from: SocketAddr, to: usize, bytes: Vec<u8>) {
        let now = self.time(to);
        let h = &mut self.hosts[to];
        if h.is_paused {
            // The inbox takes as much as a socket's buffer holds.
            if h.inbox.len() < 200 {
                h.inbox.push_back((from, bytes));
            }
            return;
        }
        h.wake(self.now);
        if let Some(node) = h.node.as_mut() {
            h.received += 1;
            node.handle_message(now, from, &bytes);
            self.drain(to);
        }
    }

    /// Goes on by one message or deadline. Returns false if nothing is left.
    pub fn step(&mut self) -> bool {
        let message = self.flying.first_key_value().map(|(k, _)| k.0);
        let timer = self.timers.first().map(|t| t.0);
        match (message, timer) {
            (Some(m), t) if t.is_none_or(|t| m <= t) => {
                self.now = self.now.max(m);
                let Some((_, (from, to, bytes))) = self.flying.pop_first() else { return false };
                let (from_host, to) = (index(from), index(to));
                if to < self.hosts.len() && !self.is_blocked(from_host, to) {
                    self.deliver(from, to, bytes);
                }
            }
            (_, Some(t)) => {
                self.now = self.now.max(t);
                let Some((_, host)) = self.timers.pop_first() else { return false };
                self.hosts[host].armed = None;
                self.hosts[host].wake(self.now);
                let now = self.time(host);
                if let Some(node) = self.hosts[host].node.as_mut() {
                    node.handle_timeout(now);
                    self.drain(host);
                }
            }
            _ => return false,
        }
        true
    }

    pub fn run(&mut self, time: Duration) {
        let limit = self.now + time.as_nanos() as u64;
        self.run_until(limit, |_| false);
    }

    /// Runs until the condition holds (asked every ms), or the time is over. Returns true if it
    /// holds.
    pub fn run_until(&mut self, limit: u64, mut done: impl FnMut(&World) -> bool) -> bool {
        let mut ask = self.now;
        loop {
            if self.now >= ask {
                if done(self) {
                    return true;
                }
                ask = self.now + MS;
            }
            let message = self.flying.first_key_value().map(|(k, _)| k.0);
            let next = message.into_iter().chain(self.timers.first().map(|t| t.0)).min();
            // The condition is asked in quiet times, too.
            let quiet = ask.min(limit);
            if next.is_none_or(|at| at > quiet) {
                self.now = quiet;
                if quiet == limit {
                    return done(self);
                }
                continue;
            }
            self.step();
        }
    }

    /// Returns true if all hosts that run know the same, and exactly each other to be there.
    pub fn is_settled(&self) -> bool {
        let running = |h: &&Host| h.node.as_ref().is_some_and(|n| !n.is_over());
        let ids: BTreeSet<HostId> = self
            .hosts
            .iter()
            .filter(running)
            .filter_map(|h| h.node.as_ref().map(|n| n.me().host))
            .collect();
        let mut digests = BTreeSet::new();
        for host in self.hosts.iter().filter(running) {
            let node = host.node.as_ref().expect("runs");
            digests.insert(node.digest());
            if node.members().ring().len() != ids.len() || digests.len() > 1 || node.is_cut_off() {
                return false;
            }
            if !node.members().ring().iter().all(|h| ids.contains(&h)) {
                return false;
            }
        }
        true
    }

    /// Checks that readers of all hosts have the names that their nodes have, and that all nodes
    /// have those of the owners.
    pub fn check_names(&self, kind: u32) {
        let mut all: Option<BTreeSet<BindingId>> = None;
        for host in self.hosts.iter() {
            let Some(node) = host.node.as_ref().filter(|n| !n.is_over()) else { continue };
            let (directory, policy) = node.directory();
            let names: BTreeSet<BindingId> =
                directory.all(policy, 0, kind, 0, u32::MAX).map(|b| b.id).collect();
            for reader in &host.readers {
                let told: BTreeSet<BindingId> = reader.names.keys().copied().collect();
                assert_eq!(told, names, "a subscriber has other names than its host");
            }
            match &all {
                Some(all) => assert_eq!(all, &names, "two hosts have other names"),
                None => all = Some(names),
            }
        }
    }

    /// Checks that all hosts tell the same cause for the same step of a history.
    pub fn check_stories(&self) {
        let mut causes: BTreeMap<(HostId, Life, u32), Cause> = BTreeMap::new();
        for host in &self.hosts {
            for (step, cause) in &host.history.told {
                if matches!(cause, Cause::Elsewhere) {
                    continue;
                }
                let same = |a: &Cause, b: &Cause| match (a, b) {
                    // Two watchers may declare the same loss.
                    (Cause::Lost { .. }, Cause::Lost { .. }) => true,
                    (a, b) => a == b,
                };
                let known = causes.entry(*step).or_insert(*cause);
                assert!(same(known, cause), "{step:?}: {known:?} and {cause:?}");
            }
        }
    }
}
