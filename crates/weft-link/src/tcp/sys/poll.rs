//! One epoll instance for all sockets of a link, with a timer in it.

use crate::ip::sys::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Most events taken in one call.
const MOST: usize = 32;

/// A report of the kernel about one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number under which the socket was registered.
    pub token: u64,
    /// There may be something to read, an end or an error included.
    pub readable: bool,
    /// There may be room to write, an error included.
    pub writable: bool,
}

/// The descriptor that becomes readable when a socket of the link has something.
pub struct Poll {
    epoll: OwnedFd,
    timer: OwnedFd,
}

fn interest(writable: bool) -> u32 {
    let both = if writable { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
    both as u32
}

impl Poll {
    /// The token of the timer.
    pub const TIMER: u64 = u64::MAX;

    /// Makes the instance.
    pub fn new() -> io::Result<Poll> {
        // SAFETY: no memory is passed; a non-negative result is a descriptor that nothing else
        // owns.
        let epoll =
            unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: as above.
        let timer = unsafe {
            OwnedFd::from_raw_fd(check(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags))?)
        };
        let poll = Poll { epoll, timer };
        poll.control(libc::EPOLL_CTL_ADD, poll.timer.as_raw_fd(), Poll::TIMER, false)?;
        Ok(poll)
    }

    /// Returns the descriptor.
    pub fn raw(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    fn control(&self, what: i32, fd: RawFd, token: u64, writable: bool) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest(writable), u64: token };
        // SAFETY: `event` lives through the call.
        check(unsafe { libc::epoll_ctl(self.raw(), what, fd, &raw mut event) })?;
        Ok(())
    }

    /// Registers a descriptor for reading, and for writing if `writable`. A closed one is forgotten
    /// by itself.
    pub fn add(&self, fd: RawFd, token: u64, writable: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, writable)
    }

    /// Changes the interest in a registered descriptor.
    pub fn change(&self, fd: RawFd, token: u64, writable: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, writable)
    }

    /// Forgets a descriptor that stays open.
    pub fn remove(&self, fd: RawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, false);
    }

    /// Makes the descriptor readable after this time; `None` disarms.
    pub fn arm(&self, after: Option<Duration>) {
        let after = after.map_or(Duration::ZERO, |d| d.max(Duration::from_nanos(1)));
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: after.as_secs().min(1 << 30) as libc::time_t,
                tv_nsec: after.subsec_nanos() as libc::c_long,
            },
        };
        // SAFETY: `spec` lives through the call; no old value is asked for.
        unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut());
        }
    }

    /// Passes the reports that there are now to `each`, without waiting; at most a bounded number.
    pub fn events(&self, each: &mut dyn FnMut(Event)) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        // SAFETY: `events` has room for as many entries as named.
        let n = unsafe { libc::epoll_wait(self.raw(), events.as_mut_ptr(), MOST as i32, 0) };
        for event in &events[..usize::try_from(n).unwrap_or(0).min(MOST)] {
            let (flags, token) = (event.events as i32, event.u64);
            let failed = flags & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
            each(Event {
                token,
                readable: failed || flags & libc::EPOLLIN != 0,
                writable: failed || flags & libc::EPOLLOUT != 0,
            });
        }
    }
}
