//! The lock of a domain: among its callers, if they come from several threads, and between them and
//! a guest, who comes when they have been away for long (`sys::watchdog`).

use std::sync::atomic::{compiler_fence, AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::Thread;

/// Looks for the guest's end before a caller sleeps: a visit that is not interrupted is short.
const LOOKS: u32 = 1000;

/// One thread at a time in the objects of a domain.
///
/// Where the caller promises that itself (`FI_THREAD_DOMAIN`), entering takes no lock and no atomic
/// read-modify-write: the caller marks its turn, then looks for the guest; the guest marks its
/// visit, has every thread of the process pass a barrier, then looks for the caller. One of the two
/// sees the other (asymmetric Dekker; `membarrier(2)`). The guest gives way, the caller waits for a
/// visit that has begun.
#[derive(Debug, Default)]
pub struct Gate {
    mutex: Option<Mutex<()>>,
    /// Counts entries and exits of callers: odd while one is inside. With a mutex entries alone
    /// are counted, by two.
    turns: AtomicU64,
    /// The guest is inside, or about to look whether it may be.
    guest: AtomicBool,
    /// Sleeps until the guest has left.
    waiter: Mutex<Option<Thread>>,
}

/// Being inside.
pub struct Inside<'a> {
    gate: &'a Gate,
    locked: Option<MutexGuard<'a, ()>>,
}

/// The guest's being inside.
pub struct Visit<'a> {
    gate: &'a Gate,
    _locked: Option<MutexGuard<'a, ()>>,
}

impl Gate {
    /// A gate that locks if `threads` may come at the same time.
    pub fn new(threads: bool) -> Gate {
        Gate { mutex: threads.then(Mutex::default), ..Gate::default() }
    }

    /// Waits until no other thread is inside.
    #[inline]
    pub fn enter(&self) -> Inside<'_> {
        // A panic in another thread was caught at the interface; the state is whole.
        let locked = self.mutex.as_ref().map(|m| m.lock().unwrap_or_else(PoisonError::into_inner));
        // One caller at a time changes the count: no atomic addition is needed.
        let turn = self.turns.load(Ordering::Relaxed);
        if locked.is_some() {
            self.turns.store(turn.wrapping_add(2), Ordering::Relaxed);
        } else {
            self.turns.store(turn.wrapping_add(1), Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if self.guest.load(Ordering::Acquire) {
                self.wait_for_guest();
            }
        }
        Inside { gate: self, locked }
    }

    /// The guest may have lost its core inside, to another rank of a crowded host. It is not waited
    /// for by yielding: on another core that helps nobody, and each time puts the caller further
    /// behind the others.
    #[cold]
    fn wait_for_guest(&self) {
        for _ in 0..LOOKS {
            if !self.guest.load(Ordering::Acquire) {
                return;
            }
            std::hint::spin_loop();
        }
        *self.waiter.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
        // The guest either finds the waiter or has left before it was noted.
        while self.guest.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    /// Enters as the guest, if nobody is inside. `barrier` makes every thread of the process that
    /// runs pass a memory barrier before it returns; it is needed where callers take no lock.
    pub fn visit(&self, barrier: impl FnOnce()) -> Option<Visit<'_>> {
        if let Some(mutex) = &self.mutex {
            let locked = match mutex.try_lock() {
                Ok(locked) => locked,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            return Some(Visit { gate: self, _locked: Some(locked) });
        }
        self.guest.store(true, Ordering::SeqCst);
        let visit = Visit { gate: self, _locked: None };
        barrier();
        let taken = self.turns.load(Ordering::Acquire) % 2 == 1;
        (!taken).then_some(visit)
    }

    /// A number that changes with every caller that enters.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Whether threads may come at the same time.
    pub fn locks(&self) -> bool {
        self.mutex.is_some()
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.locked.is_none() {
            let turn = self.gate.turns.load(Ordering::Relaxed);
            self.gate.turns.store(turn.wrapping_add(1), Ordering::Release);
        }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.gate.guest.store(false, Ordering::Release);
        let waiter = self.gate.waiter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = waiter {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn visit__gives_way_to_a_caller() {
        for threads in [false, true] {
            let gate = Gate::new(threads);
            let turns = gate.turns();
            let inside = gate.enter();
            assert!(gate.visit(|| {}).is_none());
            drop(inside);
            assert_ne!(gate.turns(), turns);
            let turns = gate.turns();
            assert!(gate.visit(|| {}).is_some());
            assert_eq!(gate.turns(), turns);
            drop(gate.enter());
        }
    }

    #[test]
    fn enter__after_a_refused_visit() {
        let gate = Gate::new(false);
        let inside = gate.enter();
        assert!(gate.visit(|| {}).is_none());
        drop(inside);
        drop(gate.enter());
        assert!(gate.visit(|| {}).is_some());
    }

    #[test]
    fn enter__sleeps_until_the_guest_has_left() {
        let gate = Gate::new(false);
        let visit = gate.visit(|| {}).expect("nobody is inside");
        let entered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _inside = gate.enter();
                entered.store(true, Ordering::SeqCst);
            });
            while gate.waiter.lock().unwrap().is_none() {
                std::thread::yield_now();
            }
            assert!(!entered.load(Ordering::SeqCst));
            drop(visit);
        });
        assert!(entered.load(Ordering::SeqCst));
    }
}
