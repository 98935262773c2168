//! The part of the lowest member: places of slots, and the account of what all have delivered.

use crate::order::wire::Slot;
use std::collections::{BTreeMap, VecDeque};

/// The places that a member gives, as the sequencer, and what it knows of the others' deliveries.
#[derive(Default)]
pub(super) struct Keeping {
    /// The next place.
    place: u64,
    /// Slots that wait for the window.
    backlog: VecDeque<Slot>,
    /// Places given since the last cast that tells them: senders and numbers.
    untold: Vec<(u32, u64)>,
    /// The places up to which members have delivered.
    next_of: BTreeMap<u32, u64>,
}

impl Keeping {
    /// Begins a view at a place.
    pub fn begin(&mut self, base: u64) {
        self.place = base;
        self.backlog.clear();
        self.untold.clear();
        self.next_of.clear();
    }

    /// Begins the first view of a member that joins.
    pub fn join(&mut self, base: u64) {
        self.place = base;
    }

    /// Takes a slot that is to be placed, behind those that wait.
    pub fn add(&mut self, slot: Slot) {
        self.backlog.push_back(slot);
    }

    /// Gives the next place below `end` to the next slot.
    pub fn next_placed(&mut self, end: u64) -> Option<(u64, Slot)> {
        let place = self.place;
        let slot = if place < end { self.backlog.pop_front()? } else { return None };
        self.place += 1;
        Some((place, slot))
    }

    /// Notes a place of which members are to be told: they have the data.
    pub fn tell(&mut self, sender: u32, number: u64) {
        self.untold.push((sender, number));
    }

    /// Takes the places of which members are to be told, and the first of them.
    pub fn take_untold(&mut self) -> (u64, Vec<(u32, u64)>) {
        let untold = std::mem::take(&mut self.untold);
        (self.place - untold.len() as u64, untold)
    }

    /// Notes what a member has delivered; returns the place below which all have.
    pub fn note(&mut self, rank: u32, next: u64, members: &[u32]) -> u64 {
        let known = self.next_of.entry(rank).or_default();
        *known = (*known).max(next);
        let all = members.iter().map(|member| self.next_of.get(member).copied().unwrap_or(0));
        all.min().unwrap_or(0)
    }
}
