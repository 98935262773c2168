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

use super::{Control, GroupRole};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use weft_core::group::tree;
use weft_core::wire::{member, Grant, Mcast, Nop, Packet};
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

/// Whether there is something to wait for, since when, and whether that was told.
#[derive(Default)]
struct Watch {
    since: Option<Instant>,
    told: bool,
}

impl Watch {
    /// True once, when it has been stuck for long.
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
    /// Packets before this number may go to it.
    granted: u32,
    sent: u32,
    /// When it is asked whether it lives.
    ask_at: Option<Instant>,
    watch: Watch,
    lost: bool,
}

impl Child {
    /// Whether it has packets that it has not passed on.
    fn owes(&self) -> bool {
        let joined = (self.granted, self.sent) != (0, 0);
        joined && !self.lost && self.granted != self.sent.wrapping_add(WINDOW)
    }
}

struct Group {
    role: GroupRole,
    /// Packets that some child or the rank lacks; the first has the number `base`.
    queue: VecDeque<Rc<[u8]>>,
    base: u32,
    children: Vec<Child>,
    /// Next for the rank, and before which number it takes them.
    local: u32,
    local_granted: u32,
    local_watch: Watch,
    /// Granted to the parent, or to the root's rank; `None`: nothing yet.
    granted_up: Option<u32>,
    /// When more than that is granted, be it less than a step.
    grant_at: Option<Instant>,
    news: VecDeque<(u32, u32)>,
}

fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Group {
    fn new(role: GroupRole) -> Group {
        let members =
            tree::children(role.tree, 0, role.me as usize, role.size as usize).map(|m| m as u32);
        let child = |(&peer, member)| Child {
            peer,
            member,
            granted: 0,
            sent: 0,
            ask_at: None,
            watch: Watch::default(),
            lost: false,
        };
        Group {
            children: role.children.iter().zip(members).map(child).collect(),
            role,
            queue: VecDeque::new(),
            base: 0,
            local: 0,
            local_granted: WINDOW,
            local_watch: Watch::default(),
            granted_up: None,
            grant_at: None,
            news: VecDeque::new(),
        }
    }

    fn is_root(&self) -> bool {
        self.role.me == 0
    }

    fn next(&self) -> u32 {
        self.base.wrapping_add(self.queue.len() as u32)
    }

    /// Takes in the packet of this number. False: it is not the next, or was not granted.
    fn push(&mut self, number: u32, bytes: &[u8]) -> bool {
        let granted = self.granted_up.is_some_and(|g| before(number, g));
        let right = granted && number == self.next() && self.queue.len() < 2 * WINDOW as usize;
        if right {
            self.queue.push_back(bytes.into());
        }
        right
    }

    /// Notes news for the root. Where too many wait, those of lost members take the place of slow
    /// ones: a loss ends the group, and the root has to hear of one.
    fn report(&mut self, member: u32, state: u32) {
        if self.news.len() < NEWS_MAX {
            self.news.push_back((member, state));
        } else if state == member::LOST {
            let slow = self.news.iter_mut().find(|(_, waiting)| *waiting != member::LOST);
            if let Some(slow) = slow {
                *slow = (member, state);
            }
        }
    }

    fn progress(&mut self, now: Instant, port: &mut dyn Port) {
        self.forward(port);
        self.give_rank(port);
        let least = self.children.iter().filter(|c| !c.lost).map(|c| c.sent);
        let local = if self.is_root() { self.next() } else { self.local };
        let least = least.fold(local, |a, b| if before(b, a) { b } else { a });
        while before(self.base, least) {
            self.queue.pop_front();
            self.base = self.base.wrapping_add(1);
        }
        self.watch(now);
        self.ask(now, port);
        self.tell_up(now, port);
    }

    fn forward(&mut self, port: &mut dyn Port) {
        let (base, next, group) = (self.base, self.next(), self.role.group);
        // Packet by packet, so that no child waits for another's stream.
        let mut more = true;
        while more {
            more = false;
            for child in self.children.iter_mut().filter(|c| !c.lost) {
                if !before(child.sent, next) || !before(child.sent, child.granted) {
                    continue;
                }
                let bytes = &self.queue[child.sent.wrapping_sub(base) as usize];
                let packet = Packet::Mcast(Mcast { group, number: child.sent });
                if !port.send(child.peer, &packet, bytes) {
                    continue;
                }
                child.sent = child.sent.wrapping_add(1);
                more = true;
            }
        }
    }

    fn give_rank(&mut self, port: &mut dyn Port) {
        let (root, next) = (self.is_root(), self.next());
        while !root
            && before(self.local, next)
            && before(self.local, self.local_granted)
            && port.has_room()
        {
            let bytes = &self.queue[self.local.wrapping_sub(self.base) as usize];
            port.tell(Control::GroupPacket(self.role.group, self.local, bytes.to_vec()));
            self.local = self.local.wrapping_add(1);
        }
    }

    fn watch(&mut self, now: Instant) {
        let (next, root, me) = (self.next(), self.is_root(), self.role.me);
        let mut slow = Vec::new();
        for child in &mut self.children {
            if child.watch.look(!child.lost && before(child.sent, next), now) {
                slow.push(child.member);
            }
        }
        if self.local_watch.look(!root && before(self.local, next), now) {
            slow.push(me);
        }
        slow.into_iter().for_each(|m| self.report(m, member::SLOW));
    }

    /// Asks children that owe something: what is not acknowledged shows that one is gone.
    fn ask(&mut self, now: Instant, port: &mut dyn Port) {
        for child in &mut self.children {
            if !child.owes() {
                child.ask_at = None;
                continue;
            }
            let at = *child.ask_at.get_or_insert(now + ASK_EVERY);
            if at <= now {
                // What is not taken is asked the next time.
                port.send(child.peer, &Packet::Nop(Nop), &[]);
                child.ask_at = Some(now + ASK_EVERY);
            }
        }
    }

    fn tell_up(&mut self, now: Instant, port: &mut dyn Port) {
        let group = self.role.group;
        let grant = self.base.wrapping_add(WINDOW);
        let more = self.granted_up.map_or(STEP, |told| grant.wrapping_sub(told));
        let late = more > 0 && *self.grant_at.get_or_insert(now + LATE) <= now;
        let due = more >= STEP || late;
        if self.is_root() {
            if due {
                (self.granted_up, self.grant_at) = (Some(grant), None);
                port.tell(Control::GroupGrant(group, grant));
            }
            for (who, state) in self.news.drain(..) {
                port.tell(Control::GroupMember(group, who, state == member::SLOW));
            }
            return;
        }
        if due {
            let sent = self.send_grant(grant, (0, member::FINE), port);
            self.grant_at = (!sent).then(|| now + LATE);
            self.granted_up = if sent { Some(grant) } else { self.granted_up };
        }
        while let (Some(granted), Some(&news)) = (self.granted_up, self.news.front()) {
            if !self.send_grant(granted, news, port) {
                return;
            }
            self.news.pop_front();
        }
    }

    fn send_grant(&self, granted: u32, (member, state): (u32, u32), port: &mut dyn Port) -> bool {
        let group = self.role.group;
        let packet = Packet::Grant(Grant { group, granted, member, state });
        port.send(self.role.parent, &packet, &[])
    }
}

/// The multicast groups of one rank.
#[derive(Default)]
pub struct Groups {
    groups: BTreeMap<u64, Group>,
    early: BTreeMap<(u64, PeerId), u32>,
    changed: bool,
    /// Packets that did not fit the state of their group.
    pub refused: u64,
    /// Packets taken in.
    pub packets: u64,
}

impl Groups {
    /// The rank joins a group. False: it is in `most` already, or in this one.
    pub fn join(&mut self, role: GroupRole, most: usize) -> bool {
        if self.groups.len() >= most || self.groups.contains_key(&role.group) {
            return false;
        }
        let mut group = Group::new(role);
        for child in &mut group.children {
            let key = (group.role.group, child.peer);
            child.granted = self.early.remove(&key).unwrap_or(0);
        }
        self.groups.insert(group.role.group, group);
        self.changed = true;
        true
    }

    /// The rank leaves a group.
    pub fn leave(&mut self, group: u64) {
        self.groups.remove(&group);
    }

    /// The root's rank sends a packet.
    pub fn root_sends(&mut self, group: u64, number: u32, bytes: &[u8]) {
        let taken =
            self.groups.get_mut(&group).is_some_and(|g| g.is_root() && g.push(number, bytes));
        self.note(taken);
    }

    /// The rank has taken packets and grants more.
    pub fn rank_granted(&mut self, group: u64, granted: u32) {
        let Some(group) = self.groups.get_mut(&group) else { return };
        let ahead = granted.wrapping_sub(group.local);
        if ahead <= WINDOW {
            group.local_granted = granted;
            self.changed = true;
        }
    }

    /// A packet came from a peer's agent.
    pub fn on_mcast(&mut self, from: PeerId, packet: &Mcast, bytes: &[u8]) {
        let group = self.groups.get_mut(&packet.group).filter(|g| g.role.parent == from);
        let taken = group.is_some_and(|g| g.push(packet.number, bytes));
        self.note(taken);
    }

    fn note(&mut self, taken: bool) {
        self.changed |= taken;
        self.packets += u64::from(taken);
        self.refused += u64::from(!taken);
    }

    /// A child grants more, or has news.
    pub fn on_grant(&mut self, from: PeerId, grant: &Grant) {
        let Some(group) = self.groups.get_mut(&grant.group) else {
            if self.early.len() < EARLY_MAX {
                self.early.insert((grant.group, from), grant.granted);
            }
            return;
        };
        let Some(child) = group.children.iter_mut().find(|c| c.peer == from) else {
            self.refused += 1;
            return;
        };
        // Never more than a window ahead of what was sent.
        if grant.granted.wrapping_sub(child.sent) <= WINDOW {
            child.granted = grant.granted;
        }
        if grant.state != member::FINE {
            group.report(grant.member, grant.state);
        }
        self.changed = true;
    }

    /// A peer is lost: its part of each tree is given up, and the root is told.
    pub fn on_lost(&mut self, peer: PeerId, port: &mut dyn Port) {
        self.early.retain(|(_, from), _| *from != peer);
        for group in self.groups.values_mut() {
            let mut gone = None;
            for child in group.children.iter_mut().filter(|c| c.peer == peer && !c.lost) {
                child.lost = true;
                gone = Some(child.member);
            }
            if let Some(member) = gone {
                group.report(member, member::LOST);
            }
            if group.role.parent == peer {
                let (tree, me) = (group.role.tree, group.role.me as usize);
                let above = tree::parent(tree, 0, me, group.role.size as usize).unwrap_or(0);
                port.tell(Control::GroupMember(group.role.group, above as u32, false));
            }
        }
        self.changed = true;
    }

    /// Whether `progress` has something to do.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        !self.groups.is_empty() && (self.changed || self.next_timeout().is_some_and(|at| at <= now))
    }

    /// Forwards what can be forwarded.
    pub fn progress(&mut self, now: Instant, port: &mut dyn Port) {
        self.changed = false;
        self.groups.values_mut().for_each(|g| g.progress(now, port));
    }

    /// The rank's ring has room again.
    pub fn look_again(&mut self) {
        self.changed = !self.groups.is_empty();
    }

    /// When `progress` wants to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        let watches = |g: &Group| {
            let children = g.children.iter().flat_map(|c| [c.watch.due(), c.ask_at]);
            children.chain([g.local_watch.due(), g.grant_at]).flatten().min()
        };
        self.groups.values().filter_map(watches).min()
    }
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
