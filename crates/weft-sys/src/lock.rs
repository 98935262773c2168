//! A lock whose holder learns that other threads wait for it: a thread that spins under the lock
//! gives it away then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A value that one thread uses at a time. A panic of its user leaves it usable: callers keep
/// values in it that a panic leaves intact.
#[derive(Debug)]
pub struct Lock<T> {
    value: Mutex<T>,
    /// Number of threads that wait for the lock.
    waiting: AtomicUsize,
}

impl<T> Lock<T> {
    /// Returns the lock of a value.
    pub fn new(value: T) -> Lock<T> {
        Lock { value: Mutex::new(value), waiting: AtomicUsize::new(0) }
    }

    /// Waits for the lock, and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.value.try_lock() {
            Ok(value) => return value,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        value
    }

    /// True if other threads wait for the lock.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn is_awaited__while_another_thread_waits() {
        let lock = Lock::new(1);
        std::thread::scope(|scope| {
            let mut value = lock.lock();
            assert!(!lock.is_awaited());
            let other = scope.spawn(|| *lock.lock());
            while !lock.is_awaited() {
                std::thread::yield_now();
            }
            *value = 2;
            drop(value);
            assert_eq!(other.join().unwrap(), 2);
        });
        assert!(!lock.is_awaited());
    }

    #[test]
    fn lock__goes_on_after_a_panic() {
        let lock = Lock::new(1);
        let broken = || panic!("with {}", *lock.lock());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(broken)).is_err());
        assert_eq!(*lock.lock(), 1);
    }
}
