//! Trains that the kernel sends from our memory without copying it.
//!
//! A train built in a slot of its own is lent to the kernel until the peer has acknowledged all of
//! it: only then is nothing of it under way any more, whatever queues lie between. A slot that is
//! written to too early would spoil packets, never forge one: their tags do not fit then. That is
//! why only authenticated trains, whose slots hold nothing secret, are lent.

use super::sys::{self, Pages, Pipe, SockAddr, Socket};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use weft_core::PeerId;

/// Slots; with all of them lent, trains are copied by the kernel again.
const SLOTS: usize = 16;
/// Room for the longest train, in whole pages.
const SLOT: usize = 64 << 10;
/// Below this, copying costs less than passing pages.
pub(super) const LEAST: usize = 32 << 10;

/// Slots for trains, handed out in turn.
pub(super) struct Lender {
    pages: Pages,
    pipe: Pipe,
    /// The trains lent, oldest first.
    lent: VecDeque<Lent>,
    /// Slots not lent; the last one was written to last, so it is in a near cache.
    free: Vec<Slot>,
}

/// A train lent.
struct Lent {
    slot: Slot,
    /// The peer, and the sequence number behind the train; `None` for a peer that is gone.
    until: Option<(PeerId, u32)>,
}

impl Lender {
    /// `None` where the kernel cannot, or has no room for it: all works without.
    pub fn new() -> Option<Lender> {
        if !sys::sends_pages() {
            return None;
        }
        let pages = Pages::map(SLOTS * SLOT).ok()?;
        Some(Lender {
            pages,
            pipe: Pipe::new(SLOT).ok()?,
            lent: VecDeque::with_capacity(SLOTS),
            free: (0..SLOTS).map(Slot).collect(),
        })
    }

    /// A free slot, for a train of `len` bytes.
    pub fn slot(&self, len: usize) -> Option<Slot> {
        self.free.last().copied().filter(|_| len <= SLOT)
    }

    pub fn bytes(&self, slot: Slot) -> &[u8] {
        self.pages.bytes(slot.range())
    }

    pub fn bytes_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.pages.bytes_mut(slot.range())
    }

    /// Sends the first `len` bytes of a slot.
    pub fn send(
        &self,
        slot: Slot,
        len: usize,
        segment: u16,
        socket: &Socket,
        to: &SockAddr,
    ) -> io::Result<()> {
        socket.lend_train(&self.bytes(slot)[..len], segment, to, &self.pipe)
    }

    /// The free slot was sent: a train to `peer`, all of which comes before `until`.
    pub fn lend(&mut self, peer: PeerId, until: u32) {
        let until = Some((peer, until));
        self.lent.extend(self.free.pop().map(|slot| Lent { slot, until }));
    }

    /// The oldest train lent.
    pub fn oldest(&self) -> Option<(PeerId, u32)> {
        self.lent.front()?.until
    }

    /// The oldest train was acknowledged.
    pub fn settle(&mut self) {
        self.free.extend(self.lent.pop_front().map(|train| train.slot));
        while self.lent.front().is_some_and(|train| train.until.is_none()) {
            self.free.extend(self.lent.pop_front().map(|train| train.slot));
        }
    }

    /// Nothing will be acknowledged by this peer.
    pub fn forget(&mut self, peer: PeerId) {
        for train in &mut self.lent {
            train.until = train.until.filter(|&(to, _)| to != peer);
        }
        if self.oldest().is_none() {
            self.settle();
        }
    }
}

#[cfg(test)]
impl Lender {
    pub fn break_pipe(&mut self, fills: bool) {
        self.pipe = Pipe::broken(fills);
    }
}

/// A place for a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(usize);

impl Slot {
    fn range(self) -> Range<usize> {
        self.0 * SLOT..(self.0 + 1) * SLOT
    }
}
