//! Coalescing: many small messages to one peer in quick succession (a row) leave in trains
//! (`docs/adr/0020-rows-leave-in-trains.md`).

use super::driver::Driver;
use super::transmit::BURST;
use std::time::Duration;
use weft_core::{Instant, PeerId};

/// Longest wait of a message for later ones while its sender goes on; a longer pause ends the row.
const COMPANY: Duration = Duration::from_micros(20);
/// Number of first messages of a row that leave at once, one by one.
const ALONE: u8 = 16;

/// The row to which the last message to a peer belongs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    len: u8,
    last: Instant,
    looks: u32,
}

impl Row {
    /// Counts a message that is sent now. It begins a new row if the program has polled since the
    /// last message (`looks` counts its polls), since it may wait for an answer then. True if the
    /// message is to wait for later ones.
    #[inline]
    fn count(&mut self, now: Instant, looks: u32) -> bool {
        let goes_on = looks == self.looks && now < self.last + COMPANY;
        self.len = if goes_on { self.len.saturating_add(1) } else { 1 };
        (self.last, self.looks) = (now, looks);
        self.len > ALONE
    }

    /// Continues the row: the polls until now only waited for room.
    fn keep(&mut self, now: Instant, looks: u32) {
        (self.last, self.looks) = (now, looks);
    }
}

impl Driver {
    /// Counts a message to a peer into its row. True if it is to wait for later ones.
    #[inline]
    pub(super) fn is_in_row(&mut self, peer: PeerId) -> bool {
        let (now, looks) = (self.intake.time.now, self.polling.looks);
        let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) else { return false };
        route.row.count(now, looks) && self.intake.engine.sends_trains(peer)
    }

    /// Continues the row of a peer after polls that only waited for room.
    pub(crate) fn keep_row(&mut self, peer: PeerId) {
        let (now, looks) = (self.intake.time.now, self.polling.looks);
        if let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) {
            route.row.keep(now, looks);
        }
    }

    /// Leaves a message to a peer in its queue until enough are there for a train, or `COMPANY` has
    /// passed, at most until the next round of progress.
    pub(super) fn wait_for_company(&mut self, peer: PeerId) {
        let queued = self.intake.engine.queued(peer);
        self.trains.put_off =
            !(queued.is_multiple_of(BURST) || self.intake.time.now >= self.trains.company_until);
        if !self.trains.put_off {
            self.trains.company_until = self.intake.time.now + COMPANY;
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
    fn after(row: &mut Row, count: u64, us: u64) -> bool {
        let begin = row.last;
        (1..=count).fold(false, |_, i| row.count(begin + Duration::from_micros(us * i), row.looks))
    }

    #[test]
    fn count__the_first_of_a_row_leave_at_once() {
        let mut row = Row { last: at(1000), ..Row::default() };
        assert!(!after(&mut row, ALONE.into(), 5));
        assert!(after(&mut row, 1, 5) && after(&mut row, 1000, 5));
    }

    #[test]
    fn count__who_sends_now_and_then_or_looks_waits_for_nobody() {
        let mut row = Row { last: at(1000), ..Row::default() };
        assert!(!after(&mut row, 1000, 20), "slowly");
        assert!(after(&mut row, 100, 1) && !after(&mut row, 1, 20), "a pause");
        assert!(after(&mut row, 100, 1));
        assert!(!row.count(row.last, row.looks + 1), "a look");
        assert!(after(&mut row, 100, 1));
        row.keep(row.last + Duration::from_millis(1), row.looks + 7);
        assert!(after(&mut row, 1, 1), "looks that made room");
    }
}
