//! Whether a wait hands its core to others, or sleeps at once.

use std::time::Duration;
use weft_core::Instant;

/// A core that was handed over comes back sooner, unless somebody computes there.
const LONG_AWAY: Duration = Duration::from_millis(1);
/// How long that is remembered: at first, doubled each time it is found so again, and at most.
const CROWDED: Duration = Duration::from_millis(20);
const CROWDED_MAX: Duration = Duration::from_secs(1);

/// Hands the core over in a wait: to a rank of the same core that may have what is waited for. One
/// that computes instead keeps the core for its whole turn, milliseconds; who sleeps is woken
/// before it, so for a while after that nothing is handed over.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    crowded_until: Instant,
    remembered: Duration,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn { crowded_until: Instant(0), remembered: CROWDED }
    }
}

impl Turn {
    /// Whether it is worth trying; if not, the caller is to sleep.
    #[inline]
    pub fn may_hand_over(&self, now: Instant) -> bool {
        now >= self.crowded_until
    }

    /// Hands the core over now, and notes how long it was away.
    pub fn hand_over(&mut self, now: Instant, clock: impl Fn() -> Instant) {
        std::thread::yield_now();
        self.note(now, clock());
    }

    fn note(&mut self, from: Instant, back: Instant) {
        if back.since(from) <= LONG_AWAY {
            self.remembered = CROWDED;
            return;
        }
        self.crowded_until = back + self.remembered;
        self.remembered = (self.remembered * 2).min(CROWDED_MAX);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn note__a_core_that_was_kept_is_not_handed_over_for_a_while() {
        let (mut turn, start) = (Turn::default(), Instant(1));
        turn.note(start, start + LONG_AWAY);
        assert!(turn.may_hand_over(start + LONG_AWAY), "another rank had its turn");
        let away = LONG_AWAY * 3;
        let mut back = start + away;
        for time in [CROWDED, CROWDED * 2, CROWDED * 4] {
            turn.note(start, back);
            assert!(!turn.may_hand_over(back) && turn.may_hand_over(back + time));
            assert!(!turn.may_hand_over(back + (time - LONG_AWAY)));
            back = back + time + away;
        }
        turn.note(back, back + LONG_AWAY);
        turn.note(back, back + away);
        assert!(turn.may_hand_over(back + away + CROWDED), "it had come back soon in between");
    }
}
