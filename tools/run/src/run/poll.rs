//! Waiting for descriptors.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Ready to read, or hung up.
pub const READ: PollFlags = PollFlags::IN;
/// Ready to write.
pub const WRITE: PollFlags = PollFlags::OUT;

/// The descriptors of one wait, each with a token that identifies it.
pub struct Set<'fd, T> {
    tokens: Vec<T>,
    fds: Vec<PollFd<'fd>>,
}

impl<T> Default for Set<'_, T> {
    fn default() -> Self {
        Set { tokens: Vec::new(), fds: Vec::new() }
    }
}

impl<'fd, T: Copy> Set<'fd, T> {
    /// Adds a descriptor.
    pub fn add(&mut self, token: T, fd: BorrowedFd<'fd>, flags: PollFlags) {
        self.tokens.push(token);
        self.fds.push(PollFd::from_borrowed_fd(fd, flags));
    }

    /// Waits until one is ready or `until` has passed, and returns the ready ones.
    pub fn wait(mut self, until: Option<Instant>) -> rustix::io::Result<Vec<T>> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Rounded up, so that the wake-up does not come just before the deadline.
        let left = left.map(|left| left + Duration::from_millis(1));
        let spec = left.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut self.fds, spec.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let ready = self.tokens.iter().zip(&self.fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(token, _)| *token).collect())
    }
}

/// Returns the earlier of two deadlines.
pub fn sooner(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
