//! Descriptors that wake a thread, and sleeping on several.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// A descriptor that is readable after it was rung.
pub struct Bell(OwnedFd);

impl Bell {
    /// Makes one.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(weft::bell::bell()?))
    }

    /// Wakes the thread that sleeps on it, or its next sleep.
    pub fn ring(&self) {
        // The write can only fail if the bell has been rung before.
        let _rung = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Ends the ringing.
    pub fn hush(&self) {
        let _quiet = rustix::io::read(&self.0, &mut [0; 512]);
    }

    /// Returns the descriptor.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Sleeps until one of the descriptors is readable, or closed, or the time is over.
pub fn wait(fds: &[RawFd], timeout: Option<Duration>) {
    let mut all: Vec<PollFd<'_>> = fds
        .iter()
        // SAFETY: the caller owns them, and a number that is closed is reported by the kernel.
        .map(|&fd| PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(fd) }, PollFlags::IN))
        .collect();
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().min(1 << 30) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // A signal ends the sleep as well.
    let _ready = poll(&mut all, timeout.as_ref());
}
