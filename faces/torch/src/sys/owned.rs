//! A job that moves between threads under a lock.

use crate::inside::Inside;
use std::time::Duration;

/// Everything that counts references to one endpoint: the job, its group, its operations.
pub struct Owned(Inside);

// SAFETY: all handles of the endpoint (the job, its group, operations that have begun) are fields
// of `Inside`, which its methods lend and never give away; so only the holder of the lock around an
// `Owned` uses them or counts references to them. `Job::init_by` is made for such a lock: no link
// that a job opens is bound to a thread. The key-value space of the start-up is an object of Python
// that is dropped in the interpreter before the job is owned (`store`).
unsafe impl Send for Owned {}

impl Owned {
    /// Takes over a job that was just joined.
    pub fn new(inside: Inside) -> Owned {
        Owned(inside)
    }

    /// Leaves the job; what is queued is sent for at most `flush`.
    pub fn leave(self, flush: Duration) {
        self.0.leave(flush);
    }

    pub fn get(&mut self) -> &mut Inside {
        &mut self.0
    }
}
