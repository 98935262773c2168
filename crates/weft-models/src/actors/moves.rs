//! Objects that move between ranks, and messages that follow them.
//!
//! An object's old rank forwards to where it went, on the same way as the object itself, which
//! therefore is there first. A rank that knows nothing of an object asks its home, which was there
//! first and so knows where it went. Numbers of moves say which of two places is newer.

use super::entry::Entry;
use super::loads::Balanced;
use super::runtime::Inner;
use super::wire::{Found, Note, Packed};
use crate::net::Net;

impl<N: Net> Inner<N> {
    /// Sends an object to another rank.
    pub fn depart(&self, entry: &Entry, array: u16, element: u32, to: usize) {
        if to == self.net.rank() {
            return;
        }
        let heard = entry.casts.borrow().heard;
        let moves = entry.places.borrow().get(&element).map_or(0, |(_, moves)| *moves) + 1;
        let packed = match entry.store.pack(element, moves, heard) {
            // The object was to move twice in a turn.
            None => return,
            Some(Err(why)) => {
                return self
                    .fault(Some((array, element)), format!("its state has no bytes: {why}"));
            }
            Some(Ok(packed)) => packed,
        };
        entry.places.borrow_mut().insert(element, (to as u32, moves));
        entry.casts.borrow_mut().owe(element, moves, packed.heard);
        self.note(to, &Note::Move(packed));
        entry.rounds.borrow_mut().moved();
        self.look_at_rounds(entry, array);
    }

    /// Takes an object that comes from another rank.
    pub fn arrive(&self, entry: &Entry, from: usize, packed: &Packed) {
        let Packed { array, element, moves, .. } = *packed;
        if let Err(why) = entry.store.unpack(packed) {
            return self.fault(Some((array, element)), format!("its state cannot be read: {why}"));
        }
        let (rank, ranks) = (self.net.rank(), self.net.size());
        entry.places.borrow_mut().insert(element, (rank as u32, moves));
        let home = entry.shape.home(element, ranks);
        if home != from {
            self.tell_place(home, entry, array, element);
        }
        let heard = entry.casts.borrow().heard;
        self.note(from, &Note::Moved { array, element, moves, heard });
        entry.rounds.borrow_mut().moved();
        self.look_at_rounds(entry, array);
    }

    /// Takes the place of an object, if it is newer than the one that is known.
    pub fn found(&self, found: Found) {
        let Found { array, element, rank, moves } = found;
        let Some(entry) = self.entry(array) else { return };
        let mut places = entry.places.borrow_mut();
        let known = places.get(&element).map_or(0, |(_, moves)| *moves);
        if moves > known && rank as usize != self.net.rank() {
            places.insert(element, (rank, moves));
        }
    }

    /// Moves the objects that a plan takes from this rank, and notes the places of others.
    pub fn take_plan(&self, moves: &[(u16, u32, u32, u32)], (before, after): (f64, f64)) {
        let balanced = Balanced { moved: moves.len() as u64, before, after };
        self.collected.balanced.set(balanced);
        for &(array, element, rank, moves) in moves {
            let Some(entry) = self.entry(array) else { continue };
            match entry.rank_of(element, self.net.size()) == self.net.rank() {
                true => self.depart(&entry, array, element, rank as usize),
                false => self.found(Found { array, element, rank, moves }),
            }
        }
    }
}
