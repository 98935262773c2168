//! Objects that threads use one after another, and the end of the process.

use crate::lock::Place;
use std::ops::{Deref, DerefMut};
use weft::Endpoint;

/// An object that a program opens: an endpoint, and the state of the face.
///
/// # Safety
/// The object and all that it refers to is used only under the lock of its slot, or handed over
/// whole. Its endpoint was opened by `job::open_endpoint`, whose links are bound to no thread.
pub unsafe trait Face: Sized + 'static {
    /// The face's errors.
    type Code: Copy;
    /// A call of the program's code, by the thread that serves the object.
    type Call;
    /// The error of a handle of nothing that is open.
    const CLOSED: Self::Code;
    /// The error of a call inside another one, and of a system without resources.
    const REFUSED: Self::Code;
    /// The error of a wait whose time is over.
    const TIMEOUT: Self::Code;
    /// The face's name, for its threads.
    const NAME: &'static str;

    /// Returns the place of the face's objects.
    fn place() -> &'static Place<Self>;
    /// Returns the endpoint.
    fn endpoint(&self) -> &Endpoint;
    /// Makes a round of progress of the endpoint. True if anything happened.
    #[inline]
    fn progress(&self) -> bool {
        self.endpoint().progress()
    }

    /// Called before a thread sleeps on the endpoint: nothing may be left that only calls look for.
    fn before_sleep(&mut self) {}

    /// Handles what a round of progress brought.
    fn reap(&mut self);
    /// Returns the number of changes for which a thread may wait.
    fn changes(&self) -> u64;
    /// Ends connections, before the endpoint says farewell.
    fn end(&mut self);

    /// True if a call of the program's code is due.
    fn is_call_due(&self) -> bool {
        false
    }

    /// True if the program waits by handlers, so that progress is urgent while it calls, too.
    fn has_handlers(&self) -> bool {
        false
    }

    /// Takes the next call of the program's code.
    fn next_call(&mut self) -> Option<Self::Call> {
        None
    }

    /// Makes a call, without the lock.
    fn run(call: Self::Call) {
        drop(call);
    }
}

/// The object of a face, in its slot.
pub(crate) struct Owned<F>(F);

// SAFETY: promised by the face: the object is used only under the lock of its slot.
unsafe impl<F: Face> Send for Owned<F> {}

impl<F: Face> Owned<F> {
    pub fn new(face: F) -> Owned<F> {
        Owned(face)
    }
}

impl<F> Deref for Owned<F> {
    type Target = F;

    #[inline]
    fn deref(&self) -> &F {
        &self.0
    }
}

impl<F> DerefMut for Owned<F> {
    #[inline]
    fn deref_mut(&mut self) -> &mut F {
        &mut self.0
    }
}

/// Calls a function at the end of the process.
pub(crate) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: the function is one of a library that stays mapped. A process without room for a
    // further handler ends without the call.
    unsafe { libc::atexit(handler) };
}
