//! Numbers of futures that were woken.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// Numbers of futures that were woken, in order. Shared with wakers, which may move to other
/// threads.
#[derive(Clone, Default)]
pub(crate) struct Woken(Arc<Mutex<VecDeque<u64>>>);

struct Notice {
    number: u64,
    woken: Woken,
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.woken.push(self.number);
    }
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the waker of a future.
    pub fn waker(&self, number: u64) -> Waker {
        Waker::from(Arc::new(Notice { number, woken: self.clone() }))
    }

    /// Adds a future that was woken.
    pub fn push(&self, number: u64) {
        self.lock().push_back(number);
    }

    /// Takes the oldest one out.
    pub fn pop(&self) -> Option<u64> {
        self.lock().pop_front()
    }

    /// True if none was woken.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}
