//! The lock of a domain, for callers that come from several threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One thread at a time in the objects of a domain. Where the caller promises that itself
/// (`FI_THREAD_DOMAIN`), nothing is locked.
#[derive(Debug, Default)]
pub struct Gate {
    mutex: Option<Mutex<()>>,
}

/// Being inside.
pub struct Inside<'a>(#[allow(dead_code)] Option<MutexGuard<'a, ()>>);

impl Gate {
    /// A gate that locks if `threads` may come at the same time.
    pub fn new(threads: bool) -> Gate {
        Gate { mutex: threads.then(Mutex::default) }
    }

    /// Waits until no other thread is inside.
    #[inline]
    pub fn enter(&self) -> Inside<'_> {
        // A panic in another thread was caught at the interface; the state is whole.
        Inside(self.mutex.as_ref().map(|m| m.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Whether threads may come at the same time.
    pub fn locks(&self) -> bool {
        self.mutex.is_some()
    }
}
