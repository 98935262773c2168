//! A scenario as data: drawn from a seed, run by [`crate::swarm`], made smaller when it fails.

mod draw;
mod flood;
mod networks;
mod shrink;

pub use flood::Flood;
pub use shrink::shrink;

use crate::config::SimConfig;
use std::fmt;
use weft_core::choices::{Transfer, Tree};
use weft_core::Reliability;

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
    /// Length in bytes, at most [`ACTIVE_MAX`](weft_core::engine::ACTIVE_MAX).
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
    /// Sum over all hosts of vectors of `len` numbers, of which each host gets a block.
    ReduceScatter {
        /// Numbers in each vector.
        len: usize,
    },
    /// `len` bytes from each host to each host.
    AllGather {
        /// Bytes of each host.
        len: usize,
    },
    /// Broadcast of `len` bytes from `root`, whose number all hosts know.
    BroadcastInto {
        /// The host that has the data.
        root: usize,
        /// Bytes.
        len: usize,
    },
    /// Bytes from each host to each host: `len` times one more than the host's number.
    AllGatherInto {
        /// Bytes of the first host.
        len: usize,
    },
    /// A part from each host to each host: `len` times one more than the sum of their numbers.
    AllToAll {
        /// Bytes that the first host keeps.
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
/// Bytes of a host's part of exported memory.
pub const COPIES_LEN: usize = 150_000;

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
    use super::draw::{MAX_BYTES, MAX_REBORN_BYTES, PATIENCE_MS};
    use super::*;
    use crate::config::LinkKind;
    use crate::fault::Fault;
    use weft_core::engine::ACTIVE_MAX;

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
