//! Memory of calls that start a program: a path, and an environment that is written anew. They may
//! be made on a small stack, of a signal's handler or of a child of clone(2), so it is not there.
//!
//! A child by vfork(2) that has become another program gives nothing back: its parent does
//! ([`is_left`]).

use crate::lock::{self, Lock, Locked};
use libc::c_char;

/// Most texts of an environment that is written anew.
pub const TEXTS: usize = 1024;
/// Bytes of a path, and of the loader's variable.
pub const BYTES: usize = libc::PATH_MAX as usize;

/// The memory of one call. It may hold anything.
pub struct Memory {
    /// A path, or the loader's variable.
    pub bytes: [u8; BYTES],
    /// An environment.
    pub texts: [*const c_char; TEXTS],
}

/// Calls at one moment that need no wait.
const MEMORIES: usize = 4;

static ALL: [Locked<Memory>; MEMORIES] =
    [const { Locked::new(Memory { bytes: [0; BYTES], texts: [std::ptr::null(); TEXTS] }) };
        MEMORIES];

/// Calls `call` with memory. `None`: this thread is in such a call, in a frame that a signal
/// interrupted, and other threads have the rest.
pub fn with<R>(call: impl FnOnce(Option<&mut Memory>) -> R) -> R {
    let [first, others @ ..] = &ALL;
    let free = |one: &'static Locked<Memory>| one.lock().try_take().map(|held| (one, held));
    let found = others.iter().find_map(free);
    let mut found = found.or_else(|| first.lock().take().map(|held| (first, held)));
    call(found.as_mut().and_then(|(one, held)| one.value(held)))
}

/// A child in the memory of this thread has become another program, or has ended.
pub fn is_left() {
    let own = lock::thread();
    ALL.iter().map(Locked::lock).filter(|lock| lock.is_of(own)).for_each(Lock::free);
}

/// This is a child with a memory of its own.
pub fn is_child() {
    ALL.iter().map(Locked::lock).for_each(Lock::free);
}
