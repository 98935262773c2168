//! Callers that poll in vain, and callers that sleep.

use super::Worker;
use crate::gate::Gate;
use crate::sys::abi::err;
use libc::c_int;
use std::cell::{Cell, RefCell};
use std::os::fd::AsRawFd;
use std::rc::Weak;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use weft::choices::Receipt;
use weft_link::{Next, Turn};

/// Decides how a caller that polls in vain yields its core: other ranks may want the core, and
/// libraries above poll for ever.
///
/// With receipt `adaptive` the caller first polls on for a while. Then each poll yields the core,
/// which costs little when no other process is ready. The caller sleeps where another process
/// computes on the core, and where there are more ranks than cores, once no process of its
/// scheduling group is ready: processes of other groups get the core only from a sleeper. Sleep
/// would slow down a program that computes between its polls, or whose messages come every few
/// microseconds (HPCC's random access does both), so only a caller that has long polled without a
/// pause sleeps.
///
/// With `polling` it polls on whatever else is ready. With `blocking` it sleeps as soon as it polls
/// without a pause, for a short time each: the library above has other sources to poll, and calls
/// again.
#[derive(Debug)]
pub struct Idle {
    receipt: Receipt,
    in_vain: Cell<u32>,
    since: Cell<Option<Instant>>,
    /// True if there are more ranks than cores.
    crowded: bool,
    // The following fields are written outside of the gate, where several threads may be.
    turn: Turn,
    /// Number of vain yields after which the core counts as unshared.
    shared: AtomicU32,
    /// Time of the last yield, and start of the yields without a pause between them.
    last: AtomicU64,
    since_when: AtomicU64,
}

/// Polls in vain between two readings of the clock.
const CLOCK_EVERY: u32 = 16;
/// Time of polling before the first yield.
const SPIN: Duration = Duration::from_micros(50);
/// Increment of `shared` when another process took the core; each vain yield subtracts one.
/// Launchers do not know of all processes on a host.
const MEMORY: u32 = 100;
/// Limit of `shared`.
const MEMORY_MAX: u32 = 1000;
/// Longest time between two polls without computation between them.
const AT_ONCE: Duration = Duration::from_micros(10);
/// A caller that polled without a pause for so long waits; it makes no long pause of its own
/// accord.
const POLLING_AFTER: Duration = Duration::from_micros(100);
/// A caller that polled without a pause for longer sleeps where no process of its scheduling group
/// is ready: 300 us halve the random accesses of 3 ranks on 2 cores, and the steps of 16 ranks gain
/// nothing by less than this.
const SLEEP_AFTER: Duration = Duration::from_millis(2);
/// A caller that got the core keeps it for so long: a program that computes between its polls would
/// spend its time on changes of process (HPCC's random access, 4 ranks on 2 cores: 0.38 to 0.53
/// M/s), and ranks that wait lose nothing by it (steps of 16 ranks: 0.92 instead of 1.05 ms).
const KEEP: Duration = Duration::from_micros(10);
/// No start of polls without a pause.
const NONE: u64 = u64::MAX;
/// Longest sleep, in milliseconds: short, since the caller may be one that computes between its
/// polls.
const NAP_MS: c_int = 1;

impl Idle {
    /// Creates the state for a host with (`crowded`) or without more ranks than cores.
    pub fn new(receipt: Receipt, crowded: bool) -> Idle {
        Idle {
            receipt,
            in_vain: Cell::new(0),
            since: Cell::new(None),
            crowded,
            turn: Turn::keeping(KEEP),
            shared: AtomicU32::new(if crowded { MEMORY } else { 0 }),
            last: AtomicU64::new(0),
            since_when: AtomicU64::new(NONE),
        }
    }

    #[inline]
    pub fn something(&self) {
        self.in_vain.set(0);
        self.since_when.store(NONE, Ordering::Relaxed);
    }

    /// Notes a poll that found nothing; true if the caller shall yield its core now.
    #[inline]
    pub fn nothing(&self) -> bool {
        match self.receipt {
            Receipt::Polling => return false,
            Receipt::Blocking => return true,
            // The watchdog polls for absent callers whatever is chosen (`watchdog.rs`).
            Receipt::Adaptive | Receipt::Watchdog => {}
        }
        let times = self.in_vain.get().wrapping_add(1);
        self.in_vain.set(times);
        if times == 1 {
            self.since.set(None);
        }
        if self.shared.load(Ordering::Relaxed) > 0 {
            return true;
        }
        times.is_multiple_of(CLOCK_EVERY) && self.is_tired()
    }

    /// Returns true if no other process wanted the core recently.
    #[inline]
    pub fn is_alone(&self) -> bool {
        !self.crowded && self.shared.load(Ordering::Relaxed) == 0
    }

    /// Yields the core. False if the caller is to sleep for a moment instead.
    pub fn hand_over(&self) -> bool {
        let now = clock();
        let before = weft_core::Instant(self.last.swap(now.0, Ordering::Relaxed));
        let polling = self.polling(before, now);
        if self.receipt == Receipt::Blocking {
            // A caller that computes between single polls does not wait.
            let sleeps = polling > Duration::ZERO;
            if sleeps {
                self.since_when.store(NONE, Ordering::Relaxed);
            }
            return !sleeps;
        }
        let next = self.turn.hand_over(now, clock);
        if next == Next::Taken {
            self.last.store(clock().0, Ordering::Relaxed);
        }
        let goes_on = self.goes_on(next, polling);
        if !goes_on {
            // The sleep that follows is a pause of the caller's own accord.
            self.since_when.store(NONE, Ordering::Relaxed);
        }
        goes_on
    }

    /// Returns for how long the caller has polled without a pause. After `POLLING_AFTER` of that, a
    /// pause means that another process took the core.
    fn polling(&self, before: weft_core::Instant, now: weft_core::Instant) -> Duration {
        let since = self.since_when.load(Ordering::Relaxed);
        let at_once = now.since(before) < AT_ONCE;
        if at_once && since != NONE {
            return now.since(weft_core::Instant(since));
        }
        if since != NONE && before.since(weft_core::Instant(since)) >= POLLING_AFTER {
            self.turn.lost(before, now);
        }
        self.since_when.store(now.0, Ordering::Relaxed);
        Duration::ZERO
    }

    /// Returns true if a caller that has polled for so long goes on polling.
    fn goes_on(&self, next: Next, polling: Duration) -> bool {
        let shared = self.shared.load(Ordering::Relaxed);
        let shared = match next {
            Next::Taken => (shared + MEMORY).min(MEMORY_MAX),
            _ => shared.saturating_sub(1),
        };
        self.shared.store(shared, Ordering::Relaxed);
        match next {
            Next::Taken | Next::Look => true,
            Next::Alone => !(self.crowded && polling >= SLEEP_AFTER),
            Next::Sleep => false,
        }
    }

    #[cold]
    fn is_tired(&self) -> bool {
        let now = Instant::now();
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        let tired = now.duration_since(since) >= SPIN;
        if tired {
            // Every later poll checks the clock.
            self.in_vain.set(CLOCK_EVERY - 1);
        }
        tired
    }
}

/// Returns the time since the first call.
fn clock() -> weft_core::Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    weft_core::Instant(START.elapsed().as_nanos() as u64)
}

/// Sleeps until an endpoint has work.
pub struct Poller {
    epoll: Option<c_int>,
    wakeup: c_int,
    /// Number of callers asleep in `wait`, and true if one may be asleep on the descriptor outside.
    /// Changed only inside the gate.
    asleep: Cell<u32>,
    lent: Cell<bool>,
}

impl Poller {
    pub fn new(wanted: bool) -> Result<Poller, c_int> {
        if !wanted {
            return Ok(Poller::on(None, -1));
        }
        // SAFETY: plain system calls; results are checked.
        unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            let wakeup = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if epoll < 0 || wakeup < 0 {
                let why = std::io::Error::last_os_error();
                log::error!("no descriptor for sleep: {why} (raise the limit on files, ulimit -n)");
                // Closes the descriptors that were opened.
                libc::close(epoll);
                libc::close(wakeup);
                return Err(why.raw_os_error().unwrap_or(err::ENOMEM));
            }
            let poller = Poller::on(Some(epoll), wakeup);
            poller.add(wakeup);
            Ok(poller)
        }
    }

    fn on(epoll: Option<c_int>, wakeup: c_int) -> Poller {
        Poller { epoll, wakeup, asleep: Cell::new(0), lent: Cell::new(false) }
    }

    fn add(&self, fd: c_int) {
        let Some(epoll) = self.epoll else { return };
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are open; the event is copied.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) };
    }

    pub fn fd(&self) -> Option<c_int> {
        self.epoll
    }

    pub fn watch(&self, worker: &Worker) {
        if let Some(fd) = worker.endpoint.wait_fd().map(|fd| fd.as_raw_fd()) {
            self.add(fd);
        }
    }

    pub fn wake(&self) {
        let one = 1u64;
        // SAFETY: the descriptor is open, or the call fails; eight bytes are written.
        unsafe { libc::write(self.wakeup, (&raw const one).cast(), 8) };
    }

    /// Wakes callers that sleep. Another caller may have made the progress, so that the endpoint's
    /// descriptor is not readable.
    #[inline]
    pub fn news(&self) {
        if self.asleep.get() > 0 || self.lent.get() {
            self.lent.set(false);
            self.wake();
        }
    }

    /// Notes that no caller sleeps on the descriptor outside, because one is here.
    #[inline]
    pub fn is_back(&self) {
        self.lent.set(false);
    }

    /// Does the same as `prepare`, for a caller that will sleep outside.
    pub fn lend(&self, workers: &RefCell<Vec<Weak<Worker>>>) -> Result<(), c_int> {
        self.drain();
        self.prepare(workers)?;
        self.lent.set(true);
        Ok(())
    }

    fn drain(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes have room; without a signal the call fails at once.
        unsafe { libc::read(self.wakeup, (&raw mut count).cast(), 8) };
    }

    /// Returns `Ok` if a caller may sleep now; the endpoints then make the descriptor readable.
    fn prepare(&self, workers: &RefCell<Vec<Weak<Worker>>>) -> Result<(), c_int> {
        let workers: Vec<_> = workers.borrow().iter().filter_map(Weak::upgrade).collect();
        if workers.iter().all(|worker| worker.prepare_wait()) {
            return Ok(());
        }
        workers.iter().for_each(|worker| worker.finish_wait());
        Err(err::EAGAIN)
    }

    /// Sleeps until something may have arrived, for a moment at most.
    #[cold]
    pub fn nap(&self, gate: &Gate, workers: &RefCell<Vec<Weak<Worker>>>) {
        let mut fds = Vec::new();
        {
            let Ok(_inside) = gate.enter() else { return };
            if self.prepare(workers).is_err() {
                return;
            }
            for worker in workers.borrow().iter().filter_map(Weak::upgrade) {
                let fd = worker.endpoint.wait_fd().map_or(-1, |fd| fd.as_raw_fd());
                fds.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
            }
        }
        // SAFETY: the array has as many entries; a negative descriptor is ignored.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, NAP_MS) };
        let Ok(_inside) = gate.enter() else { return };
        for worker in workers.borrow().iter().filter_map(Weak::upgrade) {
            worker.finish_wait();
        }
    }

    /// Sleeps until something may have arrived, for at most `limit`.
    pub fn wait(&self, gate: &Gate, workers: &RefCell<Vec<Weak<Worker>>>, limit: Duration) {
        {
            let Ok(_inside) = gate.enter() else { return };
            if self.prepare(workers).is_err() {
                return;
            }
            self.asleep.set(self.asleep.get() + 1);
        }
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let ms = limit.as_millis().clamp(1, 60_000) as c_int;
        // SAFETY: one event has room; a missing descriptor fails at once.
        let woken = unsafe { libc::epoll_wait(self.epoll.unwrap_or(-1), &mut event, 1, ms) };
        if woken > 0 {
            self.drain();
        }
        let Ok(_inside) = gate.enter() else { return };
        self.asleep.set(self.asleep.get() - 1);
        for worker in workers.borrow().iter().filter_map(Weak::upgrade) {
            worker.finish_wait();
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        if let Some(epoll) = self.epoll {
            // SAFETY: this object owns both.
            unsafe {
                libc::close(epoll);
                libc::close(self.wakeup);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn adaptive(crowded: bool) -> Idle {
        Idle::new(Receipt::Adaptive, crowded)
    }

    #[test]
    fn nothing__polling_never_hands_over_and_blocking_sleeps_at_once() {
        let polling = Idle::new(Receipt::Polling, true);
        assert!((0..10_000).all(|_| !polling.nothing()));
        let blocking = Idle::new(Receipt::Blocking, false);
        assert!(blocking.nothing() && blocking.hand_over(), "it may have computed before");
        // The first poll may come late on a slow machine; a later one does not.
        assert!((0..100_000).any(|_| blocking.nothing() && !blocking.hand_over()));
        assert!(blocking.hand_over(), "it slept");
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
    fn polling__counts_from_the_first_poll_after_something_else() {
        let idle = adaptive(true);
        let (soon, mut now) = (AT_ONCE / 2, clock());
        for times in 0..10 {
            assert_eq!(idle.polling(now, now + soon), soon * times);
            now = now + soon;
        }
        assert_eq!(idle.polling(now, now + AT_ONCE), Duration::ZERO, "it computed");
        assert_eq!(idle.polling(now + AT_ONCE, now + AT_ONCE + soon), soon);
        idle.something();
        assert_eq!(idle.polling(now + AT_ONCE, now + AT_ONCE + soon), Duration::ZERO);
    }

    #[test]
    fn hand_over__a_rank_that_loses_its_core_sleeps() {
        let late = |row: Duration| {
            let idle = adaptive(false);
            let (start, soon) = (clock(), AT_ONCE / 2);
            let mut now = start;
            while idle.polling(now, now + soon) < row {
                now = now + soon;
            }
            now = now + soon;
            let back = now + Duration::from_millis(4);
            assert_eq!(idle.polling(now, back), Duration::ZERO);
            idle.turn.hand_over(back, || back)
        };
        assert_eq!(late(POLLING_AFTER), Next::Sleep);
        assert_ne!(late(POLLING_AFTER / 2), Next::Sleep, "it may have computed");
    }

    #[test]
    fn nothing__hands_over_at_once_while_others_want_the_core() {
        let idle = adaptive(false);
        assert!(!idle.nothing());
        idle.goes_on(Next::Taken, Duration::ZERO);
        let looks = || idle.nothing() && idle.goes_on(Next::Look, Duration::ZERO);
        let times = (0..).take_while(|_| looks()).count();
        assert_eq!(times, MEMORY as usize);
        assert!(adaptive(true).nothing());
    }
}
