//! Changes of view: members fail, leave and join.
//!
//! A change is the consensus of Paxos (Lamport, 1998) on the next view, among the members of the
//! view before. The lowest member that is not suspected is the author of an attempt. It asks all
//! others for their state (`Flush`); from then on they neither send nor deliver in the old view,
//! and take part in no attempt with a lesser stamp. The author collects the slots that any of them
//! has, up to the first place that nobody has: members that have failed may have delivered a slot
//! there, so the slots of failed members behind it are lost too, and survivors send theirs again in
//! the next view. It proposes the new view to each member, with the slots that the member lacks
//! (`Propose`). Members accept it, and enter when a quorum has accepted it (`Enter`). If the author
//! fails, the next one learns of a view that a quorum may have accepted, and proposes that one. So
//! there is one view of each number, and all that enter it deliver the same slots before.
//!
//! A quorum is one of the old view's members ([`crate::quorum`]). The end of a process is no vote:
//! the process may have gone on with others before. A member that ends without having left hands
//! its last state to the others (`Gone`), and is not needed then. Members that cannot reach a
//! quorum end with an error, so there are never two groups.

use super::lives::Reach;
use super::{Action, Core, Early};
use crate::order::wire::{stamp, Accepted, Control, Gone, Install, Placed, Slot, Standing, ViewId};
use crate::order::OrderError;
use crate::quorum::is_quorum;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weft_core::Instant;

/// State of changes of a member.
#[derive(Default)]
pub(in crate::order) struct Change {
    /// The greatest stamp of an attempt that this member takes part in; 0: none.
    pub promised: u32,
    /// Ranks that have failed; true if their processes are known to have ended.
    pub suspects: BTreeMap<u32, bool>,
    /// Ranks that want to join, with the numbers of their lives.
    pub joiners: BTreeMap<u32, u64>,
    /// Members that want to leave, with the numbers of the views in which they said so.
    pub leavers: BTreeMap<u32, u32>,
    pub attempt: Option<Attempt>,
    /// The view that this member has accepted as the next one.
    pub accepted: Option<Accepted>,
    /// Members of this view, or of a later one, that have ended and told their last state.
    pub gone: BTreeMap<u32, Gone>,
    /// True while no quorum is in reach, and the time since which that is known.
    is_lonely: bool,
    lonely: Option<Instant>,
    /// The way in which the view came to be.
    pub last: Option<Install>,
    /// Joiners of the view that this member has authored, until they have the snapshot.
    pub welcome: Vec<u32>,
    /// True if another attempt was in the way of this member's: it tries again later.
    pub again: bool,
    pub joining: Joining,
    /// Key of a counter of this member for a later view.
    pub spare: Option<u64>,
    pub reach: Reach,
}

/// State of a rank that wants to join.
#[derive(Default)]
pub(in crate::order) struct Joining {
    /// The number of this life of the rank (see [`Control::Join`]).
    pub life: u64,
    /// Views up to this one have no place for this rank.
    pub refused: u32,
    /// Ranks that this one may ask, and the time at which it has asked one.
    pub contacts: Vec<u32>,
    pub asked: Option<Instant>,
}

/// An attempt of this member.
pub(in crate::order) struct Attempt {
    stamp: u32,
    /// Members that are asked.
    proposed: Vec<u32>,
    /// Members whose last states are known: others are a quorum without them.
    resigned: BTreeSet<u32>,
    joiners: BTreeMap<u32, u64>,
    leavers: Vec<u32>,
    /// Joiners that cannot join, each with a member that has given it up.
    unreachable: BTreeMap<u32, u32>,
    /// The next place of each member, and its spare counter.
    states: BTreeMap<u32, (u64, Option<u64>)>,
    slots: BTreeMap<u64, Slot>,
    /// The view that was accepted by the latest attempt before.
    before: Option<Accepted>,
    /// The view that is proposed, and the members that have accepted it.
    decided: Option<(Install, BTreeSet<u32>)>,
}

impl Attempt {
    /// Describes the members that this attempt waits for.
    pub fn describe(&self) -> String {
        let all = self.proposed.iter();
        let missing: Vec<u32> = match &self.decided {
            Some((_, accepted)) => all.filter(|rank| !accepted.contains(rank)).copied().collect(),
            None => all.filter(|rank| !self.states.contains_key(rank)).copied().collect(),
        };
        let what = if self.decided.is_some() { "accept" } else { "answer" };
        format!(", which waits until ranks {missing:?} {what}")
    }

    /// Takes what a member has told of its state.
    fn take(&mut self, standing: Standing) {
        self.slots.extend(standing.slots);
        let later = |one: &Accepted| self.before.as_ref().is_none_or(|b| b.stamp < one.stamp);
        if let Some(accepted) = standing.accepted.filter(later) {
            self.before = Some(accepted);
        }
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

    /// Asks to be a member no more.
    pub fn leave(&mut self) {
        self.change.leavers.insert(self.me, self.view.epoch);
        self.consider();
    }

    /// Notes the failure of a rank; tells others if this member has noticed it itself.
    pub(super) fn suspect(&mut self, rank: u32, certain: bool, is_own: bool) {
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
            let of_attempt = |attempt: &Attempt| attempt.joiners.contains_key(&rank);
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

    pub(super) fn is_suspect(&self, rank: u32) -> bool {
        self.change.suspects.contains_key(&rank)
    }

    /// True if the view has to change.
    pub(super) fn wants_change(&self) -> bool {
        let change = &self.change;
        self.view.epoch == 0
            || self.members.iter().any(|&rank| self.is_suspect(rank))
            || change.joiners.keys().any(|rank| !self.members.contains(rank))
            || change.leavers.keys().any(|rank| self.members.contains(rank))
    }

    /// Begins an attempt if this member is its author; else tells the author why one is wanted.
    pub(super) fn consider(&mut self) {
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
        for (rank, life) in self.change.joiners.clone() {
            self.post(author, Control::Join { rank, life });
        }
        for (rank, epoch) in self.change.leavers.clone() {
            let epoch = if rank == self.me { self.view.epoch } else { epoch };
            self.post(author, Control::Leave { rank, epoch });
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
            attempt.joiners.keys().all(lives)
                && change.joiners.iter().all(|(rank, life)| attempt.joiners.get(rank) == Some(life))
                && change.leavers.keys().all(|rank| attempt.leavers.contains(rank))
        }
    }

    /// Members of this view that have told their last states.
    fn resigned(&self) -> impl Iterator<Item = (u32, &Gone, &Standing)> {
        let of_view = self.change.gone.iter().filter(|(_, gone)| gone.view == self.view);
        of_view.filter_map(|(&rank, gone)| Some((rank, gone, gone.standing.as_ref()?)))
    }

    /// Stops sending and delivering in this view.
    fn freeze(&mut self, promised: u32) {
        (self.change.is_lonely, self.change.lonely) = (false, None);
        let before = std::mem::replace(&mut self.change.promised, promised);
        if before > 0 {
            return;
        }
        // Slots that have a place keep it; those that were sent are in the store.
        for (place, slot) in self.own.unsent(self.me) {
            self.store.slots.insert_new(place, slot);
        }
    }

    pub(super) fn begin(&mut self) {
        // An attempt whose stamp is less than what one has promised that has resigned could miss
        // the view that the other attempt has led to.
        let promised = self.resigned().map(|(_, gone, _)| gone.promised).max().unwrap_or(0);
        let round = (self.change.promised.max(promised) >> 16) + 1;
        let stamp = stamp(round, self.me);
        if stamp <= self.change.promised.max(promised) {
            // Only nonsense leads to the last round: no attempt can follow it.
            return;
        }
        let proposed: Vec<u32> =
            self.members.iter().copied().filter(|&rank| !self.is_suspect(rank)).collect();
        let lonely = self.change.lonely;
        self.freeze(stamp);
        self.change.attempt = None;
        let resigned: BTreeSet<u32> = self.resigned().map(|(rank, ..)| rank).collect();
        self.change.is_lonely =
            !is_quorum(&self.members, |r| resigned.contains(&r), |r| proposed.contains(&r));
        if self.change.is_lonely {
            // Some that have ended may be about to tell their last states.
            self.change.lonely = lonely;
            return;
        }
        let lives = |rank: &u32| !self.is_suspect(*rank);
        let joiners = self.change.joiners.iter().map(|(&rank, &life)| (rank, life));
        let joiners: BTreeMap<u32, u64> = joiners.filter(|(rank, _)| lives(rank)).collect();
        let leavers = self.change.leavers.keys().copied().collect();
        let states = BTreeMap::from([(self.me, (self.store.next, self.change.spare))]);
        let slots: BTreeMap<u64, Slot> =
            self.store.slots_from(self.store.next, &[]).into_iter().collect();
        let (view, next) = (self.view, self.store.next);
        let held: Vec<u64> = slots.keys().copied().collect();
        for &rank in proposed.iter().filter(|&&rank| rank != self.me) {
            let held = held.clone();
            let joiners = joiners.keys().copied().collect();
            let control = Control::Flush { view, stamp, next, held, joiners };
            self.actions.push_back(Action::Post { to: rank, control });
        }
        self.change.again = false;
        let mut attempt = Attempt {
            stamp,
            proposed,
            resigned,
            joiners,
            leavers,
            unreachable: BTreeMap::new(),
            states,
            slots,
            before: self.change.accepted.clone(),
            decided: None,
        };
        self.resigned().for_each(|(_, _, standing)| attempt.take(standing.clone()));
        self.change.attempt = Some(attempt);
        self.decide();
    }

    /// Ends this member if no quorum has been in reach for so long that members which have ended
    /// would have told their last states.
    pub(super) fn end_if_lonely(&mut self, now: Instant, grace: Duration) {
        if !self.change.is_lonely {
            return;
        }
        let since = *self.change.lonely.get_or_insert(now);
        if now.since(since) >= grace {
            let missing = self.members.iter().filter(|&&rank| self.is_suspect(rank));
            let missing = missing.map(|&rank| rank as usize).collect();
            self.end(OrderError::NoQuorum { missing });
        }
    }

    /// Handles a control that concerns changes.
    pub(super) fn handle_change(&mut self, from: u32, control: Control) {
        let is_outside = !self.members.contains(&from) && self.view.epoch > 0;
        if is_outside && matches!(control, Control::Suspect { rank, .. } if rank != from) {
            return self.post(from, Control::Excluded { view: self.view });
        }
        if self.view.epoch == 0 && self.members.is_empty() && control.is_of_change() {
            // A rank without a view has no state, and enters its first view with one.
            return;
        }
        match control {
            Control::Suspect { rank, certain } if !self.is_suspect(from) => {
                self.suspect(rank, certain, false);
                if rank != from && !self.members.contains(&rank) {
                    // The sender is in a view before, whose author has ended in good order.
                    self.post(from, Control::Enter { new: self.view });
                }
            }
            Control::Gone(gone) => self.on_gone(from, gone),
            Control::Join { rank, life } => self.on_join(from, rank, life),
            Control::Leave { rank, epoch } if self.is_of_life(rank, epoch) => {
                self.change.leavers.insert(rank, epoch);
                self.consider();
            }
            Control::Flush { view, stamp, next, held, joiners } => {
                self.on_flush(from, view, stamp, next, &held, joiners);
            }
            Control::Unreachable { rank, of } => self.on_unreachable(rank, of),
            Control::State { view, standing, .. } if view.epoch < self.view.epoch => {
                // An answer to an attempt that met the next view: the sender waits for the end.
                _ = self.bring_up(from, view, standing.next);
            }
            Control::State { view, stamp, standing, unreachable } => {
                self.on_state(from, view, stamp, standing, unreachable);
            }
            Control::Nack { view, promised }
                if view == self.view && promised > self.change.promised =>
            {
                self.change.promised = promised;
                self.change.attempt = None;
                self.change.again = true;
            }
            Control::Lag { view, next, life, asked }
                if view.epoch < self.view.epoch && asked >= self.view.epoch =>
            {
                self.on_lag(from, view, next, life);
            }
            Control::Propose { accepted, slots } => self.on_propose(from, accepted, slots),
            Control::Accept { new, stamp } => self.on_accepted(from, new, stamp),
            Control::Enter { new } => self.on_enter(from, new),
            Control::Install { install, slots }
                if install.old == self.view && self.ended.is_none() =>
            {
                self.follow(&install, slots);
            }
            Control::Welcome { install, delivered, snapshot } => {
                self.on_welcome(from, install, delivered, snapshot);
            }
            other if self.view.epoch == 0 && self.members.is_empty() => {
                self.on_answer(from, &other);
            }
            Control::Excluded { view } if view.epoch >= self.view.epoch => {
                self.end(OrderError::Excluded { by: from as usize });
            }
            _ => {}
        }
    }

    fn on_state(
        &mut self,
        from: u32,
        view: ViewId,
        stamp: u32,
        standing: Standing,
        unreachable: Vec<u32>,
    ) {
        // Nobody is further behind than the account, or ahead by more than the window.
        let most = self.store.next.saturating_add(4 * self.window);
        if view == self.view && !(self.store.stable..=most).contains(&standing.next) {
            return;
        }
        let Some(attempt) = &mut self.change.attempt else { return };
        if view == self.view && stamp == attempt.stamp && attempt.decided.is_none() {
            attempt.states.insert(from, (standing.next, standing.spare));
            let joiners = &attempt.joiners;
            let unreachable = unreachable.into_iter().filter(|rank| joiners.contains_key(rank));
            attempt.unreachable.extend(unreachable.map(|rank| (rank, from)));
            attempt.take(standing);
            self.decide();
        }
    }

    /// Takes part in another member's attempt, and tries again later if that one does not end: the
    /// failure of a member that is suspected already is told to nobody.
    fn take_part(&mut self, from: u32, stamp: u32) {
        let is_own_over = self.change.attempt.take_if(|own| own.stamp < stamp).is_some();
        self.change.again |= is_own_over || self.is_suspect(from);
        self.freeze(stamp);
    }

    fn on_flush(
        &mut self,
        from: u32,
        view: ViewId,
        stamp: u32,
        next: u64,
        held: &[u64],
        joiners: Vec<u32>,
    ) {
        if self.ended.is_some() {
            return self.answer_after_end(from, view, next);
        }
        if view.epoch > self.view.epoch {
            return self.tell_lag(from, view.epoch);
        }
        if view != self.view {
            _ = self.bring_up(from, view, next);
            return;
        }
        if stamp < self.change.promised {
            let (view, promised) = (self.view, self.change.promised);
            return self.post(from, Control::Nack { view, promised });
        }
        self.take_part(from, stamp);
        let (slots, spare) = (self.store.slots_from(next, held), self.change.spare);
        let accepted = self.change.accepted.clone();
        let standing = Standing { next: self.store.next, slots, spare, accepted };
        let unreachable =
            joiners.into_iter().filter(|rank| self.change.reach.lost.contains(rank)).collect();
        self.post(from, Control::State { view, stamp, standing, unreachable });
    }

    /// Answers a member that is in a view in which this one has been, after this one's end.
    fn answer_after_end(&mut self, from: u32, view: ViewId, next: u64) {
        if self.change.last.as_ref().is_some_and(|last| last.old == view) {
            _ = self.bring_up(from, view, next);
            return;
        }
        let gone = self.last_word();
        self.post(from, Control::Gone(gone));
    }

    /// Sends a rank that is one view behind this member's view, if it has a place there, and tells
    /// one that is no member so. True if the rank is brought up.
    pub(super) fn bring_up(&mut self, rank: u32, view: ViewId, next: u64) -> bool {
        let last = self.change.last.clone().filter(|last| last.old == view);
        let Some(install) = last.filter(|last| last.members.contains(&rank)) else {
            // A message that a member has sent views ago, or in a life before, is not of its view.
            if !self.members.contains(&rank) {
                self.post(rank, Control::Excluded { view: self.view });
            }
            return false;
        };
        let up_to = self.store.slots.range(next.min(install.base)..install.base);
        let slots = up_to.map(|(place, slot)| (place, slot.clone())).collect();
        self.post(rank, Control::Install { install, slots });
        true
    }

    /// Proposes the next view when the states of all that are asked are here.
    fn decide(&mut self) {
        let Some(attempt) = self.change.attempt.as_ref().filter(|a| a.decided.is_none()) else {
            return;
        };
        if attempt.states.len() < attempt.proposed.len() {
            return;
        }
        let install = match &attempt.before {
            // A quorum may have accepted it, and some member may have entered it.
            Some(before) => before.install.clone(),
            None => self.next_view(attempt),
        };
        let base = install.base;
        let places = |from: u64| -> Vec<Placed> {
            let slot = |place| self.store.slots.get(place).or_else(|| attempt.slots.get(&place));
            (from..base).filter_map(|place| Some((place, slot(place)?.clone()))).collect()
        };
        let joins = |rank: &u32| install.members.contains(rank);
        let unreachable = attempt.unreachable.iter().map(|(&rank, &of)| (rank, of));
        let unreachable: Vec<(u32, u32)> = unreachable.filter(|(rank, _)| !joins(rank)).collect();
        let accepted = Accepted { stamp: attempt.stamp, install };
        let own = places(self.store.next);
        let to_others = attempt.states.iter().filter(|(&rank, _)| rank != self.me);
        let posts: Vec<Action> = to_others
            .map(|(&to, &(next, _))| {
                let (accepted, slots) = (accepted.clone(), places(next));
                Action::Post { to, control: Control::Propose { accepted, slots } }
            })
            .collect();
        self.actions.extend(posts);
        for (rank, of) in unreachable {
            self.change.reach.unreachable.insert(rank, of);
            self.on_unreachable(rank, of);
        }
        if let Some(attempt) = &mut self.change.attempt {
            attempt.decided = Some((accepted.install.clone(), BTreeSet::from([self.me])));
        }
        self.accept(accepted, own);
        self.enter_if_quorum();
    }

    /// Returns the view that follows from the states of all that were asked.
    fn next_view(&self, attempt: &Attempt) -> Install {
        let nexts = || attempt.states.values().map(|&(next, _)| next);
        let stable = nexts().min().unwrap_or(self.store.next);
        // Up to the first place that nobody has: a member that has failed may have delivered its
        // slot, and sent others after that.
        let is_here = |place: &u64| {
            self.store.slots.get(*place).is_some() || attempt.slots.contains_key(place)
        };
        let most = nexts().max().unwrap_or(self.store.next);
        let base = (most..).find(|place| !is_here(place)).unwrap_or(most);
        let stays = |rank: &u32| !attempt.leavers.contains(rank);
        let counter = attempt.states.iter().filter(|(rank, _)| stays(rank));
        let counter = counter.filter_map(|(&rank, &(_, spare))| Some((rank, spare?))).next();
        let mut members: Vec<u32> = attempt.proposed.iter().copied().filter(stays).collect();
        let joined = attempt.joiners.iter().map(|(&rank, &life)| (rank, life));
        let joins = |(rank, _): &(u32, u64)| {
            !attempt.proposed.contains(rank) && !attempt.unreachable.contains_key(rank)
        };
        let joined: Vec<(u32, u64)> = joined.filter(joins).collect();
        members.extend(joined.iter().map(|(rank, _)| rank));
        members.sort_unstable();
        let left = attempt.leavers.iter().copied().filter(|rank| attempt.proposed.contains(rank));
        let new = ViewId { epoch: self.view.epoch + 1, stamp: attempt.stamp };
        let left = left.collect();
        Install { old: self.view, new, members, joined, left, base, stable, counter }
    }

    /// Accepts a view, with the slots up to it.
    fn accept(&mut self, accepted: Accepted, slots: Vec<Placed>) {
        self.store.add_next(slots, accepted.install.base);
        self.change.accepted = Some(accepted);
    }

    fn on_propose(&mut self, from: u32, accepted: Accepted, slots: Vec<Placed>) {
        let (new, stamp) = (accepted.install.new, accepted.stamp);
        if self.change.last.as_ref().is_some_and(|last| last.new == new) {
            // Another author has proposed it before, and this member has entered it.
            return self.post(from, Control::Accept { new, stamp });
        }
        if self.ended.is_some() || accepted.install.old != self.view {
            return;
        }
        if stamp < self.change.promised {
            let (view, promised) = (self.view, self.change.promised);
            return self.post(from, Control::Nack { view, promised });
        }
        self.take_part(from, stamp);
        self.accept(accepted, slots);
        self.post(from, Control::Accept { new, stamp });
    }

    fn on_accepted(&mut self, from: u32, view: ViewId, stamp: u32) {
        let Some(attempt) = self.change.attempt.as_mut().filter(|a| a.stamp == stamp) else {
            return;
        };
        let Some((install, accepted)) = &mut attempt.decided else { return };
        if install.new == view {
            accepted.insert(from);
            self.enter_if_quorum();
        }
    }

    /// Enters the view of this member's attempt, with all others, if a quorum has accepted it.
    fn enter_if_quorum(&mut self) {
        let Some(attempt) = &self.change.attempt else { return };
        let Some((_, accepted)) = &attempt.decided else { return };
        let has_resigned = |rank| attempt.resigned.contains(&rank);
        if !is_quorum(&self.members, has_resigned, |rank| accepted.contains(&rank)) {
            return;
        }
        let Some(attempt) = self.change.attempt.take() else { return };
        let Some((install, _)) = attempt.decided else { return };
        let lives = |rank: &u32| !self.is_suspect(*rank);
        let joined = install.joined.iter().map(|(rank, _)| *rank);
        self.change.welcome = joined.filter(lives).collect();
        let (me, new) = (self.me, install.new);
        for to in attempt.proposed.into_iter().filter(|&rank| rank != me) {
            self.post(to, Control::Enter { new });
        }
        self.enter(&install, Vec::new());
    }

    fn on_enter(&mut self, from: u32, new: ViewId) {
        if self.ended.is_some() || self.view.epoch >= new.epoch {
            return;
        }
        let accepted = self.change.accepted.as_ref().map(|accepted| &accepted.install);
        match accepted.filter(|install| install.new == new).cloned() {
            Some(install) => self.follow(&install, Vec::new()),
            // The member was not in the author's quorum.
            None => self.tell_lag(from, new.epoch),
        }
    }

    /// Enters the view of another author.
    fn follow(&mut self, install: &Install, slots: Vec<Placed>) {
        self.change.welcome.clear();
        // The author knows those that join: a failure of a life before does not count.
        for (rank, _) in &install.joined {
            let gone = self.change.gone.get(rank);
            if gone.is_none_or(|gone| gone.view.epoch < install.new.epoch) {
                self.change.suspects.remove(rank);
            }
        }
        self.enter(install, slots);
    }

    /// Enters a view: delivers the rest of the old one, then begins anew.
    fn enter(&mut self, install: &Install, slots: Vec<Placed>) {
        self.store.slots.forget_from(install.base);
        // All places from the receiver's on are there: one beyond them is not the author's.
        let end = self.store.next.saturating_add(slots.len() as u64);
        for (place, slot) in slots {
            if (self.store.next..end).contains(&place) {
                self.store.slots.insert(place, slot);
            }
        }
        while self.store.next < install.base {
            if !self.deliver() {
                // The author sends all that this member lacks.
                return self.end(OrderError::Broken);
            }
        }
        let old = std::mem::replace(&mut self.members, install.members.clone());
        // Excluded ranks may live, and be in reach of some members only.
        let is_out = |rank: &u32| !install.members.contains(rank) && !install.left.contains(rank);
        for &rank in old.iter().filter(|rank| is_out(rank)) {
            self.post(rank, Control::Excluded { view: install.new });
        }
        // Ranks that begin anew were out as well.
        for rank in old.iter().filter(|&rank| is_out(rank) || install.life_of(*rank).is_some()) {
            self.change.reach.penalties.add(*rank, self.patience.now);
        }
        self.view = install.new;
        self.store.begin(install.base, install.stable);
        self.keeping.begin(install.base);
        self.own.begin(install.counter);
        if install.counter.is_some_and(|(rank, _)| rank == self.me) {
            self.change.spare = None;
            self.actions.push_back(Action::MakeCounter);
        }
        self.safe.begin(install.base);
        self.loose.clear();
        let attempt = self.change.attempt.take();
        self.end_change(install);
        if !self.members.contains(&self.me) {
            let by = (install.new.stamp & 0xffff) as usize;
            return self.end(match install.left.contains(&self.me) {
                true => OrderError::Left,
                false => OrderError::Excluded { by },
            });
        }
        // Ranks that have answered an attempt of this member, which met the view of another one,
        // wait for its end.
        for (rank, (next, _)) in attempt.map(|attempt| attempt.states).unwrap_or_default() {
            if rank != self.me && self.members.contains(&rank) {
                _ = self.bring_up(rank, install.old, next);
            }
        }
        if !self.change.welcome.is_empty() {
            self.actions.push_back(Action::TakeSnapshot);
        }
        let stayed: Vec<u32> =
            old.into_iter().filter(|&rank| install.life_of(rank).is_none()).collect();
        self.show_view(&stayed, install.left.clone());
    }

    /// Ends the change that has led to a view.
    fn end_change(&mut self, install: &Install) {
        let change = &mut self.change;
        (change.promised, change.again, change.accepted) = (0, false, None);
        (change.is_lonely, change.lonely) = (false, None);
        change.last = Some(install.clone());
        change.joiners.retain(|rank, _| !install.members.contains(rank));
        change.reach.unreachable.retain(|_, of| install.members.contains(of));
        change.leavers.retain(|rank, epoch| {
            let begins_anew = install.life_of(*rank).is_some() && *epoch < install.new.epoch;
            install.members.contains(rank) && !begins_anew
        });
        let stays = |rank: u32, gone: &Gone| {
            install.life_of(rank).is_none() || gone.view.epoch >= install.new.epoch
        };
        let gone = &mut self.change.gone;
        gone.retain(|&rank, gone| install.members.contains(&rank) && stays(rank, gone));
        let never_came = self.never_came();
        let behind = self.change.gone.values_mut().filter(|gone| gone.view.epoch < self.view.epoch);
        behind.for_each(|gone| *gone = never_came.clone());
    }

    /// Tells the program of the view.
    pub(super) fn show_view(&mut self, old: &[u32], left: Vec<u32>) {
        let (view, members) = (self.view, self.members.clone());
        let joined: Vec<u32> = members.iter().copied().filter(|rank| !old.contains(rank)).collect();
        self.actions.push_back(Action::View { view, members, joined, left });
    }

    /// Begins sending and delivering in a view, whose slots have this room for data.
    pub fn opened(&mut self, view: ViewId, room: usize) {
        if view != self.view || self.ended.is_some() {
            return;
        }
        self.own.room = Some(room);
        self.watch(self.patience.wait.watches);
        self.report_now();
        for early in self.early.take() {
            match early {
                Early::Control(from, control) => self.handle(from, control),
                Early::Cast(from, kind, bytes) => self.handle_cast(from, kind, &bytes),
            }
        }
        self.fill();
        self.consider();
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
