//! Absence: programs that make no progress for a long time, since they compute or only send.

use super::{Reactor, RECV_BUDGET};
use std::time::Duration;
use weft_core::Instant;

/// A program that has made no progress for this time may be one that only sends.
const ONLY_SENDS: Duration = Duration::from_micros(100);
/// Most rounds of progress that are made for such a program.
const ROUNDS_MAX: u32 = 16;
/// Most rounds for which a timeout is deferred.
const DEFERRED_MAX: u32 = 16;

/// The state of a program's absence.
pub(super) struct Absence {
    /// The last round of progress.
    pub round_at: Instant,
    /// True if a round that the program did not ask for did something: the next round it asks for
    /// reports it.
    pub unreported: bool,
    /// True if a thread sleeps on the descriptor, or is about to. An arriving packet wakes it, but
    /// not if another thread has received that packet.
    pub watched: bool,
    /// Consecutive rounds for which a timeout was deferred.
    overdue: u32,
}

impl Absence {
    pub fn new(now: Instant) -> Absence {
        Absence { round_at: now, unreported: false, watched: false, overdue: 0 }
    }

    /// True if the program has been absent for long, and no thread sleeps on the descriptor.
    #[inline]
    pub fn is_long(&self, now: Instant) -> bool {
        now >= self.round_at + ONLY_SENDS && !self.watched
    }

    /// True if a due timeout is to be deferred, since `more` packets have arrived: after an absence
    /// they may hold acknowledgements of packets that would seem lost.
    pub fn defers_timeout(&mut self, more: bool) -> bool {
        let wait = more && self.overdue < DEFERRED_MAX;
        self.overdue = if wait { self.overdue + 1 } else { 0 };
        wait
    }
}

impl Reactor {
    /// Makes rounds of progress for a program that only sends: else it would not learn that its
    /// peer has room again.
    #[cold]
    pub(super) fn poll_for_room(&mut self) {
        self.end_sleep(u64::MAX);
        let mut did = false;
        for _ in 0..ROUNDS_MAX {
            if !self.progress(RECV_BUDGET) {
                break;
            }
            did = true;
        }
        self.absence.unreported = did;
    }

    /// Ends the sleep of a thread, or an absence, after which the links in `ready`, a bit each, may
    /// have packets.
    pub fn end_sleep(&mut self, ready: u64) {
        self.leave_if_copied();
        self.absence.watched = false;
        for (i, link) in self.links.iter_mut().enumerate() {
            link.finish_wait(i >= 64 || ready >> i & 1 != 0);
        }
        self.refresh(ready);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn shall_wait__for_what_has_arrived_and_not_for_ever() {
        let mut absence = Absence::new(Instant(0));
        assert!(!absence.defers_timeout(false));
        for _ in 0..3 {
            assert_eq!(
                (0..100).take_while(|_| absence.defers_timeout(true)).count(),
                DEFERRED_MAX as usize
            );
        }
        assert!(absence.defers_timeout(true));
        assert!(!absence.defers_timeout(false), "nothing more has arrived");
    }

    #[test]
    fn is_long__not_while_a_program_sleeps_on_the_descriptor() {
        let mut absence = Absence::new(Instant(0));
        assert!(!absence.is_long(Instant(99_999)) && absence.is_long(Instant(100_000)));
        absence.watched = true;
        assert!(!absence.is_long(Instant(100_000)));
    }
}
