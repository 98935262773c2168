//! One descriptor that waits for several sockets and costs nothing while no thread sleeps on it.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An epoll set inside the waiter's own. For every frame, the kernel calls and locks each set that
/// the socket is in; if both are on one machine, the sender pays this time. Therefore sockets are
/// in the set only while a thread sleeps, or has just slept.
pub struct Sleeper {
    set: OwnedFd,
    /// Sockets that are in the set now.
    members: Vec<RawFd>,
    /// Frames taken since the last sleep.
    frames: u32,
}

/// Frames taken without a sleep before the sockets leave the set. Entering and leaving costs two
/// system calls, which a receiver that sleeps for every frame avoids.
const AWAKE: u32 = 8;

impl Sleeper {
    /// Makes a set with one descriptor that always wakes.
    pub fn new(always: RawFd) -> io::Result<Sleeper> {
        // SAFETY: no memory is passed; the result is a descriptor that nothing else owns.
        let set = unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        let sleeper = Sleeper { set, members: Vec::new(), frames: 0 };
        sleeper.control(libc::EPOLL_CTL_ADD, always)?;
        Ok(sleeper)
    }

    fn control(&self, op: libc::c_int, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: `event` is live.
        check(unsafe { libc::epoll_ctl(self.set.as_raw_fd(), op, fd, &raw mut event) })?;
        Ok(())
    }

    /// Returns the descriptor to wait on.
    pub fn fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// Adds the sockets to the set: their frames wake the waiter from now on.
    pub fn arm(&mut self, sockets: impl Iterator<Item = RawFd>) {
        self.frames = 0;
        for fd in sockets {
            // If the kernel refuses (no memory or descriptors), the timer of the waiter still wakes
            // it.
            if !self.members.contains(&fd) && self.control(libc::EPOLL_CTL_ADD, fd).is_ok() {
                self.members.push(fd);
            }
        }
    }

    /// Removes all sockets from the set; only the permanent descriptor wakes.
    #[cold]
    pub fn disarm(&mut self) {
        for fd in std::mem::take(&mut self.members) {
            let _ = self.control(libc::EPOLL_CTL_DEL, fd);
        }
    }

    /// Counts frames that were taken.
    #[inline]
    pub fn took(&mut self, frames: usize) {
        if !self.members.is_empty() {
            self.frames = self.frames.saturating_add(frames as u32);
            if self.frames > AWAKE {
                self.disarm();
            }
        }
    }
}
