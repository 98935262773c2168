//! Safe groups: a member delivers its own slots only when a quorum of the view holds them.
//!
//! The witnesses are the lowest members that are a quorum. They tell the sender of a slot when they
//! have it and all before it. A member that takes part in a change of view takes no slot any more,
//! and all quorums have a member in common, so the next view's author learns of each slot that was
//! delivered by its sender.

use super::Core;
use crate::order::wire::Control;
use crate::order::Style;
use crate::quorum::least;
use std::collections::{BTreeMap, BTreeSet};

/// The accounts of a safe group.
#[derive(Default)]
pub(super) struct Safe {
    /// The group is a safe one.
    is_on: bool,
    /// This member has all slots below.
    have: u64,
    /// Each witness has all slots below, as far as it has told.
    held: BTreeMap<u32, u64>,
}

impl Safe {
    pub fn new(is_on: bool) -> Safe {
        Safe { is_on, ..Safe::default() }
    }

    /// Begins the accounts of a view at a place.
    pub fn begin(&mut self, base: u64) {
        (self.have, self.held) = (base, BTreeMap::new());
    }
}

impl Core {
    fn witnesses(&self) -> &[u32] {
        &self.members[..least(self.members.len())]
    }

    /// Tells the senders of slots that this member has them.
    pub(super) fn tell_held(&mut self) {
        if !self.safe.is_on || !self.is_open() || !self.witnesses().contains(&self.me) {
            return;
        }
        let mut have = self.safe.have.max(self.store.next);
        let mut senders = BTreeSet::new();
        // Places below have been delivered, and are in the store until all have them.
        for (_, slot) in self.store.slots.range(self.safe.have..have) {
            senders.insert(slot.sender);
        }
        while let Some(slot) = self.store.slots.get(have) {
            senders.insert(slot.sender);
            have += 1;
        }
        if have == self.safe.have {
            return;
        }
        self.safe.have = have;
        senders.remove(&self.me);
        let view = self.view;
        for to in senders {
            self.post(to, Control::Held { view, have });
        }
    }

    /// Notes what a witness has.
    pub(super) fn note_held(&mut self, from: u32, have: u64) {
        let held = self.safe.held.entry(from).or_default();
        *held = (*held).max(have);
        self.advance();
    }

    /// True if the next slot may be delivered here.
    pub(super) fn may_deliver(&self) -> bool {
        let is_own = |place| self.store.slots.get(place).is_some_and(|slot| slot.sender == self.me);
        if !self.safe.is_on || !is_own(self.store.next) {
            return true;
        }
        // The sequencer has the slots whose places it tells.
        let gives = |rank: u32| self.style != Style::Ticket && rank == self.keeper();
        let holds = |rank: &u32| self.safe.held.get(rank).is_some_and(|&h| h > self.store.next);
        self.witnesses().iter().all(|rank| *rank == self.me || gives(*rank) || holds(rank))
    }
}
