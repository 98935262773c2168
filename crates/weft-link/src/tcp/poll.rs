//! One descriptor for all sockets of a link, with a timer in it.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use weft_sys::epoll::{Epoll, Event, Interest, Timer};

/// Most events taken in one call.
const MOST: usize = 32;

/// The descriptor that becomes readable when a socket of the link has something.
pub struct Poll {
    set: Epoll,
    timer: Timer,
}

fn interest(writable: bool) -> Interest {
    Interest { read: true, write: writable }
}

impl Poll {
    /// The number of the timer.
    pub const TIMER: u64 = u64::MAX;

    /// Makes the descriptor.
    pub fn new() -> io::Result<Poll> {
        let poll = Poll { set: Epoll::new()?, timer: Timer::new()? };
        poll.set.add(&poll.timer, Poll::TIMER, Interest::READ)?;
        Ok(poll)
    }

    /// Returns the descriptor.
    pub fn raw(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// Registers a socket for reading, and for writing if `writable`. A closed one is forgotten by
    /// itself.
    pub fn add(&self, fd: RawFd, token: u64, writable: bool) -> io::Result<()> {
        self.set.add(&fd, token, interest(writable))
    }

    /// Changes the interest in a registered socket.
    pub fn change(&self, fd: RawFd, token: u64, writable: bool) -> io::Result<()> {
        self.set.change(&fd, token, interest(writable))
    }

    /// Forgets a socket that stays open.
    pub fn remove(&self, fd: RawFd) {
        self.set.remove(&fd);
    }

    /// Makes the descriptor readable after this time; `None` disarms.
    pub fn arm(&self, after: Option<Duration>) {
        self.timer.arm(after);
    }

    /// Adds the reports that there are now to `out`, without waiting; at most a bounded number.
    pub fn events(&self, out: &mut Vec<Event>) {
        let mut events = [Event::default(); MOST];
        let got = self.set.wait(&mut events, 0);
        out.extend_from_slice(&events[..got]);
    }
}
