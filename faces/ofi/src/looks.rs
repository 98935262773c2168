//! Looks of a thread, one right after the other. They tell a caller that waits from one that
//! computes and looks now and then, which must keep its core.

use std::cell::Cell;
use std::time::Duration;
use weft_core::Instant;

/// Longest pause between two looks without computation between them. The library above takes less
/// from one look to the next.
const AT_ONCE: Duration = Duration::from_micros(2);
/// Interrupts and changes of process make pauses up to this, among `STEADY` looks without one.
const INTERRUPT: Duration = Duration::from_micros(20);
const STEADY: u32 = 16;
/// A caller that has looked without a pause for so long makes no pause of its own accord: another
/// process has taken its core in a long one.
const POLLING_AFTER: Duration = Duration::from_micros(100);
/// No time.
const NONE: u64 = u64::MAX;

/// The present row of looks of one thread. All times are from one clock.
#[derive(Debug)]
pub struct Looks {
    /// Number of the last looks that found nothing.
    vain: Cell<u32>,
    /// The end of the last look, if it was timed.
    left: Cell<u64>,
    /// The start of the row, and of its last part in which nothing was found.
    since: Cell<u64>,
    vain_since: Cell<u64>,
    /// Number of looks since the last short pause.
    steady: Cell<u32>,
    /// Number of sleeps since something was found, which nothing ended but their time.
    slept: Cell<u32>,
}

/// A pause in which another process had the core.
pub type Away = (Instant, Instant);

impl Looks {
    /// Creates the state of a thread that has not looked yet.
    pub const fn new() -> Looks {
        Looks {
            vain: Cell::new(0),
            left: Cell::new(NONE),
            since: Cell::new(NONE),
            vain_since: Cell::new(NONE),
            steady: Cell::new(0),
            slept: Cell::new(0),
        }
    }

    /// Notes the start of a look. Returns the pause before it if another process had the core. Only
    /// pauses after timed looks are seen.
    #[inline]
    pub fn enter(&self, clock: impl Fn() -> Instant) -> Option<Away> {
        match self.left.get() {
            NONE => None,
            left => self.pause(Instant(left), clock()),
        }
    }

    fn pause(&self, left: Instant, now: Instant) -> Option<Away> {
        self.left.set(NONE);
        let pause = now.since(left);
        if pause <= AT_ONCE {
            self.steady.set(self.steady.get().saturating_add(1));
            return None;
        }
        let lost = left.since(Instant(self.since.get())) >= POLLING_AFTER;
        if pause > INTERRUPT || self.steady.get() < STEADY {
            self.end();
        }
        self.steady.set(0);
        lost.then_some((left, now))
    }

    /// Does what belongs to looking, between two timed looks: its time is no computation.
    #[inline]
    pub fn between<R>(&self, clock: impl Fn() -> Instant, work: impl FnOnce() -> R) -> R {
        let timed = self.left.get() != NONE;
        if timed {
            self.enter(&clock);
        }
        let result = work();
        if timed && self.since.get() != NONE {
            self.leave(clock());
        }
        result
    }

    /// Ends the row: the caller computes.
    pub fn end(&self) {
        self.vain.set(0);
        self.slept.set(0);
        self.left.set(NONE);
        self.since.set(NONE);
    }

    /// Notes a look that found nothing. Returns the number of these.
    #[inline]
    pub fn nothing(&self) -> u32 {
        self.vain.set(self.vain.get().saturating_add(1));
        self.vain.get()
    }

    /// Notes a look that found something, at this time if it was timed: a row of looks goes on only
    /// if all of them are timed.
    #[inline]
    pub fn something(&self, now: Option<Instant>) {
        match now {
            None if self.vain.get() == 0 => {}
            None => self.end(),
            Some(now) => {
                self.row(now);
                self.vain.set(0);
                self.slept.set(0);
                self.vain_since.set(now.0);
                self.left.set(now.0);
            }
        }
    }

    /// Returns for how long the caller has looked without a pause, and for how long in vain. The
    /// first timed look begins the row.
    pub fn row(&self, now: Instant) -> (Duration, Duration) {
        if self.since.get() == NONE {
            self.since.set(now.0);
            self.vain_since.set(now.0);
            self.steady.set(0);
        }
        let from = |at: &Cell<u64>| now.since(Instant(at.get()));
        (from(&self.since), from(&self.vain_since))
    }

    /// Notes the end of a timed look.
    #[inline]
    pub fn leave(&self, now: Instant) {
        self.left.set(now.0);
    }

    /// Notes the end of a sleep of this thread during a look. One that something ended goes on with
    /// the row; after any other the caller looks for a while again.
    pub fn slept(&self, woken: bool, now: Instant) {
        if woken {
            self.vain_since.set(now.0);
            self.left.set(now.0);
        } else {
            let slept = self.slept.get().saturating_add(1);
            self.end();
            self.slept.set(slept);
        }
    }

    /// Returns the number of sleeps since something was found, which nothing ended but their time.
    pub fn sleeps(&self) -> u32 {
        self.slept.get()
    }
}

impl Default for Looks {
    fn default() -> Looks {
        Looks::new()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// A thread that looks in vain; each look takes a microsecond, and is timed.
    struct Looker {
        looks: Looks,
        now: Instant,
    }

    impl Looker {
        fn new() -> Looker {
            Looker { looks: Looks::new(), now: Instant(1) }
        }

        /// Looks after a pause. Returns for how long it has looked without one, and if its core was
        /// away.
        fn look(&mut self, pause: Duration) -> (Duration, bool) {
            self.now = self.now + pause;
            let away = self.looks.enter(|| self.now);
            self.now = self.now + US;
            let (row, _) = self.looks.row(self.now);
            self.looks.leave(self.now);
            (row, away.is_some())
        }

        fn looks(&mut self, times: u32) -> Duration {
            (0..times).map(|_| self.look(US / 2).0).last().unwrap_or_default()
        }
    }

    #[test]
    fn enter__computation_between_looks_ends_the_row() {
        for work in [5 * US, 50 * US, 5_000 * US] {
            let mut looker = Looker::new();
            for _ in 0..100 {
                assert!(looker.look(work).0 <= US + work, "one interrupt at most");
                assert!(!looker.look(work).1);
            }
            // A few looks in a row, then computation.
            for _ in 0..100 {
                looker.look(50 * US);
                assert!(looker.looks(10) < 20 * US);
            }
        }
    }

    #[test]
    fn enter__interrupts_do_not_end_a_row() {
        let mut looker = Looker::new();
        for times in 1..50 {
            let row = looker.looks(100);
            assert!(row >= (times * 100 - 1) * US, "{row:?} after {times}");
            looker.look(INTERRUPT);
        }
    }

    #[test]
    fn enter__a_long_pause_in_a_long_row_means_that_the_core_was_away() {
        let (mut looker, away) = (Looker::new(), Duration::from_millis(4));
        looker.looks(10);
        assert_eq!(looker.look(away), (Duration::ZERO, false), "it may have computed");
        assert!(looker.looks(100) >= POLLING_AFTER);
        assert_eq!(looker.look(away), (Duration::ZERO, true));
    }

    #[test]
    fn between__its_time_is_no_computation() {
        let mut looker = Looker::new();
        looker.looks(20);
        let now = Cell::new(looker.now);
        looker.looks.between(|| now.get(), || now.set(now.get() + 50 * US));
        looker.now = now.get();
        assert!(looker.look(US / 2).0 > 50 * US);
        looker.looks.end();
        looker.looks.between(|| unreachable!("no look was timed"), || {});
    }

    #[test]
    fn something__ends_what_is_not_timed() {
        let mut looker = Looker::new();
        looker.looks(20);
        looker.looks.something(Some(looker.now));
        let (row, vain) = looker.looks.row(looker.now);
        assert!(row > 10 * US && vain.is_zero());
        assert_eq!(looker.looks.nothing(), 1);
        looker.looks.something(None);
        assert_eq!(looker.look(US).0, Duration::ZERO);
    }

    #[test]
    fn slept__a_row_goes_on_if_something_ended_the_sleep() {
        let mut looker = Looker::new();
        assert!(looker.looks(20) > 10 * US);
        looker.looks.slept(true, looker.now);
        let (row, vain) = looker.looks.row(looker.now);
        assert!(row > 10 * US && vain.is_zero() && looker.looks.sleeps() == 0);
        for times in 1..3 {
            looker.looks.slept(false, looker.now);
            assert_eq!(looker.looks.sleeps(), times);
            assert_eq!(looker.looks.row(looker.now), (Duration::ZERO, Duration::ZERO));
        }
    }
}
