//! A plan from a seed.

use super::networks::{draw_lasting, draw_long, draw_networks, draw_streams, draw_vanishing};
use super::{
    Act, Active, Cast, Collective, Copied, Count, Kind, LaterChoice, Message, Parcel, Plan, Remote,
    Stretch, COPIES_LEN, PLAIN, REBORN, WILD,
};
use crate::config::{LinkKind, SimConfig, Topology, Wire};
use crate::fault::{Fault, Span};
use std::collections::BTreeSet;
use weft_core::choices::{Place, Transfer, Tree};
use weft_core::engine::ACTIVE_MAX;
use weft_core::Reliability;
use weft_link::rng::Rng;

/// Longest silence of a peer before it counts as dead, milliseconds.
pub(super) const PATIENCE_MS: u64 = 10_000;

/// Limits of the random choices.
const MAX_MESSAGES: u64 = 120;
pub(super) const MAX_BYTES: usize = 6 << 20;
const MAX_LEN: usize = 3 << 20;
const MAX_ACTIVES: u64 = 40;
const MAX_REMOTES: u64 = 80;
const MAX_REMOTE_LEN: usize = 400 << 10;
const MAX_REMOTE_BYTES: usize = 3 << 20;
const MAX_REBORN: u64 = 24;
pub(super) const MAX_REBORN_BYTES: usize = 1 << 20;
const MAX_CASTS: u64 = 150;
const MAX_COUNTS: u64 = 120;
const MAX_PARCELS: u64 = 200;
const MAX_COPIES: u64 = 30;
/// Longest of the packets that are no messages: they fit into one packet of the shortest MTU.
const MAX_PACKET: u64 = 400;

impl Plan {
    /// Draws the plan of `seed` with these options.
    pub fn of_seed(seed: u64, kind: Kind) -> Plan {
        let mut plan = Plan::draw(seed);
        if kind.agents {
            (plan.config.served, plan.config.kind) = (true, LinkKind::Network);
            // Agents have one network, so an outage must be shorter than the time that peers wait.
            plan.config.faults.retain(|fault| !fault.is_outage(PATIENCE_MS));
            plan.draw_still(&mut Rng::stream(seed, 12));
            plan.spare_mortal();
        }
        if kind.services {
            plan.config.services = true;
            plan.draw_services(&mut Rng::stream(seed, 10));
        }
        plan
    }

    /// Draws the plan of `seed`.
    pub fn draw(seed: u64) -> Plan {
        let mut rng = Rng::stream(seed, 2);
        let mut config = draw_config(seed, &mut rng);
        let window = *rng.pick(&[8u32, 64, 1024]);
        let reliability = *rng.pick(&["selective", "selective", "gbn"]);
        let pull_block = *rng.pick(&[16u32 << 10, 128 << 10]);
        config.settings = vec![
            ("reliability", reliability.to_string()),
            ("window", window.to_string()),
            ("pull_block", pull_block.to_string()),
            // Shorter than in production, longer than any drawn outage.
            ("connect_timeout_ms", PATIENCE_MS.to_string()),
            ("peer_timeout_ms", PATIENCE_MS.to_string()),
        ];
        let edges = [config.mtu as usize, 2 * config.mtu as usize, 16 << 10, pull_block as usize];
        let messages = draw_messages(config.hosts, &edges, &mut rng);
        let hosts = config.hosts as u64;
        let collectives = (0..rng.below(4)).map(|_| match rng.below(4) {
            0 => Collective::Barrier,
            1 => Collective::Broadcast {
                root: rng.below(hosts) as usize,
                len: draw_len(&edges, &mut rng).min(64 << 10),
            },
            2 => Collective::AllReduce { len: rng.between(1, 3000) as usize },
            _ => Collective::AllGather { len: rng.between(0, 3000) as usize },
        });
        let mut plan = Plan {
            config,
            messages,
            actives: Vec::new(),
            remotes: Vec::new(),
            casts: Vec::new(),
            counts: Vec::new(),
            parcels: Vec::new(),
            copies: Vec::new(),
            stretches: Vec::new(),
            floods: Vec::new(),
            choices: Vec::new(),
            depth: 1,
            collectives: collectives.collect(),
            cancels: 0,
        };
        plan.depth = rng.between(1, 12) as usize;
        plan.cancels = rng.below(4) as u32;
        plan.draw_ways(&edges, &mut Rng::stream(seed, 4));
        plan.draw_remotes(&edges, &mut Rng::stream(seed, 5));
        draw_networks(&mut plan.config, &mut Rng::stream(seed, 6));
        draw_long(&mut plan.config, &mut Rng::stream(seed, 7));
        draw_vanishing(&mut plan.config, &mut Rng::stream(seed, 11));
        draw_lasting(&mut plan.config, &mut Rng::stream(seed, 14));
        draw_streams(&mut plan.config, &mut Rng::stream(seed, 15));
        plan.draw_restart(&edges, &mut Rng::stream(seed, 8));
        plan.draw_choices(&mut Rng::stream(seed, 9));
        plan.draw_floods(&mut Rng::stream(seed, 13));
        plan.draw_blocks(&mut Rng::stream(seed, 16));
        plan.draw_into(&mut Rng::stream(seed, 17));
        plan.spare_mortal();
        plan
    }

    /// Draws a collective operation in which each host combines a block.
    fn draw_blocks(&mut self, rng: &mut Rng) {
        match rng.below(4) {
            0 => self.collectives.push(Collective::ReduceScatter { len: rng.below(3000) as usize }),
            // Longer than 64 KiB.
            1 => self.collectives.push(Collective::AllReduce { len: 9000 }),
            _ => {}
        }
    }

    /// Draws a collective operation on memory of known length.
    fn draw_into(&mut self, rng: &mut Rng) {
        let len = rng.below(3000) as usize;
        match rng.below(6) {
            0 => {
                let root = rng.below(self.config.hosts.into()) as usize;
                // Several parts.
                let len = if rng.below(2) == 0 { len } else { 300_000 };
                self.collectives.push(Collective::BroadcastInto { root, len });
            }
            1 => self.collectives.push(Collective::AllGatherInto { len }),
            2 => self.collectives.push(Collective::AllToAll { len }),
            // Several pieces of each block.
            3 => self.collectives.push(Collective::AllReduce { len: 40_000 }),
            _ => {}
        }
    }

    /// Removes operations that wait for a host that dies where its death is no error for them.
    fn spare_mortal(&mut self) {
        let mortal = self.mortal();
        self.floods.retain(|f| !mortal.contains(&f.src) && !mortal.contains(&f.dst));
        if !mortal.is_empty() {
            // A collective over a dead host is an error for all, which is tested elsewhere; a
            // receive from any source waits for the living.
            self.collectives.clear();
            for m in self.messages.iter_mut().filter(|m| mortal.contains(&m.src)) {
                m.tag = m.tag & !WILD | PLAIN;
            }
            // A host that counts active messages would wait for those of the dead, too.
            self.actives.retain(|a| !mortal.contains(&a.src));
        }
        // A host that is cut off would wait in vain as well, for active messages and for messages
        // from any source.
        let cut_off = self.cut_off();
        self.actives.retain(|a| !cut_off.contains(&a.dst));
        for m in self.messages.iter_mut().filter(|m| cut_off.contains(&m.dst)) {
            m.tag = m.tag & !WILD | PLAIN;
        }
    }

    /// Draws an agent that stands still while its rank goes on, or a rank that is stopped while its
    /// agent goes on: for less time than peers wait, or the rank for ever, which its peers have to
    /// notice.
    fn draw_still(&mut self, rng: &mut Rng) {
        if !rng.chance(300_000) {
            return;
        }
        let (host, from) = (rng.below(u64::from(self.config.hosts)) as u32, rng.below(40));
        let mut span = Span::ms(from, from + *rng.pick(&[5, 100, PATIENCE_MS / 2]));
        let rank = rng.chance(500_000);
        if rank && rng.chance(300_000) && self.mortal().is_empty() {
            span.until = u64::MAX;
        }
        let agent = Fault::StillAgent { host, span };
        self.config.faults.push(if rank { Fault::StillRank { host, span } } else { agent });
        self.spare_mortal();
    }

    /// Draws how messages are sent and received, and the active messages.
    fn draw_ways(&mut self, edges: &[usize], rng: &mut Rng) {
        for m in &mut self.messages {
            m.sync = rng.chance(100_000);
            m.sized = rng.chance(250_000);
        }
        let hosts = u64::from(self.config.hosts);
        for _ in 0..rng.below(MAX_ACTIVES) {
            let src = rng.below(hosts) as u32;
            let dst = (src + 1 + rng.below(hosts - 1) as u32) % self.config.hosts;
            let len = draw_len(edges, rng).min(ACTIVE_MAX as usize);
            self.actives.push(Active { src, dst, len });
        }
    }

    /// Draws the operations on remote memory.
    fn draw_remotes(&mut self, edges: &[usize], rng: &mut Rng) {
        let hosts = u64::from(self.config.hosts);
        // Few pairs, so that several operations have one target, and several hosts use one word.
        let targets = rng.between(1, 3).min(hosts);
        let mut left = MAX_REMOTE_BYTES;
        for _ in 0..rng.below(MAX_REMOTES) {
            let dst = rng.below(targets) as u32;
            let src = (dst + 1 + rng.below(hosts - 1) as u32) % self.config.hosts;
            let len = draw_len(edges, rng).min(MAX_REMOTE_LEN).min(left);
            let at = rng.below(100) as usize;
            let word = rng.below(2) as u32;
            let act = match rng.below(10) {
                0..=1 => Act::Put { at, len },
                2..=3 => Act::Get { at, len },
                4 => Act::Beyond { by: rng.below(40) as usize },
                5..=7 => Act::Add { word },
                _ => Act::Exchange { word: 2 + word, compare: rng.chance(700_000) },
            };
            left -= act.end().min(left);
            self.remotes.push(Remote { src, dst, act });
        }
    }

    /// Draws a host that restarts, some time after its death or at once, and operations between its
    /// second incarnation and others: under the same tags as the first, so that one could be taken
    /// for the other.
    fn draw_restart(&mut self, edges: &[usize], rng: &mut Rng) {
        if !self.mortal().is_empty() || !rng.chance(150_000) {
            return;
        }
        let hosts = u64::from(self.config.hosts);
        let host = rng.below(hosts) as u32;
        let at = rng.below(40) * *rng.pick(&[100_000, 1_000_000]);
        if rng.chance(300_000) {
            let (at, visible) = (at / 2, rng.chance(500_000));
            self.config.faults.push(Fault::Death { host, at, visible });
        }
        self.config.faults.push(Fault::Restart { host, at });
        let pair = |rng: &mut Rng| {
            let other = (host + 1 + rng.below(hosts - 1) as u32) % hosts as u32;
            if rng.chance(500_000) {
                (REBORN + host, other)
            } else {
                (other, REBORN + host)
            }
        };
        let mut left = MAX_REBORN_BYTES;
        for _ in 0..rng.between(1, MAX_REBORN) {
            let (src, dst) = pair(rng);
            let len = draw_len(edges, rng).min(left);
            left -= len;
            let kind = if rng.chance(250_000) { WILD } else { PLAIN };
            let tag = kind | rng.below(4);
            let (sync, sized) = (rng.chance(100_000), rng.chance(250_000));
            let message = Message { src, dst, tag, len, short: 0, pause_ns: 0, sync, sized };
            let at = rng.below(self.messages.len() as u64 + 1) as usize;
            self.messages.insert(at, message);
        }
        for _ in 0..rng.below(6) {
            let ((src, dst), len) = (pair(rng), draw_len(edges, rng).min(ACTIVE_MAX as usize));
            self.actives.push(Active { src, dst, len });
        }
        for _ in 0..rng.below(12) {
            let ((src, dst), at, len) = (pair(rng), rng.below(100) as usize, rng.below(9000));
            let act = match rng.below(3) {
                0 => Act::Put { at, len: len as usize },
                1 => Act::Get { at, len: len as usize },
                _ => Act::Add { word: rng.below(2) as u32 },
            };
            self.remotes.push(Remote { src, dst, act });
        }
    }

    /// Draws choices of some hosts for some of their peers.
    fn draw_choices(&mut self, rng: &mut Rng) {
        if !rng.chance(400_000) {
            return;
        }
        let pairs: BTreeSet<(u32, u32)> =
            self.messages.iter().flat_map(|m| [(m.src, m.dst), (m.dst, m.src)]).collect();
        for (at, peer) in pairs {
            let choice = LaterChoice {
                at,
                peer,
                transfer: *rng.pick(Transfer::ALL),
                reliability: *rng.pick(&[Reliability::Selective, Reliability::GoBackN]),
                mtu: *rng.pick(&[0, 600, 1024, 4096]),
            };
            if rng.chance(500_000) {
                self.choices.push(choice);
            }
        }
    }

    /// Draws packets to all, counters, times of computation, and the place of forwarding and
    /// counting (agents or ranks). Fewer messages are sent beside them.
    fn draw_services(&mut self, rng: &mut Rng) {
        self.messages.truncate(MAX_MESSAGES as usize / 4);
        let hosts = u64::from(self.config.hosts);
        let host = |rng: &mut Rng| rng.below(hosts) as u32;
        if self.config.served {
            let at_agent =
                |rng: &mut Rng| if rng.chance(800_000) { Place::Agent } else { Place::Host };
            for what in ["multicast", "fetch_add"] {
                self.config.settings.push((what, at_agent(rng).to_string()));
            }
        }
        let credit = *rng.pick(&[1, 4, 32]);
        self.config.settings.push(("multicast_credit", credit.to_string()));
        let (mortal, cut_off) = (self.mortal(), self.cut_off());
        let roots = rng.between(1, 3);
        let tree = rng.chance(500_000).then(|| *rng.pick(Tree::ALL));
        for _ in 0..rng.below(MAX_CASTS) {
            let root = rng.below(roots.min(hosts)) as u32;
            let tree = tree.unwrap_or_else(|| *rng.pick(Tree::ALL));
            let len = rng.below(MAX_PACKET) as usize;
            let pause_ns = if rng.chance(100_000) { rng.below(1_000_000) } else { 0 };
            self.casts.push(Cast { root, tree, len, pause_ns });
        }
        let owners = rng.between(1, 2).min(hosts);
        for _ in 0..rng.below(MAX_COUNTS) {
            self.counts.push(Count { src: host(rng), dst: rng.below(owners) as u32 });
        }
        let other =
            |host: u32, rng: &mut Rng| (host + 1 + rng.below(hosts - 1) as u32) % hosts as u32;
        for _ in 0..rng.below(MAX_PARCELS) {
            let src = host(rng) % 3;
            let (dst, len) = (other(src, rng), rng.below(MAX_PACKET) as usize);
            let parcel = Parcel { src, dst, len, lent: rng.chance(500_000) };
            // A receiver of unsent packets of a dead host would wait for ever.
            let come = !mortal.contains(&src) && !cut_off.contains(&dst);
            self.parcels.extend(come.then_some(parcel));
        }
        for _ in 0..rng.below(MAX_COPIES) {
            let src = host(rng);
            let (dst, at) = (other(src, rng), rng.below(COPIES_LEN as u64) as usize);
            let len = rng.below((COPIES_LEN - at) as u64 + 1) as usize;
            let len = if rng.chance(700_000) { len.min(5000) } else { len };
            self.copies.push(Copied { src, dst, at, len });
        }
        for _ in 0..rng.below(hosts) {
            let after_ns = rng.below(2_000_000);
            let ns = *rng.pick(&[50_000, 1_000_000, 30_000_000]);
            self.stretches.push(Stretch { host: host(rng), after_ns, ns });
        }
    }

    /// Returns the hosts whose first incarnation dies, or is given up by its peers.
    pub fn mortal(&self) -> Vec<u32> {
        let host = |f: &Fault| match f {
            Fault::Death { host, .. } | Fault::Restart { host, .. } => Some(*host),
            Fault::StillRank { host, span } if span.until == u64::MAX => Some(*host),
            _ => None,
        };
        let hosts = self.config.faults.iter().filter_map(host).chain(self.cut_off());
        hosts.collect::<BTreeSet<u32>>().into_iter().collect()
    }

    /// Removes the operations of second incarnations of hosts that no longer restart.
    pub(super) fn without_unborn(mut self) -> Plan {
        let restart = |f: &Fault| match f {
            Fault::Restart { host, .. } => Some(REBORN + host),
            _ => None,
        };
        let born: BTreeSet<u32> = self.config.faults.iter().filter_map(restart).collect();
        let lives = |number: u32| number < REBORN || born.contains(&number);
        self.messages.retain(|m| lives(m.src) && lives(m.dst));
        self.actives.retain(|a| lives(a.src) && lives(a.dst));
        self.remotes.retain(|r| lives(r.src) && lives(r.dst));
        self.choices.retain(|c| lives(c.at) && lives(c.peer));
        self
    }
}

fn draw_config(seed: u64, rng: &mut Rng) -> SimConfig {
    let mut config = SimConfig::new(rng.between(2, 16) as u32, seed);
    config.mtu = *rng.pick(&[512, SimConfig::MTU, SimConfig::MTU, 8956]);
    config.wire = Wire::ethernet(*rng.pick(&[1, 10, 10, 100]));
    config.wire.latency_ns = *rng.pick(&[500, 2_000, 20_000, 500_000]);
    config.wire.jitter_ns = *rng.pick(&[0, 0, 1_000, 100_000]);
    config.wire.queue_bytes = *rng.pick(&[64 << 10, 512 << 10, 4 << 20]);
    config.host.rx_frames = *rng.pick(&[128, 2048]);
    if config.hosts > 4 && rng.chance(250_000) {
        config.topology = Topology::Tree { radix: 4, uplink: 2 };
    }
    if rng.chance(150_000) {
        config.kind = LinkKind::Memory;
    }
    draw_faults(&mut config, rng);
    config.train = *rng.pick(&[1, 8, 44]);
    config
}

fn draw_faults(config: &mut SimConfig, rng: &mut Rng) {
    let hosts = u64::from(config.hosts);
    let faults = &mut config.faults;
    let ms = |rng: &mut Rng| rng.below(40);
    if rng.chance(600_000) {
        faults.push(Fault::loss(*rng.pick(&[1_000, 10_000, 50_000, 150_000])));
    }
    if rng.chance(300_000) {
        faults.push(Fault::duplicate(*rng.pick(&[10_000, 100_000])));
    }
    if rng.chance(300_000) {
        faults.push(Fault::reorder(*rng.pick(&[10_000, 100_000]), *rng.pick(&[10_000, 2_000_000])));
    }
    if rng.chance(200_000) {
        faults.push(Fault::corrupt(20_000));
    }
    if rng.chance(200_000) {
        let side = (0..config.hosts).filter(|_| rng.chance(500_000)).collect();
        let from = ms(rng);
        let span = Span::ms(from, from + rng.between(1, 300));
        faults.push(Fault::Partition { side, one_way: rng.chance(300_000), span });
    }
    if rng.chance(200_000) {
        let from = ms(rng);
        let span = Span::ms(from, from + rng.between(1, 200));
        faults.push(Fault::Pause { host: rng.below(hosts) as u32, span });
    }
    if rng.chance(100_000) {
        let (host, at) = (rng.below(hosts) as u32, ms(rng) * 100_000);
        faults.push(Fault::Death { host, at, visible: rng.chance(500_000) });
    }
}

/// Draws a length: mostly small or next to one of `edges`, sometimes large.
fn draw_len(edges: &[usize], rng: &mut Rng) -> usize {
    match rng.below(10) {
        0..=2 => rng.below(65) as usize,
        3..=4 => rng.below(4096) as usize,
        5..=8 => {
            let edge = *rng.pick(edges);
            (edge + rng.below(130) as usize).saturating_sub(100)
        }
        _ => rng.below(MAX_LEN as u64) as usize,
    }
}

fn draw_messages(hosts: u32, edges: &[usize], rng: &mut Rng) -> Vec<Message> {
    let tags = rng.between(1, 4);
    let incast = rng.chance(200_000);
    let mut left = MAX_BYTES;
    let mut messages = Vec::new();
    for _ in 0..rng.between(1, MAX_MESSAGES) {
        let src = rng.below(u64::from(hosts)) as u32;
        // Any host but the sender.
        let to = (src + 1 + rng.below(u64::from(hosts) - 1) as u32) % hosts;
        let dst = if incast && src != 0 { 0 } else { to };
        let len = draw_len(edges, rng).min(left);
        left -= len;
        let kind = if rng.chance(250_000) { WILD } else { PLAIN };
        let short = if rng.chance(30_000) { rng.below(len as u64 + 1) as usize } else { 0 };
        let pause_ns = if rng.chance(100_000) { rng.below(3_000_000) } else { 0 };
        let short = if kind == WILD { 0 } else { short };
        let tag = kind | rng.below(tags);
        let (sync, sized) = (false, false);
        messages.push(Message { src, dst, tag, len, short, pause_ns, sync, sized });
    }
    messages
}
