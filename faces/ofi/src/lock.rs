//! The lock of a domain. It excludes its callers from each other, if they are several threads, and
//! from a guest: the watchdog thread, which makes progress while no caller comes (`watchdog`).
//!
//! A signal handler may call the provider while the same thread is inside another call, as
//! libraries do that clean up when the process is ended. Objects are half changed then, and the
//! handler would wait for its own thread: such a call is refused and leaves the lock unchanged.

use crate::abi::err;
use libc::c_int;
use std::cell::Cell;
use std::sync::atomic::{compiler_fence, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::Thread;

/// Number of times a caller checks that the guest has left before it sleeps; visits are short.
const CHECKS: u32 = 1000;

thread_local! {
    /// True while this thread holds or waits for a lock of the provider.
    static LOCKS: Cell<bool> = const { Cell::new(false) };
}

/// Returns a number that only this thread has; never 0.
fn this_thread() -> usize {
    LOCKS.with(|own| std::ptr::from_ref(own).addr())
}

/// The error of a call made inside another call of the same thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nested;

impl From<Nested> for c_int {
    /// Not an error after which callers try again: the interrupted call has to continue first.
    #[cold]
    fn from(_: Nested) -> c_int {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let text =
            "weft: warn: a signal handler calls the provider inside of another call; this is \
                    refused, and told once\n";
        if !TOLD.swap(true, Ordering::Relaxed) {
            // This is a system call and nothing else, which is allowed in a signal handler; the log
            // is not, because the interrupted code may be the log.
            let _written = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
        }
        err::EBUSY
    }
}

/// Marks this thread as one that takes a lock of the provider; set before the lock is taken,
/// dropped after its release. A signal handler cannot find out whether its own thread holds a lock.
pub struct Mark(());

impl Mark {
    /// Notes that this thread takes a lock.
    ///
    /// # Errors
    /// This thread holds or waits for a lock already.
    pub fn set() -> Result<Mark, Nested> {
        match LOCKS.replace(true) {
            false => Ok(Mark(())),
            true => Err(Nested),
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        LOCKS.set(false);
    }
}

/// A held lock and its mark, in the order in which they are dropped.
type Held<'a> = (MutexGuard<'a, ()>, Mark);

/// Admits one thread at a time to the objects of a domain.
///
/// Where callers promise that themselves (`FI_THREAD_DOMAIN`), entering takes no lock and no atomic
/// read-modify-write. The caller sets its mark, then reads the guest's. The guest sets its mark,
/// makes every thread of the process pass a memory barrier, then reads the caller's. At least one
/// of the two sees the other's mark (asymmetric Dekker; `membarrier(2)`). The guest gives way; the
/// caller waits for a visit that has begun.
#[derive(Debug, Default)]
pub struct Lock {
    mutex: Option<Mutex<()>>,
    /// Number of entries and exits of callers: odd while a caller is inside. With a mutex, each
    /// entry adds two and an exit nothing.
    turns: AtomicU64,
    /// The thread of the guest that is inside or about to enter; 0 for none.
    guest: AtomicUsize,
    /// The caller that sleeps until the guest has left.
    waiter: Mutex<Option<Thread>>,
}

/// Proof that the caller holds the lock; gives it back when dropped.
pub struct Inside<'a> {
    lock: &'a Lock,
    locked: Option<Held<'a>>,
}

/// Proof that the guest holds the lock; gives it back when dropped.
pub struct GuestEntry<'a> {
    lock: &'a Lock,
    _locked: Option<Held<'a>>,
}

impl Lock {
    /// Creates a lock, which has a mutex if `threads` says that several threads call.
    pub fn new(threads: bool) -> Lock {
        Lock { mutex: threads.then(Mutex::default), ..Lock::default() }
    }

    /// Waits until no other thread is inside, and enters.
    ///
    /// # Errors
    /// This thread is inside already: the call comes from a signal handler.
    #[inline]
    pub fn enter(&self) -> Result<Inside<'_>, Nested> {
        // Only one caller at a time changes the count, so no atomic addition is needed.
        let Some(mutex) = &self.mutex else {
            let turn = self.turns.load(Ordering::Relaxed);
            if turn % 2 == 1 || self.guest.load(Ordering::Relaxed) != 0 {
                self.recheck(turn)?;
            }
            self.turns.store(turn.wrapping_add(1), Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if self.guest.load(Ordering::Acquire) != 0 {
                self.wait_for_guest();
            }
            return Ok(Inside { lock: self, locked: None });
        };
        let mark = Mark::set()?;
        // A panic in another thread was caught at the interface; the state is whole.
        let locked = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.turns.load(Ordering::Relaxed);
        self.turns.store(turn.wrapping_add(2), Ordering::Relaxed);
        Ok(Inside { lock: self, locked: Some((locked, mark)) })
    }

    /// Handles a lock that is not free. Callers come one at a time, so the guest is inside or an
    /// interrupted call of this thread; the guest's thread may be interrupted too, by a fault.
    #[cold]
    fn recheck(&self, turn: u64) -> Result<(), Nested> {
        let nested = turn % 2 == 1 || self.guest.load(Ordering::Relaxed) == this_thread();
        if nested {
            return Err(Nested);
        }
        Ok(())
    }

    /// Waits until the guest has left. Another rank of a crowded host may have taken the guest's
    /// core. Yielding this core does not help a guest on another core, and each yield delays the
    /// caller.
    #[cold]
    fn wait_for_guest(&self) {
        for _ in 0..CHECKS {
            if self.guest.load(Ordering::Acquire) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
        loop {
            // Noted each time: a guest that comes again at once finds no waiter after its first
            // visit.
            let waiter = Some(std::thread::current());
            *self.waiter.lock().unwrap_or_else(PoisonError::into_inner) = waiter;
            // The guest either finds the waiter or has left before it was noted.
            if self.guest.load(Ordering::Acquire) == 0 {
                return;
            }
            std::thread::park();
        }
    }

    /// Enters as the guest, if nobody is inside. `barrier` makes every running thread of the
    /// process pass a memory barrier before it returns; it is needed where callers take no lock.
    pub fn try_enter_guest(&self, barrier: impl FnOnce()) -> Option<GuestEntry<'_>> {
        if let Some(mutex) = &self.mutex {
            let mark = Mark::set().ok()?;
            let locked = match mutex.try_lock() {
                Ok(locked) => locked,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            return Some(GuestEntry { lock: self, _locked: Some((locked, mark)) });
        }
        self.guest.store(this_thread(), Ordering::SeqCst);
        let try_enter_guest = GuestEntry { lock: self, _locked: None };
        barrier();
        let taken = self.turns.load(Ordering::Acquire) % 2 == 1;
        (!taken).then_some(try_enter_guest)
    }

    /// Returns a number that changes whenever a caller enters.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Returns true if several threads may call at the same time.
    pub fn locks(&self) -> bool {
        self.mutex.is_some()
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.locked.is_none() {
            let turn = self.lock.turns.load(Ordering::Relaxed);
            self.lock.turns.store(turn.wrapping_add(1), Ordering::Release);
        }
    }
}

impl Drop for GuestEntry<'_> {
    fn drop(&mut self) {
        self.lock.guest.store(0, Ordering::Release);
        let waiter = self.lock.waiter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = waiter {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn visit__gives_way_to_a_caller() {
        for threads in [false, true] {
            let lock = Lock::new(threads);
            let turns = lock.turns();
            let inside = lock.enter().unwrap();
            assert!(lock.try_enter_guest(|| {}).is_none());
            drop(inside);
            assert_ne!(lock.turns(), turns);
            let turns = lock.turns();
            assert!(lock.try_enter_guest(|| {}).is_some());
            assert_eq!(lock.turns(), turns);
            drop(lock.enter().unwrap());
        }
    }

    #[test]
    fn enter__inside_of_another_call_is_refused_and_changes_nothing() {
        for threads in [false, true] {
            let lock = Lock::new(threads);
            let inside = lock.enter().unwrap();
            let turns = lock.turns();
            assert_eq!(lock.enter().err(), Some(Nested));
            assert_eq!(lock.turns(), turns);
            std::thread::scope(|scope| {
                let visited = scope.spawn(|| lock.try_enter_guest(|| {}).is_some());
                assert!(!visited.join().unwrap(), "the caller is inside as before");
            });
            drop(inside);
            drop(lock.enter().unwrap());
            assert!(lock.try_enter_guest(|| {}).is_some());
        }
    }

    #[test]
    fn enter__inside_of_the_guest_s_visit_is_refused() {
        for threads in [false, true] {
            let lock = Lock::new(threads);
            let try_enter_guest = lock.try_enter_guest(|| {}).unwrap();
            let turns = lock.turns();
            assert_eq!(lock.enter().err(), Some(Nested));
            assert_eq!(lock.turns(), turns);
            drop(try_enter_guest);
            drop(lock.enter().unwrap());
        }
    }

    #[test]
    fn enter__in_two_domains_at_a_time_is_nested_where_they_lock() {
        let (one, other) = (Lock::new(true), Lock::new(true));
        let inside = one.enter().unwrap();
        assert_eq!(other.enter().err(), Some(Nested));
        drop(inside);
        drop(other.enter().unwrap());
    }

    #[test]
    fn enter__after_a_refused_visit() {
        let lock = Lock::new(false);
        let inside = lock.enter().unwrap();
        assert!(lock.try_enter_guest(|| {}).is_none());
        drop(inside);
        drop(lock.enter().unwrap());
        assert!(lock.try_enter_guest(|| {}).is_some());
    }

    #[test]
    fn enter__a_guest_that_comes_again_at_once_finds_the_waiter_again() {
        let lock = Lock::new(false);
        let visit = lock.try_enter_guest(|| {}).expect("nobody is inside");
        let noted = || {
            let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while std::time::Instant::now() < end {
                if let Some(waiter) = lock.waiter.lock().unwrap().take() {
                    return Some(waiter);
                }
                std::thread::yield_now();
            }
            None
        };
        let again = std::thread::scope(|scope| {
            scope.spawn(|| drop(lock.enter().unwrap()));
            let waiter = noted().expect("the caller waits");
            // A guest that leaves takes the waiter and wakes it; the next one is inside by then.
            waiter.unpark();
            let again = noted();
            drop(visit);
            waiter.unpark();
            again
        });
        assert!(again.is_some(), "the caller sleeps, and no guest knows of it");
    }

    #[test]
    fn enter__sleeps_until_the_guest_has_left() {
        let lock = Lock::new(false);
        let try_enter_guest = lock.try_enter_guest(|| {}).expect("nobody is inside");
        let entered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _inside = lock.enter().unwrap();
                entered.store(true, Ordering::SeqCst);
            });
            while lock.waiter.lock().unwrap().is_none() {
                std::thread::yield_now();
            }
            assert!(!entered.load(Ordering::SeqCst));
            drop(try_enter_guest);
        });
        assert!(entered.load(Ordering::SeqCst));
    }
}
