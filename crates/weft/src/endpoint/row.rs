//! Rows of messages: many small ones to one peer, one soon behind the other. They leave in trains
//! (`docs/adr/0020-rows-leave-in-trains.md`).

use super::driver::Driver;
use super::transmit::BURST;
use std::time::Duration;
use weft_core::{Instant, PeerId};

/// How long a message waits for others while its sender goes on sending, and what parts two rows.
const COMPANY: Duration = Duration::from_micros(20);
/// Messages of a row that leave at once, each by itself.
const ALONE: u8 = 16;

/// The row that the last message to a peer belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    len: u8,
    last: Instant,
    looks: u32,
}

impl Row {
    /// Counts a message that is sent now. It begins a row if the program has looked for news since
    /// the last one, `looks` times in all: then it may wait for an answer. True if it is to wait
    /// for others.
    #[inline]
    fn count(&mut self, now: Instant, looks: u32) -> bool {
        let goes_on = looks == self.looks && now < self.last + COMPANY;
        self.len = if goes_on { self.len.saturating_add(1) } else { 1 };
        (self.last, self.looks) = (now, looks);
        self.len > ALONE
    }

    /// The row goes on: what was looked for until now was to make room for it.
    fn keep(&mut self, now: Instant, looks: u32) {
        (self.last, self.looks) = (now, looks);
    }
}

impl Driver {
    /// Counts a message to a peer into its row. True if it is to wait for others.
    #[inline]
    pub(super) fn is_in_row(&mut self, peer: PeerId) -> bool {
        let (now, looks) = (self.intake.time.now, self.polling.looks);
        let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) else { return false };
        route.row.count(now, looks) && self.intake.engine.sends_trains(peer)
    }

    /// Looks for news that made room for messages to a peer do not end their row.
    pub(crate) fn keep_row(&mut self, peer: PeerId) {
        let (now, looks) = (self.intake.time.now, self.polling.looks);
        if let Some(Some(route)) = self.paths.routes.get_mut(peer.0 as usize) {
            route.row.keep(now, looks);
        }
    }

    /// Leaves a message to a peer where it is queued: until there are enough for a train, for a
    /// moment while others come, at most until the next round of progress.
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

    /// Messages at these distances without a look, and whether the last waits.
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
