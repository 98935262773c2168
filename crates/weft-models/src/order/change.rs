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

use super::core::{Action, Core, Early};
use super::wire::{stamp, Accepted, Control, Gone, Install, Placed, Slot, Standing, ViewId};
use super::OrderError;
use crate::quorum::is_quorum;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weft_core::Instant;

/// State of changes of a member.
#[derive(Default)]
pub(super) struct Change {
    /// The greatest stamp of an attempt that this member takes part in; 0: none.
    pub promised: u32,
    /// Ranks that have failed; true if their processes are known to have ended.
    pub suspects: BTreeMap<u32, bool>,
    /// Ranks that want to join, with the numbers of their lives.
    pub joiners: BTreeMap<u32, u64>,
    pub leavers: BTreeSet<u32>,
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
    /// Views up to this one have no place for this rank, which wants to join.
    pub refused: u32,
    /// Ranks that a rank which wants to join may ask, and the time at which it has asked one.
    pub contacts: Vec<u32>,
    pub asked: Option<Instant>,
}

/// An attempt of this member.
pub(super) struct Attempt {
    stamp: u32,
    /// Members that are asked.
    proposed: Vec<u32>,
    /// Members whose last states are known: others are a quorum without them.
    resigned: BTreeSet<u32>,
    joiners: BTreeMap<u32, u64>,
    leavers: Vec<u32>,
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

    pub fn is_suspect(&self, rank: u32) -> bool {
        self.change.suspects.contains_key(&rank)
    }

    /// True if the view has to change.
    pub fn wants_change(&self) -> bool {
        let change = &self.change;
        self.view.epoch == 0
            || self.members.iter().any(|&rank| self.is_suspect(rank))
            || change.joiners.keys().any(|rank| !self.members.contains(rank))
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
        for (rank, life) in self.change.joiners.clone() {
            self.post(author, Control::Join { rank, life });
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
            attempt.joiners.keys().all(lives)
                && change.joiners.iter().all(|(rank, life)| attempt.joiners.get(rank) == Some(life))
                && change.leavers.iter().all(|rank| attempt.leavers.contains(rank))
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
        for own in self.own.iter().filter(|own| !own.sent) {
            if let Some(place) = own.place {
                let slot = Slot { sender: self.me, number: own.number, data: own.data.clone() };
                self.slots.insert_new(place, slot);
            }
        }
    }

    pub fn begin(&mut self) {
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
        let joiners = joiners.filter(|(rank, _)| lives(rank)).collect();
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
        let (before, decided) = (self.change.accepted.clone(), None);
        let mut attempt =
            Attempt { stamp, proposed, resigned, joiners, leavers, states, slots, before, decided };
        self.resigned().for_each(|(_, _, standing)| attempt.take(standing.clone()));
        self.change.attempt = Some(attempt);
        self.decide();
    }

    /// Ends this member if no quorum has been in reach for so long that members which have ended
    /// would have told their last states.
    pub fn end_if_lonely(&mut self, now: Instant, grace: Duration) {
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
    pub fn handle_change(&mut self, from: u32, control: Control) {
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
            Control::Join { rank, life } => self.on_join(rank, life),
            Control::Leave { rank } if self.members.contains(&rank) => {
                self.change.leavers.insert(rank);
                self.consider();
            }
            Control::Flush { view, stamp, next, held } => {
                self.on_flush(from, view, stamp, next, &held);
            }
            Control::State { view, standing, .. } if view.epoch < self.view.epoch => {
                // An answer to an attempt that met the next view: the sender waits for the end.
                _ = self.bring_up(from, view, standing.next);
            }
            Control::State { view, stamp, standing } => self.on_state(from, view, stamp, standing),
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

    fn on_state(&mut self, from: u32, view: ViewId, stamp: u32, standing: Standing) {
        // Nobody is further behind than the account, or ahead by more than the window.
        let most = self.next.saturating_add(4 * self.window);
        if view == self.view && !(self.stable..=most).contains(&standing.next) {
            return self.dropped += 1;
        }
        let Some(attempt) = &mut self.change.attempt else { return };
        if view == self.view && stamp == attempt.stamp && attempt.decided.is_none() {
            attempt.states.insert(from, (standing.next, standing.spare));
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

    fn on_flush(&mut self, from: u32, view: ViewId, stamp: u32, next: u64, held: &[u64]) {
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
        let (slots, spare) = (self.slots_from(next, held), self.spare);
        let accepted = self.change.accepted.clone();
        let standing = Standing { next: self.next, slots, spare, accepted };
        self.post(from, Control::State { view, stamp, standing });
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
    pub fn bring_up(&mut self, rank: u32, view: ViewId, next: u64) -> bool {
        let last = self.change.last.clone().filter(|last| last.old == view);
        let Some(install) = last.filter(|last| last.members.contains(&rank)) else {
            // A message that a member has sent views ago, or in a life before, is not of its view.
            if !self.members.contains(&rank) {
                self.post(rank, Control::Excluded { view: self.view });
            }
            return false;
        };
        let up_to = self.slots.range(next.min(install.base)..install.base);
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
            let slot = |place| self.slots.get(place).or_else(|| attempt.slots.get(&place));
            (from..base).filter_map(|place| Some((place, slot(place)?.clone()))).collect()
        };
        let accepted = Accepted { stamp: attempt.stamp, install };
        let own = places(self.next);
        let to_others = attempt.states.iter().filter(|(&rank, _)| rank != self.me);
        let posts: Vec<Action> = to_others
            .map(|(&to, &(next, _))| {
                let (accepted, slots) = (accepted.clone(), places(next));
                Action::Post { to, control: Control::Propose { accepted, slots } }
            })
            .collect();
        self.actions.extend(posts);
        if let Some(attempt) = &mut self.change.attempt {
            attempt.decided = Some((accepted.install.clone(), BTreeSet::from([self.me])));
        }
        self.accept(accepted, own);
        self.enter_if_quorum();
    }

    /// Returns the view that follows from the states of all that were asked.
    fn next_view(&self, attempt: &Attempt) -> Install {
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
        let joined = attempt.joiners.iter().map(|(&rank, &life)| (rank, life));
        let joins = |(rank, _): &(u32, u64)| !attempt.proposed.contains(rank);
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
        // All places from the receiver's on are there: one beyond them is not the author's.
        let end = self.next.saturating_add(slots.len() as u64).min(accepted.install.base);
        for (place, slot) in slots {
            if (self.next..end).contains(&place) {
                self.slots.insert_new(place, slot);
            }
        }
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
            // It was not in the author's quorum.
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
        // Those that begin anew were out as well.
        for rank in old.iter().filter(|&rank| is_out(rank) || install.life_of(*rank).is_some()) {
            self.penalties.add(*rank, self.now);
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
        self.begin_safe();
        self.unplaced.clear();
        self.accepted.clear();
        self.backlog.clear();
        self.forget_loose();
        self.asking = false;
        self.room = None;
        self.next_of.clear();
        let attempt = self.change.attempt.take();
        self.end_change(install);
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
        change.leavers.retain(|rank| install.members.contains(rank));
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
    pub fn show_view(&mut self, old: &[u32], left: Vec<u32>) {
        let (view, members) = (self.view, self.members.clone());
        let joined: Vec<u32> = members.iter().copied().filter(|rank| !old.contains(rank)).collect();
        self.actions.push_back(Action::View { view, members, joined, left });
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::order::grave::HANDED_MAX;
    use crate::order::{Options, Style};
    use std::collections::VecDeque;

    /// The life of a rank that joins.
    const LIFE: u64 = 5;
    const OPTIONS: Options = Options { style: Style::Sequencer, window: 16, safe: false };

    /// Members without a net: posts come in the order in which they were made.
    struct Cores {
        cores: BTreeMap<u32, Core>,
        /// The number of states that each rank was given.
        restored: BTreeMap<u32, u32>,
    }

    impl Cores {
        /// Members 0, 1 and 2, before their first view.
        fn begun() -> Cores {
            let core = |me| (me, Core::new(me, vec![0, 1, 2], OPTIONS));
            let mut cores: BTreeMap<u32, Core> = (0..3).map(core).collect();
            cores.values_mut().for_each(Core::form);
            Cores { cores, restored: BTreeMap::new() }
        }

        /// Members 0, 1 and 2 in their first view.
        fn open() -> Cores {
            let mut cores = Cores::begun();
            cores.go_on(|_, _, _| true);
            assert!(cores.cores.values().all(|core| core.view.epoch == 1 && core.is_open()));
            cores
        }

        fn of(&mut self, rank: u32) -> &mut Core {
            self.cores.get_mut(&rank).expect("it is there")
        }

        /// Does what a core wants; returns what it posts.
        fn posts_of(&mut self, rank: u32) -> Vec<(u32, Control)> {
            let mut posts = Vec::new();
            while let Some(action) = self.of(rank).actions.pop_front() {
                match action {
                    Action::Post { to, control } => posts.push((to, control)),
                    Action::View { view, .. } => self.of(rank).opened(view, 1000),
                    Action::TakeSnapshot => self.of(rank).snapshot_taken(b"state"),
                    Action::Restore { .. } => *self.restored.entry(rank).or_default() += 1,
                    _ => {}
                }
            }
            posts
        }

        /// Hands over all posts that pass, and those that follow.
        fn go_on(&mut self, passes: impl Fn(u32, u32, &Control) -> bool) {
            let mut on_way = VecDeque::new();
            loop {
                for from in self.cores.keys().copied().collect::<Vec<_>>() {
                    let posts = self.posts_of(from).into_iter();
                    on_way.extend(posts.map(|(to, control)| (from, to, control)));
                }
                let Some((from, to, control)) = on_way.pop_front() else { return };
                if self.cores.contains_key(&to) && passes(from, to, &control) {
                    self.of(to).handle(from, control);
                }
            }
        }

        /// A rank that wants to join by way of rank 0.
        fn joiner(me: u32) -> Cores {
            let mut core = Core::new(me, Vec::new(), OPTIONS);
            core.join(LIFE, vec![0]);
            Cores { cores: BTreeMap::from([(me, core)]), restored: BTreeMap::new() }
        }
    }

    fn view(epoch: u32) -> ViewId {
        ViewId { epoch, stamp: if epoch > 0 { stamp(1, 0) } else { 0 } }
    }

    /// The view of a number, of ranks 0 to 2.
    fn install(epoch: u32, joined: &[u32]) -> Install {
        let (old, new, members) = (view(epoch - 1), view(epoch), vec![0, 1, 2]);
        let (joined, left) = (joined.iter().map(|&rank| (rank, LIFE)).collect(), Vec::new());
        Install { old, new, members, joined, left, base: 0, stable: 0, counter: None }
    }

    fn slot(data: Vec<u8>) -> Slot {
        Slot { sender: 1, number: 0, data }
    }

    #[test]
    fn suspect__of_an_author_that_has_left_brings_a_member_of_the_old_view_up() {
        let mut cores = Cores::open();
        cores.of(0).leave();
        // The author ends after a quorum has entered its view, and before rank 2 learns of it.
        cores.go_on(|from, to, control| {
            from != 0 || to != 2 || matches!(control, Control::Flush { .. })
        });
        assert_eq!(cores.of(1).members, [1, 2]);
        assert!(cores.of(2).view.epoch == 1 && cores.of(2).change.is_frozen());
        cores.cores.remove(&0);
        cores.of(2).suspect(0, true, true);
        cores.go_on(|_, _, _| true);
        let theirs = cores.of(1).view;
        assert_eq!(cores.of(2).view, theirs);
        assert!(cores.of(2).is_open());
    }

    #[test]
    fn join__a_rank_without_state_takes_part_in_no_change() {
        let mut cores = Cores::joiner(2);
        let (install, stamp) = (install(1, &[]), stamp(1, 0));
        let accepted = Accepted { stamp, install: install.clone() };
        let view = ViewId::default();
        let controls = [
            Control::Flush { view, stamp, next: 0, held: Vec::new() },
            Control::Nack { view, promised: stamp },
            Control::Propose { accepted, slots: Vec::new() },
            Control::Enter { new: install.new },
            Control::Install { install: install.clone(), slots: Vec::new() },
        ];
        for control in controls {
            cores.of(2).handle(0, control.clone());
            let posts = cores.posts_of(2);
            let votes = |(_, post): &(u32, Control)| {
                matches!(post, Control::State { .. } | Control::Accept { .. })
            };
            assert!(!posts.iter().any(votes), "{control:?}: {posts:?}");
            let core = cores.of(2);
            assert!(core.view.epoch == 0 && !core.change.is_frozen(), "{control:?}");
        }
        let snapshot = b"state".to_vec();
        let install = self::install(2, &[2]);
        cores.of(2).handle(0, Control::Welcome { install, delivered: 0, snapshot });
        cores.posts_of(2);
        assert!(cores.of(2).is_open() && cores.restored[&2] == 1);
    }

    #[test]
    fn join__of_a_rank_that_the_first_view_was_to_have_gets_the_state() {
        // It has been a member that told its end, or has never opened the group.
        for tells in [true, false] {
            let mut cores = Cores::begun();
            // The author has asked rank 2, which begins anew and has no part in that.
            let asked = cores.posts_of(0);
            let gone = cores.of(2).last_word();
            *cores.of(2) = Core::new(2, Vec::new(), OPTIONS);
            for (to, control) in asked {
                cores.of(to).handle(0, control);
            }
            for rank in [0, 1].into_iter().filter(|_| tells) {
                cores.of(rank).handle(2, Control::Gone(gone.clone()));
            }
            cores.of(2).join(LIFE, vec![0, 1]);
            cores.go_on(|_, _, _| true);
            cores.of(2).ask_to_join();
            cores.go_on(|_, _, _| true);
            assert!(cores.cores.values().all(|core| core.is_open() && core.members == [0, 1, 2]));
            assert_eq!(cores.restored, BTreeMap::from([(2, 1)]));
        }
    }

    #[test]
    fn flush__of_a_suspect_that_falls_silent_is_followed_by_another_attempt() {
        let mut cores = Cores::open();
        cores.of(1).suspect(0, false, true);
        let is_flush =
            |(to, post): &(u32, Control)| *to == 2 && matches!(post, Control::Flush { .. });
        assert!(cores.posts_of(1).iter().any(is_flush));
        let (view, next) = (cores.of(1).view, cores.of(1).next);
        cores.of(1).handle(0, Control::Flush { view, stamp: stamp(9, 0), next, held: Vec::new() });
        assert!(!cores.posts_of(1).iter().any(is_flush));
        for ms in [10, 20, 60, 100] {
            cores.of(1).tick(Instant(ms * 1_000_000), Duration::ZERO);
        }
        assert!(cores.posts_of(1).iter().any(is_flush));
        assert!(cores.of(1).change.promised > stamp(9, 0));
    }

    #[test]
    fn gone__of_a_member_that_was_there_before_a_joiner_is_heard_by_it() {
        let mut cores = Cores::joiner(2);
        let snapshot = Vec::new();
        cores
            .of(2)
            .handle(0, Control::Welcome { install: install(2, &[2]), delivered: 0, snapshot });
        // Rank 1 has ended in the view before.
        let gone = Gone { life: 0, view: view(1), promised: 0, standing: None };
        cores.of(2).handle(1, Control::Gone(gone));
        assert!(cores.of(2).is_suspect(1));
    }

    #[test]
    fn lag__of_a_later_life_leaves_the_last_state_of_the_member() {
        let mut cores = Cores::open();
        let view = cores.of(2).view;
        // Rank 2 accepts a view, and ends. Its next life has no part in that.
        let new = ViewId { epoch: 2, stamp: stamp(1, 1) };
        let install = Install { old: view, new, members: vec![1, 2], ..install(2, &[]) };
        let accepted = Accepted { stamp: new.stamp, install };
        cores.of(2).handle(1, Control::Propose { accepted: accepted.clone(), slots: Vec::new() });
        cores.posts_of(2);
        let gone = cores.of(2).last_word();
        cores.of(0).handle(2, Control::Gone(gone));
        for view in [ViewId::default(), view] {
            let lag = Control::Lag { view: ViewId::default(), next: 0, life: LIFE, asked: 1 };
            cores.of(0).handle(2, lag);
            let later = Gone { life: LIFE, view, promised: 0, standing: None };
            cores.of(0).handle(2, Control::Gone(later));
        }
        let standing = cores.of(0).change.gone[&2].standing.clone();
        assert_eq!(standing.and_then(|standing| standing.accepted), Some(accepted));
    }

    #[test]
    fn welcome__of_a_life_before_is_not_taken_and_the_author_learns_of_it() {
        let mut cores = Cores::joiner(2);
        cores.of(2).life = LIFE + 1;
        let install = install(2, &[2]);
        let welcome = |install| Control::Welcome { install, delivered: 0, snapshot: Vec::new() };
        cores.of(2).handle(0, welcome(install.clone()));
        let join = Control::Join { rank: 2, life: LIFE + 1 };
        assert_eq!(cores.posts_of(2).last(), Some(&(0, join.clone())));
        assert!(cores.of(2).view.epoch == 0);
        // The author has such a view.
        let author = Core::new(0, vec![0, 1, 2], OPTIONS);
        cores.cores.insert(0, author);
        cores.of(0).view = install.new;
        cores.of(0).change.last = Some(install);
        cores.of(0).handle(2, join);
        assert!(cores.of(0).is_suspect(2) && cores.of(0).change.gone.is_empty());
    }

    #[test]
    fn gone__of_a_life_that_never_came_is_heard_and_that_of_a_life_before_is_not() {
        let mut cores = Cores::open();
        cores.of(0).view = view(2);
        cores.of(0).change.last = Some(install(2, &[2]));
        let gone = |life, view| Control::Gone(Gone { life, view, promised: 0, standing: None });
        for gone in [gone(0, view(1)), gone(LIFE - 1, ViewId::default())] {
            cores.of(0).handle(2, gone);
            assert!(!cores.of(0).is_suspect(2));
        }
        cores.of(0).handle(2, gone(LIFE, ViewId::default()));
        assert!(cores.of(0).is_suspect(2) && cores.of(0).change.gone[&2].standing.is_some());
    }

    #[test]
    fn enter__a_rank_that_joins_again_is_suspected_no_more_by_any_member() {
        let mut cores = Cores::open();
        let gone = cores.of(2).last_word();
        for rank in [0, 1] {
            cores.of(rank).handle(2, Control::Gone(gone.clone()));
        }
        *cores.of(2) = Core::new(2, Vec::new(), OPTIONS);
        cores.go_on(|_, _, _| true);
        cores.of(2).join(LIFE, vec![0]);
        cores.go_on(|_, _, _| true);
        for core in cores.cores.values() {
            assert!(core.members == [0, 1, 2] && core.change.suspects.is_empty());
        }
    }

    #[test]
    fn excluded__forgets_early_messages_of_no_later_view() {
        let mut cores = Cores::joiner(2);
        let submit = |epoch| Control::Submit { view: view(epoch), number: 0, data: Vec::new() };
        let kept = |core: &Core| core.early.values().map(Vec::len).sum::<usize>();
        cores.of(2).handle(1, submit(4));
        cores.of(2).handle(1, submit(6));
        cores.of(2).handle_cast(1, 1, &[7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(kept(cores.of(2)), 3);
        for (epoch, left) in [(3, 3), (4, 2), (6, 1), (7, 0)] {
            cores.of(2).handle(0, Control::Excluded { view: view(epoch) });
            assert_eq!(kept(cores.of(2)), left, "after view {epoch}");
        }
    }

    #[test]
    fn numbers__of_a_peer_are_bounded() {
        let mut cores = Cores::open();
        let view = cores.of(1).view;
        // A place that no member can have reached, or that all have passed.
        cores.of(0).handle(2, Control::Join { rank: 3, life: LIFE });
        let stamp_of = cores.of(0).change.promised;
        let standing = Standing { next: u64::MAX, slots: Vec::new(), spare: None, accepted: None };
        cores.of(0).handle(2, Control::State { view, stamp: stamp_of, standing });
        assert_eq!(cores.of(0).change.attempt.as_ref().map(|a| a.states.len()), Some(1));
        let answer = Control::Answer { view, place: 0, next: u64::MAX, holds: false };
        for _ in 0..3 {
            cores.of(1).handle(2, answer.clone());
        }
        assert_eq!(cores.of(1).wait.innocent, [2]);
        // The last state of a member is as short as its own rule says.
        let slots = vec![(0, slot(vec![0; HANDED_MAX]))];
        let standing = Some(Standing { next: 0, slots, spare: None, accepted: None });
        cores.of(1).handle(2, Control::Gone(Gone { life: 0, view, promised: 0, standing }));
        assert!(cores.of(1).is_suspect(2) && cores.of(1).change.gone[&2].standing.is_none());
    }

    #[test]
    fn flush__after_the_greatest_stamp_no_attempt_has_a_lesser_one() {
        let mut cores = Cores::open();
        let (view, next) = (cores.of(1).view, cores.of(1).next);
        let flush = Control::Flush { view, stamp: u32::MAX, next, held: Vec::new() };
        cores.of(1).handle(2, flush);
        cores.of(1).suspect(0, true, true);
        assert_eq!(cores.of(1).change.promised, u32::MAX);
        assert!(cores.of(1).change.attempt.is_none());
    }
}
