//! Decides the next step of a caller that polls instead of sleeping: poll again, yield its core, or
//! sleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weft_core::Instant;

/// A yielded core returns sooner than this, unless another process computes on it. On Linux 6.18 a
/// process that yields falls behind a computing process by a whole slice: a round trip between two
/// yielding ranks then takes milliseconds, between two sleeping ranks some 20 us.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// Time for which a computing process is remembered: at first (doubled each time it is found
/// again within as long a time after that), and at most.
const COMPETED: Duration = Duration::from_millis(20);
const CROWDED_MAX: Duration = Duration::from_secs(1);

/// If the core returns sooner than this, no other process took it: two process switches take
/// longer.
const IN_VAIN: Duration = Duration::from_nanos(800);
/// The pause after a yield that no process took: at first (doubled each time), and at most.
///
/// Each yield puts the caller behind the others of its scheduling group by a slice of 1.4 ms or
/// more, even if no process takes the core because those that want it belong to another group:
/// another session, another container. Ranks that yielded for 4 ms without pause then waited 250 ms
/// for others (record 17).
const GAP: Duration = Duration::from_micros(1);
const GAP_MAX: Duration = Duration::from_micros(64);

/// The next step of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Poll again: another process had the core a moment ago.
    Taken,
    /// Poll again: no process wanted the core a moment ago.
    Look,
    /// Poll again: no process has wanted the core for long.
    Alone,
    /// Sleep: another process computes on the core, and the kernel prefers a woken sleeper to it.
    Sleep,
}

/// Yields the core during a wait, to a rank on the same core that may send the awaited packet, and
/// remembers the results. All times are from one clock.
#[derive(Debug)]
pub struct Turn {
    /// The caller sleeps until this time; the length of that period.
    crowded_until: AtomicU64,
    remembered: AtomicU64,
    /// The core is not yielded until this time; the length of that pause.
    next_at: AtomicU64,
    gap: AtomicU64,
    /// The time for which the caller keeps a core that returned.
    keep: u64,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn {
            crowded_until: AtomicU64::new(0),
            remembered: AtomicU64::new(nanos(COMPETED)),
            next_at: AtomicU64::new(0),
            gap: AtomicU64::new(0),
            keep: 0,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

// Threads that share a `Turn` can lose an observation, nothing else: every order of their loads and
// stores is correct.
impl Turn {
    /// Makes a `Turn` for a caller that uses a returned core for this time before it yields again.
    pub fn keeping(time: Duration) -> Turn {
        Turn { keep: nanos(time), ..Turn::default() }
    }

    /// True if another process took the core when it was yielded last.
    pub fn is_shared(&self) -> bool {
        self.gap.load(Ordering::Relaxed) == 0
    }

    /// True while a process that computed on the core is remembered.
    pub fn is_crowded(&self, now: Instant) -> bool {
        now.0 < self.crowded_until.load(Ordering::Relaxed)
    }

    /// Yields the core, if a try is worth it now.
    pub fn hand_over(&self, now: Instant, clock: impl Fn() -> Instant) -> Next {
        if self.is_crowded(now) {
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
        self.lost(from, back);
    }

    /// Notes that another process had the core in between, after a yield or by preemption.
    pub fn lost(&self, from: Instant, back: Instant) {
        if back.since(from) <= LONG_YIELD {
            return;
        }
        let remembered = self.remembered.load(Ordering::Relaxed);
        let ended = self.crowded_until.load(Ordering::Relaxed);
        // Ranks that share the core come back soon in between, also beside one that computes.
        let again = from.0 < ended.saturating_add(remembered) && ended > 0;
        let next = if again { (remembered * 2).min(nanos(CROWDED_MAX)) } else { nanos(COMPETED) };
        self.remembered.store(next, Ordering::Relaxed);
        self.crowded_until.store(back.0 + next, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Returns the answer of `hand_over` at a time, without a real yield.
    fn says(turn: &Turn, now: Instant) -> Next {
        turn.next_at.store(u64::MAX, Ordering::Relaxed);
        turn.hand_over(now, || unreachable!("nothing is tried"))
    }

    #[test]
    fn note__a_core_that_was_kept_is_not_handed_over_for_a_while() {
        let (turn, start) = (Turn::default(), Instant(1));
        turn.note(start, start + LONG_YIELD);
        assert_eq!(says(&turn, start + LONG_YIELD), Next::Taken, "another rank had its turn");
        let away = LONG_YIELD * 3;
        let mut back = start + away;
        for time in [COMPETED, COMPETED * 2, COMPETED * 4] {
            turn.note(start, back);
            assert!(turn.is_crowded(back) && says(&turn, back) == Next::Sleep);
            assert_eq!(says(&turn, back + (time - LONG_YIELD)), Next::Sleep);
            assert_eq!(says(&turn, back + time), Next::Taken);
            // Another rank has its turn before the process that computes.
            turn.note(back + time, back + time + LONG_YIELD);
            assert!(!turn.is_crowded(back + time + LONG_YIELD));
            back = back + time + LONG_YIELD + away;
        }
        let later = back + COMPETED * 8;
        turn.note(later, later + away);
        assert!(!turn.is_crowded(later + away + COMPETED), "it had not been there for as long");
    }

    #[test]
    fn note__a_core_that_no_process_takes_is_handed_over_ever_more_rarely() {
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
