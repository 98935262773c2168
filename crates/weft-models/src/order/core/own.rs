//! The messages of a member, and the slots that they are packed in.

use crate::order::pack::Outgoing;
use crate::order::wire::{Placed, Slot};
use std::collections::VecDeque;

/// A slot of this member that has not been delivered.
struct Own {
    number: u64,
    /// Empty once it has been sent with its place.
    data: Vec<u8>,
    /// Number of messages that end in it.
    ends: usize,
    place: Option<u64>,
    sent: bool,
}

/// The messages of a member that are not delivered.
#[derive(Default)]
pub(in crate::order) struct Owned {
    pub outgoing: Outgoing,
    slots: VecDeque<Own>,
    /// Number of the next slot.
    number: u64,
    /// Bytes of data in a slot; `None` until the view has its multicast group.
    pub room: Option<usize>,
    /// Rank and key of the counter of places.
    pub counter: Option<(u32, u64)>,
    /// True while a ticket is on its way.
    pub asking: bool,
    /// True while slots are kept that have a place, for tests.
    pub holds_back: bool,
    /// True while messages are packed.
    pub filling: bool,
}

impl Owned {
    /// Returns the number of slots.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Begins a view: all messages are packed anew.
    pub fn begin(&mut self, counter: Option<(u32, u64)>) {
        self.counter = counter;
        self.outgoing.begin_anew();
        self.slots.clear();
        self.asking = false;
        self.room = None;
    }

    /// Packs at most `most` slots; returns their number.
    pub fn pack(&mut self, most: usize) -> u64 {
        let room = self.room.unwrap_or(0);
        let mut count = 0;
        while count < most as u64 {
            let Some((data, ends)) = self.outgoing.pack(room) else { break };
            let number = self.number;
            self.number += 1;
            self.slots.push_back(Own { number, data, ends, place: None, sent: false });
            count += 1;
        }
        count
    }

    /// Notes that a slot is handed in, without a place; returns its number and data.
    pub fn hand_in(&mut self, at: usize) -> Option<(u64, Vec<u8>)> {
        let own = self.slots.get_mut(at)?;
        own.sent = true;
        Some((own.number, own.data.clone()))
    }

    /// Gives places to the slots that have none, in order.
    pub fn take_places(&mut self, places: impl Iterator<Item = u64>) {
        let waiting = self.slots.iter_mut().filter(|own| own.place.is_none());
        for (place, own) in places.zip(waiting) {
            own.place = Some(place);
        }
    }

    /// Takes the data of a slot if it has a place below `end` and is not sent; it is sent now.
    pub fn placed(&mut self, at: usize, me: u32, end: u64) -> Option<Placed> {
        let own = self.slots.get_mut(at).filter(|own| !own.sent)?;
        let place = own.place.filter(|&place| place < end)?;
        own.sent = true;
        let data = std::mem::take(&mut own.data);
        Some((place, Slot { sender: me, number: own.number, data }))
    }

    /// Returns the slots that have a place and are not sent.
    pub fn unsent(&self, me: u32) -> impl Iterator<Item = Placed> + '_ {
        self.slots.iter().filter(|own| !own.sent).filter_map(move |own| {
            let slot = Slot { sender: me, number: own.number, data: own.data.clone() };
            Some((own.place?, slot))
        })
    }

    /// True if this member has a place and has not sent its slot, or may get it.
    pub fn holds(&self, place: u64, base: u64) -> bool {
        let holds = |own: &Own| own.place == Some(place) && !own.sent;
        self.slots.iter().any(holds) || self.asking && place >= base
    }

    /// Ends a slot that is delivered; returns the number of messages that end in it.
    pub fn delivered(&mut self, number: u64) -> usize {
        let own = self.slots.front().filter(|own| own.number == number).map(|own| own.ends);
        if own.is_some() {
            self.slots.pop_front();
        }
        own.unwrap_or(0)
    }
}
