//! Turns of the stripes that share bulk data.

use crate::time::Instant;
use core::time::Duration;

/// Time for which bulk data avoids stripes that lost a whole train, at first and at most.
const ASIDE: Duration = Duration::from_secs(1);
const ASIDE_MAX: Duration = Duration::from_secs(300);

/// Turns of the stripes that share bulk data. After one of them lost everything, only the first is
/// used for a while.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stripes {
    turn: u8,
    until: Instant,
    wait: Duration,
}

impl Stripes {
    /// Returns the stripe of the next train, of `of` stripes.
    #[inline]
    pub fn next(&mut self, now: Instant, of: u8) -> u8 {
        if of < 2 || now < self.until {
            return 0;
        }
        self.turn = (self.turn + 1) % of;
        self.turn
    }

    /// Notes that a stripe lost everything sent over it. True if this is new.
    pub fn lost(&mut self, now: Instant) -> bool {
        if now < self.until {
            return false;
        }
        let steady = now.since(self.until) > self.wait + Duration::from_secs(10);
        self.wait = if steady { ASIDE } else { (self.wait * 2).clamp(ASIDE, ASIDE_MAX) };
        self.until = now + self.wait;
        true
    }
}
