//! Messages to all owners of a name: over a tree of agents, instead of from one agent to each.
//!
//! The agent of the sender cuts the hosts that have owners into arcs of the ring and sends one
//! message to the first host of each arc, which delivers it to its own owners, and does the same
//! with the rest of the arc. An agent answers when all below it have answered. If a host does not,
//! the one above it reports that, and takes the rest of its arc over. A host that gets a message
//! twice so delivers it once. Each message has the least number that its first sender still waits
//! for: a message of a lesser number is over, and is delivered nowhere any more. Like
//! [`crate::mail`] this does no I/O and reads no clock.

use crate::mail::{Outcome, Post, Receiver};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use weft_core::Instant;
use weft_names::share::has_share;
use weft_names::wire::{Reader, WireError, Writer, ALIAS_MAX};
use weft_names::{HostId, Life, Owner};

/// Hosts that an agent sends a message to itself.
pub const FAN_OUT: usize = 8;
/// Most hosts below one: what fits the longest message.
const BELOW_MAX: usize = 2048;
/// Outcomes that are remembered; those of one host take at most half of what others leave.
const DONE_MAX: usize = 16_384;
/// Hosts of which outcomes are remembered: as many as a cluster has.
const HOSTS_MAX: usize = 4096;

/// Number of a message to all: the host of its sender, the life of its agent, and a number there.
pub type TreeId = (HostId, Life, u64);

/// A message to all owners of a name, as it goes from agent to agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeMail {
    /// Its number.
    pub id: TreeId,
    /// The least number of a message that its sender's agent waits for.
    pub floor: u64,
    /// The type.
    pub kind: u32,
    /// The first instance.
    pub lower: u32,
    /// The last instance.
    pub upper: u32,
    /// The word of the type, at most 63 bytes; empty: the type was given as a number.
    pub alias: String,
    /// The hosts that the receiver passes it on to.
    pub below: Vec<HostId>,
    /// The message.
    pub payload: Vec<u8>,
}

impl TreeMail {
    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        let (host, life, number) = self.id;
        to.value(&host);
        to.value(&life);
        to.value(&number);
        to.value(&self.floor);
        [self.kind, self.lower, self.upper].iter().for_each(|n| to.value(n));
        to.value(&(self.below.len() as u16));
        to.bytes(&[self.alias.len() as u8, 0]);
        self.below.iter().for_each(|host| to.value(host));
        to.bytes(self.alias.as_bytes());
        to.bytes(&self.payload);
        to.0
    }

    /// Decodes it.
    ///
    /// # Errors
    /// The bytes are no message of a tree.
    pub fn parse(bytes: &[u8]) -> Result<TreeMail, WireError> {
        let mut from = Reader(bytes);
        let id: TreeId = (from.value()?, from.value()?, from.value()?);
        let floor = from.value()?;
        let (kind, lower, upper) = (from.value()?, from.value()?, from.value()?);
        let count = usize::from(from.value::<u16>()?);
        let len = usize::from(from.value::<u8>()?);
        from.pad(1)?;
        if count > BELOW_MAX || lower > upper || floor > id.2 || len > ALIAS_MAX {
            return Err(WireError::Value { name: "below" });
        }
        let below = (0..count).map(|_| from.value()).collect::<Result<_, _>>()?;
        let alias = std::str::from_utf8(from.bytes(len)?).map(str::to_string);
        let alias = alias.map_err(|_| WireError::Value { name: "alias" })?;
        Ok(TreeMail { id, floor, kind, lower, upper, alias, below, payload: from.0.to_vec() })
    }
}

/// The one that waits for the outcome of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above {
    /// The agent from which it came, and the number of its message.
    Agent(SocketAddr, u64),
    /// A request of a program of this host.
    Request(u64),
}

/// The outcome for all owners: delivered, or a reason and a host of which it is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The outcome.
    pub outcome: Outcome,
    /// The host; 0: none is named.
    pub host: HostId,
}

const DELIVERED: Verdict = Verdict { outcome: Outcome::Delivered, host: HostId(0) };

struct Tree {
    mail: TreeMail,
    from: Owner,
    above: Vec<Above>,
    /// The hosts below that have not answered, with the rest of their arcs, by message.
    below: BTreeMap<u64, (HostId, Vec<HostId>)>,
    verdict: Verdict,
}

/// The outcomes of the messages of one sender's host.
struct Ended {
    life: Life,
    floor: u64,
    verdicts: BTreeMap<u64, Verdict>,
}

/// The answer to a message that came from an agent above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The message is new, and to be delivered and passed on.
    New,
    /// The message was here before. The agent above gets the outcome.
    Known,
    /// There is no place to remember its outcome.
    Full,
}

/// The trees of an agent.
#[derive(Default)]
pub struct Trees {
    table: BTreeMap<TreeId, Tree>,
    of_message: BTreeMap<u64, TreeId>,
    done: BTreeMap<HostId, Ended>,
    verdicts: VecDeque<(Above, Verdict)>,
}

/// Cuts hosts into arcs, each with its first host.
fn arcs(hosts: &[HostId]) -> impl Iterator<Item = (HostId, Vec<HostId>)> + '_ {
    let len = hosts.len().div_ceil(FAN_OUT).clamp(1, BELOW_MAX);
    hosts
        .chunks(len)
        .filter_map(|arc| arc.split_first())
        .map(|(first, rest)| (*first, rest.to_vec()))
}

impl Trees {
    /// Returns the number of trees that are not finished.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if all are finished.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the least number of a message of this host that is under way, or is to begin now.
    pub fn floor(&self, (host, life, number): TreeId) -> u64 {
        let own = self.table.range((host, life, 0)..(host, life, number));
        own.map(|(id, _)| id.2).next().unwrap_or(number)
    }

    /// Takes a message of an agent above, and notes that this agent waits for its outcome.
    pub fn arrive(&mut self, mail: &TreeMail, above: Above) -> Arrival {
        let (host, life, number) = mail.id;
        let fresh = || Ended { life, floor: mail.floor, verdicts: BTreeMap::new() };
        if self.done.len() >= HOSTS_MAX && !self.done.contains_key(&host) {
            self.done.retain(|_, ended| !ended.verdicts.is_empty());
            if self.done.len() >= HOSTS_MAX {
                return Arrival::Full;
            }
        }
        let ended = self.done.entry(host).or_insert_with(fresh);
        if ended.life < life {
            *ended = fresh();
        }
        if ended.life == life && ended.floor < mail.floor {
            ended.floor = mail.floor;
            ended.verdicts = ended.verdicts.split_off(&mail.floor);
        }
        let is_over = ended.life > life || number < ended.floor;
        let verdict = ended.verdicts.get(&number).copied().filter(|_| !is_over);
        if let Some(verdict) = verdict.or(is_over.then_some(DELIVERED)) {
            self.verdicts.push_back((above, verdict));
            return Arrival::Known;
        }
        let own = ended.verdicts.len();
        if let Some(tree) = self.table.get_mut(&mail.id) {
            if !tree.above.contains(&above) {
                tree.above.push(above);
            }
            return Arrival::Known;
        }
        let all = self.done.values().map(|ended| ended.verdicts.len()).sum();
        match has_share(own, all, DONE_MAX) {
            true => Arrival::New,
            false => Arrival::Full,
        }
    }

    /// Passes a message on to the hosts below this one. `own` is the outcome for the owners of this
    /// host; `find` returns the agent of a host.
    pub fn begin(
        &mut self,
        now: Instant,
        post: &mut Post,
        (mail, from): (TreeMail, Owner),
        above: Above,
        own: Verdict,
        find: impl Fn(HostId) -> Option<(SocketAddr, Life)>,
    ) {
        let (id, mut hosts) = (mail.id, mail.below.clone());
        hosts.sort_by_key(|host| (host.place(), *host));
        hosts.dedup();
        let tree = Tree { mail, from, above: vec![above], below: BTreeMap::new(), verdict: own };
        self.table.insert(id, tree);
        self.spread(now, post, id, hosts, &find);
        self.settle(id);
    }

    fn spread(
        &mut self,
        now: Instant,
        post: &mut Post,
        id: TreeId,
        hosts: Vec<HostId>,
        find: &dyn Fn(HostId) -> Option<(SocketAddr, Life)>,
    ) {
        let Some(tree) = self.table.get_mut(&id) else { return };
        let mut rest: VecDeque<(HostId, Vec<HostId>)> = arcs(&hosts).collect();
        while let Some((host, below)) = rest.pop_front() {
            let outcome = match find(host) {
                None => Outcome::Silent,
                Some((agent, life)) => {
                    let mail = TreeMail { below: below.clone(), ..tree.mail.clone() };
                    match post.pass_on(now, Receiver { agent, life, claim: 0 }, tree.from, mail) {
                        Some(number) => {
                            tree.below.insert(number, (host, below));
                            self.of_message.insert(number, id);
                            continue;
                        }
                        None => Outcome::Overload,
                    }
                }
            };
            tree.verdict = Verdict { outcome, host };
            rest.extend(arcs(&below));
        }
    }

    /// Takes the outcome of a message. Returns false if it is of no tree.
    pub fn on_outcome(
        &mut self,
        now: Instant,
        post: &mut Post,
        number: u64,
        verdict: Verdict,
        find: impl Fn(HostId) -> Option<(SocketAddr, Life)>,
    ) -> bool {
        let Some(id) = self.of_message.remove(&number) else { return false };
        let Some(tree) = self.table.get_mut(&id) else { return true };
        let Some((host, below)) = tree.below.remove(&number) else { return true };
        if verdict.outcome != Outcome::Delivered {
            let named = if verdict.host == HostId(0) { host } else { verdict.host };
            tree.verdict = Verdict { host: named, ..verdict };
            if verdict.host == HostId(0) {
                // The host itself does not answer, so nobody may have told those below it.
                self.spread(now, post, id, below, &find);
            }
        }
        self.settle(id);
        true
    }

    /// Ends a tree to which all have answered.
    fn settle(&mut self, id: TreeId) {
        if self.table.get(&id).is_none_or(|tree| !tree.below.is_empty()) {
            return;
        }
        let Some(tree) = self.table.remove(&id) else { return };
        self.verdicts.extend(tree.above.into_iter().map(|above| (above, tree.verdict)));
        let (host, life, number) = id;
        if let Some(ended) = self.done.get_mut(&host).filter(|ended| ended.life == life) {
            ended.verdicts.insert(number, tree.verdict);
        }
    }

    /// Takes the outcome of a tree, for one that waits for it.
    pub fn poll_verdict(&mut self) -> Option<(Above, Verdict)> {
        self.verdicts.pop_front()
    }
}

impl Verdict {
    /// The verdict that all have the message.
    pub const DELIVERED: Verdict = DELIVERED;
}

#[cfg(test)]
mod tests;
