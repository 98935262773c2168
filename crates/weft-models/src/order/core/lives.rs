//! The lives of ranks: ranks join, end, and join again.
//!
//! A rank may end and join again while messages about the member that it was are on their way. So
//! each handle by which it joins is a *life* with a number, views name the lives that join, and a
//! life speaks only for itself: its own last word holds its promises.

use super::{Action, Core};
use crate::channel::MESSAGE_MAX;
use crate::order::penalty::Penalties;
use crate::order::wire::{Control, Gone, Install, Placed, Standing, ViewId};
use crate::order::OrderError;
use std::collections::{BTreeMap, BTreeSet};

/// Most bytes of slots that a member hands to each other one when it ends.
pub(super) const HANDED_MAX: usize = 1 << 20;
/// Longest state for a new member, whose message has its view as well.
const SNAPSHOT_MAX: usize = MESSAGE_MAX - (1 << 20);

/// Ranks that may not join, or not yet.
#[derive(Default)]
pub(in crate::order) struct Reach {
    /// Ranks that live, as far as is known, and that the network below has given up for ever.
    pub lost: BTreeSet<u32>,
    /// Ranks that cannot join, each with a member that has given it up.
    pub unreachable: BTreeMap<u32, u32>,
    pub penalties: Penalties,
}

/// True if a member may hand its last state to all others.
pub(in crate::order) fn is_short(standing: &Standing) -> bool {
    let lens = standing.slots.iter().map(|(_, slot)| slot.data.len() + size_of::<Placed>());
    lens.sum::<usize>() <= HANDED_MAX
}

impl Core {
    /// Asks to become a member of a group that has these members, as a life of this rank.
    pub fn join(&mut self, life: u64, contacts: Vec<u32>) {
        self.change.joining.life = life;
        self.change.joining.contacts = contacts;
        self.ask_to_join();
    }

    /// Asks the next rank that this one may ask.
    pub(super) fn ask_to_join(&mut self) {
        let suspects = &self.change.suspects;
        self.change.joining.contacts.retain(|rank| !suspects.contains_key(rank));
        let Some(&contact) = self.change.joining.contacts.first() else {
            return self.end(OrderError::NobodyToJoin);
        };
        self.change.joining.contacts.rotate_left(1);
        self.post(contact, Control::Join { rank: self.me, life: self.change.joining.life });
    }

    pub(super) fn on_join(&mut self, from: u32, rank: u32, life: u64) {
        if self.ended.is_some() || self.members.is_empty() {
            return self.post(rank, Control::Over);
        }
        if self.change.reach.lost.contains(&rank) {
            // The rank is out of reach: the member that has passed its wish on tells it.
            return self.post(from, Control::Unreachable { rank, of: self.me });
        }
        if let Some(&of) = self.change.reach.unreachable.get(&rank) {
            return self.on_unreachable(rank, of);
        }
        let is_member = self.members.contains(&rank);
        if is_member && (self.view.epoch == 0 || self.life_of(rank).is_some_and(|old| old < life)) {
            // This life begins anew, and has no part in the view.
            self.suspect(rank, true, true);
        }
        if is_member || self.change.reach.penalties.holds(rank, self.patience.now) {
            // A rank that has to wait asks again and again.
            return;
        }
        // A rank that has failed before is given another chance: if it is still out of reach, the
        // next message to it fails.
        self.change.suspects.remove(&rank);
        let known = self.change.joiners.entry(rank).or_default();
        *known = life.max(*known);
        self.consider();
    }

    /// Notes that the network below has given up a rank. Unless the rank's process has ended, the
    /// two never reach each other again.
    pub fn lose(&mut self, rank: u32, certain: bool) {
        if !certain {
            self.change.reach.lost.insert(rank);
        }
        self.suspect(rank, certain, true);
    }

    /// Refuses a rank that wants to join: it and the member `of` have given each other up. The rank
    /// may be this one, which learns of it from a member in its reach.
    pub(super) fn on_unreachable(&mut self, rank: u32, of: u32) {
        if rank == self.me {
            if self.view.epoch == 0 && self.members.is_empty() {
                self.end(OrderError::Unreachable { member: of as usize });
            }
            return;
        }
        self.change.joiners.remove(&rank);
        if !self.change.reach.lost.contains(&rank) {
            self.post(rank, Control::Unreachable { rank, of });
        }
    }

    /// Handles a control that tells a rank which wants to join to wait, or to ask others.
    pub(super) fn on_answer(&mut self, from: u32, answer: &Control) {
        match answer {
            Control::Over => {
                self.change.joining.contacts.retain(|&rank| rank != from);
                self.ask_to_join();
            }
            Control::TooLong => self.end(OrderError::TooLong),
            Control::Excluded { view } => {
                // The rank asks again.
                self.change.joining.refused = self.change.joining.refused.max(view.epoch);
                let refused = self.change.joining.refused;
                self.early.forget(refused);
            }
            _ => {}
        }
    }

    /// Tells a rank, which has named a view, that this one is in an earlier view.
    pub(super) fn tell_lag(&mut self, to: u32, asked: u32) {
        if self.members.is_empty() {
            self.change.joining.refused = self.change.joining.refused.max(asked);
        }
        let (view, next, life) = (self.view, self.store.next, self.change.joining.life);
        self.post(to, Control::Lag { view, next, life, asked });
    }

    /// Handles the word of a rank that it is in an earlier view than this one.
    pub(super) fn on_lag(&mut self, from: u32, view: ViewId, next: u64, life: u64) {
        if view.epoch > 0 || life == 0 {
            if self.bring_up(from, view, next) && self.change.attempt.is_some() {
                self.begin();
            }
            return;
        }
        if !self.members.contains(&from) {
            return;
        }
        // The rank wants to join. If its life is the member, the author of this view has failed
        // before it sent the state; that life enters no view up to this one, and is not needed.
        match self.life_of(from) {
            Some(known) if known == life => {
                let never_came = self.never_came();
                self.ended_in(from, never_came);
            }
            Some(known) if known > life => {}
            // The member was a life before, whose last state is in its own word.
            _ => self.suspect(from, true, true),
        }
    }

    /// Returns the life of a member that has joined with this view; `None` for one that was there
    /// before.
    pub(super) fn life_of(&self, rank: u32) -> Option<u64> {
        self.change.last.as_ref().and_then(|install| install.life_of(rank))
    }

    /// True if a rank that was a member of the view of this number is the same life in this view.
    pub(super) fn is_of_life(&self, rank: u32, epoch: u32) -> bool {
        let is_next = epoch.checked_add(1) == Some(self.view.epoch);
        let was_there = is_next && self.life_of(rank).is_none();
        self.members.contains(&rank) && (epoch >= self.view.epoch || was_there)
    }

    /// The last state of a member that has not entered this view.
    pub(super) fn never_came(&self) -> Gone {
        let (view, next) = (self.view, self.store.base);
        let standing = Standing { next, slots: Vec::new(), spare: None, accepted: None };
        Gone { life: 0, view, promised: 0, standing: Some(standing) }
    }

    /// True if the end is that of the life which is the member of this view, or of a later one.
    fn is_end_of_member(&self, from: u32, gone: &Gone) -> bool {
        match (self.life_of(from), gone.view.epoch) {
            // The life has never come.
            (Some(life), 0) => life == gone.life,
            (Some(_), epoch) => epoch >= self.view.epoch,
            // The members of the first view have opened the group.
            (None, 0) => self.view.epoch <= 1 && gone.life == 0,
            // The member was in the view before, too.
            (None, epoch) => epoch + 1 >= self.view.epoch,
        }
    }

    pub(super) fn on_gone(&mut self, from: u32, mut gone: Gone) {
        gone.standing = gone.standing.filter(is_short);
        if !self.members.contains(&from) {
            if self.change.joiners.get(&from).is_some_and(|&life| life > gone.life) {
                return;
            }
        } else if !self.is_end_of_member(from, &gone) {
            // An end of another life.
            return;
        }
        self.ended_in(from, gone);
    }

    /// Notes the end of a rank, and the last state of the member that it was.
    fn ended_in(&mut self, from: u32, gone: Gone) {
        let gone = if gone.view.epoch < self.view.epoch { self.never_came() } else { gone };
        let is_later = |known: &Gone| {
            known.view.epoch < gone.view.epoch
                || known.view == gone.view && known.standing.is_none()
        };
        if self.change.gone.get(&from).is_none_or(is_later) {
            self.change.gone.insert(from, gone);
        }
        match self.change.suspects.get(&from) {
            // The member was suspected before, and is not needed now.
            Some(true) => self.consider(),
            _ => self.suspect(from, true, true),
        }
    }

    /// Takes the state of the program at the beginning of this view, for new members.
    pub fn snapshot_taken(&mut self, snapshot: &[u8]) {
        let Some(install) = self.change.last.clone() else { return };
        let delivered = self.store.delivered;
        for rank in std::mem::take(&mut self.change.welcome) {
            if snapshot.len() > SNAPSHOT_MAX {
                // The rank ends, and is no member in the next view.
                self.post(rank, Control::TooLong);
                self.suspect(rank, true, true);
                continue;
            }
            let (install, snapshot) = (install.clone(), snapshot.to_vec());
            self.post(rank, Control::Welcome { install, delivered, snapshot });
        }
    }

    pub(super) fn on_welcome(
        &mut self,
        from: u32,
        install: Install,
        delivered: u64,
        snapshot: Vec<u8>,
    ) {
        let Some(life) = install.life_of(self.me) else { return };
        if self.ended.is_some() {
            let gone = self.last_word();
            return self.post(from, Control::Gone(gone));
        }
        if self.view.epoch > 0 || install.new.epoch <= self.change.joining.refused {
            return;
        }
        if life != self.change.joining.life {
            // The view has a life before, which may have been there.
            return self
                .post(from, Control::Join { rank: self.me, life: self.change.joining.life });
        }
        if let Some(&of) =
            install.members.iter().find(|&rank| self.change.reach.lost.contains(rank))
        {
            // This rank would, as a member, ask the others to exclude that one.
            self.end(OrderError::Unreachable { member: of as usize });
            let gone = self.last_word();
            return self.post(from, Control::Gone(gone));
        }
        self.actions.push_back(Action::Restore { snapshot });
        (self.view, self.members) = (install.new, install.members.clone());
        self.own.counter = install.counter;
        self.store.join(install.base, delivered);
        self.keeping.join(install.base);
        self.safe.begin(install.base);
        self.change.joining.contacts.clear();
        self.change.last = Some(install);
        // Ends that were heard of before may be of lives before.
        for (rank, gone) in std::mem::take(&mut self.change.gone) {
            if self.members.contains(&rank) {
                self.change.suspects.remove(&rank);
                self.on_gone(rank, gone);
            }
        }
        self.show_view(&[], Vec::new());
    }

    /// Returns the last state of this member, for the others.
    pub fn last_word(&self) -> Gone {
        let slots = self.store.slots_from(self.store.stable, &[]);
        let standing = Standing {
            next: self.store.next,
            slots,
            spare: None,
            accepted: self.change.accepted.clone(),
        };
        let standing = Some(standing).filter(is_short);
        Gone {
            life: self.change.joining.life,
            view: self.view,
            promised: self.change.promised,
            standing,
        }
    }

    /// Returns the ranks that are told of this member's end: the others, or those that may let it
    /// in.
    pub fn heirs(&self) -> Vec<u32> {
        let all = self.members.iter().chain(&self.change.joining.contacts).copied();
        all.filter(|&rank| rank != self.me).collect()
    }
}
