//! The end of joins: a process is about to become another program, or to start one that gets its
//! connections.
//!
//! The process looks at its connections one after the other. A connection that another thread joins
//! to shared memory behind the look would go to the next program with bytes that it cannot read. So
//! a thread joins connections under a lock, and only while no look is under way. A look says so,
//! and passes the lock once before it begins: all earlier joins are done then, and are seen.

use crate::shim::{AtomicU32, Ordering};

/// The looks of one process.
#[derive(Debug, Default)]
pub struct Leaving(AtomicU32);

impl Leaving {
    /// No look.
    #[cfg(not(all(loom, test)))]
    pub const fn new() -> Leaving {
        Leaving(AtomicU32::new(0))
    }

    /// A look begins. `pass` takes and gives back the lock of joins.
    pub fn begin(&self, pass: impl FnOnce()) {
        self.0.fetch_add(1, Ordering::SeqCst);
        pass();
    }

    /// The look has ended, and this process goes on.
    pub fn end(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// This is a child, in which no look is under way.
    pub fn is_new(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// True if a connection may be joined. The lock of joins is held, until it is.
    pub fn allows(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}
