//! Safe groups: a member delivers its own slots only when a quorum of the view holds them.
//!
//! The witnesses are the lowest members that are a quorum. They tell the sender of a slot when they
//! have it and all before it. A member that takes part in a change of view takes no slot any more,
//! and all quorums have a member in common, so the next view's author learns of each slot that was
//! delivered by its sender.

use super::core::Core;
use super::wire::Control;
use super::Style;
use crate::quorum::least;
use std::collections::{BTreeMap, BTreeSet};

/// The accounts of a safe group.
#[derive(Default)]
pub(super) struct Safe {
    /// This member has all slots below.
    have: u64,
    /// Each witness has all slots below, as far as it has told.
    held: BTreeMap<u32, u64>,
}

impl Core {
    fn witnesses(&self) -> &[u32] {
        &self.members[..least(self.members.len())]
    }

    /// Begins the accounts of a view.
    pub fn begin_safe(&mut self) {
        self.accounts = Safe { have: self.base, held: BTreeMap::new() };
    }

    /// Tells the senders of slots that this member has them.
    pub fn tell_held(&mut self) {
        if !self.safe || !self.is_open() || !self.witnesses().contains(&self.me) {
            return;
        }
        let mut have = self.accounts.have.max(self.next);
        let mut senders = BTreeSet::new();
        // Places below have been delivered, and are in the store until all have them.
        for (_, slot) in self.slots.range(self.accounts.have..have) {
            senders.insert(slot.sender);
        }
        while let Some(slot) = self.slots.get(have) {
            senders.insert(slot.sender);
            have += 1;
        }
        if have == self.accounts.have {
            return;
        }
        self.accounts.have = have;
        senders.remove(&self.me);
        let view = self.view;
        for to in senders {
            self.post(to, Control::Held { view, have });
        }
    }

    /// Notes what a witness has.
    pub fn note_held(&mut self, from: u32, have: u64) {
        let held = self.accounts.held.entry(from).or_default();
        *held = (*held).max(have);
        self.advance();
    }

    /// True if the next slot may be delivered here.
    pub fn may_deliver(&self) -> bool {
        let is_own = |place| self.slots.get(place).is_some_and(|slot| slot.sender == self.me);
        if !self.safe || !is_own(self.next) {
            return true;
        }
        // The sequencer has the slots whose places it tells.
        let gives = |rank: u32| self.style != Style::Ticket && rank == self.keeper();
        let holds = |rank: &u32| self.accounts.held.get(rank).is_some_and(|&h| h > self.next);
        self.witnesses().iter().all(|rank| *rank == self.me || gives(*rank) || holds(rank))
    }
}
