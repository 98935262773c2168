//! Clusters of agents in virtual time: the state machine of `weft-names` on many hosts, through a
//! partition of half.
//!
//! Messages take 50 to 150 us and none is lost but those between the parts. Sessions, keys and
//! sockets of agents are not simulated.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use weft_link::rng::Rng;
use weft_names::membership::Record;
use weft_names::wire::{emit, Head, List, Members, Message};
use weft_names::{
    Claim, Config, Event, Filter, HostId, Instant, Life, Mode, Node, Notice, Owner, SubscriptionId,
};

const MS: u64 = 1_000_000;
/// The virtual time at which a run begins.
const BEGIN: u64 = 1000 * MS;
/// Least and most delay of a message.
const DELAY: (u64, u64) = (50_000, 150_000);
/// Type of the first names.
const KIND: u32 = 1000;
/// Names of one type.
const OF_KIND: usize = 1000;
/// Names claimed in a millisecond.
const AT_ONCE: usize = 100;
/// Time between two looks at the goal of a run.
const POLL_EVERY: u64 = 20 * MS;

/// A cluster, and the load on it.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// Hosts.
    pub hosts: usize,
    /// Names, spread over the hosts.
    pub names: usize,
    /// Subscriptions, spread over the hosts, each to one type of names.
    pub subscriptions: usize,
    /// The seed.
    pub seed: u64,
}

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterReport {
    /// Hosts that each host watches.
    pub watched: usize,
    /// Messages a second and host, while nothing happens.
    pub idle_per_s: f64,
    /// Time until all hosts had all names, in ms.
    pub claimed_ms: u64,
    /// Time until each half had told the other one lost, in ms.
    pub parted_ms: u64,
    /// Time from the heal until all hosts knew the same again, in ms.
    pub healed_ms: u64,
    /// Messages of a host in that time.
    pub heal_messages: f64,
    /// Most bytes that a host keeps to watch others.
    pub watching_bytes: usize,
    /// Most bytes of the hosts and names that a host knows.
    pub table_bytes: usize,
    /// Bytes of `table_bytes` that are about hosts; the other bytes are about names.
    pub hosts_bytes: usize,
    /// Events that subscribers were told.
    pub events: u64,
}

struct Reader {
    id: SubscriptionId,
    seq: u64,
    there: BTreeSet<weft_names::BindingId>,
}

struct Host {
    node: Node,
    readers: Vec<Reader>,
    armed: Option<u64>,
}

/// Called with the stage of a run and the virtual time since its beginning, every few milliseconds
/// of virtual time.
pub type Tell<'a> = &'a mut dyn FnMut(&'static str, std::time::Duration);

struct World<'a> {
    /// The current stage of the run, for who watches it, and the time at which it is told next.
    stage: &'static str,
    told: u64,
    tell: Tell<'a>,
    now: u64,
    rng: Rng,
    hosts: Vec<Host>,
    flying: BTreeMap<(u64, u64), (usize, usize, Vec<u8>)>,
    timers: BTreeSet<(u64, usize)>,
    serial: u64,
    is_parted: bool,
    sent: u64,
    events: u64,
}

fn address(host: usize) -> SocketAddr {
    let [_, a, b, c] = (host as u32).to_be_bytes();
    SocketAddr::from(([10, a, b, c], 7117))
}

fn index(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(v4) => (u32::from_be_bytes(v4.ip().octets()) & 0xff_ffff) as usize,
        SocketAddr::V6(_) => usize::MAX,
    }
}

fn id(host: usize) -> HostId {
    HostId(host as u64 + 1)
}

const LIFE: Life = Life { incarnation: 5, nonce: 1 };

impl World<'_> {
    /// Makes a cluster in which all are told who is there.
    fn new<'a>(plan: &ClusterPlan, tell: Tell<'a>) -> World<'a> {
        let now = BEGIN;
        let config = Config::default;
        let node = |h| Node::new(config(), id(h), LIFE, address(h), Instant(now));
        let host = |h| Host { node: node(h), readers: Vec::new(), armed: None };
        let mut world = World {
            stage: "",
            told: 0,
            tell,
            now,
            rng: Rng::new(plan.seed),
            hosts: (0..plan.hosts).map(host).collect(),
            flying: BTreeMap::new(),
            timers: BTreeSet::new(),
            serial: 0,
            is_parted: false,
            sent: 0,
            events: 0,
        };
        let records: Vec<Record> = world.hosts.iter().map(|h| *h.node.me()).collect();
        for h in 0..plan.hosts {
            let from = (h + 1) % plan.hosts;
            let head = Head { relay: 0, host: id(from), life: LIFE };
            for chunk in records.chunks(20) {
                let message = Message::Members(Members { items: List::Items(chunk) });
                let bytes = emit(&head, &message);
                world.with(h, |node, now| node.handle_message(now, address(from), &bytes));
            }
        }
        world
    }

    /// Calls a node, and does what it wants.
    fn with(&mut self, host: usize, call: impl FnOnce(&mut Node, Instant)) {
        let now = Instant(self.now);
        call(&mut self.hosts[host].node, now);
        let half = self.hosts.len() / 2;
        while let Some(t) = self.hosts[host].node.poll_transmit() {
            self.sent += 1;
            let to = index(t.to);
            let is_cut = self.is_parted && (host < half) != (to < half);
            if to < self.hosts.len() && !is_cut {
                self.serial += 1;
                let at = self.now + DELAY.0 + self.rng.below(DELAY.1 - DELAY.0);
                self.flying.insert((at, self.serial), (host, to, t.bytes));
            }
        }
        let mut is_readable = false;
        while let Some(event) = self.hosts[host].node.poll_event() {
            is_readable |= matches!(event, Event::Readable(_));
        }
        if is_readable {
            self.read(host);
        }
        let h = &mut self.hosts[host];
        if let Some(at) = h.armed.take() {
            self.timers.remove(&(at, host));
        }
        if let Some(at) = h.node.next_timeout().map(|at| at.0.max(self.now)) {
            h.armed = Some(at);
            self.timers.insert((at, host));
        }
    }

    /// Reads all subscriptions of a host, and checks that each event is told once and in order.
    fn read(&mut self, host: usize) {
        let Host { node, readers, .. } = &mut self.hosts[host];
        for reader in readers {
            while let Some(event) = node.read(reader.id) {
                reader.seq += 1;
                self.events += 1;
                assert_eq!(event.seq, reader.seq, "events are numbered without a gap");
                match event.notice {
                    Notice::Published(b) => assert!(reader.there.insert(b.id), "told twice"),
                    Notice::Withdrawn(b, _) => assert!(reader.there.remove(&b.id), "never told"),
                    _ => {}
                }
            }
        }
    }

    /// Returns the time of the next message or timer.
    fn next(&self) -> Option<u64> {
        let message = self.flying.first_key_value().map(|(key, _)| key.0);
        let timer = self.timers.first().map(|(at, _)| *at);
        message.into_iter().chain(timer).min()
    }

    fn step(&mut self) {
        if self.now >= self.told {
            self.told = self.now + POLL_EVERY;
            (self.tell)(self.stage, std::time::Duration::from_nanos(self.now - BEGIN));
        }
        let message = self.flying.first_key_value().map(|(key, _)| key.0);
        let timer = self.timers.first().copied();
        match (message, timer) {
            (Some(at), timer) if timer.is_none_or(|(t, _)| at <= t) => {
                self.now = self.now.max(at);
                if let Some((_, (from, to, bytes))) = self.flying.pop_first() {
                    self.with(to, |n, now| n.handle_message(now, address(from), &bytes));
                }
            }
            (_, Some((at, host))) => {
                self.now = self.now.max(at);
                self.with(host, |node, now| node.handle_timeout(now));
            }
            _ => self.now += MS,
        }
    }

    /// Runs for a time.
    fn run(&mut self, ms: u64) {
        let end = self.now + ms * MS;
        while self.now < end {
            self.step();
        }
    }

    /// Runs until the goal is reached, and returns the time of that in ms; `None`: it was not
    /// within a minute.
    fn until(&mut self, mut goal: impl FnMut(&Self) -> bool) -> Option<u64> {
        let (begun, mut look) = (self.now, self.now);
        while self.now < begun + 60_000 * MS {
            if self.now >= look {
                if goal(self) {
                    return Some((self.now - begun) / MS);
                }
                look = self.now + POLL_EVERY;
            }
            // The time of a look comes even if nothing happens before.
            match self.next() {
                Some(at) if at <= look => self.step(),
                _ => self.now = look,
            }
        }
        None
    }

    fn is_settled(&self) -> bool {
        let first = self.hosts[0].node.digest();
        let all = self.hosts.len();
        let same = |h: &Host| h.node.digest() == first && h.node.members().ring().len() == all;
        self.hosts.iter().all(same)
    }

    fn is_apart(&self) -> bool {
        let half = self.hosts.len() / 2;
        let of = |h: usize| if h < half { half } else { self.hosts.len() - half };
        let sizes = self.hosts.iter().enumerate();
        sizes.into_iter().all(|(at, h)| h.node.members().ring().len() == of(at))
    }

    fn load(&mut self, plan: &ClusterPlan) {
        for n in 0..plan.names {
            let owner = Owner { user: 1, process: n as u32, serial: 1 };
            let (kind, instance) = (KIND + (n / OF_KIND) as u32, (n % OF_KIND) as u32);
            let claim = Claim::new(owner, kind, instance..=instance).endpoint(1);
            self.with(n % plan.hosts, |node, now| drop(node.claim(now, claim)));
            // Not all at one time: their messages would have to be kept.
            if n % AT_ONCE == AT_ONCE - 1 {
                self.run(1);
            }
        }
        let kinds = plan.names.div_ceil(OF_KIND).max(1);
        for n in 0..plan.subscriptions {
            let owner = Owner { user: 1, process: n as u32, serial: 2 };
            let kind = KIND + (n % kinds) as u32;
            let filter =
                Filter { kind, lower: 0, upper: u32::MAX, mode: Mode::Each, timeout: None };
            let host = n % plan.hosts;
            let mut made = None;
            self.with(host, |node, now| made = node.subscribe(now, owner, filter).ok());
            if let Some(id) = made {
                let reader = Reader { id, seq: 0, there: BTreeSet::new() };
                self.hosts[host].readers.push(reader);
                self.read(host);
            }
        }
    }

    /// Checks that subscribers were told of what their hosts know.
    fn check(&self) {
        for host in &self.hosts {
            let (directory, policy) = host.node.directory();
            let names: usize =
                directory.types().map(|k| directory.all(policy, 1, k, 0, !0).count()).sum();
            let told: usize = host.readers.iter().map(|r| r.there.len()).max().unwrap_or(0);
            assert!(told <= names, "subscribers were told of {told} names, and {names} are there");
        }
    }
}

/// Runs a cluster through a partition of half and the heal, and tells how far it is. Subscribers
/// are checked all the while: each event once, in order.
///
/// # Errors
/// The cluster did not converge; the error names the stage.
pub fn partition(plan: &ClusterPlan, tell: Tell<'_>) -> Result<ClusterReport, String> {
    if !(4..=4096).contains(&plan.hosts) {
        return Err("give 4 to 4096 hosts".into());
    }
    let stage = |what: &str| format!("{} hosts, seed {}: {what}", plan.hosts, plan.seed);
    let mut world = World::new(plan, tell);
    world.stage = "nothing happens";
    let period = Config::default().probe_every().as_millis() as u64;
    world.run(period + 1);
    let before = world.sent;
    world.run(period);
    let idle_per_s = (world.sent - before) as f64 / plan.hosts as f64 * 1000.0 / period as f64;
    let watched = world.hosts.iter().map(|h| h.node.footprint().links).max().unwrap_or(0);
    world.stage = "names spread";
    world.load(plan);
    let claimed_ms = world.until(World::is_settled).ok_or_else(|| stage("names did not spread"))?;
    world.stage = "halves part";
    world.is_parted = true;
    world.flying.clear();
    let parted_ms = world.until(World::is_apart).ok_or_else(|| stage("halves did not part"))?;
    world.check();
    world.stage = "halves heal";
    world.is_parted = false;
    let before = world.sent;
    let healed_ms = world.until(World::is_settled).ok_or_else(|| stage("halves did not heal"))?;
    let heal_messages = (world.sent - before) as f64 / plan.hosts as f64;
    world.check();
    let events = world.events;
    let memory = || world.hosts.iter().map(|h| h.node.memory());
    let watching_bytes = memory().map(|m| m.watching).max().unwrap_or(0);
    let table_bytes = memory().map(|m| m.tables()).max().unwrap_or(0);
    let hosts_bytes = memory().map(|m| m.hosts).max().unwrap_or(0);
    Ok(ClusterReport {
        watched,
        idle_per_s,
        claimed_ms,
        parted_ms,
        healed_ms,
        heal_messages,
        watching_bytes,
        table_bytes,
        hosts_bytes,
        events,
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn partition__of_half_converges_the_same_each_time() {
        let plan = ClusterPlan { hosts: 40, names: 200, subscriptions: 20, seed: 3 };
        let mut stages = Vec::new();
        let mut last = std::time::Duration::ZERO;
        let mut tell = |stage, at| {
            assert!(at >= last, "time goes on");
            last = at;
            stages.push(stage);
        };
        let report = partition(&plan, &mut tell).unwrap();
        assert!(stages.len() > 50, "a run tells how far it is: {stages:?}");
        stages.dedup();
        assert_eq!(stages, ["nothing happens", "names spread", "halves part", "halves heal"]);
        assert!(report.watched < 20 && report.parted_ms >= 1000, "{report:?}");
        assert_eq!(partition(&plan, &mut |_, _| {}).unwrap(), report);
    }
}
