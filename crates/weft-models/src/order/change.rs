//! Changes of view: members fail, leave and join.
//!
//! The lowest member that is not suspected is the author of an attempt. It asks all others for
//! their state (`Flush`); from then on they neither send nor deliver in the old view, and take part
//! in no attempt with a lesser stamp. The author collects the slots that any of them has, up to the
//! first place that nobody has: members that have failed may have delivered a slot there, so the
//! slots of failed members behind it are lost too, and survivors send theirs again in the next
//! view. It sends each member the slots that the member lacks and the new view (`Install`), and
//! enters the view itself when a quorum has. So the survivors deliver the
//! same slots of the old view, and if the author fails, the next one learns of a view that any
//! member has entered.
//!
//! A quorum is more than half of the old view's members, those not counted whose processes are
//! known to have ended; of two equal halves the one with the lowest rank. Members that are cut off
//! from a quorum end with an error, so there are never two groups.

use super::core::{Action, Core, Early};
use super::wire::{stamp, Control, Install, Placed, Slot, ViewId};
use super::OrderError;
use crate::channel::MESSAGE_MAX;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::Instant;

/// Longest state for a new member, whose message has its view as well.
const SNAPSHOT_MAX: usize = MESSAGE_MAX - (1 << 20);

/// State of changes of a member.
#[derive(Default)]
pub(super) struct Change {
    /// The greatest stamp of an attempt that this member takes part in; 0: none.
    pub promised: u32,
    /// Ranks that have failed; true if their processes are known to have ended.
    pub suspects: BTreeMap<u32, bool>,
    pub joiners: BTreeSet<u32>,
    pub leavers: BTreeSet<u32>,
    pub attempt: Option<Attempt>,
    /// The way in which the view came to be.
    pub last: Option<Install>,
    /// Joiners of the view that this member has authored, until they have the snapshot.
    welcome: Vec<u32>,
    /// True if another attempt was in the way of this member's: it tries again later.
    pub again: bool,
    /// Views up to this one have no place for this rank, which wants to join.
    pub refused: u32,
    /// Ranks that a rank which wants to join may ask, and the time at which it has asked one.
    pub contacts: Vec<u32>,
    pub asked: Option<Instant>,
}

/// An attempt of this member.
pub(super) struct Attempt {
    stamp: u32,
    proposed: Vec<u32>,
    joiners: Vec<u32>,
    leavers: Vec<u32>,
    /// The next place of each member, and its spare counter.
    states: BTreeMap<u32, (u64, Option<u64>)>,
    slots: BTreeMap<u64, Slot>,
    /// The decision, and the members that have entered the view.
    decided: Option<(Install, BTreeSet<u32>)>,
}

impl Attempt {
    /// Describes the members that this attempt waits for.
    pub fn describe(&self) -> String {
        let all = self.proposed.iter();
        let missing: Vec<u32> = match &self.decided {
            Some((_, entered)) => all.filter(|rank| !entered.contains(rank)).copied().collect(),
            None => all.filter(|rank| !self.states.contains_key(rank)).copied().collect(),
        };
        let what = if self.decided.is_some() { "enter" } else { "answer" };
        format!(", which waits until ranks {missing:?} {what}")
    }
}

impl Change {
    /// True while this member takes part in an attempt: it neither sends nor delivers.
    pub fn is_frozen(&self) -> bool {
        self.promised > 0
    }
}

impl Core {
    /// Begins a member of the first view, which the lowest member makes.
    pub fn form(&mut self) {
        self.consider();
    }

    /// Asks to become a member of a group that has these members.
    pub fn join(&mut self, contacts: Vec<u32>) {
        self.change.contacts = contacts;
        self.ask_to_join();
    }

    /// Asks the next rank that this one may ask.
    pub fn ask_to_join(&mut self) {
        let suspects = &self.change.suspects;
        self.change.contacts.retain(|rank| !suspects.contains_key(rank));
        let Some(&contact) = self.change.contacts.first() else {
            return self.end(OrderError::NobodyToJoin);
        };
        self.change.contacts.rotate_left(1);
        self.post(contact, Control::Join { rank: self.me });
    }

    /// Asks to be a member no more.
    pub fn leave(&mut self) {
        self.change.leavers.insert(self.me);
        self.consider();
    }

    /// Notes the failure of a rank; tells others if this member has noticed it itself.
    pub fn suspect(&mut self, rank: u32, certain: bool, is_own: bool) {
        if rank == self.me || self.ended.is_some() {
            return;
        }
        let known = self.change.suspects.get(&rank).copied();
        if known == Some(true) || known == Some(false) && !certain {
            return;
        }
        self.change.suspects.insert(rank, certain);
        self.change.joiners.remove(&rank);
        if !self.members.contains(&rank) {
            let of_attempt = |attempt: &Attempt| attempt.joiners.contains(&rank);
            if self.change.attempt.as_ref().is_some_and(of_attempt) {
                self.consider();
            }
            return;
        }
        if is_own {
            self.post_all(&Control::Suspect { rank, certain });
        }
        self.consider();
    }

    fn is_suspect(&self, rank: u32) -> bool {
        self.change.suspects.contains_key(&rank)
    }

    /// True if the view has to change.
    pub fn wants_change(&self) -> bool {
        let change = &self.change;
        self.view.epoch == 0
            || self.members.iter().any(|&rank| self.is_suspect(rank))
            || change.joiners.iter().any(|rank| !self.members.contains(rank))
            || change.leavers.iter().any(|rank| self.members.contains(rank))
    }

    /// Begins an attempt if this member is its author; else tells the author why one is wanted.
    pub fn consider(&mut self) {
        if self.ended.is_some() || !self.members.contains(&self.me) || !self.wants_change() {
            return;
        }
        let author = self.members.iter().copied().find(|&rank| !self.is_suspect(rank));
        let author = author.unwrap_or(self.me);
        if author == self.me {
            if !self.attempt_holds() {
                self.begin();
            }
            return;
        }
        for rank in self.change.joiners.clone() {
            self.post(author, Control::Join { rank });
        }
        for rank in self.change.leavers.clone() {
            self.post(author, Control::Leave { rank });
        }
    }

    /// True if this member's attempt goes on, and does what is wanted, or will be followed by one
    /// that does.
    fn attempt_holds(&self) -> bool {
        let Some(attempt) = &self.change.attempt else { return false };
        let lives = |rank: &u32| !self.is_suspect(*rank);
        if attempt.stamp != self.change.promised || !attempt.proposed.iter().all(lives) {
            return false;
        }
        attempt.decided.is_some() || {
            let change = &self.change;
            attempt.joiners.iter().all(lives)
                && change.joiners.iter().all(|rank| attempt.joiners.contains(rank))
                && change.leavers.iter().all(|rank| attempt.leavers.contains(rank))
        }
    }

    /// Returns true if these members are a quorum of the view.
    fn is_quorum(&self, some: impl Fn(u32) -> bool) -> bool {
        let is_gone = |rank: &&u32| self.change.suspects.get(rank) == Some(&true);
        let may_live: Vec<u32> =
            self.members.iter().filter(|rank| !is_gone(rank)).copied().collect();
        let count = may_live.iter().filter(|&&rank| some(rank)).count();
        let lowest = may_live.first().is_some_and(|&rank| some(rank));
        2 * count > may_live.len() || 2 * count == may_live.len() && lowest
    }

    /// Stops sending and delivering in this view.
    fn freeze(&mut self, promised: u32) {
        let before = std::mem::replace(&mut self.change.promised, promised);
        if before > 0 {
            return;
        }
        // Slots that have a place keep it; those that were sent are in the store.
        for own in self.own.iter().filter(|own| !own.sent) {
            if let Some(place) = own.place {
                let slot = Slot { sender: self.me, number: own.number, data: own.data.clone() };
                self.slots.insert_new(place, slot);
            }
        }
    }

    fn begin(&mut self) {
        let round = (self.change.promised >> 16) + 1;
        let stamp = stamp(round, self.me);
        let proposed: Vec<u32> =
            self.members.iter().copied().filter(|&rank| !self.is_suspect(rank)).collect();
        if !self.is_quorum(|rank| proposed.contains(&rank)) {
            let missing = self.members.iter().copied().filter(|rank| !proposed.contains(rank));
            let missing = missing.map(|rank| rank as usize).collect();
            return self.end(OrderError::NoQuorum { missing });
        }
        self.freeze(stamp);
        let lives = |rank: &u32| !self.is_suspect(*rank);
        let joiners = self.change.joiners.iter().copied().filter(lives).collect();
        let leavers = self.change.leavers.iter().copied().collect();
        let states = BTreeMap::from([(self.me, (self.next, self.spare))]);
        let slots: BTreeMap<u64, Slot> = self.slots_from(self.next, &[]).into_iter().collect();
        let (view, next) = (self.view, self.next);
        let held: Vec<u64> = slots.keys().copied().collect();
        for &rank in proposed.iter().filter(|&&rank| rank != self.me) {
            let held = held.clone();
            let control = Control::Flush { view, stamp, next, held };
            self.actions.push_back(Action::Post { to: rank, control });
        }
        self.change.again = false;
        let decided = None;
        self.change.attempt =
            Some(Attempt { stamp, proposed, joiners, leavers, states, slots, decided });
        self.decide();
    }

    /// Handles a control that concerns changes.
    pub fn handle_change(&mut self, from: u32, control: Control) {
        let is_outside = !self.members.contains(&from) && self.view.epoch > 0;
        if is_outside && matches!(control, Control::Suspect { rank, .. } if rank != from) {
            return self.post(from, Control::Excluded { view: self.view });
        }
        match control {
            Control::Suspect { rank, certain } if !self.is_suspect(from) => {
                self.suspect(rank, certain, rank == from);
            }
            Control::Join { rank } => self.on_join(rank),
            Control::Leave { rank } if self.members.contains(&rank) => {
                self.change.leavers.insert(rank);
                self.consider();
            }
            Control::Flush { view, stamp, next, held } => {
                self.on_flush(from, view, stamp, next, &held);
            }
            Control::State { view, next, .. } if view.epoch < self.view.epoch => {
                // An answer to an attempt that met the next view: the sender waits for the end.
                _ = self.bring_up(from, view, next);
            }
            Control::State { view, stamp, next, slots, spare } => {
                let Some(attempt) = &mut self.change.attempt else { return };
                if view == self.view && stamp == attempt.stamp && attempt.decided.is_none() {
                    attempt.states.insert(from, (next, spare));
                    attempt.slots.extend(slots);
                    self.decide();
                }
            }
            Control::Nack { view, promised }
                if view == self.view && promised > self.change.promised =>
            {
                self.change.promised = promised;
                self.change.attempt = None;
                self.change.again = true;
            }
            Control::Lag { view, next } if view.epoch < self.view.epoch => {
                match self.bring_up(from, view, next) {
                    true => self.begin(),
                    // It is told that it is no member, and ends: a joiner whose author has failed
                    // before it sent the state, for one.
                    false => self.suspect(from, true, true),
                }
            }
            Control::Install { install, slots, again } => {
                self.on_install(from, install, slots, again);
            }
            Control::Installed { new } => self.on_installed(from, new),
            Control::Welcome { install, delivered, snapshot } => {
                self.on_welcome(install, delivered, snapshot);
            }
            Control::TooLong if self.view.epoch == 0 && self.members.is_empty() => {
                self.end(OrderError::TooLong);
            }
            Control::Excluded { view } if self.view.epoch == 0 && self.members.is_empty() => {
                // It asks again.
                self.change.refused = self.change.refused.max(view.epoch);
                self.early.clear();
            }
            Control::Excluded { view } if view.epoch >= self.view.epoch => {
                self.end(OrderError::Excluded { by: from as usize });
            }
            _ => {}
        }
    }

    fn on_join(&mut self, rank: u32) {
        if self.members.contains(&rank) && self.view.epoch > 0 {
            return;
        }
        // One that has failed before is given another chance: if it is still out of reach, the next
        // message to it fails.
        self.change.suspects.remove(&rank);
        self.change.joiners.insert(rank);
        self.consider();
    }

    fn on_flush(&mut self, from: u32, view: ViewId, stamp: u32, next: u64, held: &[u64]) {
        if self.ended.is_some() {
            return self.post(from, Control::Suspect { rank: self.me, certain: true });
        }
        if view.epoch > self.view.epoch {
            let (view, next) = (self.view, self.next);
            return self.post(from, Control::Lag { view, next });
        }
        if view != self.view {
            _ = self.bring_up(from, view, next);
            return;
        }
        if stamp < self.change.promised {
            let (view, promised) = (self.view, self.change.promised);
            return self.post(from, Control::Nack { view, promised });
        }
        if self.change.attempt.as_ref().is_some_and(|attempt| attempt.stamp < stamp) {
            self.change.attempt = None;
        }
        self.freeze(stamp);
        let (slots, spare) = (self.slots_from(next, held), self.spare);
        self.post(from, Control::State { view, stamp, next: self.next, slots, spare });
    }

    /// Sends a rank that is one view behind this member's view, if it has a place there, and tells
    /// any other that it is no member. True if the rank is brought up.
    fn bring_up(&mut self, rank: u32, view: ViewId, next: u64) -> bool {
        let last = self.change.last.clone().filter(|last| last.old == view);
        let Some(install) = last.filter(|last| last.members.contains(&rank)) else {
            self.post(rank, Control::Excluded { view: self.view });
            return false;
        };
        let up_to = self.slots.range(next.min(install.base)..install.base);
        let slots = up_to.map(|(place, slot)| (place, slot.clone())).collect();
        self.post(rank, Control::Install { install, slots, again: true });
        true
    }

    /// Decides on the next view when the states of all proposed members are here.
    fn decide(&mut self) {
        let Some(attempt) = self.change.attempt.as_mut().filter(|a| a.decided.is_none()) else {
            return;
        };
        if attempt.states.len() < attempt.proposed.len() {
            return;
        }
        let nexts = || attempt.states.values().map(|&(next, _)| next);
        let stable = nexts().min().unwrap_or(self.next);
        // Up to the first place that nobody has: a member that has failed may have delivered its
        // slot, and sent others after that.
        let is_here =
            |place: &u64| self.slots.get(*place).is_some() || attempt.slots.contains_key(place);
        let most = nexts().max().unwrap_or(self.next);
        let base = (most..).find(|place| !is_here(place)).unwrap_or(most);
        let stays = |rank: &u32| !attempt.leavers.contains(rank);
        let counter = attempt.states.iter().filter(|(rank, _)| stays(rank));
        let counter = counter.filter_map(|(&rank, &(_, spare))| Some((rank, spare?))).next();
        let mut members: Vec<u32> = attempt.proposed.iter().copied().filter(stays).collect();
        members.extend(attempt.joiners.iter().filter(|rank| !attempt.proposed.contains(rank)));
        members.sort_unstable();
        let left = attempt.leavers.iter().copied().filter(|rank| attempt.proposed.contains(rank));
        let new = ViewId { epoch: self.view.epoch + 1, stamp: attempt.stamp };
        let left = left.collect();
        let install = Install { old: self.view, new, members, left, base, stable, counter };
        let places = |slots: &BTreeMap<u64, Slot>, from: u64| -> Vec<Placed> {
            let slot = |place| self.slots.get(place).or_else(|| slots.get(&place));
            (from..base).filter_map(|place| Some((place, slot(place)?.clone()))).collect()
        };
        let own = places(&attempt.slots, self.next);
        for (&rank, &(next, _)) in attempt.states.iter().filter(|(&rank, _)| rank != self.me) {
            let slots = places(&attempt.slots, next);
            let control = Control::Install { install: install.clone(), slots, again: false };
            self.actions.push_back(Action::Post { to: rank, control });
        }
        attempt.slots = own.into_iter().collect();
        attempt.decided = Some((install, BTreeSet::from([self.me])));
        self.enter_if_quorum();
    }

    fn on_installed(&mut self, from: u32, view: ViewId) {
        let Some(attempt) = &mut self.change.attempt else { return };
        let Some((install, entered)) = &mut attempt.decided else { return };
        if install.new == view {
            entered.insert(from);
            self.enter_if_quorum();
        }
    }

    fn enter_if_quorum(&mut self) {
        let Some(attempt) = &self.change.attempt else { return };
        let Some((_, entered)) = &attempt.decided else { return };
        if !self.is_quorum(|rank| entered.contains(&rank)) {
            return;
        }
        let Some(attempt) = self.change.attempt.take() else { return };
        let Some((install, _)) = attempt.decided else { return };
        self.change.welcome =
            attempt.joiners.iter().copied().filter(|&rank| !self.is_suspect(rank)).collect();
        let slots = attempt.slots.into_iter().collect();
        self.enter(&install, slots);
    }

    fn on_install(&mut self, from: u32, install: Install, slots: Vec<Placed>, again: bool) {
        if install.new == self.view {
            return self.post(from, Control::Installed { new: install.new });
        }
        let has_decided = self.change.attempt.as_ref().is_some_and(|a| a.decided.is_some());
        let is_current = again && !has_decided || install.new.stamp >= self.change.promised;
        if self.ended.is_some() || install.old != self.view {
            return;
        }
        if !is_current {
            let (view, promised) = (self.view, self.change.promised);
            return self.post(from, Control::Nack { view, promised });
        }
        let new = install.new;
        self.post(from, Control::Installed { new });
        self.change.welcome.clear();
        self.enter(&install, slots);
    }

    /// Enters a view: delivers the rest of the old one, then begins anew.
    fn enter(&mut self, install: &Install, slots: Vec<Placed>) {
        self.slots.forget_from(install.base);
        // All places from the receiver's on are there: one beyond them is not the author's.
        let end = self.next.saturating_add(slots.len() as u64);
        for (place, slot) in slots {
            if (self.next..end).contains(&place) {
                self.slots.insert(place, slot);
            }
        }
        while self.next < install.base {
            if !self.deliver() {
                // The author sends all that this member lacks.
                return self.end(OrderError::Broken);
            }
        }
        let old = std::mem::replace(&mut self.members, install.members.clone());
        // They may live, and be in reach of some members only.
        let is_out = |rank: &u32| !install.members.contains(rank) && !install.left.contains(rank);
        for &rank in old.iter().filter(|rank| is_out(rank)) {
            self.post(rank, Control::Excluded { view: install.new });
        }
        (self.view, self.base, self.place) = (install.new, install.base, install.base);
        self.stable = install.stable.max(self.stable);
        self.counter = install.counter;
        if self.counter.is_some_and(|(rank, _)| rank == self.me) {
            self.spare = None;
            self.actions.push_back(Action::MakeCounter);
        }
        self.incoming.clear();
        self.outgoing.begin_anew();
        self.own.clear();
        self.unplaced.clear();
        self.accepted.clear();
        self.backlog.clear();
        self.forget_loose();
        self.asking = false;
        self.room = None;
        self.next_of.clear();
        let change = &mut self.change;
        let attempt = change.attempt.take();
        (change.promised, change.again) = (0, false);
        change.last = Some(install.clone());
        change.joiners.retain(|rank| !install.members.contains(rank));
        change.leavers.retain(|rank| install.members.contains(rank));
        if !self.members.contains(&self.me) {
            let by = (install.new.stamp & 0xffff) as usize;
            return self.end(match install.left.contains(&self.me) {
                true => OrderError::Left,
                false => OrderError::Excluded { by },
            });
        }
        // Those that have answered an attempt of this member, which met the view of another one,
        // wait for its end.
        for (rank, (next, _)) in attempt.map(|attempt| attempt.states).unwrap_or_default() {
            if rank != self.me && self.members.contains(&rank) {
                _ = self.bring_up(rank, install.old, next);
            }
        }
        if !self.change.welcome.is_empty() {
            self.actions.push_back(Action::TakeSnapshot);
        }
        self.show_view(&old, install.left.clone());
    }

    /// Tells the program of the view.
    fn show_view(&mut self, old: &[u32], left: Vec<u32>) {
        let (view, members) = (self.view, self.members.clone());
        let joined = members.iter().copied().filter(|rank| !old.contains(rank)).collect();
        self.actions.push_back(Action::View { view, members, joined, left });
    }

    /// Takes the state of the program at the beginning of this view, for new members.
    pub fn snapshot_taken(&mut self, snapshot: &[u8]) {
        let Some(install) = self.change.last.clone() else { return };
        let delivered = self.delivered;
        for rank in std::mem::take(&mut self.change.welcome) {
            if snapshot.len() > SNAPSHOT_MAX {
                // It ends, and is no member in the next view.
                self.post(rank, Control::TooLong);
                self.suspect(rank, true, true);
                continue;
            }
            let (install, snapshot) = (install.clone(), snapshot.to_vec());
            self.post(rank, Control::Welcome { install, delivered, snapshot });
        }
    }

    fn on_welcome(&mut self, install: Install, delivered: u64, snapshot: Vec<u8>) {
        let is_late = self.view.epoch > 0 || install.new.epoch <= self.change.refused;
        if is_late || !install.members.contains(&self.me) || self.ended.is_some() {
            return;
        }
        self.actions.push_back(Action::Restore { snapshot });
        (self.view, self.members, self.counter) =
            (install.new, install.members.clone(), install.counter);
        (self.base, self.place, self.next) = (install.base, install.base, install.base);
        (self.stable, self.delivered) = (install.base, delivered);
        self.change.contacts.clear();
        self.change.last = Some(install);
        self.show_view(&[], Vec::new());
    }

    /// Begins sending and delivering in a view, whose slots have this room for data.
    pub fn opened(&mut self, view: ViewId, room: usize) {
        if view != self.view || self.ended.is_some() {
            return;
        }
        self.room = Some(room);
        self.watch(self.wait.watches);
        self.report_now();
        for early in std::mem::take(&mut self.early).into_values().flatten() {
            match early {
                Early::Control(from, control) => self.handle(from, control),
                Early::Cast(from, kind, bytes) => self.handle_cast(from, kind, &bytes),
            }
        }
        self.fill();
        self.consider();
    }
}
