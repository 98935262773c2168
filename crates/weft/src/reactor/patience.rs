//! Waits of an endpoint: they spin, then hand their core over to others, then sleep.
//!
//! A core may be wanted by others that nobody counted: threads of this program, processes of
//! another launcher or another container. So a wait that spins and is long tries to yield. Where
//! that was of use, waits yield at once from then on, as they do where a launcher has said that
//! there are more ranks than cores.

use super::waiter::Sleeper;
use super::{Awaits, Handle, RECV_BUDGET};
use std::task::Waker;
use std::time::Duration;
use weft_core::{Config, Instant};
use weft_link::{Next, Turn};

/// Rounds of progress between readings of the clock while spinning.
const SPINS: u32 = 8;
/// Time of spinning from which on the settings ask for a rank that never sleeps.
const SPIN_ALWAYS: Duration = Duration::from_secs(1);
/// A wait that spins tries to yield its core from this time on. Most answers of another host come
/// sooner.
const LONG: Duration = Duration::from_micros(8);
/// Time for which a wait that spins yields its core, where others take it, before it sleeps.
const SHARED: Duration = Duration::from_micros(200);

/// The time for which waits are awake, and the use of the core meanwhile.
pub(crate) struct Patience {
    /// Time for which a wait spins.
    spin: Duration,
    /// Time for which it yields its core before it sleeps.
    hand_over: Duration,
    turn: Turn,
}

/// The next step of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Some rounds of progress.
    Spin,
    /// One round of progress: others want the core.
    Look,
    /// A sleep, and a round of progress.
    Sleep,
}

impl Patience {
    /// Returns that of the settings.
    pub fn of(config: &Config) -> Patience {
        let micros = |us: u32| Duration::from_micros(u64::from(us));
        let (spin, hand_over) = (micros(config.spin_us), micros(config.yield_us));
        Patience { spin, hand_over, turn: Turn::default() }
    }

    /// True if waits spin.
    pub fn spins(&self) -> bool {
        self.hand_over.is_zero() && !self.spin.is_zero()
    }

    /// True if waits sleep at once.
    pub fn sleeps_at_once(&self) -> bool {
        self.hand_over.is_zero() && self.spin.is_zero()
    }

    /// True if waits never sleep.
    pub fn polls_always(&self) -> bool {
        self.spin >= SPIN_ALWAYS
    }

    /// Takes the next step of a wait that has lasted so long; yields the core if that is due.
    fn step(&self, waited: Duration, now: Instant, clock: impl Fn() -> Instant) -> Step {
        let adapts = self.spins() && !self.polls_always();
        let (from, limit) = match adapts {
            true if self.turn.is_shared() => (Duration::ZERO, self.spin.max(SHARED)),
            true => (LONG, self.spin),
            false => (self.spin, self.spin + self.hand_over),
        };
        if waited >= limit {
            return Step::Sleep;
        }
        if waited < from {
            return Step::Spin;
        }
        match self.turn.hand_over(now, clock) {
            Next::Sleep => Step::Sleep,
            Next::Look | Next::Alone if adapts => Step::Spin,
            _ => Step::Look,
        }
    }
}

impl Handle {
    /// Waits until `progress` did something or `timeout` has passed: spins briefly, then sleeps.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let awaits = timeout.is_none().then_some(Awaits::Anything);
        self.wait_by(timeout, RECV_BUDGET, awaits)
    }

    /// Waits until `progress` did something, for a client whose program waits for `awaits`: a long
    /// wait is logged with it.
    pub fn wait_for(&self, awaits: Awaits) {
        self.wait_by(None, RECV_BUDGET, Some(awaits));
    }

    /// Makes progress for as long as [`Handle::wait`] would before it sleeps, at most for a time.
    /// True if anything happened.
    pub fn wait_awake(&self, at_most: Duration) -> bool {
        let (start, budget) = (self.now(), RECV_BUDGET);
        if self.starts_wait(false, budget) {
            return true;
        }
        let spins = self.borrow().patience.spins();
        loop {
            let now = self.now();
            let waited = now.since(start);
            let step = self.step(waited, now);
            if waited >= at_most || step == Step::Sleep {
                return false;
            }
            if self.spin(spins && step == Step::Spin, budget) {
                return true;
            }
        }
    }

    /// True if the settings ask for waits that never sleep.
    pub fn polls_always(&self) -> bool {
        self.borrow().patience.polls_always()
    }

    /// Waits as [`Handle::wait`] does, with a budget of packets for each round of progress.
    pub fn wait_by(
        &self,
        timeout: Option<Duration>,
        budget: usize,
        awaits: Option<Awaits>,
    ) -> bool {
        self.starts_wait(timeout.is_none(), budget) || {
            let _awaiting = awaits.map(|awaits| self.awaiting(Some(awaits)));
            self.wait_long(timeout, budget)
        }
    }

    /// The first rounds of a wait. True if anything happened.
    #[inline]
    fn starts_wait(&self, has_no_end: bool, budget: usize) -> bool {
        let spins = {
            let reactor = &mut *self.borrow_mut();
            reactor.polling.before_sleep = reactor.patience.sleeps_at_once() && has_no_end;
            reactor.patience.spins()
        };
        self.spin(spins, budget)
    }

    /// A few rounds of progress. True if anything happened.
    #[inline]
    fn spin(&self, spins: bool, budget: usize) -> bool {
        for _ in 0..if spins { SPINS } else { 1 } {
            // No pause in between, since it costs more than polling the links.
            if self.progress_by(budget) || spins && self.poll_closely(budget) {
                return true;
            }
        }
        false
    }

    fn step(&self, waited: Duration, now: Instant) -> Step {
        let reactor = self.borrow();
        match !reactor.patience.polls_always() && reactor.receiver.bulk_rate.is_slow(now) {
            true => Step::Sleep,
            false => reactor.patience.step(waited, now, || reactor.receiver.time.clock.now()),
        }
    }

    fn wait_long(&self, timeout: Option<Duration>, budget: usize) -> bool {
        let (start, spins) = (self.now(), self.borrow().patience.spins());
        loop {
            let now = self.now();
            let waited = now.since(start);
            if timeout.is_some_and(|t| waited >= t) {
                return false;
            }
            let step = self.step(waited, now);
            if step == Step::Sleep {
                self.sleep_once(timeout.map(|t| now + (t - waited)));
            }
            if self.spin(spins && step != Step::Look, budget) {
                return true;
            }
        }
    }

    fn sleep_once(&self, until: Option<Instant>) {
        if let Some(at) = until {
            // The sleeper entry wakes the descriptor in time.
            let waker = Waker::noop().clone();
            let reactor = &mut *self.borrow_mut();
            let number = reactor.sleepers.begin();
            reactor.sleepers.insert(at, number, waker);
        }
        if self.prepare(Sleeper::Endpoint) {
            let reactor = &mut *self.borrow_mut();
            let ready = reactor.waiter.sleep();
            reactor.end_sleep(ready);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const US: Duration = Duration::from_micros(1);

    /// A wait whose yields last so long; the time stands still else.
    struct World {
        patience: Patience,
        now: Instant,
        away: Duration,
        yields: Cell<u32>,
    }

    impl World {
        fn new(config: Config) -> World {
            let (patience, yields) = (Patience::of(&config), Cell::new(0));
            World { patience, now: Instant(1), away: Duration::from_nanos(500), yields }
        }

        fn step(&mut self, waited: Duration) -> Step {
            self.now = self.now + 100 * US;
            let back = || {
                self.yields.set(self.yields.get() + 1);
                self.now + self.away
            };
            self.patience.step(waited, self.now, back)
        }
    }

    fn spinning() -> Config {
        Config { spin_us: 50, yield_us: 0, ..Config::default() }
    }

    #[test]
    fn step__spins_before_it_tries_to_yield_and_then_sleeps() {
        let mut world = World::new(spinning());
        // The first wait of an endpoint tries at once.
        assert_eq!(world.step(US), Step::Spin);
        world.yields.set(0);
        assert_eq!(world.step(LONG - US), Step::Spin);
        assert_eq!(world.yields.get(), 0, "a short wait yields");
        assert_eq!(world.step(LONG), Step::Spin);
        assert_eq!(world.yields.get(), 1);
        assert_eq!(world.step(50 * US), Step::Sleep);
        assert_eq!(world.yields.get(), 1, "a wait yields and sleeps");
    }

    #[test]
    fn step__yields_at_once_and_longer_where_others_take_the_core() {
        let mut world = World::new(spinning());
        world.away = 5 * US;
        assert_eq!(world.step(LONG), Step::Look);
        assert_eq!(world.step(Duration::ZERO), Step::Look);
        assert_eq!(world.step(SHARED - US), Step::Look);
        assert_eq!(world.step(SHARED), Step::Sleep);
        world.away = Duration::from_nanos(500);
        assert_eq!(world.step(Duration::ZERO), Step::Spin, "nobody took it");
        assert_eq!(world.step(50 * US), Step::Sleep);
    }

    #[test]
    fn step__sleeps_where_another_process_computes() {
        let mut world = World::new(spinning());
        world.away = Duration::from_millis(3);
        assert_eq!(world.step(LONG), Step::Look);
        assert_eq!(world.step(LONG), Step::Sleep, "the core was away for long");
        assert_eq!(world.yields.get(), 1, "it yields in vain for milliseconds");
    }

    #[test]
    fn step__obeys_settings_that_leave_no_choice() {
        let cases = [
            (Config { spin_us: 0, yield_us: 0, ..Config::default() }, Step::Sleep, 0),
            (Config { spin_us: 2_000_000, yield_us: 0, ..Config::default() }, Step::Spin, 0),
            (Config { spin_us: 0, yield_us: 200, ..Config::default() }, Step::Look, 1),
        ];
        for (config, step, yields) in cases {
            let mut world = World::new(config);
            assert_eq!(world.step(LONG), step);
            assert_eq!(world.yields.get(), yields);
        }
    }
}
