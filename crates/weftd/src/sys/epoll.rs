//! Sets of descriptors that are waited for together: one system call tells all that have something,
//! however many there are.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Descriptors told at a time; the others come first in the next call.
const AT_ONCE: usize = 64;

/// Events of a descriptor that are waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// There is something to read, or the other side has ended.
    pub read: bool,
    /// There is room to write.
    pub write: bool,
}

impl Interest {
    /// Something to read.
    pub const READ: Interest = Interest { read: true, write: false };

    fn bits(self) -> u32 {
        let of = |is_wanted, bit: libc::c_int| if is_wanted { bit as u32 } else { 0 };
        of(self.read, libc::EPOLLIN) | of(self.write, libc::EPOLLOUT)
    }
}

/// A set of descriptors, each with a number (epoll(7), level-triggered unless
/// it says otherwise). It is a descriptor itself,
/// readable while one of its own has something.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Epoll {
    /// Makes an empty set.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        check(fd)?;
        // SAFETY: the call made the descriptor, and nobody else has it.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn control(&self, what: libc::c_int, fd: RawFd, bits: u32, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: bits, u64: number };
        // SAFETY: `event` is valid for the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &mut event) })
    }

    /// Adds a descriptor under a number.
    ///
    /// # Errors
    /// The system has no room for it.
    pub fn add(&self, fd: &impl AsRawFd, number: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), interest.bits(), number)
    }

    /// Adds a descriptor under a number, which is told each time that the other side has taken
    /// something out while there is room to write, and at first.
    ///
    /// # Errors
    /// The system has no room for it.
    pub fn add_edges(&self, fd: &impl AsRawFd, number: u64) -> io::Result<()> {
        let bits = libc::EPOLLOUT | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), bits as u32, number)
    }

    /// Changes the events of a descriptor. One that is not in the set stays out of it.
    pub fn change(&self, fd: &impl AsRawFd, number: u64, interest: Interest) {
        let _ = self.control(libc::EPOLL_CTL_MOD, fd.as_raw_fd(), interest.bits(), number);
    }

    /// Removes a descriptor. To close it is not enough while another process has a copy.
    pub fn remove(&self, fd: &impl AsRawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd.as_raw_fd(), 0, 0);
    }

    /// Replaces `out` by the numbers of descriptors that have something now; never waits.
    pub fn ready(&self, out: &mut Vec<u64>) {
        out.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; AT_ONCE];
        // SAFETY: `events` has room for that many.
        let got = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), AT_ONCE as libc::c_int, 0)
        };
        let got = usize::try_from(got).unwrap_or(0);
        out.extend(events[..got].iter().map(|event| event.u64));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn ready__returns_what_is_wanted_until_it_is_removed() {
        let set = Epoll::new().unwrap();
        let (one, mut other) = UnixStream::pair().unwrap();
        set.add(&one, 7, Interest::READ).unwrap();
        let mut ready = Vec::new();
        set.ready(&mut ready);
        assert_eq!(ready, []);
        other.write_all(b"x").unwrap();
        set.ready(&mut ready);
        assert_eq!(ready, [7]);
        set.change(&one, 7, Interest::default());
        set.ready(&mut ready);
        assert_eq!(ready, []);
        set.change(&one, 8, Interest { read: true, write: true });
        set.ready(&mut ready);
        assert_eq!(ready, [8]);
        set.remove(&one);
        set.ready(&mut ready);
        assert_eq!(ready, []);
    }
}
