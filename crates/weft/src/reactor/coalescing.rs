//! Coalescing: many small messages to one peer in quick succession (a row) leave in trains
//! (`docs/adr/0020-coalesced-messages-leave-in-trains.md`).

use super::{Reactor, BURST};
use std::time::Duration;
use weft_core::{Instant, PeerId};

/// Longest wait of a message for later ones while its sender goes on; a longer pause ends the row.
const COALESCE_FOR: Duration = Duration::from_micros(20);
/// Number of first messages of a row that leave at once, one by one.
const UNCOALESCED: u8 = 16;

/// Messages that wait to leave with others.
pub(super) struct Coalesced {
    /// True if packets were left to the next round, which must come before any sleep.
    pub deferred_round: bool,
    /// Time until which messages wait for later ones.
    pub coalesce_until: Instant,
}

/// The row to which the last message to a peer belongs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coalescing {
    len: u8,
    last: Instant,
    polls: u32,
}

impl Coalescing {
    /// Counts a message that is sent now. It begins a new row if the program has polled since the
    /// last message (`polls` counts its polls), since it may wait for an answer then. True if the
    /// message is to wait for later ones.
    #[inline]
    fn count(&mut self, now: Instant, polls: u32) -> bool {
        let goes_on = polls == self.polls && now < self.last + COALESCE_FOR;
        self.len = if goes_on { self.len.saturating_add(1) } else { 1 };
        (self.last, self.polls) = (now, polls);
        self.len > UNCOALESCED
    }

    /// Continues the row: the polls until now only waited for room.
    fn keep(&mut self, now: Instant, polls: u32) {
        (self.last, self.polls) = (now, polls);
    }
}

impl Reactor {
    /// Counts a message to a peer into its row. True if it is to wait for later ones.
    #[inline]
    pub(super) fn is_coalesced(&mut self, peer: PeerId) -> bool {
        let (now, polls) = (self.receiver.time.now, self.polling.polls);
        let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) else { return false };
        route.coalescing.count(now, polls) && self.receiver.engine.peer(peer).sends_trains()
    }

    /// Continues the row of a peer after polls that only waited for room.
    pub(crate) fn keep_coalescing(&mut self, peer: PeerId) {
        let (now, polls) = (self.receiver.time.now, self.polling.polls);
        if let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) {
            route.coalescing.keep(now, polls);
        }
    }

    /// Leaves a message to a peer in its queue until enough are there for a train, or
    /// `COALESCE_FOR` has passed, at most until the next round of progress.
    pub(super) fn coalesce(&mut self, peer: PeerId) {
        let queued = self.receiver.engine.peer(peer).queued();
        self.coalesced.deferred_round = !(queued.is_multiple_of(BURST)
            || self.receiver.time.now >= self.coalesced.coalesce_until);
        if !self.coalesced.deferred_round {
            self.coalesced.coalesce_until = self.receiver.time.now + COALESCE_FOR;
            self.flush();
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    /// Counts `count` messages at intervals of `us` without a poll. True if the last waits.
    fn after(coalescing: &mut Coalescing, count: u64, us: u64) -> bool {
        let begin = coalescing.last;
        (1..=count).fold(false, |_, i| {
            coalescing.count(begin + Duration::from_micros(us * i), coalescing.polls)
        })
    }

    #[test]
    fn count__the_first_of_a_row_leave_at_once() {
        let mut coalescing = Coalescing { last: at(1000), ..Coalescing::default() };
        assert!(!after(&mut coalescing, UNCOALESCED.into(), 5));
        assert!(after(&mut coalescing, 1, 5) && after(&mut coalescing, 1000, 5));
    }

    #[test]
    fn count__messages_sent_now_and_then_or_with_polls_between_are_not_coalesced() {
        let mut coalescing = Coalescing { last: at(1000), ..Coalescing::default() };
        assert!(!after(&mut coalescing, 1000, 20), "slowly");
        assert!(after(&mut coalescing, 100, 1) && !after(&mut coalescing, 1, 20), "a pause");
        assert!(after(&mut coalescing, 100, 1));
        assert!(!coalescing.count(coalescing.last, coalescing.polls + 1), "a look");
        assert!(after(&mut coalescing, 100, 1));
        coalescing.keep(coalescing.last + Duration::from_millis(1), coalescing.polls + 7);
        assert!(after(&mut coalescing, 1, 1), "looks that made room");
    }
}
