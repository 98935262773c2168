//! The slots of a view in their order, as far as a member has them.

use crate::order::pack::Incoming;
use crate::order::places::Places;
use crate::order::wire::{Placed, Slot};
use std::collections::BTreeMap;

/// The slots of a view, and how far they are delivered.
#[derive(Default)]
pub(in crate::order) struct Store {
    /// First place of this view: that of the counter's zero.
    pub base: u64,
    /// The next place to deliver.
    pub next: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// All members have delivered what is below.
    pub stable: u64,
    /// Slots from `stable` on.
    pub slots: Places,
    pub unplaced: Unplaced,
    pub incoming: Incoming,
    /// The place up to which the keeper knows that this member has delivered.
    reported: u64,
    /// True while the program has too many messages that it has not received.
    pub paused: bool,
}

/// A slot that was delivered.
pub(in crate::order) struct Taken {
    pub sender: u32,
    pub number: u64,
    /// The place of its first message.
    pub first: u64,
    /// False if it was malformed.
    pub is_whole: bool,
}

impl Store {
    /// Begins a view at a place.
    pub fn begin(&mut self, base: u64, stable: u64) {
        self.base = base;
        self.stable = stable.max(self.stable);
        self.incoming.clear();
        self.unplaced = Unplaced::default();
    }

    /// Begins the first view of a member that joins, when so many messages have been delivered.
    pub fn join(&mut self, base: u64, delivered: u64) {
        (self.base, self.next, self.stable, self.delivered) = (base, base, base, delivered);
    }

    /// True if a slot behind one that is missing is here.
    pub fn has_gap(&self) -> bool {
        self.slots.last().is_some_and(|place| place >= self.next)
    }

    /// `None` for a place that is delivered, or beyond what any member may send.
    pub fn fits(&self, place: u64, window: u64) -> Option<()> {
        (self.next..self.next + 4 * window).contains(&place).then_some(())
    }

    /// Keeps slots from the next one on, below a place.
    pub fn add_next(&mut self, slots: Vec<Placed>, end: u64) {
        // All places from the receiver's on are there: one beyond them is not the author's.
        let end = self.next.saturating_add(slots.len() as u64).min(end);
        for (place, slot) in slots {
            if (self.next..end).contains(&place) {
                self.slots.insert_new(place, slot);
            }
        }
    }

    /// Delivers the content of the next place, which stays in the store: calls `each` with sender,
    /// place and bytes of each message. `None` if the content is not here.
    pub fn deliver(&mut self, mut each: impl FnMut(u32, u64, Vec<u8>)) -> Option<Taken> {
        let Store { slots, next, incoming, delivered, .. } = self;
        let slot = slots.get(*next)?;
        *next += 1;
        let (sender, number, first) = (slot.sender, slot.number, *delivered);
        let is_whole = incoming.unpack(sender, &slot.data, |bytes| {
            each(sender, *delivered, bytes);
            *delivered += 1;
        });
        Some(Taken { sender, number, first, is_whole })
    }

    /// True if so many slots were delivered that the keeper is to know it.
    pub fn is_report_due(&self, window: u64) -> bool {
        self.next - self.reported >= window / 4
    }

    /// Returns the next place, of which the keeper is told now.
    pub fn report(&mut self) -> u64 {
        self.reported = self.next;
        self.next
    }

    /// Notes that all members have delivered what is below a place. False if that is no news, or
    /// cannot be.
    pub fn set_stable(&mut self, stable: u64) -> bool {
        let is_news = stable > self.stable && stable <= self.next;
        if is_news {
            self.stable = stable;
            self.slots.forget_below(stable);
        }
        is_news
    }

    /// Returns the slots from a place on, but for those that are known.
    pub fn slots_from(&self, from: u64, known: &[u64]) -> Vec<Placed> {
        let all = self.slots.range(from..u64::MAX).filter(|(place, _)| !known.contains(place));
        all.map(|(place, slot)| (place, slot.clone())).collect()
    }
}

/// Data without a place, and places without data, where senders cast before they are placed.
#[derive(Default)]
pub(in crate::order) struct Unplaced {
    data: BTreeMap<(u32, u64), Vec<u8>>,
    places: BTreeMap<u64, (u32, u64)>,
}

impl Unplaced {
    /// True if places wait for their data.
    pub fn has_places(&self) -> bool {
        !self.places.is_empty()
    }

    /// Keeps data of this member.
    pub fn keep(&mut self, sender: u32, number: u64, data: Vec<u8>) {
        self.data.insert((sender, number), data);
    }

    /// Forgets data that have got their place.
    pub fn forget(&mut self, sender: u32, number: u64) {
        self.data.remove(&(sender, number));
    }

    /// Takes data of a member; returns their slot if the place has come before. Otherwise at most
    /// so many data are kept.
    pub fn take_data(&mut self, slot: Slot, most: u64) -> Option<(u64, Slot)> {
        let of = (slot.sender, slot.number);
        let place = self.places.iter().find(|(_, waits)| **waits == of).map(|(&place, _)| place);
        if let Some(place) = place {
            self.places.remove(&place);
            return Some((place, slot));
        }
        if (self.data.len() as u64) < most {
            self.data.insert(of, slot.data);
        }
        None
    }

    /// Takes the place of data; returns their slot if they have come before.
    pub fn take_place(&mut self, place: u64, sender: u32, number: u64) -> Option<Slot> {
        match self.data.remove(&(sender, number)) {
            Some(data) => Some(Slot { sender, number, data }),
            None => {
                self.places.insert(place, (sender, number));
                None
            }
        }
    }
}
