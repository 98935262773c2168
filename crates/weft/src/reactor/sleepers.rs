//! Futures that wait for a time.

use super::Reactor;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::task::Waker;
use weft_core::Instant;

/// Wakers of futures that wait for a time, by time and number.
#[derive(Default)]
pub(crate) struct Sleepers {
    by_time: BTreeMap<(Instant, u64), Waker>,
    begun: u64,
}

impl Sleepers {
    /// Returns a number for a future.
    pub fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// Wakes a future at a time, in place of an earlier waker of it.
    pub fn insert(&mut self, at: Instant, number: u64, waker: Waker) {
        self.by_time.insert((at, number), waker);
    }

    /// Forgets a future.
    pub fn remove(&mut self, at: Instant, number: u64) {
        self.by_time.remove(&(at, number));
    }

    /// Returns the time of the first.
    pub fn next_at(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|(&(at, _), _)| at)
    }
}

/// Calls a waker and catches its panic, so that the reactor, or a client of the port, finishes its
/// packet.
#[inline]
pub fn wake(waker: Waker) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        // Dropping it may panic again.
        std::mem::forget(panic);
        weft_link::error!("a waker of the program panicked");
    }
}

impl Reactor {
    /// Wakes futures whose time has come. True if there was one.
    #[inline]
    pub(super) fn wake_sleepers(&mut self) -> bool {
        let mut did = false;
        while self.sleepers.next_at().is_some_and(|at| at <= self.receiver.time.now) {
            if let Some((_, waker)) = self.sleepers.by_time.pop_first() {
                wake(waker);
                did = true;
            }
        }
        did
    }
}
