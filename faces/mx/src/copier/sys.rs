//! A copy to memory of a program, by another thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use weft_link::Held;

/// A copy.
pub struct Job {
    frame: Held,
    from: usize,
    len: usize,
    to: *mut u8,
    pending: Arc<AtomicUsize>,
}

// SAFETY: the memory is that of a program, which lends it to the library; any thread may write it.
unsafe impl Send for Job {}

impl Job {
    /// Makes one, which `pending` counts until it has ended.
    ///
    /// # Safety
    /// `to` has room for the bytes, and is nobody else's until then.
    pub unsafe fn new(
        frame: Held,
        (from, len): (usize, usize),
        to: *mut u8,
        pending: Arc<AtomicUsize>,
    ) -> Job {
        Job { frame, from, len, to, pending }
    }

    /// Copies.
    pub fn run(self) {
        let Job { frame, from, len, to, pending } = self;
        if let Some(bytes) = frame.bytes().get(from..from + len) {
            // SAFETY: promised where it was made; the ring is no memory of a program.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        drop(frame);
        pending.fetch_sub(1, Ordering::Release);
    }
}
