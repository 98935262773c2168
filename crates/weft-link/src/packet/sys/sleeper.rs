//! One descriptor to wait on for several, that costs nothing while nobody waits.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An epoll set inside the waiter's own. A socket in any set makes the kernel call and lock that
/// set for every frame, on the sender's time when both are on one machine: sockets are members only
/// while somebody sleeps, or has just slept.
pub struct Sleeper {
    set: OwnedFd,
    /// Sockets that are members now.
    members: Vec<RawFd>,
    /// Frames taken since the last sleep.
    frames: u32,
}

/// Frames taken without a sleep until the sockets leave the set: entering and leaving costs two
/// system calls, which who sleeps for every frame need not pay.
const AWAKE: u32 = 8;

impl Sleeper {
    /// With one descriptor that always wakes.
    pub fn new(always: RawFd) -> io::Result<Sleeper> {
        // SAFETY: no memory is passed; the result is a descriptor that nobody else owns.
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

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// From now on frames for these sockets wake.
    pub fn arm(&mut self, sockets: impl Iterator<Item = RawFd>) {
        self.frames = 0;
        for fd in sockets {
            // Without descriptors to spare for it the timer of the waiter still wakes.
            if !self.members.contains(&fd) && self.control(libc::EPOLL_CTL_ADD, fd).is_ok() {
                self.members.push(fd);
            }
        }
    }

    /// Nothing wakes but what always does.
    #[cold]
    pub fn disarm(&mut self) {
        for fd in std::mem::take(&mut self.members) {
            let _ = self.control(libc::EPOLL_CTL_DEL, fd);
        }
    }

    /// Frames were taken.
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
