//! All `unsafe` code of the backend: a job that moves between threads, the memory of tensors, and a
//! sleep on a descriptor.

mod memory;
mod owned;

pub use memory::Memory;
pub use owned::Owned;

use std::os::fd::RawFd;
use std::time::Duration;

/// Sleeps until a descriptor is readable, at most for a time.
pub fn sleep_on(fd: RawFd, limit: Duration) {
    let mut ask = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1);
    // SAFETY: `ask` is one entry and lives through the call. The result does not matter: the caller
    // makes progress in any case.
    unsafe { libc::poll(&raw mut ask, 1, limit) };
}
