//! A scenario as data: drawn from a seed, run by [`crate::swarm`], made smaller when it fails.

mod flood;
mod networks;
mod shrink;

pub use flood::Flood;
use networks::{draw_lasting, draw_long, draw_networks, draw_streams, draw_vanishing};
pub use shrink::shrink;

use crate::config::{LinkKind, SimConfig, Topology, Wire};
use crate::fault::{Fault, Span};
use std::collections::BTreeSet;
use std::fmt;
use weft_core::choices::{Place, Transfer, Tree};
use weft_core::engine::ACTIVE_MAX;
use weft_core::Reliability;
use weft_link::rng::Rng;

/// In a plan, the second incarnation of host `h`, which restarts, is number `REBORN + h`: it takes
/// part like another host.
pub const REBORN: u32 = 1 << 16;

/// Returns the host with this number in a plan, and its incarnation.
pub fn who(number: u32) -> (u32, u32) {
    (number % REBORN, number / REBORN)
}

/// A message of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    pub dst: u32,
    /// Match bits. Those with [`WILD`] are received from any source, low byte ignored.
    pub tag: u64,
    /// Length in bytes.
    pub len: usize,
    /// Bytes by which the receive's buffer is shorter than the message.
    pub short: usize,
    /// Time that the sender waits before it posts it, virtual nanoseconds.
    pub pause_ns: u64,
    /// True if the send completes only when a receive has matched it.
    pub sync: bool,
    /// True if received by a matched probe, which returns the length, not by a posted receive.
    pub sized: bool,
}

/// An active message of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    /// Sending host.
    pub src: u32,
    /// Host whose handler it calls.
    pub dst: u32,
    /// Length in bytes, at most [`ACTIVE_MAX`].
    pub len: usize,
}

/// An operation of a plan on the memory of a host. A host's operations on one target are executed
/// one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Host that starts it.
    pub src: u32,
    /// Host whose region it concerns.
    pub dst: u32,
    /// The operation.
    pub act: Act,
}

/// An operation on a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Writes `len` bytes at `at` of this host's area of the region.
    Put {
        /// Offset in the area.
        at: usize,
        /// Bytes.
        len: usize,
    },
    /// Reads `len` bytes at `at` of this host's area.
    Get {
        /// Offset in the area.
        at: usize,
        /// Bytes.
        len: usize,
    },
    /// Writes and reads beyond the end of the region, which is refused.
    Beyond {
        /// Bytes before the end.
        by: usize,
    },
    /// Adds one to a word.
    Add {
        /// Number of the word.
        word: u32,
    },
    /// Stores a value into a word that no other host stores there.
    Exchange {
        /// Number of the word.
        word: u32,
        /// True for compare-and-swap with the value found before; else swap.
        compare: bool,
    },
}

impl Act {
    /// Returns the end of the bytes that it uses in this host's area.
    pub fn end(&self) -> usize {
        match *self {
            Act::Put { at, len } | Act::Get { at, len } => at + len,
            _ => 0,
        }
    }
}

/// A packet to all hosts. A host sends its packets in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    /// Host that sends it.
    pub root: u32,
    /// Shape of the tree.
    pub tree: Tree,
    /// Length in bytes.
    pub len: usize,
    /// Time that the host waits before it, virtual nanoseconds.
    pub pause_ns: u64,
}

/// A fetch-and-add on a host's counter. A host executes its own one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Host that starts it.
    pub src: u32,
    /// Host of the counter.
    pub dst: u32,
}

/// A packet to one host's handler. A host sends its packets to another in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Host that sends it.
    pub src: u32,
    /// Host that receives it.
    pub dst: u32,
    /// Length in bytes.
    pub len: usize,
    /// True if sent from memory that is lent until the packet has arrived.
    pub lent: bool,
}

/// A copy to memory that a host exports, to this host's part of it. A host executes its own one
/// after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Host that starts it.
    pub src: u32,
    /// Host that exports the memory.
    pub dst: u32,
    /// Offset in the part.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

/// A period during which a host computes without progress on its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The host.
    pub host: u32,
    /// Time between the end of the previous one and its begin, virtual nanoseconds.
    pub after_ns: u64,
    /// Its length.
    pub ns: u64,
}

/// The options of a swarm from which a plan is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// Every host is served by an agent.
    pub agents: bool,
    /// Hosts also multicast, count and compute.
    pub services: bool,
}

impl Kind {
    /// All combinations.
    pub const ALL: [Kind; 4] = [
        Kind { agents: false, services: false },
        Kind { agents: true, services: false },
        Kind { agents: false, services: true },
        Kind { agents: true, services: true },
    ];

    /// Returns the options of a configuration.
    pub fn of(config: &SimConfig) -> Kind {
        Kind { agents: config.served, services: config.services }
    }
}

/// Written as options of `weft sim`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("swarm")?;
        f.write_str(if self.agents { " --agents" } else { "" })?;
        f.write_str(if self.services { " --services" } else { "" })
    }
}

/// A host's choices for one of its peers, which differ from those for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterChoice {
    /// The host.
    pub at: u32,
    /// Its peer.
    pub peer: u32,
    /// The protocol by which it sends to the peer and fetches from it.
    pub transfer: Transfer,
    /// The side that retransmits, and the protocol.
    pub reliability: Reliability,
    /// Longest packet in bytes; 0: the link's longest.
    pub mtu: u32,
}

/// Tag bit of messages that are received with wildcards. Groups do not use the upper bits.
pub const WILD: u64 = 1 << 63;

/// Tag bit of the other messages.
const PLAIN: u64 = 1 << 62;

/// Tag of receives that nothing matches.
pub const NEVER: u64 = 1 << 61;

/// A collective operation of all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Barrier.
    Barrier,
    /// Broadcast of `len` bytes from `root`.
    Broadcast {
        /// The host that has the data.
        root: usize,
        /// Bytes.
        len: usize,
    },
    /// Sum over all hosts of vectors of `len` numbers.
    AllReduce {
        /// Numbers in each vector.
        len: usize,
    },
    /// `len` bytes from each host to each host.
    AllGather {
        /// Bytes of each host.
        len: usize,
    },
}

/// Everything that happens in a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Hosts, wires and faults.
    pub config: SimConfig,
    /// Messages; those of a sender are posted in this order.
    pub messages: Vec<Message>,
    /// Active messages, posted one after the other beside the messages.
    pub actives: Vec<Active>,
    /// Operations on remote memory, beside the messages.
    pub remotes: Vec<Remote>,
    /// Packets to all hosts, beside the messages.
    pub casts: Vec<Cast>,
    /// Fetch-and-add on counters, beside the messages.
    pub counts: Vec<Count>,
    /// Packets to one host, beside the messages.
    pub parcels: Vec<Parcel>,
    /// Copies to exported memory, beside the messages.
    pub copies: Vec<Copied>,
    /// Periods during which hosts compute.
    pub stretches: Vec<Stretch>,
    /// Messages that are not received for a while, beside the messages.
    pub floods: Vec<Flood>,
    /// Choices for single peers.
    pub choices: Vec<LaterChoice>,
    /// Sends that a host has in progress at a time.
    pub depth: usize,
    /// Collectives, after the messages.
    pub collectives: Vec<Collective>,
    /// Receives that are posted, never matched and cancelled, per host.
    pub cancels: u32,
}

/// Longest silence of a peer before it counts as dead, milliseconds.
const PATIENCE_MS: u64 = 10_000;

/// Limits of the random choices.
const MAX_MESSAGES: u64 = 120;
const MAX_BYTES: usize = 6 << 20;
const MAX_LEN: usize = 3 << 20;
const MAX_ACTIVES: u64 = 40;
const MAX_REMOTES: u64 = 80;
const MAX_REMOTE_LEN: usize = 400 << 10;
const MAX_REMOTE_BYTES: usize = 3 << 20;
const MAX_REBORN: u64 = 24;
const MAX_REBORN_BYTES: usize = 1 << 20;
const MAX_CASTS: u64 = 150;
const MAX_COUNTS: u64 = 120;
const MAX_PARCELS: u64 = 200;
const MAX_COPIES: u64 = 30;
/// Longest of the packets that are no messages: they fit into one packet of the shortest MTU.
const MAX_PACKET: u64 = 400;
/// Bytes of a host's part of exported memory.
pub const COPIES_LEN: usize = 150_000;

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
        plan.spare_mortal();
        plan
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
        // So would a host that is cut off itself, and that receives from any source.
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
    fn without_unborn(mut self) -> Plan {
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

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.config)?;
        let bytes: usize = self.messages.iter().map(|m| m.len).sum();
        write!(
            f,
            "\n  {} messages of {bytes} bytes, {} at a time",
            self.messages.len(),
            self.depth
        )?;
        write!(f, ", {} cancelled receives a host", self.cancels)?;
        let bytes: usize = self.actives.iter().map(|a| a.len).sum();
        write!(f, "\n  {} active messages of {bytes} bytes", self.actives.len())?;
        write!(f, "\n  {} operations on remote memory", self.remotes.len())?;
        for r in self.remotes.iter().take(8) {
            write!(f, "\n  {} at {}: {:?}", r.src, r.dst, r.act)?;
        }
        if self.config.services {
            let (casts, counts) = (self.casts.len(), self.counts.len());
            write!(f, "\n  {casts} packets to all, {counts} additions to counters")?;
            let (parcels, copies) = (self.parcels.len(), self.copies.len());
            write!(f, ", {parcels} packets to one, {copies} copies to exported memory")?;
        }
        for c in self.casts.iter().take(8) {
            let Cast { root, tree, len, pause_ns } = c;
            write!(f, "\n  {root} to all by {tree}: {len} bytes, after {pause_ns} ns")?;
        }
        for Flood { src, dst, count, len } in &self.floods {
            write!(f, "\n  {src} > {dst}: {count} messages of {len} bytes before one awaited")?;
        }
        for Stretch { host, after_ns, ns } in &self.stretches {
            write!(f, "\n  {host} computes for {ns} ns, after {after_ns} ns")?;
        }
        for c in self.choices.iter().take(8) {
            let LaterChoice { at, peer, transfer, reliability, mtu } = c;
            write!(f, "\n  {at} chooses for {peer}: {transfer}, {reliability:?}, mtu {mtu}")?;
        }
        for c in &self.collectives {
            write!(f, "\n  {c:?}")?;
        }
        for m in self.messages.iter().take(8) {
            write!(f, "\n  {} > {} tag {:#x} {} bytes", m.src, m.dst, m.tag, m.len)?;
            if m.short > 0 {
                write!(f, ", buffer {} short", m.short)?;
            }
            if m.sync {
                write!(f, ", synchronous")?;
            }
            if m.sized {
                write!(f, ", probed")?;
            }
            if m.pause_ns > 0 {
                write!(f, ", after {} ns", m.pause_ns)?;
            }
        }
        if self.messages.len() > 8 {
            write!(f, "\n  ...")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn draw__same_seed_same_plan() {
        assert_eq!(Plan::draw(5), Plan::draw(5));
        assert_ne!(Plan::draw(5).messages, Plan::draw(6).messages);
    }

    #[test]
    fn of_seed__the_one_network_of_agents_comes_back_in_time() {
        let outage = |p: &Plan| p.config.faults.iter().any(|f| f.is_outage(PATIENCE_MS));
        assert!((0..300).map(Plan::draw).any(|p| outage(&p)));
        assert!(!(0..300).map(|seed| Plan::of_seed(seed, Kind::ALL[1])).any(|p| outage(&p)));
    }

    #[test]
    fn draw__stays_within_limits_and_covers_the_faults() {
        let plans: Vec<_> = (0..300).map(Plan::draw).collect();
        for p in &plans {
            assert!((2..=16).contains(&p.config.hosts));
            let most = MAX_BYTES + MAX_REBORN_BYTES;
            assert!(p.messages.iter().map(|m| m.len).sum::<usize>() <= most);
            let is_host = |n: u32| who(n).0 < p.config.hosts;
            assert!(p.messages.iter().all(|m| who(m.src).0 != who(m.dst).0 && is_host(m.dst)));
            assert!(p.messages.iter().all(|m| m.short <= m.len));
        }
        assert!(plans.iter().any(|p| !p.mortal().is_empty()));
        let restarts = |p: &&Plan| {
            let restart = |f: &Fault| matches!(f, Fault::Restart { .. });
            p.config.faults.iter().any(restart)
        };
        assert!((20..80).contains(&plans.iter().filter(restarts).count()));
        let reborn = |p: &Plan| p.messages.iter().any(|m| m.src.max(m.dst) >= REBORN);
        assert!(plans.iter().filter(restarts).all(reborn));
        assert!(plans.iter().any(|p| p.config.kind == LinkKind::Memory));
        let vanishes = |p: &&Plan| {
            let kind = |f: &Fault| (0..3).any(|n| matches!(f.at(n), Some(Fault::Kind { .. })));
            p.config.faults.iter().any(kind)
        };
        assert!((30..90).contains(&plans.iter().filter(vanishes).count()));
        let cut_off = |p: &&Plan| !p.cut_off().is_empty();
        assert!((10..40).contains(&plans.iter().filter(cut_off).count()));
        assert!(plans.iter().any(|p| p.messages.iter().any(|m| m.len > 1 << 20)));
        assert!(plans.iter().any(|p| p.messages.iter().any(|m| m.sync && m.sized)));
        let several = |striped| {
            plans.iter().any(|p| !p.config.more.is_empty() && p.config.striped == striped)
        };
        assert!(several(true) && several(false));
        assert!(plans.iter().all(|p| p.actives.iter().all(|a| a.len as u64 <= ACTIVE_MAX)));
        assert!(plans.iter().any(|p| !p.mortal().is_empty() && !p.actives.is_empty()));
        let chosen = |t: &Transfer| {
            plans.iter().any(|p| p.choices.iter().any(|c| c.transfer == *t && c.mtu == 600))
        };
        assert!(Transfer::ALL.iter().all(chosen));
        let remotes = || plans.iter().flat_map(|p| &p.remotes);
        assert!(remotes().all(|r| r.src != r.dst));
        assert!(remotes().any(|r| matches!(r.act, Act::Put { len, .. } if len > 300_000)));
        assert!(remotes().any(|r| matches!(r.act, Act::Exchange { compare: true, .. })));
    }

    /// True if a fault of a plan is of this kind, on any network.
    fn has(plan: &Plan, kind: fn(&Fault) -> bool) -> bool {
        let networks = 0..plan.config.networks();
        let on = |f: &Fault| networks.clone().any(|network| f.at(network).is_some_and(kind));
        plan.config.faults.iter().any(on)
    }

    #[test]
    fn of_seed__draws_hosts_and_paths_that_live_and_do_not_serve() {
        let of = |kind: Kind| (0..300).map(|seed| Plan::of_seed(seed, kind)).collect::<Vec<_>>();
        let count = |plans: &[Plan], kind| plans.iter().filter(|p| has(p, kind)).count();
        for plans in Kind::ALL.map(of) {
            // By length, and by kind: for a while, or so that a host is heard for ever and gets
            // nothing that it waits for.
            assert!(count(&plans, |f| matches!(f, Fault::Longer { .. })) > 30);
            assert!(count(&plans, |f| matches!(f, Fault::Kind { .. })) > 30);
            let lasts = |f: &Fault| matches!(f, Fault::Kind { span, .. } if span.until == u64::MAX);
            assert!(count(&plans, lasts) > 10);
            assert!(plans.iter().filter(|p| !p.floods.is_empty()).count() > 30);
        }
        for plans in Kind::ALL.into_iter().filter(|kind| kind.agents).map(of) {
            assert!(count(&plans, |f| matches!(f, Fault::StillAgent { .. })) > 20);
            assert!(count(&plans, |f| matches!(f, Fault::StillRank { .. })) > 20);
        }
    }

    #[test]
    fn of_seed__services_leave_the_rest_as_it_is() {
        for seed in 0..100 {
            let [ranks, agents, services, both] = Kind::ALL.map(|kind| Plan::of_seed(seed, kind));
            assert!(ranks.casts.is_empty() && agents.counts.is_empty());
            assert_eq!((services.remotes, services.actives), (ranks.remotes, ranks.actives));
            let mortal = both.mortal();
            assert!(both.parcels.iter().all(|p| !mortal.contains(&p.src) && p.src != p.dst));
            assert!(both.copies.iter().all(|c| c.at + c.len <= COPIES_LEN && c.src != c.dst));
            assert_eq!(both.config.faults, agents.config.faults);
        }
        let plans = || (0..100).map(|seed| Plan::of_seed(seed, Kind::ALL[3]));
        let chosen = |what| {
            let agent = |p: &Plan| p.config.settings.contains(&(what, "agent".to_string()));
            plans().filter(agent).count()
        };
        assert!([chosen("multicast"), chosen("fetch_add")].iter().all(|n| (60..95).contains(n)));
        for tree in Tree::ALL {
            assert!(plans().any(|p| p.casts.iter().any(|c| c.tree == *tree)));
        }
        let dies = |p: &Plan| !p.mortal().is_empty();
        assert!(plans().any(|p| p.casts.iter().any(|c| p.mortal().contains(&c.root))));
        assert!(plans().any(|p| dies(&p) && !p.counts.is_empty() && !p.casts.is_empty()));
    }

    #[test]
    fn shrink__without_a_restart_there_is_no_second_incarnation() {
        let plan = (0..).map(Plan::draw).find(|p| p.messages.iter().any(|m| m.dst >= REBORN));
        let plan = plan.unwrap();
        let born = |p: &Plan| p.messages.iter().any(|m| m.src.max(m.dst) >= REBORN);
        let small = shrink(&plan, 500, &mut |p| {
            let restarts = |f: &Fault| matches!(f, Fault::Restart { .. });
            assert!(p.config.faults.iter().any(restarts) || !born(p));
            !p.messages.is_empty()
        });
        assert_eq!(small.messages.len(), 1);
    }

    #[test]
    fn shrink__finds_the_one_message_and_fault() {
        let plan =
            (0..).map(Plan::draw).find(|p| p.messages.len() > 50 && !p.config.faults.is_empty());
        let mut plan = plan.unwrap();
        plan.messages[33].len = 7777;
        let culprit = plan.messages[33];
        let small = shrink(&plan, 500, &mut |p| p.messages.contains(&culprit));
        assert_eq!(small.messages, [culprit]);
        assert!(small.config.faults.is_empty() && small.collectives.is_empty());
        assert!(small.actives.is_empty() && small.remotes.is_empty());
        assert!(small.choices.is_empty());
    }
}
