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

/// A group, as the agent of one member keeps it.
pub(super) struct Group {
    /// The role; its list of children is moved into `children`.
    role: GroupRole,
    /// Packets that a child or the rank lacks; the first has the number `base`.
    pub(super) queue: VecDeque<Rc<[u8]>>,
    base: u32,
    /// `readers[i]`: number of readers (children and rank) that lack `queue[i]` and have all
    /// packets before it. The last entry: number of readers that have all packets.
    readers: VecDeque<u32>,
    children: Vec<Child>,
    /// Indices into `children`, by peer.
    by_peer: Vec<(PeerId, u32)>,
    /// Index of the next child to visit, and the number of visits since one sent a packet.
    at: usize,
    in_vain: usize,
    /// Time of the next due visit: of the children in the current round, and of all after the last
    /// round.
    soonest: Option<Instant>,
    visit_at: Option<Instant>,
    /// Number of the rank's next packet; the rank takes packets before `local_granted`.
    local: u32,
    local_granted: u32,
    local_watch: Watch,
    /// Granted to the parent, or to the root's rank; `None`: no grant yet.
    granted_up: Option<u32>,
    /// Time at which a further grant is sent even if it is less than a step.
    grant_at: Option<Instant>,
    news: VecDeque<(u32, u32)>,
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
    pub(super) fn new(mut role: GroupRole, granted: impl FnMut(PeerId) -> u32) -> Option<Group> {
        let members =
            tree::children(role.tree, 0, role.me as usize, role.size as usize).map(|m| m as u32);
        let peers = std::mem::take(&mut role.children);
        let mut by_peer: Vec<(PeerId, u32)> = peers.iter().copied().zip(0..).collect();
        by_peer.sort_unstable();
        if by_peer.windows(2).any(|two| two[0].0 == two[1].0) {
            return None;
        }
        let mut granted = granted;
        let child = |(peer, member)| Child {
            peer,
            member,
            granted: granted(peer),
            sent: 0,
            ask_at: None,
            watch: Watch::default(),
            lost: false,
        };
        let children: Vec<Child> = peers.into_iter().zip(members).map(child).collect();
        by_peer.retain(|(_, at)| (*at as usize) < children.len());
        let readers = children.len() as u32 + u32::from(role.me != 0);
        Some(Group {
            role,
            queue: VecDeque::new(),
            base: 0,
            readers: VecDeque::from([readers]),
            children,
            by_peer,
            at: 0,
            in_vain: 0,
            soonest: None,
            visit_at: None,
            local: 0,
            local_granted: WINDOW,
            local_watch: Watch::default(),
            granted_up: None,
            grant_at: None,
            news: VecDeque::new(),
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

    fn next(&self) -> u32 {
        self.base.wrapping_add(self.queue.len() as u32)
    }

    /// Starts a new round: all children are to be visited.
    pub(super) fn begin(&mut self) {
        (self.in_vain, self.soonest) = (0, None);
    }

    /// Appends the packet of this number. False if it is not the next one or was not granted.
    pub(super) fn push(&mut self, number: u32, bytes: &[u8]) -> bool {
        let granted = self.granted_up.is_some_and(|g| before(number, g));
        let right = granted && number == self.next() && self.queue.len() < 2 * WINDOW as usize;
        if right {
            self.queue.push_back(bytes.into());
            self.readers.push_back(0);
        }
        right
    }

    /// Returns the index in the queue of a packet number (or of the number after the last packet).
    fn place(&self, number: u32) -> usize {
        number.wrapping_sub(self.base) as usize
    }

    /// Moves one reader past packet `number`.
    fn passed(&mut self, number: u32) {
        let at = self.place(number);
        if let [this, next] = &mut self.readers.make_contiguous()[at..=at + 1] {
            (*this, *next) = (*this - 1, *next + 1);
        }
    }

    /// Drops the packets that no reader lacks.
    fn trim(&mut self) {
        while self.readers.front() == Some(&0) && self.queue.pop_front().is_some() {
            self.readers.pop_front();
            self.base = self.base.wrapping_add(1);
        }
    }

    fn child(&mut self, peer: PeerId) -> Option<&mut Child> {
        let found = self.by_peer.binary_search_by_key(&peer, |(peer, _)| *peer).ok()?;
        self.children.get_mut(self.by_peer[found].1 as usize)
    }

    /// Notes a grant of a child. False if the peer is not a child.
    pub(super) fn child_granted(&mut self, peer: PeerId, granted: u32) -> bool {
        let Some(child) = self.child(peer) else { return false };
        // A grant is at most one window ahead of the packets sent.
        if granted.wrapping_sub(child.sent) <= WINDOW {
            child.granted = granted;
        }
        true
    }

    /// Notes a grant of the rank. False if the rank cannot have taken these packets.
    pub(super) fn rank_granted(&mut self, granted: u32) -> bool {
        let right = granted.wrapping_sub(self.local) <= WINDOW;
        if right {
            self.local_granted = granted;
        }
        right
    }

    /// Marks a peer as lost. True if the peer belongs to this group.
    pub(super) fn lose(&mut self, peer: PeerId, agent: &mut dyn ToAgent) -> bool {
        let mut found = false;
        if let Some(child) = self.child(peer).filter(|child| !child.lost) {
            child.lost = true;
            let (member, at) = (child.member, child.sent);
            let at = self.place(at);
            self.readers[at] -= 1;
            self.report(member, member::LOST);
            found = true;
        }
        if self.role.parent == peer {
            let (tree, me) = (self.role.tree, self.role.me as usize);
            let above = tree::parent(tree, 0, me, self.role.size as usize).unwrap_or(0);
            agent.tell(Control::GroupMember(self.role.group, above as u32, false));
        }
        found
    }

    /// Queues a report for the root. If the queue is full, a report of a lost member replaces one
    /// of a slow member: a loss ends the group, and the root has to learn of one.
    pub(super) fn report(&mut self, member: u32, state: u32) {
        if self.news.len() < NEWS_MAX {
            self.news.push_back((member, state));
        } else if state == member::LOST {
            let slow = self.news.iter_mut().find(|(_, waiting)| *waiting != member::LOST);
            if let Some(slow) = slow {
                *slow = (member, state);
            }
        }
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
        self.trim();
        let stuck = !self.is_root() && before(self.local, self.next());
        if self.local_watch.look(stuck, now) {
            self.report(self.role.me, member::SLOW);
        }
        self.send_up(now, agent);
        done
    }

    /// Visits children in turn, until a whole round sent no packet. Each visit sends one packet, so
    /// that no child waits for the stream of another.
    fn send_round(&mut self, now: Instant, agent: &mut dyn ToAgent, left: &mut u32) -> bool {
        while self.in_vain < self.children.len() {
            if *left == 0 {
                return false;
            }
            let (sent, cost) = self.send_to_next(now, agent);
            *left = left.saturating_sub(cost);
            if sent {
                self.begin();
            }
            self.in_vain += usize::from(!sent);
            let due = self.children[self.at].due();
            self.soonest = self.soonest.into_iter().chain(due).min();
            self.at = if self.at + 1 < self.children.len() { self.at + 1 } else { 0 };
        }
        self.visit_at = self.soonest;
        true
    }

    /// Visits the next child. Returns true if it sent a packet, and the cost.
    fn send_to_next(&mut self, now: Instant, agent: &mut dyn ToAgent) -> (bool, u32) {
        let (base, next, group) = (self.base, self.next(), self.role.group);
        let child = &mut self.children[self.at];
        if child.lost {
            return (false, 1);
        }
        let (number, mut cost, mut sent) = (child.sent, 1, false);
        if before(number, next) && before(number, child.granted) {
            let bytes = &self.queue[number.wrapping_sub(base) as usize];
            sent = agent.send(child.peer, &Packet::Mcast(Mcast { group, number }), bytes);
            self.lacks_room |= !sent;
            child.sent = number.wrapping_add(sent.into());
            cost += PACKET_COST;
        }
        let slow = child.watch.look(before(child.sent, next), now).then_some(child.member);
        if child.ask(now, agent) {
            cost += PACKET_COST;
        }
        if sent {
            self.passed(number);
        }
        slow.into_iter().for_each(|member| self.report(member, member::SLOW));
        (sent, cost)
    }

    fn give_rank(&mut self, agent: &mut dyn ToAgent, left: &mut u32) {
        let next = self.next();
        while !self.is_root() && before(self.local, next) && before(self.local, self.local_granted)
        {
            if !agent.has_room() {
                self.lacks_room = true;
                return;
            }
            let bytes = &self.queue[self.place(self.local)];
            agent.tell(Control::GroupPacket(self.role.group, self.local, bytes.to_vec()));
            self.passed(self.local);
            self.local = self.local.wrapping_add(1);
            *left = left.saturating_sub(PACKET_COST);
        }
    }

    fn send_up(&mut self, now: Instant, agent: &mut dyn ToAgent) {
        let group = self.role.group;
        let grant = self.base.wrapping_add(WINDOW);
        let more = self.granted_up.map_or(STEP, |told| grant.wrapping_sub(told));
        let late = more > 0 && *self.grant_at.get_or_insert(now + LATE) <= now;
        let due = more >= STEP || late;
        if self.is_root() {
            if due {
                (self.granted_up, self.grant_at) = (Some(grant), None);
                agent.tell(Control::GroupGrant(group, grant));
            }
            for (who, state) in self.news.drain(..) {
                agent.tell(Control::GroupMember(group, who, state == member::SLOW));
            }
            return;
        }
        if due {
            let sent = self.send_grant(grant, (0, member::FINE), agent);
            self.lacks_room |= !sent;
            self.grant_at = (!sent).then(|| now + LATE);
            self.granted_up = if sent { Some(grant) } else { self.granted_up };
        }
        while let (Some(granted), Some(&news)) = (self.granted_up, self.news.front()) {
            if !self.send_grant(granted, news, agent) {
                self.lacks_room = true;
                return;
            }
            self.news.pop_front();
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
        let all = [self.visit_at, self.local_watch.due(), self.grant_at];
        all.into_iter().flatten().min()
    }
}
