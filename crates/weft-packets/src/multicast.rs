//! Multicast groups: packets go down spanning trees, and each member forwards the packets it
//! receives.
//!
//! Flow control keeps store-and-forward from deadlock: every edge of every tree (root, shape) has
//! its own credit, so a packet waits only for earlier packets of the same tree. A packet occupies a
//! member's memory until its upcall has returned and it was sent to all children. Then its credit
//! goes back to the parent, half a window at a time, or some time after the last packet. Counts are
//! cumulative, and a parent that lacks credit asks for them, so lost credit packets do no harm.
//! While a child owes credit, its parent notices the child's silence and tells the group, since
//! members below the child do not know that packets are due. A member that declares that it waits
//! for a root notices the silence of its possible parents: if all members do so, a silent member on
//! any path is noticed.
//!
//! Packets of one root are delivered in the order of sending, also if they took different trees.
//! Early packets wait and hold their credit, so the trees' credit bounds their number.

use super::agent::Forwarding;
use super::send::post;
use super::wire::{group_id, name, split_group};
use super::wire::{Credit, Failed, GroupId, Kind, Multicast, Name};
use super::State;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use weft::choices::Tree;
use weft::port::{Arrived, Buffer, Port};
use weft::{OpError, PeerFailure, PeerId};
use weft_core::group::tree;
use weft_core::Instant;

/// Delay after which a parent that lacks credit asks for it, and interval of asking again.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Delay after which credit of less than half a window goes back.
const GIVE_BACK: Duration = Duration::from_millis(100);

impl Multicast {
    pub fn id(&self) -> GroupId {
        group_id(self.group, self.generation)
    }
}

impl Credit {
    pub fn id(&self) -> GroupId {
        group_id(self.group, self.generation)
    }
}

impl Failed {
    pub fn id(&self) -> GroupId {
        group_id(self.group, self.generation)
    }
}

/// A packet that is being forwarded and delivered here.
pub(super) struct InFlight {
    pub buf: Rc<Buffer>,
    pub group: GroupId,
    pub root: u16,
    pub tree: u8,
    pub handler: u16,
    pub argument: u32,
    /// Number of children to which it was not yet sent, plus one until its upcall has returned.
    pub refs: usize,
    /// True if agents forward it.
    pub by_agent: bool,
}

/// A packet whose upcall is due.
pub(super) struct Delivery {
    pub id: u32,
    pub handler: u16,
    pub argument: u32,
    pub source: PeerId,
    pub buf: Rc<Buffer>,
}

/// The edge to a child in one tree.
#[derive(Default)]
struct Edge {
    sent: u32,
    /// Of those, the packets whose memory the child has freed.
    freed: u32,
    pending: VecDeque<u32>,
    /// The time since which a packet has waited for credit.
    starving: Option<Instant>,
    asked: Option<Instant>,
    named: bool,
    /// True if the child's silence is noticed, since it owes credit.
    watched: bool,
}

impl Edge {
    /// Counts one more packet to the child.
    fn note_sent(&mut self, port: &Port, child: PeerId) {
        self.sent = self.sent.wrapping_add(1);
        if !self.watched {
            self.watched = port.endpoint().peer(child).expect();
        }
    }

    /// Stops noticing the child's silence: it owes no credit, or is given up.
    fn unwatch(&mut self, port: &Port, child: PeerId) {
        if std::mem::take(&mut self.watched) {
            port.endpoint().peer(child).unexpect();
        }
    }

    fn has_credit(&self, window: u32) -> bool {
        self.sent.wrapping_sub(self.freed) < window
    }
}

/// The edge from the parent in one tree.
#[derive(Default)]
struct ParentEdge {
    arrived: u32,
    freed: u32,
    told: u32,
    /// The time at which credit goes back that was freed but not yet returned.
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
    /// Edges to children, by root, tree and child.
    edges: BTreeMap<(u16, u8, u16), Edge>,
    /// Edges from parents, by root and tree.
    inlets: BTreeMap<(u16, u8), ParentEdge>,
    /// Delivery orders, by root.
    orders: BTreeMap<u16, Order>,
    pub dead: Option<Dead>,
    /// Members reported as slow, with the time since which each is slow.
    pub slow: BTreeMap<usize, Instant>,
    /// Forwarders of this member's packets, by tree; ranks forward where there is no entry.
    pub agents: BTreeMap<u8, Forwarding>,
}

/// The reason why a multicast packet was not accepted.
pub(super) enum Refusal {
    Dead(Dead),
    /// The member whose credit is missing, if it is known.
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

    /// Returns the first failed member among `ranks`.
    fn first_failed(&self, port: &Port, mut ranks: impl Iterator<Item = usize>) -> Option<Dead> {
        ranks.find_map(|rank| {
            let failure = port.endpoint().peer(self.members[rank]).failure()?;
            Some(Dead { rank, failure: Some(failure) })
        })
    }

    pub fn rank_of(&self, peer: PeerId) -> Option<usize> {
        self.members.iter().position(|&p| p == peer)
    }

    /// Records that an edge lacks credit from `now` on.
    fn note_no_credit(&mut self, port: &Port, key: (u16, u8, u16), now: Instant) {
        let edge = self.edges.entry(key).or_default();
        if edge.starving.is_none() {
            edge.starving = Some(now);
            port.poll_each_round();
            port.call_by(now + ASK_EVERY);
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
        port: &Port,
        id: GroupId,
        tree: Tree,
        (handler, argument): (u16, u32),
        data: &[u8],
    ) -> Result<(), Refusal> {
        let by_agents = self.goes_by_agents(port, id, tree, data.len());
        let Some(group) = self.groups.get_mut(id) else { return Ok(()) };
        if let Some(dead) = group.dead {
            return Err(Refusal::Dead(dead));
        }
        // With agents every member counts, else only the children of this rank.
        let failed = match by_agents {
            true => group.first_failed(port, (0..group.members.len()).filter(|&r| r != group.me)),
            false => group.first_failed(port, group.children(tree, group.me)),
        };
        if let Some(dead) = failed {
            self.member_failed(port, id, dead, true);
            return Err(Refusal::Dead(dead));
        }
        let (root, seq) = (group.me as u16, group.seq);
        let (number, generation) = split_group(id);
        let tree_code = code_of(tree);
        let header = Multicast {
            group: number,
            generation,
            root,
            seq,
            tree: tree_code,
            ..Multicast::default()
        };
        let name = name(Kind::Multicast, handler, argument);
        let sent = match by_agents {
            true => self.send_to_agent(port, header, name, data),
            false => self.send_to_children(port, header, tree, name, data),
        };
        if let (Ok(()), Some(group)) = (&sent, self.groups.get_mut(id)) {
            group.seq = seq.wrapping_add(1);
            self.stats.multicasts += 1;
        }
        sent
    }

    /// Sends a packet of this member to its children, if all have room for it.
    fn send_to_children(
        &mut self,
        port: &Port,
        header: Multicast,
        tree: Tree,
        name: Name,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let (now, window) = (port.now(), self.credit);
        let Some(group) = self.groups.get_mut(header.id()) else { return Ok(()) };
        let key = |rank: usize| (header.root, header.tree, rank as u16);
        for rank in group.children(tree, group.me) {
            let edge = group.edges.entry(key(rank)).or_default();
            if !edge.pending.is_empty() || !edge.has_credit(window) {
                group.note_no_credit(port, key(rank), now);
                return Err(Refusal::Busy(Some(rank)));
            }
        }
        let mut buf = port.buffer(Multicast::LEN + data.len());
        header.write(&mut buf);
        buf[Multicast::LEN..].copy_from_slice(data);
        for rank in group.children(tree, group.me) {
            let peer = group.members[rank];
            if let Some(edge) = group.edges.get_mut(&key(rank)) {
                edge.note_sent(port, peer);
            }
            note(post(port, peer, name, &buf), peer);
        }
        port.recycle(buf);
        Ok(())
    }

    /// Handles a multicast packet from the parent.
    pub(super) fn on_multicast(&mut self, port: &Port, arrived: Arrived, handler: u16) {
        let parsed = Multicast::parse(&arrived.data).map(|(header, _)| header);
        let Some(header) = parsed else {
            self.stats.malformed += 1;
            return port.release(arrived);
        };
        let Some(group) = self.groups.get_mut(header.id()) else {
            return self.groups.keep_early(port, header.id(), arrived);
        };
        let (root, size) = (usize::from(header.root), group.members.len());
        let parent = tree_of(header.tree).and_then(|t| tree::parent(t, root, group.me, size));
        let inlet = group.inlets.entry((header.root, header.tree)).or_default();
        let room = inlet.arrived.wrapping_sub(inlet.freed) < self.credit;
        let (Some(tree), Some(parent), true) = (tree_of(header.tree), parent, room) else {
            self.stats.malformed += 1;
            return port.release(arrived);
        };
        if group.members[parent] != arrived.source {
            self.stats.malformed += 1;
            return port.release(arrived);
        }
        inlet.arrived = inlet.arrived.wrapping_add(1);
        // From here on the credit of the tree bounds the packets.
        let argument = arrived.argument;
        let data = port.take(arrived);
        let children = group.children(tree, root).count();
        if let Some(id) = self.take_off(port, header, data, (handler, argument), children, false) {
            self.forward(port, id, tree);
            self.deliver_in_order(port, id, header);
        }
    }

    /// Puts a packet in flight here, for some number of children and an upcall. `None` if there are
    /// too many.
    pub(super) fn take_off(
        &mut self,
        port: &Port,
        header: Multicast,
        data: Buffer,
        (handler, argument): (u16, u32),
        children: usize,
        by_agent: bool,
    ) -> Option<u32> {
        let (group, root, tree) = (header.id(), header.root, header.tree);
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
            self.give_back(port, (group, root, tree), by_agent);
        }
        id
    }

    /// Sends a packet to the children that have room for it; it waits for the others.
    fn forward(&mut self, port: &Port, id: u32, tree: Tree) {
        let (window, now) = (self.credit, port.round());
        let Some(flight) = self.flights.get(id) else { return };
        let Some(group) = self.groups.get_mut(flight.group) else { return };
        let (root, buf) = (flight.root, Rc::clone(&flight.buf));
        let name = name(Kind::Multicast, flight.handler, flight.argument);
        let (mut gone, code) = (0, code_of(tree));
        for rank in group.children(tree, usize::from(root)) {
            let key = (root, code, rank as u16);
            let edge = group.edges.entry(key).or_default();
            if group.dead.is_some() {
                gone += 1;
            } else if edge.pending.is_empty() && edge.has_credit(window) {
                let child = group.members[rank];
                edge.note_sent(port, child);
                gone += 1;
                self.stats.forwarded += 1;
                note(post(port, child, name, &buf), child);
            } else {
                edge.pending.push_back(id);
                group.note_no_credit(port, key, now);
            }
        }
        drop(buf);
        (0..gone).for_each(|_| self.land(port, id));
    }

    pub(super) fn deliver_in_order(&mut self, port: &Port, id: u32, header: Multicast) {
        let Some(group) = self.groups.get_mut(header.id()) else { return };
        let order = group.orders.entry(header.root).or_default();
        if header.seq != order.next {
            let ahead = header.seq.wrapping_sub(order.next) < 1 << 31;
            if ahead && !order.early.contains_key(&header.seq) {
                self.stats.reordered += 1;
                order.early.insert(header.seq, id);
            } else {
                self.stats.malformed += 1;
                self.land(port, id);
            }
            return;
        }
        let mut due = Some(id);
        while let Some(id) = due {
            order.next = order.next.wrapping_add(1);
            self.flights.deliver(id, group.members[usize::from(header.root)]);
            due = order.early.remove(&order.next);
        }
    }

    /// Drops one reference to a packet: it was sent to one more child, or its upcall has returned.
    /// With the last reference its memory is free and its credit goes back.
    pub(super) fn land(&mut self, port: &Port, id: u32) {
        let Some(flight) = self.flights.land(id) else { return };
        if let Ok(buf) = Rc::try_unwrap(flight.buf) {
            port.recycle(buf);
        }
        self.give_back(port, (flight.group, flight.root, flight.tree), flight.by_agent);
    }

    /// Gives the credit of a packet, whose memory is free, back to the agent or to the parent.
    pub(super) fn give_back(
        &mut self,
        port: &Port,
        (id, root, tree): (GroupId, u16, u8),
        by_agent: bool,
    ) {
        if let Some(agent) = self.agent.as_ref().filter(|_| by_agent) {
            return agent.release(id, root, tree);
        }
        let Some(group) = self.groups.get_mut(id) else { return };
        let inlet = group.inlets.entry((root, tree)).or_default();
        inlet.freed = inlet.freed.wrapping_add(1);
        if inlet.freed.wrapping_sub(inlet.told) >= self.credit.div_ceil(2) {
            return self.send_credit(port, id, root, tree);
        }
        let due = *inlet.due.get_or_insert(port.round() + GIVE_BACK);
        port.poll_each_round();
        port.call_by(due);
    }

    fn send_credit(&mut self, port: &Port, id: GroupId, root: u16, code: u8) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let size = group.members.len();
        let parent = tree_of(code).and_then(|t| tree::parent(t, usize::from(root), group.me, size));
        let (Some(parent), Some(inlet)) = (parent, group.inlets.get_mut(&(root, code))) else {
            return;
        };
        (inlet.told, inlet.due) = (inlet.freed, None);
        let (number, generation) = split_group(id);
        let count = inlet.freed;
        let tree = code;
        let credit = Credit { group: number, generation, root, count, tree, ..Credit::default() };
        let peer = group.members[parent];
        if self.losses.credits > 0 {
            self.losses.credits -= 1;
            return;
        }
        self.stats.credits_sent += 1;
        note(post(port, peer, name(Kind::Credit, 0, 0), &credit.encode()), peer);
    }

    /// Handles CREDIT: a child has freed memory.
    pub(super) fn on_credit(&mut self, port: &Port, from: PeerId, bytes: &[u8]) -> Option<()> {
        let (credit, _) = Credit::parse(bytes)?;
        let window = self.credit;
        let group = self.groups.get_mut(credit.id())?;
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
            edge.note_sent(port, from);
            if let Some(f) = self.flights.get(id) {
                let name = name(Kind::Multicast, f.handler, f.argument);
                self.stats.forwarded += 1;
                note(post(port, from, name, &f.buf), from);
            }
            gone.push(id);
        }
        if edge.freed == edge.sent {
            edge.unwatch(port, from);
        }
        if edge.has_credit(window) {
            group.thrive(key);
        }
        gone.into_iter().for_each(|id| self.land(port, id));
        self.wake_all();
        Some(())
    }

    /// Handles ASK: the parent lacks credit, which may have been lost.
    pub(super) fn on_ask(&mut self, port: &Port, from: PeerId, bytes: &[u8]) -> Option<()> {
        let (ask, _) = Credit::parse(bytes)?;
        let group = self.groups.get(ask.id())?;
        group.rank_of(from)?;
        self.send_credit(port, ask.id(), ask.root, ask.tree);
        Some(())
    }

    /// Handles FAILED: a member of a group reports that another failed.
    pub(super) fn on_failed(&mut self, port: &Port, from: PeerId, bytes: &[u8]) -> Option<()> {
        let (failed, _) = Failed::parse(bytes)?;
        let group = self.groups.get(failed.id())?;
        group.rank_of(from)?;
        let rank = usize::from(failed.rank);
        group.members.get(rank).filter(|_| rank != group.me)?;
        self.member_failed(port, failed.id(), Dead { rank, failure: None }, false);
        Some(())
    }

    /// Records that this member waits for packets of a root, and returns the peers whose silence is
    /// noticed from now on.
    pub(super) fn expect(
        &mut self,
        port: &Port,
        id: GroupId,
        root: usize,
    ) -> Result<Vec<PeerId>, Refusal> {
        let Some(group) = self.groups.get_mut(id) else { return Ok(Vec::new()) };
        assert!(root < group.members.len(), "no member {root} of {}", group.members.len());
        let of = |&tree: &Tree| tree::parent(tree, root, group.me, group.members.len());
        let mut parents: Vec<_> = Tree::ALL.iter().filter_map(of).collect();
        parents.sort_unstable();
        parents.dedup();
        // Packets of a member that closed in good order may still be in flight.
        let missed = |dead: &Dead| dead.failure != Some(PeerFailure::Closed);
        let failed = |&rank| group.first_failed(port, std::iter::once(rank)).filter(missed);
        let gone = parents.iter().find_map(failed);
        if let Some(dead) = group.dead.or(gone) {
            self.member_failed(port, id, dead, true);
            return Err(Refusal::Dead(dead));
        }
        let peers = parents.into_iter().map(|rank| group.members[rank]);
        Ok(peers.filter(|&peer| port.endpoint().peer(peer).expect()).collect())
    }

    /// Handles the failure of a peer: its groups fail. A peer that closed in good order fails a
    /// group only when a packet is for it.
    pub(super) fn on_failure(&mut self, port: &Port, peer: PeerId, failure: PeerFailure) {
        self.copies.forget(peer);
        self.words.forget(peer);
        let hit = |(id, group): (GroupId, &Group)| {
            let rank = group.rank_of(peer)?;
            let waits = |(key, edge): (&(u16, u8, u16), &Edge)| {
                usize::from(key.2) == rank && edge.starving.is_some()
            };
            let fails = failure != PeerFailure::Closed || group.edges.iter().any(waits);
            fails.then_some((id, rank))
        };
        let hit: Vec<(GroupId, usize)> = self.groups.iter().filter_map(hit).collect();
        for (id, rank) in hit {
            self.member_failed(port, id, Dead { rank, failure: Some(failure) }, true);
        }
        self.wake_all();
    }

    /// Handles the failure of a member: drops the group's waiting packets and, with `tell`, reports
    /// it to the others.
    pub(super) fn member_failed(&mut self, port: &Port, id: GroupId, dead: Dead, tell: bool) {
        let Some(group) = self.groups.get_mut(id) else { return };
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
                edge.unwatch(port, group.members[usize::from(key.2)]);
                gone.extend(edge.pending.drain(..));
            }
        }
        if tell {
            let (number, generation) = split_group(id);
            let rank = dead.rank as u16;
            let failed = Failed { group: number, generation, rank, ..Failed::default() };
            for (rank, &peer) in group.members.iter().enumerate() {
                let alive = port.endpoint().peer(peer).failure().is_none();
                if rank != group.me && rank != dead.rank && alive {
                    note(post(port, peer, name(Kind::Failed, 0, 0), &failed.encode()), peer);
                }
            }
        }
        gone.into_iter().for_each(|id| self.land(port, id));
        self.wake_all();
    }

    /// Asks children that owe credit, reports slow children, and gives credit back.
    pub(super) fn on_time(&mut self, port: &Port) {
        let now = port.round();
        let mut next = Instant::FAR;
        let (mut asks, mut slow, mut back) = (Vec::new(), Vec::new(), Vec::new());
        for (id, group) in self.groups.iter_mut() {
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
        port.call_at(next);
        back.into_iter().for_each(|(id, root, code)| self.send_credit(port, id, root, code));
        slow.into_iter().for_each(|(id, rank, since)| self.name_slow(port, id, rank, since));
        if self.agent.as_ref().is_some_and(|agent| agent.is_joining()) {
            self.join_what_can_be(port);
        }
        for (peer, id, (root, tree, _), count) in asks {
            self.stats.credits_asked += 1;
            let (group, generation) = split_group(id);
            let ask = Credit { group, generation, root, count, tree, ..Credit::default() };
            note(post(port, peer, name(Kind::Ask, 0, 0), &ask.encode()), peer);
        }
    }

    /// Reports a member that has taken no packet since `since`, while members above it in a tree
    /// wait.
    pub(super) fn name_slow(&mut self, port: &Port, id: GroupId, rank: usize, since: Instant) {
        let Some(group) = self.groups.get_mut(id) else { return };
        group.slow.insert(rank, since);
        self.stats.slow_members += 1;
        let who = port.endpoint().peer(group.members[rank]).describe();
        let waited = port.round().since(since).as_secs_f64();
        let why = match port.endpoint().peer(group.members[rank]).is_stopped() {
            true => " as its process is stopped (SIGCONT lets it go on),",
            false => "",
        };
        let (number, _) = split_group(id);
        weft_link::warn!(
            "multicast group {number}: member {rank} ({who}) has taken no packet for {waited:.1} s,\
             {why} and those before it in the tree wait"
        );
    }

    /// Ends a group here: its packets that wait are dropped, and later ones are not taken.
    pub(super) fn end_group(&mut self, port: &Port, id: GroupId) {
        let Some(mut group) = self.groups.end(id) else { return };
        let early = std::mem::take(&mut group.orders).into_values();
        let mut gone: Vec<u32> = early.flat_map(|order| order.early.into_values()).collect();
        for (key, edge) in &mut group.edges {
            edge.unwatch(port, group.members[usize::from(key.2)]);
            gone.extend(edge.pending.drain(..));
        }
        gone.into_iter().for_each(|id| self.land(port, id));
        self.leave_at_agent(id);
        self.wake_all();
    }
}

/// Checks the result of an internal send: a peer's failure is handled elsewhere, and any other
/// error would be a lost packet.
pub(super) fn note(posted: Result<(), OpError>, peer: PeerId) {
    match posted {
        Ok(()) | Err(OpError::Peer { .. }) => {}
        Err(error) => weft_link::error!("a packet for {peer} was lost: {error}"),
    }
}
