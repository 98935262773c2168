//! Multicast in the rank's place: packets go from agent to agent along a tree, whatever the ranks
//! do meanwhile.
//!
//! Each edge of the tree, and each rank, grants as many packets as it has room for, so every queue
//! is bounded. A packet is forwarded while the ones behind it are still arriving. A group has one
//! root and queues of its own, so no two groups ever wait for each other's room, and within one the
//! waiting follows the tree: nothing can wait in a circle.
//!
//! A child that dies takes along what it has not passed on, and those below it wait for what they
//! do not know of. So its parent asks it now and then whether it lives, while it has such packets.
//!
//! The work of a turn is bounded, whatever groups and children a rank has: a group is looked at
//! when something has happened to it, its children are visited one after the other, and what is
//! more than a turn's share goes on with the next. `group.rs` is one group.

#[path = "group.rs"]
mod group;

use super::{Control, GroupRole};
use group::Group;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use weft_core::wire::{member, Grant, Mcast, Packet};
use weft_core::{Instant, PeerId};

/// Packets of a group that a member keeps at most.
pub const WINDOW: u32 = 64;
/// Grants go out when this much has become free.
const STEP: u32 = WINDOW / 4;
/// Grants of children of groups that the rank has not joined yet.
const EARLY_MAX: usize = 4096;
/// News on their way to the root.
const NEWS_MAX: usize = 64;
/// Time without progress after which a member is named.
const SLOW: Duration = Duration::from_secs(1);
/// How late grants of less than a step go out.
const LATE: Duration = Duration::from_millis(50);
/// How often a child is asked whether it lives while it has packets that it has not passed on.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Times at which children are asked are rounded up to multiples of this: one look is for many.
/// When one is named as slow is not, as the member that holds up others is named before them.
const TICK: Duration = Duration::from_millis(50);
/// Work in one call of [`Groups::progress`], in visits of a child.
pub const WORK: u32 = 4096;
/// What a packet costs, and a look at a group besides its children, in visits.
const PACKET_COST: u32 = 8;
const LOOK_COST: u32 = 4;

/// What groups do to the outside.
pub trait Port {
    /// Sends a packet to a peer's agent. False: it is to be tried again when
    /// [`Groups::look_again`] is called.
    fn send(&mut self, peer: PeerId, packet: &Packet, bytes: &[u8]) -> bool;
    /// Tells the rank.
    fn tell(&mut self, message: Control);
    /// Whether the rank's ring takes more.
    fn has_room(&self) -> bool;
}

/// The multicast groups of one rank.
#[derive(Default)]
pub struct Groups {
    groups: BTreeMap<u64, Group>,
    /// By child and group, so that those of a lost child are together.
    early: BTreeMap<(PeerId, u64), u32>,
    /// Groups to be looked at, each once.
    due: VecDeque<u64>,
    /// When groups want to be looked at besides, each once at most.
    timers: BTreeSet<(Instant, u64)>,
    /// Groups that wait for room.
    blocked: Vec<u64>,
    /// When progress was made last.
    now: Instant,
    /// Packets that did not fit the state of their group.
    pub refused: u64,
    /// Packets taken in.
    pub packets: u64,
    /// Work done, in visits of a child.
    pub work: u64,
}

impl Groups {
    /// The rank joins a group. False: it is in `most` already, or in this one, or names a child
    /// twice.
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

    /// The rank leaves a group.
    pub fn leave(&mut self, group: u64) {
        let Some(left) = self.groups.remove(&group) else { return };
        rearm(&mut self.timers, group, left.armed, None);
        self.due.retain(|due| *due != group);
        self.blocked.retain(|blocked| *blocked != group);
    }

    /// Something has happened to a group: it is looked at, and each of its children visited.
    fn touch(&mut self, id: u64) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.begin();
        if !std::mem::replace(&mut group.is_due, true) {
            self.due.push_back(id);
        }
    }

    /// The root's rank sends a packet.
    pub fn root_sends(&mut self, group: u64, number: u32, bytes: &[u8]) {
        let found = self.groups.get_mut(&group).filter(|g| g.is_root());
        let taken = found.is_some_and(|g| g.push(number, bytes));
        self.note(group, taken);
    }

    /// The rank has taken packets and grants more.
    pub fn rank_granted(&mut self, group: u64, granted: u32) {
        if self.groups.get_mut(&group).is_some_and(|g| g.rank_granted(granted)) {
            self.touch(group);
        }
    }

    /// A packet came from a peer's agent.
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

    /// A child grants more, or has news.
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

    /// A peer is lost: its part of each tree is given up, and the root is told.
    pub fn on_lost(&mut self, peer: PeerId, port: &mut dyn Port) {
        let of_peer = (peer, 0)..=(peer, u64::MAX);
        while let Some((&key, _)) = self.early.range(of_peer.clone()).next() {
            self.early.remove(&key);
        }
        let lost = |(id, group): (&u64, &mut Group)| group.lose(peer, port).then_some(*id);
        let touched: Vec<u64> = self.groups.iter_mut().filter_map(lost).collect();
        touched.into_iter().for_each(|id| self.touch(id));
    }

    /// Whether `progress` has something to do.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        !self.due.is_empty() || self.timers.first().is_some_and(|(at, _)| *at <= now)
    }

    /// Forwards what can be forwarded, as far as a turn's share of work goes.
    pub fn progress(&mut self, now: Instant, port: &mut dyn Port) {
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
            left = left.saturating_sub(LOOK_COST);
            group.is_due = !group.progress(now, port, &mut left);
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

    /// The rank's ring, or the window of a peer, has room again.
    pub fn look_again(&mut self) {
        std::mem::take(&mut self.blocked).into_iter().for_each(|id| self.touch(id));
    }

    /// When `progress` wants to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.due.is_empty() {
            true => self.timers.first().map(|(at, _)| *at),
            false => Some(self.now),
        }
    }
}

/// Has a group looked at at another time.
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
