//! Memory of calls that start a program: a path, and an environment that is written anew. They may
//! be made on a small stack, of a signal's handler or of a child of clone(2), so it is not there.
//!
//! A child by vfork(2) that has become another program gives nothing back: its parent does
//! ([`is_left`]).

use super::lock::{self, Lock};
use libc::c_char;
use std::cell::UnsafeCell;

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

struct Room {
    lock: Lock,
    memory: UnsafeCell<Memory>,
}

// SAFETY: the memory is used by the thread that has the lock; it has addresses of texts only.
unsafe impl Sync for Room {}

/// Calls at one moment that need no wait.
const ROOMS: usize = 4;

static ROOMS_OF_ALL: [Room; ROOMS] = [const {
    Room {
        lock: Lock::new(),
        memory: UnsafeCell::new(Memory { bytes: [0; BYTES], texts: [std::ptr::null(); TEXTS] }),
    }
}; ROOMS];

/// Calls `call` with memory. `None`: this thread is in such a call, in a frame that a signal
/// interrupted, and other threads have the rest.
pub fn with<R>(call: impl FnOnce(Option<&mut Memory>) -> R) -> R {
    let [first, others @ ..] = &ROOMS_OF_ALL;
    let free = |room: &'static Room| room.lock.try_take().map(|held| (room, held));
    let found = others.iter().find_map(free);
    let found = found.or_else(|| first.lock.take().map(|held| (first, held)));
    // SAFETY: the lock is held.
    let memory = found.as_ref().map(|(room, _held)| unsafe { &mut *room.memory.get() });
    call(memory)
}

/// A child in the memory of this thread has become another program, or has ended.
pub fn is_left() {
    let own = lock::thread();
    ROOMS_OF_ALL.iter().filter(|room| room.lock.is_of(own)).for_each(|room| room.lock.free());
}

/// This is a child with a memory of its own.
pub fn is_child() {
    ROOMS_OF_ALL.iter().for_each(|room| room.lock.free());
}
