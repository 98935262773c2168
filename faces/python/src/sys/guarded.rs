//! Values of one thread that the lock of shared objects moves between threads.

use std::cell::{Ref, RefCell};

/// A value that only the holder of the lock of shared objects uses.
pub struct Guarded<T>(RefCell<Option<T>>);

// SAFETY: `open`, `set` and `take` need a proof that their caller has the lock of shared objects,
// one of a job, so one thread at a time uses the value and counts references to it. All else that
// counts the same references are futures on the stacks of threads, which are polled and dropped
// under that lock alone (`Running` in `objects/work.rs`). The value shares nothing with that behind
// the job's lock: it has numbers for it (`objects/outside.rs`). Objects of Python in it are used in
// the interpreter.
unsafe impl<T> Send for Guarded<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Guarded<T> {}

/// The proof that the lock of shared objects is held by this thread.
pub trait Holds {}

impl<T> Guarded<T> {
    pub fn new() -> Guarded<T> {
        Guarded(RefCell::new(None))
    }

    /// Returns the value; `None` if there is none.
    pub fn open(&self, _lock: &impl Holds) -> Option<Ref<'_, T>> {
        Ref::filter_map(self.0.borrow(), Option::as_ref).ok()
    }

    pub fn set(&self, _lock: &impl Holds, value: T) {
        self.0.replace(Some(value));
    }

    /// Takes the value, unless it is in use.
    pub fn take(&self, _lock: &impl Holds) -> Option<T> {
        self.0.try_borrow_mut().ok()?.take()
    }
}
