//! Memory that peers share for unexpected messages.
//!
//! A peer gets no more of it than it leaves to others, as queues share the buffer of a switch
//! (Choudhury and Hahne, Dynamic queue length thresholds, 1998). Of `n` peers that flood, each
//! takes at most `1 / (n + 1)` of the room. Some is always left for a peer that has none.

use crate::id::PeerId;
use crate::time::Instant;
use alloc::collections::VecDeque;

/// The memory of an endpoint for unexpected messages, in bytes.
#[derive(Debug)]
pub struct Budget {
    max: u64,
    used: u64,
    /// Peers that were refused room, in turn.
    short: VecDeque<PeerId>,
}

/// A peer's share of the budget here, and this endpoint's share at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Bytes taken.
    room: u64,
    /// True while it waits for room: see [`Budget::next_short`].
    short: bool,
    /// Announcements that the peer may have here beyond the number that every peer may have.
    pub granted: u32,
    /// Announcements that this endpoint may have at the peer beyond the number that every peer may
    /// have.
    pub allowed: u32,
    /// True if its credit was to grow, but room was missing.
    pub wants_credit: bool,
    /// True if a message of it left the store since `full_since`.
    pub taken: bool,
    /// True once the lack of memory has been reported.
    pub reported: bool,
    /// Time since when there has been no room for it; `FAR` if there is room.
    pub full_since: Instant,
    /// Number of its messages that clients of the driver keep, and their bytes.
    pub kept: (u64, u64),
    /// The message that was first in the queue to it when that was full, and the time.
    pub stuck: Option<(u32, Instant)>,
}

impl Default for Share {
    fn default() -> Share {
        Share {
            room: 0,
            short: false,
            granted: 0,
            allowed: 0,
            wants_credit: false,
            taken: false,
            reported: false,
            full_since: Instant::FAR,
            kept: (0, 0),
            stuck: None,
        }
    }
}

impl Budget {
    /// Makes a budget of `max` bytes.
    pub fn new(max: u64) -> Budget {
        Budget { max, used: 0, short: VecDeque::new() }
    }

    /// Returns the bytes taken.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Takes `bytes` for a peer, if as much is left for others as the peer then has. If not, the
    /// peer waits for its turn.
    pub fn take(&mut self, peer: PeerId, share: &mut Share, bytes: u64) -> bool {
        let (all, own) = (self.used.saturating_add(bytes), share.room.saturating_add(bytes));
        if own <= self.max.saturating_sub(all) {
            (self.used, share.room) = (all, own);
            return true;
        }
        if !core::mem::replace(&mut share.short, true) {
            self.short.push_back(peer);
        }
        false
    }

    /// Gives back bytes that a peer took.
    pub fn give(&mut self, share: &mut Share, bytes: u64) {
        let bytes = bytes.min(share.room);
        self.used -= bytes;
        share.room -= bytes;
    }

    /// Returns the peer that has waited longest for room: it may ask again.
    pub fn next_short(&mut self) -> Option<PeerId> {
        self.short.pop_front()
    }
}

impl Share {
    /// Returns the bytes of the budget that the peer has.
    pub fn taken_bytes(&self) -> u64 {
        self.room
    }

    /// Ends the turn of the peer that [`Budget::next_short`] named.
    pub fn called(&mut self) {
        self.short = false;
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn fill(budget: &mut Budget, peer: u32, share: &mut Share) -> u64 {
        let before = share.room;
        while budget.take(PeerId(peer), share, 10) {}
        share.room - before
    }

    #[test]
    fn take__leaves_as_much_to_others() {
        let mut budget = Budget::new(1200);
        let mut shares = [Share::default(); 3];
        assert_eq!(fill(&mut budget, 0, &mut shares[0]), 600);
        assert_eq!(fill(&mut budget, 1, &mut shares[1]), 300);
        assert_eq!(fill(&mut budget, 2, &mut shares[2]), 150);
        assert_eq!(budget.used(), 1050);
        // Bytes that one peer gives back are free for another.
        budget.give(&mut shares[0], 600);
        assert_eq!([budget.next_short(), budget.next_short()], [Some(PeerId(0)), Some(PeerId(1))]);
        shares[1].called();
        assert_eq!(fill(&mut budget, 1, &mut shares[1]), 220);
        assert_eq!(budget.next_short(), Some(PeerId(2)));
        assert_eq!(budget.next_short(), Some(PeerId(1)));
        assert_eq!(budget.next_short(), None);
    }

    #[test]
    fn give__never_more_than_was_taken() {
        let (mut budget, mut share) = (Budget::new(100), Share::default());
        assert!(budget.take(PeerId(0), &mut share, 50));
        assert!(!budget.take(PeerId(0), &mut share, u64::MAX));
        budget.give(&mut share, 60);
        assert_eq!((budget.used(), share.room), (0, 0));
        assert!(!Budget::new(0).take(PeerId(0), &mut Share::default(), 1));
    }
}
