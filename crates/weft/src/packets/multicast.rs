//! Multicast groups: packets go down spanning trees, each member forwards what it gets.
//!
//! Flow control keeps store-and-forward from deadlock: every edge of every tree (root, shape) has
//! credit of its own, so packets wait for nobody but those before them on the same tree. A packet
//! occupies memory of a member until its upcall is through and it went on to all children; then its
//! credit goes back to the parent, half a window at a time, or a while after the last. Counts are
//! cumulative, and a parent that lacks credit asks for them, so that credit that was lost comes
//! back. While a child owes credit its parent notices its silence: those below it hear of its end,
//! though they wait for what they do not know of. Whoever says that it waits for a root notices the
//! silence of its possible parents: if all do that, a silent one on any way is noticed.
//!
//! Packets of one root are delivered in its order, also when they took different trees: those that
//! come early wait, and since their credit waits with them, as many as trees have credit.

use super::agent::Forwarding;
use super::send::post;
use super::wire::{tag, Credit, Failed, Kind, Multicast};
use super::State;
use crate::choices::Tree;
use crate::endpoint::driver::{Arrived, Driver, PacketBuf};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use weft_core::group::tree;
use weft_core::{Instant, OpError, PeerFailure, PeerId};

/// How soon a parent that lacks credit asks for it, and how often.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// How late credit goes back that is less than half a window.
const GIVE_BACK: Duration = Duration::from_millis(100);

/// A packet being forwarded and delivered here.
pub(super) struct InFlight {
    pub buf: Rc<PacketBuf>,
    pub group: u16,
    pub root: u16,
    pub tree: u8,
    pub handler: u16,
    pub argument: u32,
    /// Children it has not gone to, and one until its upcall is through.
    pub refs: usize,
    /// Agents forward it.
    pub by_agent: bool,
}

/// A packet whose upcall is due.
pub(super) struct Delivery {
    pub id: u32,
    pub handler: u16,
    pub argument: u32,
    pub source: PeerId,
    pub buf: Rc<PacketBuf>,
}

/// The way to a child in one tree.
#[derive(Default)]
struct Edge {
    sent: u32,
    /// Of those, the child has memory for again.
    freed: u32,
    pending: VecDeque<u32>,
    /// Since when a packet has waited for credit.
    starving: Option<Instant>,
    asked: Option<Instant>,
    named: bool,
    /// Its silence is noticed: it owes credit.
    watched: bool,
}

impl Edge {
    /// One more packet goes to the child.
    fn note_sent(&mut self, driver: &mut Driver, child: PeerId) {
        self.sent = self.sent.wrapping_add(1);
        if !self.watched {
            self.watched = driver.core.engine.watch(driver.core.now, child);
        }
    }

    /// The child owes nothing any more, or is given up.
    fn unwatch(&mut self, driver: &mut Driver, child: PeerId) {
        if std::mem::take(&mut self.watched) {
            driver.core.engine.unwatch(child);
        }
    }

    fn has_credit(&self, window: u32) -> bool {
        self.sent.wrapping_sub(self.freed) < window
    }
}

/// The way from the parent in one tree.
#[derive(Default)]
struct Inlet {
    arrived: u32,
    freed: u32,
    told: u32,
    /// When what was freed and not told is told.
    due: Option<Instant>,
}

/// The order of one root's packets.
#[derive(Default)]
struct Order {
    next: u32,
    early: BTreeMap<u32, u32>,
}

/// A member that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dead {
    pub rank: usize,
    pub failure: Option<PeerFailure>,
}

pub(super) struct Group {
    pub members: Vec<PeerId>,
    pub me: usize,
    pub seq: u32,
    /// By root, tree and child.
    edges: BTreeMap<(u16, u8, u16), Edge>,
    /// By root and tree.
    inlets: BTreeMap<(u16, u8), Inlet>,
    /// By root.
    orders: BTreeMap<u16, Order>,
    pub dead: Option<Dead>,
    /// Members named for being slow, since when each has been.
    pub slow: BTreeMap<usize, Instant>,
    /// Who forwards what this member sends, by tree; ranks where nothing is said.
    pub agents: BTreeMap<u8, Forwarding>,
}

/// Why a multicast packet was not taken.
pub(super) enum Stop {
    Dead(Dead),
    /// Lacking credit of this member.
    Busy(Option<usize>),
}

pub(super) fn tree_of(code: u8) -> Option<Tree> {
    Tree::ALL.get(usize::from(code)).copied()
}

pub(super) fn code_of(tree: Tree) -> u8 {
    tree as u8
}

impl Group {
    pub fn new(members: Vec<PeerId>, me: usize) -> Group {
        Group {
            members,
            me,
            seq: 0,
            edges: BTreeMap::new(),
            inlets: BTreeMap::new(),
            orders: BTreeMap::new(),
            dead: None,
            slow: BTreeMap::new(),
            agents: BTreeMap::new(),
        }
    }

    fn children(&self, tree: Tree, root: usize) -> tree::Children {
        tree::children(tree, root, self.me, self.members.len())
    }

    /// The first of some members that failed.
    fn first_failed(
        &self,
        driver: &Driver,
        mut ranks: impl Iterator<Item = usize>,
    ) -> Option<Dead> {
        ranks.find_map(|rank| {
            let failure = driver.core.engine.peer_failure(self.members[rank])?;
            Some(Dead { rank, failure: Some(failure) })
        })
    }

    pub fn rank_of(&self, peer: PeerId) -> Option<usize> {
        self.members.iter().position(|&p| p == peer)
    }

    /// An edge lacks credit from `now` on.
    fn starve(&mut self, driver: &mut Driver, key: (u16, u8, u16), now: Instant) {
        let edge = self.edges.entry(key).or_default();
        if edge.starving.is_none() {
            edge.starving = Some(now);
            driver.packets_due = driver.packets_due.min(now + ASK_EVERY);
        }
    }

    fn thrive(&mut self, key: (u16, u8, u16)) {
        let Some(edge) = self.edges.get_mut(&key) else { return };
        if edge.starving.take().is_some() {
            (edge.asked, edge.named) = (None, false);
            self.slow.remove(&usize::from(key.2));
        }
    }
}

impl State {
    /// Sends a packet of this member down a tree, if all its children have room for it.
    pub(super) fn multicast(
        &mut self,
        driver: &mut Driver,
        id: u16,
        tree: Tree,
        (handler, argument): (u16, u32),
        data: &[u8],
    ) -> Result<(), Stop> {
        let by_agents = self.goes_by_agents(driver, id, tree, data.len());
        let Some(group) = self.groups.get_mut(&id) else { return Ok(()) };
        if let Some(dead) = group.dead {
            return Err(Stop::Dead(dead));
        }
        // Agents forward to all, this rank to some.
        let failed = match by_agents {
            true => group.first_failed(driver, (0..group.members.len()).filter(|&r| r != group.me)),
            false => group.first_failed(driver, group.children(tree, group.me)),
        };
        if let Some(dead) = failed {
            self.member_failed(driver, id, dead, true);
            return Err(Stop::Dead(dead));
        }
        let (root, seq) = (group.me as u16, group.seq);
        let header =
            Multicast { group: id, root, seq, tree: code_of(tree), ..Multicast::default() };
        let name = tag(Kind::Multicast, handler, argument);
        let sent = match by_agents {
            true => self.send_to_agent(driver, header, name, data),
            false => self.send_to_children(driver, header, tree, name, data),
        };
        if let (Ok(()), Some(group)) = (&sent, self.groups.get_mut(&id)) {
            group.seq = seq.wrapping_add(1);
            self.stats.multicasts += 1;
        }
        sent
    }

    /// Sends a packet of this member to its children, if all have room for it.
    fn send_to_children(
        &mut self,
        driver: &mut Driver,
        header: Multicast,
        tree: Tree,
        name: u64,
        data: &[u8],
    ) -> Result<(), Stop> {
        let (now, window) = (driver.core.tick(), self.credit);
        let Some(group) = self.groups.get_mut(&header.group) else { return Ok(()) };
        let key = |rank: usize| (header.root, header.tree, rank as u16);
        for rank in group.children(tree, group.me) {
            let edge = group.edges.entry(key(rank)).or_default();
            if !edge.pending.is_empty() || !edge.has_credit(window) {
                group.starve(driver, key(rank), now);
                return Err(Stop::Busy(Some(rank)));
            }
        }
        let mut buf = driver.core.packet_bufs.pop().unwrap_or_default();
        let bytes = buf.resize(Multicast::LEN + data.len());
        header.write(bytes);
        bytes[Multicast::LEN..].copy_from_slice(data);
        for rank in group.children(tree, group.me) {
            let peer = group.members[rank];
            if let Some(edge) = group.edges.get_mut(&key(rank)) {
                edge.note_sent(driver, peer);
            }
            note(post(driver, peer, name, buf.get()), peer);
        }
        driver.core.recycle(buf);
        Ok(())
    }

    /// A multicast packet from the parent.
    pub(super) fn on_multicast(
        &mut self,
        driver: &mut Driver,
        arrived: Arrived,
        handler: u16,
        argument: u32,
    ) {
        let parsed = Multicast::parse(arrived.data.get()).map(|(header, _)| header);
        let Some(header) = parsed else {
            self.stats.malformed += 1;
            return self.settle(driver, arrived);
        };
        let Some(group) = self.groups.get_mut(&header.group) else {
            // Made here later. Until then its credit stays with the packet: that bounds them.
            driver.core.engine.packet_left(driver.core.now, arrived.peer);
            self.orphans.push_back(arrived);
            return;
        };
        let (root, size) = (usize::from(header.root), group.members.len());
        let parent = tree_of(header.tree).and_then(|t| tree::parent(t, root, group.me, size));
        let inlet = group.inlets.entry((header.root, header.tree)).or_default();
        let room = inlet.arrived.wrapping_sub(inlet.freed) < self.credit;
        let (Some(tree), Some(parent), true) = (tree_of(header.tree), parent, room) else {
            self.stats.malformed += 1;
            return self.settle(driver, arrived);
        };
        if group.members[parent] != arrived.peer {
            self.stats.malformed += 1;
            return self.settle(driver, arrived);
        }
        inlet.arrived = inlet.arrived.wrapping_add(1);
        // From here on the credit of the tree bounds it.
        let len = arrived.data.len as u64;
        driver.core.engine.packet_released(arrived.peer, len);
        let children = group.children(tree, root).count();
        if let Some(id) =
            self.take_off(driver, header, arrived.data, (handler, argument), children, false)
        {
            self.forward(driver, id, tree);
            self.deliver_in_order(driver, id, header);
        }
    }

    /// A packet is in flight here: it goes to so many children, and to an upcall. `None`: there are
    /// too many.
    pub(super) fn take_off(
        &mut self,
        driver: &mut Driver,
        header: Multicast,
        data: PacketBuf,
        (handler, argument): (u16, u32),
        children: usize,
        by_agent: bool,
    ) -> Option<u32> {
        let Multicast { group, root, tree, .. } = header;
        let flight = InFlight {
            buf: Rc::new(data),
            group,
            root,
            tree,
            handler,
            argument,
            refs: children + 1,
            by_agent,
        };
        let id = self.flights.insert(flight);
        if id.is_none() {
            self.stats.malformed += 1;
            self.give_back(driver, (group, root, tree), by_agent);
        }
        id
    }

    /// Sends a packet on to the children that have room for it, the others wait.
    fn forward(&mut self, driver: &mut Driver, id: u32, tree: Tree) {
        let (window, now) = (self.credit, driver.core.now);
        let Some(flight) = self.flights.get(id) else { return };
        let Some(group) = self.groups.get_mut(&flight.group) else { return };
        let (root, buf) = (flight.root, Rc::clone(&flight.buf));
        let name = tag(Kind::Multicast, flight.handler, flight.argument);
        let (mut gone, code) = (0, code_of(tree));
        for rank in group.children(tree, usize::from(root)) {
            let key = (root, code, rank as u16);
            let edge = group.edges.entry(key).or_default();
            if group.dead.is_some() {
                gone += 1;
            } else if edge.pending.is_empty() && edge.has_credit(window) {
                let child = group.members[rank];
                edge.note_sent(driver, child);
                gone += 1;
                self.stats.forwarded += 1;
                note(post(driver, child, name, buf.get()), child);
            } else {
                edge.pending.push_back(id);
                group.starve(driver, key, now);
            }
        }
        drop(buf);
        (0..gone).for_each(|_| self.land(driver, id));
    }

    pub(super) fn deliver_in_order(&mut self, driver: &mut Driver, id: u32, header: Multicast) {
        let Some(group) = self.groups.get_mut(&header.group) else { return };
        let order = group.orders.entry(header.root).or_default();
        if header.seq != order.next {
            let ahead = header.seq.wrapping_sub(order.next) < 1 << 31;
            if ahead && !order.early.contains_key(&header.seq) {
                self.stats.reordered += 1;
                order.early.insert(header.seq, id);
            } else {
                self.stats.malformed += 1;
                self.land(driver, id);
            }
            return;
        }
        let mut due = Some(id);
        while let Some(id) = due {
            order.next = order.next.wrapping_add(1);
            if let Some(f) = self.flights.get(id) {
                self.deliveries.push_back(Delivery {
                    id,
                    handler: f.handler,
                    argument: f.argument,
                    source: group.members[usize::from(f.root)],
                    buf: Rc::clone(&f.buf),
                });
            }
            due = order.early.remove(&order.next);
        }
    }

    /// A packet went to one more child, or its upcall is through. With the last its memory is free
    /// and its credit goes back.
    pub(super) fn land(&mut self, driver: &mut Driver, id: u32) {
        let Some(flight) = self.flights.get_mut(id) else { return };
        flight.refs -= 1;
        if flight.refs > 0 {
            return;
        }
        let Some(flight) = self.flights.remove(id) else { return };
        if let Ok(buf) = Rc::try_unwrap(flight.buf) {
            driver.core.recycle(buf);
        }
        self.give_back(driver, (flight.group, flight.root, flight.tree), flight.by_agent);
    }

    /// The memory of a packet is free: its credit goes back to the agent or to the parent.
    pub(super) fn give_back(
        &mut self,
        driver: &mut Driver,
        (id, root, tree): (u16, u16, u8),
        by_agent: bool,
    ) {
        if let Some(agent) = self.agent.as_ref().filter(|_| by_agent) {
            return agent.release(id, root, tree);
        }
        let Some(group) = self.groups.get_mut(&id) else { return };
        let inlet = group.inlets.entry((root, tree)).or_default();
        inlet.freed = inlet.freed.wrapping_add(1);
        if inlet.freed.wrapping_sub(inlet.told) >= self.credit.div_ceil(2) {
            return self.tell_credit(driver, id, root, tree);
        }
        let due = *inlet.due.get_or_insert(driver.core.now + GIVE_BACK);
        driver.packets_due = driver.packets_due.min(due);
    }

    fn tell_credit(&mut self, driver: &mut Driver, id: u16, root: u16, code: u8) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let size = group.members.len();
        let parent = tree_of(code).and_then(|t| tree::parent(t, usize::from(root), group.me, size));
        let (Some(parent), Some(inlet)) = (parent, group.inlets.get_mut(&(root, code))) else {
            return;
        };
        (inlet.told, inlet.due) = (inlet.freed, None);
        let credit =
            Credit { group: id, root, count: inlet.freed, tree: code, ..Credit::default() };
        let peer = group.members[parent];
        if self.lose_credits > 0 {
            self.lose_credits -= 1;
            return;
        }
        self.stats.credits_sent += 1;
        note(post(driver, peer, tag(Kind::Credit, 0, 0), &credit.encode()), peer);
    }

    /// A child has memory again.
    pub(super) fn on_credit(
        &mut self,
        driver: &mut Driver,
        from: PeerId,
        bytes: &[u8],
    ) -> Option<()> {
        let (credit, _) = Credit::parse(bytes)?;
        let window = self.credit;
        let group = self.groups.get_mut(&credit.group)?;
        let child = group.rank_of(from)?;
        let key = (credit.root, credit.tree, child as u16);
        let edge = group.edges.get_mut(&key)?;
        let grown = credit.count.wrapping_sub(edge.freed);
        if grown > edge.sent.wrapping_sub(edge.freed) {
            return None;
        }
        edge.freed = credit.count;
        let mut gone = Vec::new();
        while edge.has_credit(window) {
            let Some(id) = edge.pending.pop_front() else { break };
            edge.note_sent(driver, from);
            if let Some(f) = self.flights.get(id) {
                let name = tag(Kind::Multicast, f.handler, f.argument);
                self.stats.forwarded += 1;
                note(post(driver, from, name, f.buf.get()), from);
            }
            gone.push(id);
        }
        if edge.freed == edge.sent {
            edge.unwatch(driver, from);
        }
        if edge.has_credit(window) {
            group.thrive(key);
        }
        gone.into_iter().for_each(|id| self.land(driver, id));
        self.wake_all();
        Some(())
    }

    /// The parent lacks credit: it may have been lost.
    pub(super) fn on_ask(&mut self, driver: &mut Driver, from: PeerId, bytes: &[u8]) -> Option<()> {
        let (ask, _) = Credit::parse(bytes)?;
        let group = self.groups.get(&ask.group)?;
        group.rank_of(from)?;
        self.tell_credit(driver, ask.group, ask.root, ask.tree);
        Some(())
    }

    /// A member of a group told that another failed.
    pub(super) fn on_failed(
        &mut self,
        driver: &mut Driver,
        from: PeerId,
        bytes: &[u8],
    ) -> Option<()> {
        let (failed, _) = Failed::parse(bytes)?;
        let group = self.groups.get(&failed.group)?;
        group.rank_of(from)?;
        let rank = usize::from(failed.rank);
        group.members.get(rank).filter(|_| rank != group.me)?;
        self.member_failed(driver, failed.group, Dead { rank, failure: None }, false);
        Some(())
    }

    /// This member waits for packets of a root: the peers whose silence is noticed from now on.
    pub(super) fn expect(
        &mut self,
        driver: &mut Driver,
        id: u16,
        root: usize,
    ) -> Result<Vec<PeerId>, Stop> {
        let Some(group) = self.groups.get_mut(&id) else { return Ok(Vec::new()) };
        assert!(root < group.members.len(), "no member {root} of {}", group.members.len());
        let of = |&tree: &Tree| tree::parent(tree, root, group.me, group.members.len());
        let mut parents: Vec<_> = Tree::ALL.iter().filter_map(of).collect();
        parents.sort_unstable();
        parents.dedup();
        // What one that left in good order sent may still be on its way.
        let missed = |dead: &Dead| dead.failure != Some(PeerFailure::Closed);
        let failed = |&rank| group.first_failed(driver, std::iter::once(rank)).filter(missed);
        let gone = parents.iter().find_map(failed);
        if let Some(dead) = group.dead.or(gone) {
            self.member_failed(driver, id, dead, true);
            return Err(Stop::Dead(dead));
        }
        let now = driver.core.tick();
        let peers = parents.into_iter().map(|rank| group.members[rank]);
        Ok(peers.filter(|&peer| driver.core.engine.watch(now, peer)).collect())
    }

    /// Peers failed: groups that they are members of fail, except that whoever left in good order
    /// is missed only when something is for it.
    pub(super) fn on_failures(&mut self, driver: &mut Driver) {
        let failures = match &mut driver.core.packet_failures {
            Some(list) if !list.is_empty() => std::mem::take(list),
            _ => return,
        };
        for (peer, failure) in failures {
            self.copies.forget(peer);
            let hit: Vec<(u16, usize)> = self
                .groups
                .iter()
                .filter_map(|(&id, group)| Some((id, group.rank_of(peer)?)))
                .filter(|(id, rank)| {
                    let waits = |(key, edge): (&(u16, u8, u16), &Edge)| {
                        usize::from(key.2) == *rank && edge.starving.is_some()
                    };
                    failure != PeerFailure::Closed || self.groups[id].edges.iter().any(waits)
                })
                .collect();
            for (id, rank) in hit {
                let dead = Dead { rank, failure: Some(failure) };
                self.member_failed(driver, id, dead, true);
            }
        }
        self.wake_all();
    }

    /// A group has lost a member: what waits for others is given up, and `tell` the others.
    pub(super) fn member_failed(&mut self, driver: &mut Driver, id: u16, dead: Dead, tell: bool) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if group.dead.is_some() {
            return;
        }
        group.dead = Some(dead);
        self.stats.members_failed += 1;
        let keys: Vec<_> = group.edges.keys().copied().collect();
        let mut gone = Vec::new();
        for key in keys {
            group.thrive(key);
            if let Some(edge) = group.edges.get_mut(&key) {
                edge.unwatch(driver, group.members[usize::from(key.2)]);
                gone.extend(edge.pending.drain(..));
            }
        }
        if tell {
            let failed = Failed { group: id, rank: dead.rank as u16 };
            for (rank, &peer) in group.members.iter().enumerate() {
                let alive = driver.core.engine.peer_failure(peer).is_none();
                if rank != group.me && rank != dead.rank && alive {
                    note(post(driver, peer, tag(Kind::Failed, 0, 0), &failed.encode()), peer);
                }
            }
        }
        gone.into_iter().for_each(|id| self.land(driver, id));
        self.wake_all();
    }

    /// Asks children that owe credit for it, names those that are slow, and gives credit back.
    pub(super) fn on_time(&mut self, driver: &mut Driver) {
        let now = driver.core.now;
        let mut next = Instant::FAR;
        let (mut asks, mut slow, mut back) = (Vec::new(), Vec::new(), Vec::new());
        for (&id, group) in &mut self.groups {
            for (&(root, code), inlet) in &group.inlets {
                match inlet.due {
                    Some(due) if due <= now => back.push((id, root, code)),
                    Some(due) => next = next.min(due),
                    None => {}
                }
            }
            for (&key, edge) in &mut group.edges {
                let Some(since) = edge.starving else { continue };
                let rank = usize::from(key.2);
                if now >= edge.asked.unwrap_or(since) + ASK_EVERY {
                    edge.asked = Some(now);
                    asks.push((group.members[rank], id, key, edge.sent));
                }
                if !edge.named && now >= since + self.patience {
                    edge.named = true;
                    slow.push((id, rank, since));
                }
                next = next.min(edge.asked.unwrap_or(since) + ASK_EVERY);
            }
        }
        driver.packets_due = next;
        back.into_iter().for_each(|(id, root, code)| self.tell_credit(driver, id, root, code));
        slow.into_iter().for_each(|(id, rank, since)| self.name_slow(driver, id, rank, since));
        if self.agent.as_ref().is_some_and(|agent| agent.is_joining()) {
            self.join_what_can_be(driver);
        }
        for (peer, group, (root, code, _), sent) in asks {
            self.stats.credits_asked += 1;
            let ask = Credit { group, root, count: sent, tree: code, ..Credit::default() };
            note(post(driver, peer, tag(Kind::Ask, 0, 0), &ask.encode()), peer);
        }
    }

    /// A member has taken no packet since then, and those before it in a tree wait.
    pub(super) fn name_slow(&mut self, driver: &Driver, id: u16, rank: usize, since: Instant) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.slow.insert(rank, since);
        self.stats.slow_members += 1;
        let who = driver.describe(group.members[rank]);
        let waited = driver.core.now.since(since).as_secs_f64();
        log::warn!(
            "multicast group {id}: member {rank} ({who}) has taken no packet for {waited:.1} s, \
             and those before it in the tree wait"
        );
    }

    /// Packets that came for a group before it was made.
    pub(super) fn adopt(&mut self, driver: &mut Driver, id: u16) {
        let (mine, others): (VecDeque<_>, VecDeque<_>) =
            self.orphans.drain(..).partition(|arrived| {
                Multicast::parse(arrived.data.get()).is_some_and(|(header, _)| header.group == id)
            });
        self.orphans = others;
        for arrived in mine.into_iter().rev() {
            driver.core.packets.push_front(arrived);
        }
    }
}

/// A peer that failed is noticed as such; anything else would be a packet lost.
pub(super) fn note(posted: Result<(), OpError>, peer: PeerId) {
    match posted {
        Ok(()) | Err(OpError::Peer { .. }) => {}
        Err(error) => log::error!("a packet for {peer} was lost: {error}"),
    }
}
