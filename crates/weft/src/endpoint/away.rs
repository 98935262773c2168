//! Programs that do not look for news for long: they compute, or only send.

use super::driver::{Driver, RECV_BUDGET};
use std::time::Duration;
use weft_core::Instant;

/// A program that has not looked for news for so long may be one that only sends.
const ONLY_SENDS: Duration = Duration::from_micros(100);
/// Rounds of progress that are made for it at most.
const LOOKS: u32 = 16;
/// Rounds that a timeout waits for at most.
const OVERDUE: u32 = 16;

/// What is known of it.
pub(super) struct Away {
    /// The last round of progress.
    pub round_at: Instant,
    /// A round that the program did not ask for did something: the next one it asks for says so.
    pub untold: bool,
    /// Somebody sleeps on the descriptor, or is about to: it will be woken by what arrives, and
    /// would not be by what another one has taken in.
    pub watched: bool,
    /// Rounds in a row that a timeout has waited for.
    overdue: u32,
}

impl Away {
    pub fn new(now: Instant) -> Away {
        Away { round_at: now, untold: false, watched: false, overdue: 0 }
    }

    /// Whether the program has been away for long, and nobody is woken by what arrives.
    #[inline]
    pub fn is_long(&self, now: Instant) -> bool {
        now >= self.round_at + ONLY_SENDS && !self.watched
    }

    /// Whether a timeout that is due shall wait, since there is `more` that has arrived: who was
    /// away would take for lost what has long been acknowledged.
    pub fn shall_wait(&mut self, more: bool) -> bool {
        let wait = more && self.overdue < OVERDUE;
        self.overdue = if wait { self.overdue + 1 } else { 0 };
        wait
    }
}

impl Driver {
    /// A program that only sends learns in no other way that its peer has made room.
    #[cold]
    pub(super) fn look_for_room(&mut self) {
        self.look_everywhere();
        let mut did = false;
        for _ in 0..LOOKS {
            if !self.progress(RECV_BUDGET) {
                break;
            }
            did = true;
        }
        self.away.untold = did;
    }

    /// After an absence: the next round reads the clock and looks at every link, whole.
    pub fn look_everywhere(&mut self) {
        self.leave_if_copied();
        self.links.iter_mut().for_each(|link| link.finish_wait());
        self.refresh(u64::MAX);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn shall_wait__for_what_has_arrived_and_not_for_ever() {
        let mut away = Away::new(Instant(0));
        assert!(!away.shall_wait(false));
        for _ in 0..3 {
            assert_eq!((0..100).take_while(|_| away.shall_wait(true)).count(), OVERDUE as usize);
        }
        assert!(away.shall_wait(true));
        assert!(!away.shall_wait(false), "nothing more has arrived");
    }

    #[test]
    fn is_long__not_while_somebody_sleeps_on_the_descriptor() {
        let mut away = Away::new(Instant(0));
        assert!(!away.is_long(Instant(99_999)) && away.is_long(Instant(100_000)));
        away.watched = true;
        assert!(!away.is_long(Instant(100_000)));
    }
}
