//! Multicast on behalf of the rank: packets go from agent to agent along a tree, also while the
//! ranks compute.
//!
//! Each edge of the tree, and each rank, grants as many packets as it has room for, so every queue
//! is bounded. An agent forwards a packet while the next ones are still arriving. A group has one
//! root and its own queues, so no two groups ever wait for each other's room. Within a group,
//! members wait only along the tree: there is no cycle, hence no deadlock.
//!
//! If a child dies, the packets that it has not passed on are lost, and the members below it do not
//! know that these packets exist. So, while a child has such packets, its parent asks it at
//! intervals if it is alive.
//!
//! The work of one call is bounded, independent of the number of groups and children: a group is
//! processed when an event concerns it, its children are visited one after the other, and the work
//! beyond the bound is continued in the next call. `group.rs` is one group.

#[path = "group.rs"]
mod group;

use super::{Control, GroupRole};
use group::Group;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use weft_core::wire::{member, Grant, Mcast, Packet};
use weft_core::{Instant, PeerId};

/// Highest number of packets of a group that a member keeps.
pub const WINDOW: u32 = 64;
/// Grants are sent when this many packets have become free.
const STEP: u32 = WINDOW / 4;
/// Highest number of grants kept from children in groups that the rank has not joined yet.
const EARLY_MAX: usize = 4096;
/// Highest number of reports in the queue to the root.
const NEWS_MAX: usize = 64;
/// Time without progress after which a member is reported as slow.
const SLOW: Duration = Duration::from_secs(1);
/// Longest delay of a grant of less than a step.
const LATE: Duration = Duration::from_millis(50);
/// Interval of the questions to a child that has packets which it has not passed on.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Times of questions are rounded up to multiples of this, so that one call serves many children.
/// The time of a report of a slow member is not rounded: the member that blocks others has to be
/// reported before them.
const TICK: Duration = Duration::from_millis(50);
/// Highest work of one call of [`Groups::progress`]; the unit is a visit of a child.
pub const WORK: u32 = 4096;
/// Work of sending a packet, and of processing a group apart from its children.
const PACKET_COST: u32 = 8;
const GROUP_COST: u32 = 4;

/// The interface from groups to the agent.
pub trait ToAgent {
    /// Sends a packet to a peer's agent. If false, the group sends it again after
    /// [`Groups::retry`].
    fn send(&mut self, peer: PeerId, packet: &Packet, bytes: &[u8]) -> bool;
    /// Sends a message to the rank.
    fn tell(&mut self, message: Control);
    /// True if the rank's ring has room.
    fn has_room(&self) -> bool;
}

/// The multicast groups of one rank.
#[derive(Default)]
pub struct Groups {
    groups: BTreeMap<u64, Group>,
    /// Early grants by child and group, so that those of a lost child are adjacent.
    early: BTreeMap<(PeerId, u64), u32>,
    /// Groups to process, each once.
    due: VecDeque<u64>,
    /// Timers of groups, at most one for each.
    timers: BTreeSet<(Instant, u64)>,
    /// Groups that wait for room.
    blocked: Vec<u64>,
    /// Time of the last call of `progress`.
    now: Instant,
    /// Number of packets that did not fit the state of their group.
    pub refused: u64,
    /// Number of packets accepted.
    pub packets: u64,
    /// Work done; the unit is a visit of a child.
    pub work: u64,
}

impl Groups {
    /// Joins a group. False if the rank is in `most` groups or in this one already, or if the role
    /// names a child twice.
    pub fn join(&mut self, role: GroupRole, most: usize) -> bool {
        let id = role.group;
        if self.groups.len() >= most || self.groups.contains_key(&id) {
            return false;
        }
        let early = &mut self.early;
        let Some(group) = Group::new(role, |peer| early.remove(&(peer, id)).unwrap_or(0)) else {
            return false;
        };
        self.groups.insert(id, group);
        self.touch(id);
        true
    }

    /// Leaves a group.
    pub fn leave(&mut self, group: u64) {
        let Some(left) = self.groups.remove(&group) else { return };
        rearm(&mut self.timers, group, left.armed, None);
        self.due.retain(|due| *due != group);
        self.blocked.retain(|blocked| *blocked != group);
    }

    /// Queues a group for processing after an event; each of its children will be visited.
    fn touch(&mut self, id: u64) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.begin();
        if !std::mem::replace(&mut group.is_due, true) {
            self.due.push_back(id);
        }
    }

    /// Takes a packet from the rank, which is the root.
    pub fn root_sends(&mut self, group: u64, number: u32, bytes: &[u8]) {
        let found = self.groups.get_mut(&group).filter(|g| g.is_root());
        let taken = found.is_some_and(|g| g.push(number, bytes));
        self.note(group, taken);
    }

    /// Takes a further grant of the rank, which has consumed packets.
    pub fn rank_granted(&mut self, group: u64, granted: u32) {
        if self.groups.get_mut(&group).is_some_and(|g| g.rank_granted(granted)) {
            self.touch(group);
        }
    }

    /// Takes a packet from a peer's agent.
    pub fn on_mcast(&mut self, from: PeerId, packet: &Mcast, bytes: &[u8]) {
        let group = self.groups.get_mut(&packet.group).filter(|g| g.parent() == from);
        let taken = group.is_some_and(|g| g.push(packet.number, bytes));
        self.note(packet.group, taken);
    }

    fn note(&mut self, group: u64, taken: bool) {
        self.packets += u64::from(taken);
        self.refused += u64::from(!taken);
        if taken {
            self.touch(group);
        }
    }

    /// Takes a further grant or a report from a child.
    pub fn on_grant(&mut self, from: PeerId, grant: &Grant) {
        let Some(group) = self.groups.get_mut(&grant.group) else {
            if self.early.len() < EARLY_MAX {
                self.early.insert((from, grant.group), grant.granted);
            }
            return;
        };
        if !group.child_granted(from, grant.granted) {
            self.refused += 1;
            return;
        }
        if grant.state != member::FINE {
            group.report(grant.member, grant.state);
        }
        self.touch(grant.group);
    }

    /// Removes a lost peer from each tree and reports the loss to the root.
    pub fn on_lost(&mut self, peer: PeerId, agent: &mut dyn ToAgent) {
        let of_peer = (peer, 0)..=(peer, u64::MAX);
        while let Some((&key, _)) = self.early.range(of_peer.clone()).next() {
            self.early.remove(&key);
        }
        let lost = |(id, group): (&u64, &mut Group)| group.lose(peer, agent).then_some(*id);
        let touched: Vec<u64> = self.groups.iter_mut().filter_map(lost).collect();
        touched.into_iter().for_each(|id| self.touch(id));
    }

    /// True if `progress` has work to do.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        !self.due.is_empty() || self.timers.first().is_some_and(|(at, _)| *at <= now)
    }

    /// Forwards packets, up to the work allowed in one call.
    pub fn progress(&mut self, now: Instant, agent: &mut dyn ToAgent) {
        self.now = now;
        while let Some(&(_, id)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            self.groups.get_mut(&id).into_iter().for_each(|group| group.armed = None);
            self.touch(id);
        }
        let mut left = WORK;
        for _ in 0..self.due.len() {
            let Some(id) = self.due.pop_front() else { break };
            let Some(group) = self.groups.get_mut(&id) else { continue };
            left = left.saturating_sub(GROUP_COST);
            group.is_due = !group.progress(now, agent, &mut left);
            if group.is_due {
                self.due.push_back(id);
            }
            if std::mem::take(&mut group.lacks_room) {
                self.blocked.push(id);
            }
            let next = group.next_timeout();
            let armed = std::mem::replace(&mut group.armed, next);
            rearm(&mut self.timers, id, armed, next);
            if left == 0 {
                break;
            }
        }
        self.work += u64::from(WORK - left);
    }

    /// Notes that the rank's ring or the window of a peer has room again.
    pub fn retry(&mut self) {
        std::mem::take(&mut self.blocked).into_iter().for_each(|id| self.touch(id));
    }

    /// Returns the time of the next call of `progress`.
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.due.is_empty() {
            true => self.timers.first().map(|(at, _)| *at),
            false => Some(self.now),
        }
    }
}

/// Moves the timer of a group to another time.
fn rearm(
    timers: &mut BTreeSet<(Instant, u64)>,
    group: u64,
    before: Option<Instant>,
    at: Option<Instant>,
) {
    if before != at {
        before.into_iter().for_each(|at| {
            timers.remove(&(at, group));
        });
        timers.extend(at.map(|at| (at, group)));
    }
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
