//! Callers that poll in vain.

use crate::looks::Looks;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use weft::choices::Receipt;
use weft::job;
use weft_link::{Next, Turn};

/// Decides when a caller that polls in vain gives its core away: other ranks may want the core, and
/// libraries above poll for ever.
///
/// A caller that computes and looks now and then keeps its core: it gets its answer and goes on.
/// Only one that has done nothing but look for a while ([`Looks`]) gives the core away, with
/// receipt `adaptive` in one of these ways:
///
/// - Where other ranks took the core lately, or there are more ranks than cores, each poll yields
///   it, which costs little when no other process is ready.
/// - Where another process computes on the core, the caller sleeps: a yield would last as long as
///   the other computes, and the kernel prefers a woken sleeper.
/// - Else it polls on for a while before it tries to yield.
/// - Where there are more ranks than cores, it also sleeps once no process of its scheduling group
///   is ready: processes of other groups get the core only from a sleeper. Sleep would slow down
///   programs whose messages come every few microseconds (HPCC's random access), so it takes long.
///
/// With `polling` it polls on whatever else is ready. With `blocking` it sleeps as soon as it polls
/// without a pause, for a short time each: the library above has other sources to poll, and calls
/// again.
#[derive(Debug)]
pub struct Idle {
    receipt: Receipt,
    /// True if there are more ranks than cores.
    crowded: bool,
    // The following fields are written without the lock, where several threads may be.
    turn: Turn,
    /// Number of vain yields after which the core counts as unshared.
    shared: AtomicU32,
}

thread_local! {
    static LOOKS: Looks = const { Looks::new() };
}

/// Calls `f` with the looks of this thread.
#[inline]
pub fn looking<R>(f: impl FnOnce(&Looks) -> R) -> R {
    LOOKS.with(f)
}

/// The use of its core that a caller makes after a look that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// The caller looks again.
    Keep,
    /// The caller yields, if a try is worth it.
    Yield,
    /// The caller sleeps.
    Sleep,
}

/// Looks in vain before looks are timed, where nobody else wanted the core lately.
const UNTIMED: u32 = 16;
/// Time of looking in vain before the first yield, and before a sleep, where nobody is known to
/// want the core.
const SPIN: Duration = Duration::from_micros(50);
/// Time of looking before a yield where other ranks took the core lately: a program that computes
/// may look a few times in a row.
const SHORT: Duration = Duration::from_micros(2);
/// Time of looking in vain before a sleep of a caller that has long looked without a pause, where
/// another process computes on the core.
const VAIN: Duration = Duration::from_micros(10);
/// Increment of `shared` when another process took the core; each vain yield subtracts one.
/// Launchers do not know of all processes on a host.
const MEMORY: u32 = 100;
/// Limit of `shared`.
const MEMORY_MAX: u32 = 1000;
/// A caller that polled without a pause for longer sleeps where no process of its scheduling group
/// is ready: 300 us halve the random accesses of 3 ranks on 2 cores, and the steps of 16 ranks gain
/// nothing by less than this.
const SLEEP_AFTER: Duration = Duration::from_millis(2);
/// A caller that got the core keeps it for so long: a program that computes between its polls would
/// spend its time on changes of process (HPCC's random access, 4 ranks on 2 cores: 0.38 to 0.53
/// M/s), and ranks that wait lose nothing by it (steps of 16 ranks: 0.92 instead of 1.05 ms).
const KEEP: Duration = Duration::from_micros(10);
/// The first sleep, doubled each time nothing but its time ends it, and the longest: short, since
/// the library above may have other sources of messages.
const NAP: Duration = Duration::from_micros(200);
const NAP_DOUBLINGS: u32 = 2;

impl Idle {
    /// Creates the state for this job and host. The endpoint reports a wrong setting.
    pub fn of_job() -> Idle {
        let receipt = job::config_from_env().map_or(Receipt::Adaptive, |config| config.receipt);
        Idle::new(receipt, job::oversubscribed())
    }

    /// Creates the state for a host with (`crowded`) or without more ranks than cores.
    fn new(receipt: Receipt, crowded: bool) -> Idle {
        let shared = AtomicU32::new(if crowded { MEMORY } else { 0 });
        Idle { receipt, crowded, turn: Turn::keeping(KEEP), shared }
    }

    fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed) > 0
    }

    /// Notes the start of a look.
    #[inline]
    pub fn enter(&self, looks: &Looks) {
        if let Some((from, back)) = looks.enter(clock) {
            self.turn.lost(from, back);
        }
    }

    /// Notes a look that found something.
    #[inline]
    pub fn something(&self, looks: &Looks) {
        looks.something(self.is_shared().then(clock));
    }

    /// Notes a look that found nothing; true if the caller shall ask `hand_over`.
    #[inline]
    pub fn nothing(&self, looks: &Looks) -> bool {
        match self.receipt {
            Receipt::Polling => false,
            Receipt::Blocking => true,
            // The watchdog polls for absent callers whatever is chosen (`watchdog.rs`).
            Receipt::Adaptive | Receipt::Watchdog => looks.nothing() >= UNTIMED || self.is_shared(),
        }
    }

    /// True if a yield of the library above, right after a look, serves nobody: the looks
    /// themselves give the core away when it is due.
    #[inline]
    pub fn yields_itself(&self) -> bool {
        !(self.crowded && self.receipt == Receipt::Polling)
    }

    /// Yields the core if that is due. `Some`: the caller is to sleep for so long.
    #[cold]
    pub fn hand_over(&self, looks: &Looks) -> Option<Duration> {
        let now = clock();
        let (row, vain) = looks.row(now);
        let mut left = now;
        let nap = match self.choose(row, vain, now) {
            Use::Keep => false,
            Use::Sleep => {
                // The core is wanted, and looks are timed.
                self.shared.fetch_max(MEMORY, Ordering::Relaxed);
                true
            }
            Use::Yield => {
                let next = self.turn.hand_over(now, clock);
                left = clock();
                !self.goes_on(next, row)
            }
        };
        looks.leave(left);
        nap.then(|| NAP * (1 << looks.sleeps().min(NAP_DOUBLINGS)))
    }

    /// Notes the end of a sleep, which something ended or its time.
    pub fn slept(&self, looks: &Looks, woken: bool) {
        looks.slept(woken, clock());
    }

    /// Chooses the use of the core for a caller that has looked for so long without a pause, and
    /// for so long in vain.
    fn choose(&self, row: Duration, vain: Duration, now: weft_core::Instant) -> Use {
        if self.receipt == Receipt::Blocking {
            return if row.is_zero() { Use::Keep } else { Use::Sleep };
        }
        if self.turn.is_crowded(now) {
            // Somebody computes.
            return if row >= SPIN && vain >= VAIN { Use::Sleep } else { Use::Keep };
        }
        let due = if self.is_shared() { row >= SHORT } else { vain >= SPIN };
        if due {
            Use::Yield
        } else {
            Use::Keep
        }
    }

    /// Returns true if a caller that has looked for so long without a pause goes on.
    fn goes_on(&self, next: Next, row: Duration) -> bool {
        let shared = self.shared.load(Ordering::Relaxed);
        let shared = match next {
            Next::Taken => (shared + MEMORY).min(MEMORY_MAX),
            Next::Sleep => shared.max(MEMORY),
            Next::Look | Next::Alone => shared.saturating_sub(1),
        };
        self.shared.store(shared, Ordering::Relaxed);
        match next {
            Next::Taken | Next::Look => true,
            Next::Alone => !(self.crowded && row >= SLEEP_AFTER),
            Next::Sleep => false,
        }
    }
}

/// Returns the time since the first call.
pub fn clock() -> weft_core::Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    weft_core::Instant(START.elapsed().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn adaptive(crowded: bool) -> Idle {
        Idle::new(Receipt::Adaptive, crowded)
    }

    /// Calls `hand_over` until it says to sleep, as a caller that does nothing but look. False if
    /// that takes too many looks.
    fn comes_to_sleep(idle: &Idle, looks: &Looks) -> bool {
        (0..1_000_000).any(|_| {
            idle.enter(looks);
            idle.nothing(looks) && idle.hand_over(looks).is_some()
        })
    }

    /// Makes a process that computes known to `idle`.
    fn met(idle: &Idle) {
        let now = clock();
        idle.turn.lost(now, now + Duration::from_millis(4));
        idle.shared.store(MEMORY, Ordering::Relaxed);
    }

    #[test]
    fn nothing__polling_never_hands_over_and_blocking_sleeps_at_once() {
        let (looks, polling) = (Looks::new(), Idle::new(Receipt::Polling, true));
        assert!((0..10_000).all(|_| !polling.nothing(&looks)));
        let blocking = Idle::new(Receipt::Blocking, false);
        assert!(blocking.nothing(&looks), "it decides at once");
        assert_eq!(blocking.hand_over(&looks), None, "it may have computed before");
        // The first poll may come late on a slow machine; a later one does not.
        assert!(comes_to_sleep(&blocking, &looks));
        blocking.slept(&looks, false);
        assert_eq!(blocking.hand_over(&looks), None, "it slept");
    }

    #[test]
    fn nothing__looks_are_timed_once_they_are_many_or_somebody_wants_the_core() {
        let (idle, looks) = (adaptive(false), Looks::new());
        assert_eq!((0..).take_while(|_| !idle.nothing(&looks)).count() as u32, UNTIMED - 1);
        idle.something(&looks);
        assert!(!idle.nothing(&looks));
        idle.goes_on(Next::Taken, Duration::ZERO);
        assert!(idle.nothing(&looks) && adaptive(true).nothing(&Looks::new()));
    }

    #[test]
    fn choose__one_look_of_a_program_that_computes_gives_no_core_away() {
        let now = clock();
        let single = Duration::ZERO;
        for crowded in [false, true] {
            let idle = adaptive(crowded);
            assert_eq!(idle.choose(single, single, now), Use::Keep);
            met(&idle);
            assert!(idle.turn.is_crowded(clock()));
            assert_eq!(idle.choose(single, single, now), Use::Keep, "another process computes");
            assert_eq!(idle.choose(VAIN, VAIN, now), Use::Keep, "it looked a few times");
        }
        let blocking = Idle::new(Receipt::Blocking, true);
        assert_eq!(blocking.choose(single, single, now), Use::Keep);
    }

    #[test]
    fn choose__a_caller_that_only_looks_yields_and_sleeps_where_another_process_computes() {
        let (now, idle, crowded) = (clock(), adaptive(false), adaptive(true));
        assert_eq!(idle.choose(SPIN, SPIN / 2, now), Use::Keep, "nobody wants its core");
        assert_eq!(idle.choose(SPIN, SPIN, now), Use::Yield);
        assert_eq!(crowded.choose(SHORT, Duration::ZERO, now), Use::Yield, "ranks take turns");
        for idle in [idle, crowded] {
            met(&idle);
            let now = clock();
            assert_eq!(idle.choose(SPIN, Duration::ZERO, now), Use::Keep, "it found packets");
            assert_eq!(idle.choose(SPIN, VAIN, now), Use::Sleep);
            assert!(comes_to_sleep(&idle, &Looks::new()));
        }
    }

    #[test]
    fn goes_on__sleeps_where_others_may_want_the_core() {
        let (crowded, roomy) = (adaptive(true), adaptive(false));
        let short = SLEEP_AFTER / 2;
        for idle in [&crowded, &roomy] {
            assert!(
                idle.goes_on(Next::Taken, SLEEP_AFTER) && idle.goes_on(Next::Look, SLEEP_AFTER)
            );
            assert!(!idle.goes_on(Next::Sleep, Duration::ZERO), "somebody computes");
            assert!(idle.goes_on(Next::Alone, short), "its messages may come soon");
        }
        assert!(
            !crowded.goes_on(Next::Alone, SLEEP_AFTER) && roomy.goes_on(Next::Alone, SLEEP_AFTER)
        );
    }

    #[test]
    fn goes_on__forgets_after_many_yields_in_vain() {
        let (idle, looks) = (adaptive(false), Looks::new());
        idle.goes_on(Next::Taken, Duration::ZERO);
        let mut times = 0;
        while idle.is_shared() {
            assert!(idle.goes_on(Next::Look, Duration::ZERO));
            times += 1;
        }
        assert_eq!(times, MEMORY);
        idle.something(&looks);
        assert!(!idle.nothing(&looks));
    }

    #[test]
    fn hand_over__sleeps_become_longer_while_nothing_ends_them() {
        let (idle, looks) = (adaptive(false), Looks::new());
        let mut naps = Vec::new();
        for _ in 0..4 {
            met(&idle);
            assert!(comes_to_sleep(&idle, &looks));
            naps.push(idle.hand_over(&looks).unwrap());
            idle.slept(&looks, false);
            assert_eq!(idle.hand_over(&looks), None, "it looks for a while again");
        }
        assert_eq!(naps, [NAP, NAP * 2, NAP * 4, NAP * 4]);
        idle.something(&looks);
        met(&idle);
        assert!(comes_to_sleep(&idle, &looks));
        idle.slept(&looks, true);
        assert_eq!(looks.sleeps(), 0, "something came");
    }
}
