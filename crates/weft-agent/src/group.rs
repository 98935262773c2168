//! One multicast group of a rank.

use super::{ToAgent, ASK_EVERY, LATE, NEWS_MAX, PACKET_COST, SLOW, STEP, TICK, WINDOW};
use crate::{Control, GroupRole};
use std::collections::VecDeque;
use std::rc::Rc;
use weft_core::group::tree;
use weft_core::wire::{member, Grant, Mcast, Nop, Packet};
use weft_core::{Instant, PeerId};

/// Watches a condition: the time since which it holds, and a flag that it was reported.
#[derive(Default)]
struct Watch {
    since: Option<Instant>,
    told: bool,
}

impl Watch {
    /// Returns true once, when `stuck` has been true for [`SLOW`].
    fn look(&mut self, stuck: bool, now: Instant) -> bool {
        if !stuck {
            *self = Watch::default();
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let slow = !self.told && now.since(since) >= SLOW;
        self.told |= slow;
        slow
    }

    fn due(&self) -> Option<Instant> {
        self.since.filter(|_| !self.told).map(|at| at + SLOW)
    }
}

struct Child {
    peer: PeerId,
    /// Its number in the group.
    member: u32,
    /// Packets before this number may be sent to it.
    granted: u32,
    sent: u32,
    /// Time of the next question if it is alive.
    ask_at: Option<Instant>,
    watch: Watch,
    lost: bool,
}

impl Child {
    /// True if it has packets that it has not passed on.
    fn owes(&self) -> bool {
        let joined = (self.granted, self.sent) != (0, 0);
        joined && !self.lost && self.granted != self.sent.wrapping_add(WINDOW)
    }

    /// Sends a question if the child owes something and the time has come. A question that stays
    /// unacknowledged shows that the child is gone. Returns true if the time had come.
    fn ask(&mut self, now: Instant, agent: &mut dyn ToAgent) -> bool {
        if !self.owes() {
            self.ask_at = None;
            return false;
        }
        let due = *self.ask_at.get_or_insert(now + ASK_EVERY) <= now;
        if due {
            // If the agent refuses the question, the next one is sent after `ASK_EVERY`.
            agent.send(self.peer, &Packet::Nop(Nop), &[]);
            self.ask_at = Some(now + ASK_EVERY);
        }
        due
    }

    /// Returns the time of the next visit if nothing happens before.
    fn due(&self) -> Option<Instant> {
        let ask = self.ask_at.map(|at| Instant(at.0.next_multiple_of(TICK.as_nanos() as u64)));
        self.watch.due().into_iter().chain(ask).min()
    }
}

/// The packets that readers (children and the rank) lack.
struct Backlog {
    /// The packets; the first has the number `base`.
    packets: VecDeque<Rc<[u8]>>,
    base: u32,
    /// `readers[i]`: number of readers that lack `packets[i]` and have all packets before it. The
    /// last entry: number of readers that have all packets.
    readers: VecDeque<u32>,
}

impl Backlog {
    fn new(readers: u32) -> Backlog {
        Backlog { packets: VecDeque::new(), base: 0, readers: VecDeque::from([readers]) }
    }

    /// Returns the number of the packet that comes next.
    fn next(&self) -> u32 {
        self.base.wrapping_add(self.packets.len() as u32)
    }

    /// Returns the index of a packet number (or of the number after the last packet).
    fn place(&self, number: u32) -> usize {
        number.wrapping_sub(self.base) as usize
    }

    /// Returns the packet of this number, which some reader lacks.
    fn get(&self, number: u32) -> &Rc<[u8]> {
        &self.packets[self.place(number)]
    }

    /// Appends the packet of this number. False if it is not the next one or finds no room.
    fn push(&mut self, number: u32, bytes: &[u8]) -> bool {
        let right = number == self.next() && self.packets.len() < 2 * WINDOW as usize;
        if right {
            self.packets.push_back(bytes.into());
            self.readers.push_back(0);
        }
        right
    }

    /// Moves one reader past packet `number`.
    fn passed(&mut self, number: u32) {
        let at = self.place(number);
        if let [this, next] = &mut self.readers.make_contiguous()[at..=at + 1] {
            (*this, *next) = (*this - 1, *next + 1);
        }
    }

    /// Removes a reader that lacks packet `number`.
    fn leave(&mut self, number: u32) {
        let at = self.place(number);
        self.readers[at] -= 1;
    }

    /// Drops the packets that no reader lacks.
    fn trim(&mut self) {
        while self.readers.front() == Some(&0) && self.packets.pop_front().is_some() {
            self.readers.pop_front();
            self.base = self.base.wrapping_add(1);
        }
    }
}

/// The children of a member in the tree.
struct Children {
    list: Vec<Child>,
    /// Indices into `list`, by peer.
    by_peer: Vec<(PeerId, u32)>,
}

impl Children {
    /// Makes the children of a role; `None` if one is named twice.
    fn of(role: &GroupRole, mut granted: impl FnMut(PeerId) -> u32) -> Option<Children> {
        let members =
            tree::children(role.tree, 0, role.me as usize, role.size as usize).map(|m| m as u32);
        let mut by_peer: Vec<(PeerId, u32)> = role.children.iter().copied().zip(0..).collect();
        by_peer.sort_unstable();
        if by_peer.windows(2).any(|two| two[0].0 == two[1].0) {
            return None;
        }
        let child = |(&peer, member)| Child {
            peer,
            member,
            granted: granted(peer),
            sent: 0,
            ask_at: None,
            watch: Watch::default(),
            lost: false,
        };
        let list: Vec<Child> = role.children.iter().zip(members).map(child).collect();
        by_peer.retain(|(_, at)| (*at as usize) < list.len());
        Some(Children { list, by_peer })
    }

    fn get_mut(&mut self, peer: PeerId) -> Option<&mut Child> {
        let found = self.by_peer.binary_search_by_key(&peer, |(peer, _)| *peer).ok()?;
        self.list.get_mut(self.by_peer[found].1 as usize)
    }
}

/// Visits of the children in turn.
#[derive(Default)]
struct Round {
    /// Index of the next child to visit.
    at: usize,
    /// Number of visits since one sent a packet.
    in_vain: usize,
    /// Time of the next due visit, of the children in the current round.
    soonest: Option<Instant>,
    /// Time of the next due visit, of all children after the last round.
    visit_at: Option<Instant>,
}

impl Round {
    /// Starts a new round: all children are to be visited.
    fn begin(&mut self) {
        (self.in_vain, self.soonest) = (0, None);
    }

    /// Notes a visit of one of `count` children, which is due again at a time.
    fn visited(&mut self, sent: bool, due: Option<Instant>, count: usize) {
        if sent {
            self.begin();
        }
        self.in_vain += usize::from(!sent);
        self.soonest = self.soonest.into_iter().chain(due).min();
        self.at = if self.at + 1 < count { self.at + 1 } else { 0 };
    }
}

/// The rank as a reader of the group's packets.
struct Local {
    /// Number of its next packet.
    next: u32,
    /// The rank takes packets before this number.
    granted: u32,
    watch: Watch,
}

/// The credit given to the sender above: the parent, or the root's rank.
#[derive(Default)]
struct Upwards {
    /// Packets before this number may come; `None`: no grant yet.
    granted: Option<u32>,
    /// Time at which a further grant is sent even if it is less than a step.
    at: Option<Instant>,
}

impl Upwards {
    /// True if a further grant, of packets before `grant`, is to be sent now.
    fn is_due(&mut self, grant: u32, now: Instant) -> bool {
        let more = self.granted.map_or(STEP, |told| grant.wrapping_sub(told));
        let late = more > 0 && *self.at.get_or_insert(now + LATE) <= now;
        more >= STEP || late
    }
}

/// Reports of members for the root, not yet sent.
#[derive(Default)]
struct News(VecDeque<(u32, u32)>);

impl News {
    /// Adds a report. If the queue is full, a report of a lost member replaces one of a slow
    /// member: a loss ends the group, and the root has to learn of one.
    fn add(&mut self, member: u32, state: u32) {
        if self.0.len() < NEWS_MAX {
            self.0.push_back((member, state));
        } else if state == member::LOST {
            let slow = self.0.iter_mut().find(|(_, waiting)| *waiting != member::LOST);
            if let Some(slow) = slow {
                *slow = (member, state);
            }
        }
    }
}

/// A group, as the agent of one member keeps it.
pub(super) struct Group {
    role: GroupRole,
    backlog: Backlog,
    children: Children,
    round: Round,
    local: Local,
    upwards: Upwards,
    news: News,
    /// The group is in the queue of groups to process.
    pub(super) is_due: bool,
    /// A peer or the rank had no room for a packet.
    pub(super) lacks_room: bool,
    /// Time for which a timer of this group is set.
    pub(super) armed: Option<Instant>,
}

fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Group {
    /// Makes a group; `granted` returns the earlier grant of each child. `None` if a child is named
    /// twice.
    pub(super) fn new(role: GroupRole, granted: impl FnMut(PeerId) -> u32) -> Option<Group> {
        let children = Children::of(&role, granted)?;
        let readers = children.list.len() as u32 + u32::from(role.me != 0);
        Some(Group {
            role,
            backlog: Backlog::new(readers),
            children,
            round: Round::default(),
            local: Local { next: 0, granted: WINDOW, watch: Watch::default() },
            upwards: Upwards::default(),
            news: News::default(),
            is_due: false,
            lacks_room: false,
            armed: None,
        })
    }

    pub(super) fn is_root(&self) -> bool {
        self.role.me == 0
    }

    pub(super) fn parent(&self) -> PeerId {
        self.role.parent
    }

    /// Returns the number of packets that a child or the rank lacks.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.backlog.packets.len()
    }

    /// Starts a new round: all children are to be visited.
    pub(super) fn begin(&mut self) {
        self.round.begin();
    }

    /// Appends the packet of this number. False if it is not the next one or was not granted.
    pub(super) fn push(&mut self, number: u32, bytes: &[u8]) -> bool {
        let granted = self.upwards.granted.is_some_and(|g| before(number, g));
        granted && self.backlog.push(number, bytes)
    }

    /// Notes a grant of a child. False if the peer is not a child.
    pub(super) fn child_granted(&mut self, peer: PeerId, granted: u32) -> bool {
        let Some(child) = self.children.get_mut(peer) else { return false };
        // A grant is at most one window ahead of the packets sent.
        if granted.wrapping_sub(child.sent) <= WINDOW {
            child.granted = granted;
        }
        true
    }

    /// Notes a grant of the rank. False if the rank cannot have taken these packets.
    pub(super) fn rank_granted(&mut self, granted: u32) -> bool {
        let right = granted.wrapping_sub(self.local.next) <= WINDOW;
        if right {
            self.local.granted = granted;
        }
        right
    }

    /// Marks a peer as lost. True if the peer belongs to this group.
    pub(super) fn lose(&mut self, peer: PeerId, agent: &mut dyn ToAgent) -> bool {
        let mut found = false;
        if let Some(child) = self.children.get_mut(peer).filter(|child| !child.lost) {
            child.lost = true;
            self.backlog.leave(child.sent);
            self.news.add(child.member, member::LOST);
            found = true;
        }
        if self.role.parent == peer {
            let (tree, me) = (self.role.tree, self.role.me as usize);
            let above = tree::parent(tree, 0, me, self.role.size as usize).unwrap_or(0);
            agent.tell(Control::GroupMember(self.role.group, above as u32, false));
        }
        found
    }

    /// Queues a report for the root.
    pub(super) fn report(&mut self, member: u32, state: u32) {
        self.news.add(member, state);
    }

    /// Does the work that is possible, up to a cost of `left`. False if work remains.
    pub(super) fn progress(
        &mut self,
        now: Instant,
        agent: &mut dyn ToAgent,
        left: &mut u32,
    ) -> bool {
        let done = self.send_round(now, agent, left);
        self.give_rank(agent, left);
        self.backlog.trim();
        let stuck = !self.is_root() && before(self.local.next, self.backlog.next());
        if self.local.watch.look(stuck, now) {
            self.news.add(self.role.me, member::SLOW);
        }
        self.send_up(now, agent);
        done
    }

    /// Visits children in turn, until a whole round sent no packet. Each visit sends one packet, so
    /// that no child waits for the stream of another.
    fn send_round(&mut self, now: Instant, agent: &mut dyn ToAgent, left: &mut u32) -> bool {
        let count = self.children.list.len();
        while self.round.in_vain < count {
            if *left == 0 {
                return false;
            }
            let at = self.round.at;
            let (sent, cost) = self.send_to(at, now, agent);
            *left = left.saturating_sub(cost);
            self.round.visited(sent, self.children.list[at].due(), count);
        }
        self.round.visit_at = self.round.soonest;
        true
    }

    /// Visits a child. Returns true if it sent a packet, and the cost.
    fn send_to(&mut self, at: usize, now: Instant, agent: &mut dyn ToAgent) -> (bool, u32) {
        let (next, group) = (self.backlog.next(), self.role.group);
        let child = &mut self.children.list[at];
        if child.lost {
            return (false, 1);
        }
        let (number, mut cost, mut sent) = (child.sent, 1, false);
        if before(number, next) && before(number, child.granted) {
            let bytes = self.backlog.get(number);
            sent = agent.send(child.peer, &Packet::Mcast(Mcast { group, number }), bytes);
            self.lacks_room |= !sent;
            child.sent = number.wrapping_add(sent.into());
            cost += PACKET_COST;
        }
        if child.watch.look(before(child.sent, next), now) {
            self.news.add(child.member, member::SLOW);
        }
        if child.ask(now, agent) {
            cost += PACKET_COST;
        }
        if sent {
            self.backlog.passed(number);
        }
        (sent, cost)
    }

    fn give_rank(&mut self, agent: &mut dyn ToAgent, left: &mut u32) {
        if self.is_root() {
            return;
        }
        let Local { next, granted, .. } = &mut self.local;
        while before(*next, self.backlog.next()) && before(*next, *granted) {
            if !agent.has_room() {
                self.lacks_room = true;
                return;
            }
            let bytes = self.backlog.get(*next).to_vec();
            agent.tell(Control::GroupPacket(self.role.group, *next, bytes));
            self.backlog.passed(*next);
            *next = next.wrapping_add(1);
            *left = left.saturating_sub(PACKET_COST);
        }
    }

    fn send_up(&mut self, now: Instant, agent: &mut dyn ToAgent) {
        let group = self.role.group;
        let grant = self.backlog.base.wrapping_add(WINDOW);
        let due = self.upwards.is_due(grant, now);
        if self.is_root() {
            if due {
                self.upwards = Upwards { granted: Some(grant), at: None };
                agent.tell(Control::GroupGrant(group, grant));
            }
            for (who, state) in self.news.0.drain(..) {
                agent.tell(Control::GroupMember(group, who, state == member::SLOW));
            }
            return;
        }
        if due {
            let sent = self.send_grant(grant, (0, member::FINE), agent);
            self.lacks_room |= !sent;
            self.upwards.at = (!sent).then(|| now + LATE);
            self.upwards.granted = if sent { Some(grant) } else { self.upwards.granted };
        }
        while let (Some(granted), Some(&news)) = (self.upwards.granted, self.news.0.front()) {
            if !self.send_grant(granted, news, agent) {
                self.lacks_room = true;
                return;
            }
            self.news.0.pop_front();
        }
    }

    fn send_grant(
        &self,
        granted: u32,
        (member, state): (u32, u32),
        agent: &mut dyn ToAgent,
    ) -> bool {
        let group = self.role.group;
        let packet = Packet::Grant(Grant { group, granted, member, state });
        agent.send(self.role.parent, &packet, &[])
    }

    /// Returns the time of the next call of [`progress`](Self::progress).
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let all = [self.round.visit_at, self.local.watch.due(), self.upwards.at];
        all.into_iter().flatten().min()
    }
}
