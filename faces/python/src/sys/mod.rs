//! All `unsafe` code of the package: the job moves between threads, operations use memory of
//! Python objects, a thread sleeps on a descriptor, or has a signal raised.

mod buffer;
mod guarded;
mod owned;
mod post;
mod threads;
mod view;

pub use buffer::Export;
pub use guarded::{Guarded, Holds};
pub use owned::Owned;
pub use threads::{raise_signal, thread};
pub use view::{Shows, View};

use std::os::fd::RawFd;
use std::time::Duration;

/// Sleeps until a descriptor is readable, at most for a time. False if a signal came first.
pub fn sleep_on(fd: RawFd, limit: Duration) -> bool {
    let mut ask = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1);
    // SAFETY: `ask` is one entry and lives through the call.
    unsafe { libc::poll(&raw mut ask, 1, limit) >= 0 }
}
