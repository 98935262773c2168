//! Values that locks protect.

use super::{Held, Lock};
use std::cell::UnsafeCell;

/// A value that the holder of a lock uses.
pub struct Locked<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by the thread that has the lock.
unsafe impl<T> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// A value that nobody uses.
    pub const fn new(value: T) -> Locked<T> {
        Locked { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// Returns the lock.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Returns the value. `None`: this is the lock of another one.
    pub fn value<'a>(&'a self, held: &'a mut Held<'_>) -> Option<&'a mut T> {
        // SAFETY: the lock is held, by an object that the result borrows.
        std::ptr::eq(held.0, &self.lock).then(|| unsafe { &mut *self.value.get() })
    }
}
