//! Services of the host's agent for the packet interface: the agent forwards multicasts and serves
//! counters, also while this process computes.
//!
//! At first no member knows if every member has an agent, and reaches its neighbours in the tree
//! through that agent. So a root that wants agents asks all members to join the tree at their
//! agents, forwards by ranks until the last member has answered, and then changes to agents.
//! Packets carry the same numbers both ways, so their order holds across the change.

use super::multicast::{code_of, note, tree_of, Dead, Group, Refusal};
use super::send::post;
use super::wire::{group_id, name, split_group, GroupId, Join, Kind, Multicast, Name};
use super::{Packets, State};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weft::choices::{Place, Tree};
use weft::port::{AtomicRequest, Buffer, Port};
use weft::{PeerFailure, PeerId};
use weft_agent::{GroupPacket, GroupRole, MemberNews, Services, ServicesHandle, PACKET_GROUPS};
use weft_core::group::tree;
use weft_core::wire::{Atomic, Eager, Mcast};

/// Interval at which a joining member checks if its neighbours have answered.
pub(super) const JOIN_EVERY: Duration = Duration::from_millis(1);
/// Bytes behind the program's bytes: number and argument of the packet.
const TAIL: usize = 8;
/// Bytes by which a packet that agents forward is longer than one that ranks forward.
pub(super) const AGENT_LEN: usize = TAIL + Mcast::LEN - Eager::LEN;
/// Most operations on counters that wait for the agent's answer.
const ASKED_MAX: usize = 512;
/// Longest wait for the agent's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Values of `Join::status`: the reasons why a member does not join.
mod status {
    pub const JOINED: u8 = 0;
    pub const NO_AGENT: u8 = 1;
    pub const ELSEWHERE: u8 = 2;
    pub const REFUSED: u8 = 3;
    pub const ASK: u8 = 255;

    pub fn text(status: u8) -> &'static str {
        match status {
            NO_AGENT => "no agent serves it",
            ELSEWHERE => {
                "it reaches a neighbour in the tree past its agent (WEFT_LINK=agent alone has all \
                 go through it)"
            }
            REFUSED => "its agent refuses (weftd --quota groups=N)",
            _ => "its answer is not understood",
        }
    }
}

/// The forwarders of this member's packets in one tree: agents or ranks.
pub(super) enum Forwarding {
    /// Ranks, until these members have joined at their agents.
    Asking(BTreeSet<usize>),
    /// Agents: the number of the next packet, and the grant at the last check.
    Agents { next: u32, granted: u32 },
    /// Ranks, since some member cannot join.
    Ranks,
}

/// A tree that this member joins at its agent.
struct Joining {
    group: GroupId,
    root: u16,
    tree: u8,
    /// True if the agent was asked to join.
    asked: bool,
}

/// The state of the packet interface that belongs to its agent.
pub(super) struct Agent {
    services: ServicesHandle,
    /// The chosen forwarder of multicasts: rank or agent.
    forwarder: Place,
    joining: Vec<Joining>,
    /// Trees that the agent has been asked to join, and those that it has to leave.
    joined: BTreeSet<(GroupId, u16, u8)>,
    leaving: Vec<(GroupId, u16, u8)>,
    /// Operations on counters that wait for the agent's answer, by number.
    asked: BTreeMap<u64, AtomicRequest>,
    next: u64,
}

/// Returns the number by which agents name a tree.
fn agent_group(group: GroupId, root: u16, code: u8) -> u64 {
    let (id, generation) = split_group(group);
    let (id, root, generation) = (u64::from(id), u64::from(root), u64::from(generation));
    PACKET_GROUPS | id << 32 | root << 16 | generation << 8 | u64::from(code)
}

fn parse_group(number: u64) -> (GroupId, u16, u8) {
    let group = group_id((number >> 32) as u16, (number >> 8) as u8);
    (group, (number >> 16) as u16, number as u8)
}

impl Join {
    pub fn id(&self) -> GroupId {
        group_id(self.group, self.generation)
    }
}

/// Returns this member's role in a tree of agents. Agents number members from the root.
fn role_of(group: &Group, id: GroupId, root: usize, tree: Tree) -> GroupRole {
    let size = group.members.len();
    let me = (group.me + size - root) % size;
    let peer = |number: usize| group.members[(number + root) % size];
    let above = tree::parent(tree, 0, me, size);
    GroupRole {
        group: agent_group(id, root as u16, code_of(tree)),
        tree,
        size: size as u32,
        me: me as u32,
        parent: above.map_or(PeerId(u32::MAX), peer),
        children: tree::children(tree, 0, me, size).map(peer).collect(),
    }
}

/// Takes the next item from a queue of the services, and ends the borrow of them.
fn next<T>(services: &ServicesHandle, of: fn(&mut Services) -> Option<T>) -> Option<T> {
    of(&mut services.borrow_mut())
}

impl Agent {
    pub fn new(services: ServicesHandle, forwarder: Place) -> Agent {
        Agent {
            forwarder,
            services,
            joining: Vec::new(),
            joined: BTreeSet::new(),
            leaving: Vec::new(),
            asked: BTreeMap::new(),
            next: 0,
        }
    }

    pub fn has_events(&self) -> bool {
        self.services.borrow().has_events()
    }

    /// Tells the agent that the memory of a packet that it forwarded is free.
    pub fn release(&self, group: GroupId, root: u16, code: u8) {
        self.services.borrow_mut().release(agent_group(group, root, code));
    }

    /// Leaves trees, as far as there is room for the requests.
    fn leave(&mut self) {
        let mut services = self.services.borrow_mut();
        self.leaving.retain(|&(id, root, code)| !services.leave(agent_group(id, root, code)));
    }

    pub fn is_joining(&self) -> bool {
        self.joining.iter().any(|j| !j.asked)
    }
}

impl State {
    /// True if agents shall forward multicasts and an agent serves this endpoint.
    fn wants_agents(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.forwarder == Place::Agent)
    }

    /// Returns the bytes of a multicast packet of this endpoint besides the program's bytes.
    pub(super) fn multicast_overhead(&self) -> usize {
        Multicast::LEN + if self.wants_agents() { AGENT_LEN } else { 0 }
    }

    /// True if agents forward a packet of `len` bytes of this member down a tree. The first call
    /// for a tree asks the members to join it.
    pub(super) fn goes_by_agents(
        &mut self,
        port: &Port,
        id: GroupId,
        tree: Tree,
        len: usize,
    ) -> bool {
        let wants = self.wants_agents();
        let Some(group) = self.groups.get(id).filter(|g| wants && g.dead.is_none()) else {
            return false;
        };
        match group.agents.get(&code_of(tree)) {
            // False where it is too long for one packet of agents: ranks can send it in several.
            Some(Forwarding::Agents { .. }) => {
                let others = group.members.iter().enumerate().filter(|&(rank, _)| rank != group.me);
                let room = others.map(|(_, &peer)| port.packet_max(peer)).min();
                room.is_some_and(|room| len + Multicast::LEN + AGENT_LEN <= room)
            }
            None if group.members.len() > 1 => {
                self.ask_members(port, id, tree);
                false
            }
            _ => false,
        }
    }

    /// Gives a packet of this member to the agent, if all agents that forward it have room.
    pub(super) fn send_to_agent(
        &mut self,
        port: &Port,
        head: Multicast,
        (number, argument): Name,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let Some(group) = self.groups.get_mut(head.id()) else { return Ok(()) };
        let forwarding = group.agents.get_mut(&head.tree);
        let (Some(Forwarding::Agents { next, .. }), Some(agent)) = (forwarding, &self.agent) else {
            return Ok(());
        };
        let mut bytes = Vec::with_capacity(Multicast::LEN + data.len() + TAIL);
        bytes.extend_from_slice(&head.encode());
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&argument.to_le_bytes());
        let tree = agent_group(head.id(), head.root, head.tree);
        if !agent.services.borrow_mut().multicast(tree, *next, &bytes) {
            // Agents name a member only when it has taken no packet for long.
            return Err(Refusal::Busy(group.slow.keys().next().copied()));
        }
        *next = next.wrapping_add(1);
        self.stats.agent_multicasts += 1;
        port.endpoint().agent().nudge();
        Ok(())
    }

    /// Asks all members to join a tree of this member at their agents.
    fn ask_members(&mut self, port: &Port, id: GroupId, tree: Tree) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let (root, code, size) = (group.me, code_of(tree), group.members.len());
        group.agents.insert(code, Forwarding::Asking((0..size).collect()));
        let (number, generation) = split_group(id);
        let ask = Join {
            group: number,
            generation,
            root: root as u16,
            tree: code,
            status: status::ASK,
            ..Join::default()
        };
        for (rank, &peer) in group.members.iter().enumerate() {
            if rank != root {
                note(post(port, peer, name(Kind::Join, 0, 0), &ask.encode()), peer);
            }
        }
        self.join(port, id, root as u16, code);
    }

    /// Handles a JOIN: a root asks this member to join a tree, or a member answers.
    pub(super) fn on_join(&mut self, port: &Port, from: PeerId, bytes: &[u8]) -> Option<()> {
        let (head, _) = Join::parse(bytes)?;
        let group = self.groups.get(head.id())?;
        let rank = group.rank_of(from)?;
        tree_of(head.tree)?;
        if head.status != status::ASK {
            (usize::from(head.root) == group.me).then_some(())?;
            self.note_joined(head.id(), head.tree, rank, head.status);
            return Some(());
        }
        (usize::from(head.root) == rank).then_some(())?;
        self.join(port, head.id(), head.root, head.tree);
        Some(())
    }

    fn join(&mut self, port: &Port, group: GroupId, root: u16, tree: u8) {
        let Some(agent) = &mut self.agent else {
            return self.answer(port, (group, root, tree), status::NO_AGENT);
        };
        let same = |j: &Joining| (j.group, j.root, j.tree) == (group, root, tree);
        if !agent.joining.iter().any(same) {
            agent.joining.push(Joining { group, root, tree, asked: false });
        }
        self.join_what_can_be(port);
    }

    /// Asks the agent to join those trees in which all neighbours are reached.
    pub(super) fn join_what_can_be(&mut self, port: &Port) {
        let now = port.now();
        let mut refused = Vec::new();
        let Some(agent) = &mut self.agent else { return };
        let services = &agent.services;
        agent.joining.retain_mut(|j| {
            let Some(group) = self.groups.get(j.group).filter(|_| !j.asked) else {
                return j.asked;
            };
            let Some(tree) = tree_of(j.tree) else { return false };
            let role = role_of(group, j.group, usize::from(j.root), tree);
            let above = Some(role.parent).filter(|p| p.0 != u32::MAX);
            let mut ready = true;
            for &peer in role.children.iter().chain(&above) {
                if !port.endpoint().peer(peer).is_served() {
                    refused.push(((j.group, j.root, j.tree), status::ELSEWHERE));
                    return false;
                }
                if !port.endpoint().peer(peer).is_ready() {
                    port.endpoint().peer(peer).open();
                    ready = false;
                }
            }
            j.asked = ready && services.borrow_mut().join(role);
            if j.asked {
                agent.joined.insert((j.group, j.root, j.tree));
            }
            true
        });
        if agent.is_joining() {
            port.call_by(now + JOIN_EVERY);
        }
        for (tree, why) in refused {
            self.answer(port, tree, why);
        }
        port.endpoint().agent().nudge();
    }

    /// Sends the root of a tree this member's status.
    fn answer(&mut self, port: &Port, (id, root, code): (GroupId, u16, u8), status: u8) {
        let Some(group) = self.groups.get(id) else { return };
        if usize::from(root) == group.me {
            let me = group.me;
            return self.note_joined(id, code, me, status);
        }
        let Some(&peer) = group.members.get(usize::from(root)) else { return };
        let (group, generation) = split_group(id);
        let head = Join { group, generation, root, tree: code, status, ..Join::default() };
        note(post(port, peer, name(Kind::Join, 0, 0), &head.encode()), peer);
    }

    /// Records a member's answer. After the last answer agents forward.
    fn note_joined(&mut self, id: GroupId, code: u8, rank: usize, status: u8) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let Some(Forwarding::Asking(missing)) = group.agents.get_mut(&code) else { return };
        missing.remove(&rank);
        let done = missing.is_empty();
        if status != status::JOINED {
            let (number, _) = split_group(id);
            weft_link::warn!(
                "multicast group {number}: ranks forward and not agents, since member {rank} \
                 cannot join: {}",
                status::text(status)
            );
            group.agents.insert(code, Forwarding::Ranks);
        } else if done {
            group.agents.insert(code, Forwarding::Agents { next: 0, granted: 0 });
        }
        self.wake_all();
    }

    /// Leaves the trees of a group at the agent.
    pub(super) fn leave_at_agent(&mut self, id: GroupId) {
        let Some(agent) = &mut self.agent else { return };
        agent.joining.retain(|joining| joining.group != id);
        let all = std::mem::take(&mut agent.joined).into_iter();
        let (left, joined): (BTreeSet<_>, _) = all.partition(|(group, ..)| *group == id);
        agent.joined = joined;
        agent.leaving.extend(left);
        agent.leave();
    }

    /// Handles all news from the agent.
    pub(super) fn on_agent(&mut self, port: &Port) {
        let Some(agent) = &mut self.agent else { return };
        agent.leave();
        let services = ServicesHandle::clone(&agent.services);
        if !services.borrow_mut().take_news() {
            return;
        }
        while let Some((number, joined)) = next(&services, Services::next_joined) {
            let (group, root, tree) = parse_group(number);
            let Some(agent) = &mut self.agent else { break };
            let before = agent.joining.len();
            agent.joining.retain(|j| (j.group, j.root, j.tree) != (group, root, tree));
            if agent.joining.len() < before {
                let status = if joined { status::JOINED } else { status::REFUSED };
                self.answer(port, (group, root, tree), status);
            }
        }
        while let Some(packet) = next(&services, Services::next_packet) {
            self.on_agent_packet(port, packet);
        }
        while let Some(news) = next(&services, Services::next_member) {
            self.on_agent_member(port, news);
        }
        while let Some((number, value)) = next(&services, Services::next_done) {
            let asked = self.agent.as_mut().and_then(|a| a.asked.remove(&number));
            if let Some(request) = asked {
                port.atomic_done(&request, value);
            }
        }
        self.note_grants(&services);
        self.wake_all();
    }

    fn on_agent_packet(&mut self, port: &Port, (number, _, mut bytes): GroupPacket) {
        let (id, root, code) = parse_group(number);
        let parsed = bytes.split_last_chunk::<TAIL>().map(|(rest, tail)| {
            let [number, argument] = [0, 4]
                .map(|at| u32::from_le_bytes([tail[at], tail[at + 1], tail[at + 2], tail[at + 3]]));
            (Multicast::parse(rest), super::wire::parse_number(number), argument)
        });
        let known = self.groups.get(id).is_some_and(|g| usize::from(root) < g.members.len());
        let is_same = |head: &Multicast| (head.id(), head.root, head.tree) == (id, root, code);
        let Some((Some((head, _)), Some((Kind::Multicast, handler)), argument)) =
            parsed.filter(|(head, ..)| known && head.is_some_and(|(head, _)| is_same(&head)))
        else {
            self.stats.malformed += 1;
            return self.give_back(port, (id, root, code), true);
        };
        bytes.truncate(bytes.len() - TAIL);
        let data = Buffer::from(bytes);
        if let Some(flight) = self.take_off(port, head, data, (handler, argument), 0, true) {
            self.deliver_in_order(port, flight, head);
        }
    }

    /// Handles an agent's news that a member is slow or lost.
    fn on_agent_member(&mut self, port: &Port, (number, member, slow): MemberNews) {
        let (id, root, _) = parse_group(number);
        let Some(group) = self.groups.get_mut(id) else { return };
        let rank = (member as usize + usize::from(root)) % group.members.len();
        let Some(&peer) = group.members.get(rank).filter(|_| rank != group.me) else { return };
        if slow {
            return self.name_slow(port, id, rank, port.round());
        }
        let failure = port.endpoint().peer(peer).failure();
        if failure != Some(PeerFailure::Closed) {
            self.member_failed(port, id, Dead { rank, failure }, true);
        }
    }

    /// Forgets slow members when the agents grant more packets.
    fn note_grants(&mut self, services: &ServicesHandle) {
        let services = services.borrow();
        for (id, group) in self.groups.iter_mut() {
            let root = group.me as u16;
            for (&code, forwarding) in &mut group.agents {
                let Forwarding::Agents { granted, .. } = forwarding else { continue };
                let now = services.granted(agent_group(id, root, code));
                if *granted != now {
                    *granted = now;
                    group.slow.clear();
                }
            }
        }
    }

    /// Passes to the agent an operation on a counter that came to this process instead.
    pub(super) fn ask_counter(&mut self, port: &Port, request: AtomicRequest) {
        let a = &request;
        let atomic = Atomic {
            key: a.key,
            offset: a.offset,
            operand: a.operand,
            compare: a.compare,
            code: a.code as u8,
        };
        let asked = self.agent.as_mut().is_some_and(|agent| {
            agent.next += 1;
            let asked = agent.asked.len() < ASKED_MAX
                && agent.services.borrow_mut().counter_do(agent.next, atomic);
            if asked {
                agent.asked.insert(agent.next, request);
            }
            asked
        });
        match asked {
            true => port.endpoint().agent().nudge(),
            false => port.atomic_done(&request, None),
        }
    }
}

impl Packets {
    /// Makes progress until the agent answers about a word, and returns the answer. `None` if the
    /// agent refuses or is gone.
    fn await_counter(&self, services: &ServicesHandle, key: u64) -> Option<u64> {
        let end = std::time::Instant::now() + ANSWER_TIMEOUT;
        loop {
            let answer = services.borrow_mut().counter(key, 0);
            if let Some(answer) = answer {
                return answer;
            }
            let late = std::time::Instant::now() >= end;
            if services.borrow().ended().is_some() || late {
                return None;
            }
            self.endpoint().wait(Some(Duration::from_millis(1)));
        }
    }

    /// Opens a counter at the agent, or in the kernel. False if the agent refuses.
    pub(super) fn open_at_agent(&self, key: u64, value: u64, kernel: bool) -> bool {
        let Some(services) = self.endpoint().agent().services() else { return false };
        services.borrow_mut().open_counter(key, 1, value, kernel);
        let opened = self.await_counter(&services, key).is_some();
        if opened {
            self.port.serve(key);
        } else {
            match services.borrow().ended() {
                Some(why) => weft_link::warn!("the agent keeps no counter for this process: {why}"),
                None => weft_link::warn!(
                    "the agent keeps no counter for this process: it has refused or not answered \
                     (weftd --quota words=N)"
                ),
            }
        }
        opened
    }

    /// Closes a counter at the agent, if it is there. False if the request has no room now.
    pub(super) fn close_at_agent(&self, key: u64) -> bool {
        if !self.port.serves(key) {
            return true;
        }
        // An agent that has ended has no counters.
        let closed = self.endpoint().agent().services().is_none_or(|services| {
            let mut services = services.borrow_mut();
            services.ended().is_some() || services.close_counter(key)
        });
        if closed {
            self.port.end_serve(key);
            self.endpoint().agent().nudge();
        }
        closed
    }

    /// Returns the value of a counter at the agent.
    pub(super) fn value_at_agent(&self, key: u64) -> Option<u64> {
        let services = self.endpoint().agent().services()?;
        services.borrow_mut().read_counter(key, 0);
        self.await_counter(&services, key)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn agent_group__round_trip_and_belongs_to_the_packet_interface() {
        let number = agent_group(0xabcd, 0x1234, 3);
        assert_eq!(parse_group(number), (0xabcd, 0x1234, 3));
        assert_eq!(number >> 48, PACKET_GROUPS >> 48);
    }

    #[test]
    fn role_of__all_members_agree_on_the_tree_of_any_root() {
        let members: Vec<PeerId> = (0..7).map(PeerId).collect();
        for &tree in Tree::ALL {
            for root in 0..7 {
                let role = |me| role_of(&Group::new(members.clone(), me), 1, root, tree);
                for me in 0..7 {
                    for child in role(me).children {
                        assert_eq!(role(child.0 as usize).parent, PeerId(me as u32));
                    }
                }
                assert_eq!(role(root).parent, PeerId(u32::MAX));
            }
        }
    }
}
