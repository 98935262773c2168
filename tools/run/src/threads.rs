//! Threads that look from time to time if they are to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Threads that end with this value.
#[derive(Default)]
pub(crate) struct Threads {
    /// True when they are to end.
    pub end: Arc<AtomicBool>,
    pub all: Vec<JoinHandle<()>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.all.drain(..) {
            let _ = thread.join();
        }
    }
}
