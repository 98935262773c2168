//! A job that moves between threads under a lock.

use crate::inside::Inside;

/// Everything that counts references to one endpoint: the job, its groups, its operations, its
/// models.
pub struct Owned(Inside);

// SAFETY: all handles of the endpoint (the job, groups, started operations) are fields of `Inside`,
// which its methods lend and never give away; so only the holder of the lock around an `Owned` uses
// them or counts references to them. `Job::init_locked` is made for such a lock: no link that a job
// opens is bound to a thread, and wakers of the endpoint may be used by any. The packet interface
// and the models are fields too; what they register at the endpoint (clients of the port, upcalls,
// tasks) has references to them alone, and runs inside calls of the holder. Handles of the memory
// of regions that outlive the job are forgotten by the holder, and counted by nobody afterwards.
unsafe impl Send for Owned {}

impl Owned {
    /// Takes over a job that was just joined.
    pub fn new(inside: Inside) -> Owned {
        Owned(inside)
    }

    pub fn get(&mut self) -> &mut Inside {
        &mut self.0
    }
}
