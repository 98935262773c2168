//! What a caller does that waits and does not sleep: look again, hand its core over, or sleep after
//! all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weft_core::Instant;

/// A core that was handed over comes back sooner, unless somebody computes there. On Linux 6.18
/// whoever yields falls behind such a process by a whole slice: a round trip of two ranks that
/// yield takes milliseconds then, of two that sleep some 20 us.
const LONG_AWAY: Duration = Duration::from_millis(1);
/// How long that is remembered: at first, doubled each time it is found so again, and at most.
const CROWDED: Duration = Duration::from_millis(20);
const CROWDED_MAX: Duration = Duration::from_secs(1);

/// A core that comes back sooner was not taken by anybody: two changes of process take longer.
const IN_VAIN: Duration = Duration::from_nanos(800);
/// Until the next try after one in vain: at first, doubled each time, and at most.
///
/// Each yield puts the caller a slice, 1.4 ms or more, behind the others of its scheduling group,
/// also when nobody takes the core because those who want it are of another group: another session,
/// another container. Ranks that yielded for 4 ms without pause then waited 250 ms for others
/// (record 17).
const GAP: Duration = Duration::from_micros(1);
const GAP_MAX: Duration = Duration::from_micros(64);

/// What the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It looks again: another one had its turn a moment ago.
    Taken,
    /// It looks again: nobody wanted the core a moment ago.
    Look,
    /// The same, and nobody has wanted it for long.
    Alone,
    /// It sleeps: somebody computes on the core, and who sleeps is woken before that one.
    Sleep,
}

/// Hands the core over in a wait, to a rank of the same core that may have what is waited for, and
/// remembers what came of it. Times are of one clock.
#[derive(Debug)]
pub struct Turn {
    /// Until then the caller sleeps, and how long that was.
    crowded_until: AtomicU64,
    remembered: AtomicU64,
    /// Until then the core is not handed over, and how long that was.
    next_at: AtomicU64,
    gap: AtomicU64,
    /// How long a core that came back is kept.
    keep: u64,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn {
            crowded_until: AtomicU64::new(0),
            remembered: AtomicU64::new(nanos(CROWDED)),
            next_at: AtomicU64::new(0),
            gap: AtomicU64::new(0),
            keep: 0,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

// Threads that share one lose nothing but an observation: every order of their loads and stores
// will do.
impl Turn {
    /// Of a caller that uses a core which came back for so long before it hands it over again.
    pub fn keeping(time: Duration) -> Turn {
        Turn { keep: nanos(time), ..Turn::default() }
    }

    /// Hands the core over, if that is worth trying now.
    pub fn hand_over(&self, now: Instant, clock: impl Fn() -> Instant) -> Next {
        if now.0 < self.crowded_until.load(Ordering::Relaxed) {
            return Next::Sleep;
        }
        if now.0 >= self.next_at.load(Ordering::Relaxed) {
            std::thread::yield_now();
            self.note(now, clock());
        }
        match Duration::from_nanos(self.gap.load(Ordering::Relaxed)) {
            Duration::ZERO => Next::Taken,
            GAP_MAX => Next::Alone,
            _ => Next::Look,
        }
    }

    fn note(&self, from: Instant, back: Instant) {
        let away = back.since(from);
        if away < IN_VAIN {
            let gap = (self.gap.load(Ordering::Relaxed) * 2).clamp(nanos(GAP), nanos(GAP_MAX));
            self.gap.store(gap, Ordering::Relaxed);
            self.next_at.store(back.0 + gap, Ordering::Relaxed);
            return;
        }
        self.gap.store(0, Ordering::Relaxed);
        self.next_at.store(back.0 + self.keep, Ordering::Relaxed);
        match away <= LONG_AWAY {
            true => self.remembered.store(nanos(CROWDED), Ordering::Relaxed),
            false => self.lost(from, back),
        }
    }

    /// The core was with somebody else in between, whether it was handed over or taken away.
    pub fn lost(&self, from: Instant, back: Instant) {
        if back.since(from) <= LONG_AWAY {
            return;
        }
        let remembered = self.remembered.load(Ordering::Relaxed);
        self.crowded_until.store(back.0 + remembered, Ordering::Relaxed);
        self.remembered.store((remembered * 2).min(nanos(CROWDED_MAX)), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// What it says at a time, without a try.
    fn says(turn: &Turn, now: Instant) -> Next {
        turn.next_at.store(u64::MAX, Ordering::Relaxed);
        turn.hand_over(now, || unreachable!("nothing is tried"))
    }

    #[test]
    fn note__a_core_that_was_kept_is_not_handed_over_for_a_while() {
        let (turn, start) = (Turn::default(), Instant(1));
        turn.note(start, start + LONG_AWAY);
        assert_eq!(says(&turn, start + LONG_AWAY), Next::Taken, "another rank had its turn");
        let away = LONG_AWAY * 3;
        let mut back = start + away;
        for time in [CROWDED, CROWDED * 2, CROWDED * 4] {
            turn.note(start, back);
            assert_eq!(says(&turn, back), Next::Sleep);
            assert_eq!(says(&turn, back + (time - LONG_AWAY)), Next::Sleep);
            assert_eq!(says(&turn, back + time), Next::Taken);
            back = back + time + away;
        }
        turn.note(back, back + LONG_AWAY);
        turn.note(back, back + away);
        let later = back + away + CROWDED;
        assert_eq!(says(&turn, later), Next::Taken, "it had come back soon in between");
    }

    #[test]
    fn note__a_core_that_nobody_takes_is_handed_over_ever_more_rarely() {
        let (turn, mut now) = (Turn::default(), Instant(1));
        let mut tries = 0;
        let end = now + Duration::from_millis(4);
        while now < end {
            if now.0 >= turn.next_at.load(Ordering::Relaxed) {
                turn.note(now, now + Duration::from_nanos(600));
                tries += 1;
            }
            now = now + Duration::from_nanos(600);
        }
        assert!((60..80).contains(&tries), "{tries}");
        assert_eq!(says(&turn, now), Next::Alone);
        turn.note(now, now + IN_VAIN);
        assert_eq!(says(&turn, now), Next::Taken, "somebody took it");
    }

    #[test]
    fn keeping__hands_over_again_after_that_time() {
        let (keep, tries) = (Duration::from_micros(10), std::cell::Cell::new(0));
        for (turn, expected) in [(Turn::default(), 3), (Turn::keeping(keep), 2)] {
            tries.set(0);
            let back = |now: Instant| {
                tries.set(tries.get() + 1);
                now + IN_VAIN
            };
            let mut now = Instant(1);
            for _ in 0..2 {
                assert_eq!(turn.hand_over(now, || back(now)), Next::Taken);
                now = now + IN_VAIN;
            }
            turn.hand_over(now + keep, || back(now + keep));
            assert_eq!(tries.get(), expected);
        }
    }
}
