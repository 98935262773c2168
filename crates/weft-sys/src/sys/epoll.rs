//! Sets of descriptors that are waited for together: one system call tells all that have something,
//! however many there are.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Descriptors told at a time at the most; the others come first in the next call.
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
    /// Something to read, or room to write.
    pub const BOTH: Interest = Interest { read: true, write: true };

    fn bits(self) -> u32 {
        let of = |is_wanted, bit: libc::c_int| if is_wanted { bit as u32 } else { 0 };
        of(self.read, libc::EPOLLIN) | of(self.write, libc::EPOLLOUT)
    }
}

/// The kernel's report about one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The number under which it was added.
    pub number: u64,
    /// There may be something to read, an end or an error included.
    pub readable: bool,
    /// There may be room to write, an error included.
    pub writable: bool,
}

/// A set of descriptors, each with a number (epoll(7), level-triggered unless it says otherwise).
/// It is a descriptor itself, readable while one of its own has something.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: a call has just made the descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Epoll {
    /// Makes an empty set.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is passed.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Epoll)
    }

    fn control(&self, what: libc::c_int, fd: RawFd, bits: u32, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: bits, u64: number };
        // SAFETY: `event` is valid for the call.
        check(unsafe { libc::epoll_ctl(self.as_raw_fd(), what, fd, &mut event) })
    }

    /// Adds a descriptor under a number. A closed one leaves the set by itself, unless another
    /// process has a copy.
    ///
    /// # Errors
    /// The system has no room for it, or it is in the set.
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

    /// Changes the events of a descriptor.
    ///
    /// # Errors
    /// The descriptor is not in the set, and stays out of it.
    pub fn change(&self, fd: &impl AsRawFd, number: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd.as_raw_fd(), interest.bits(), number)
    }

    /// Removes a descriptor. To close it is not enough while another process has a copy.
    pub fn remove(&self, fd: &impl AsRawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd.as_raw_fd(), 0, 0);
    }

    /// Waits up to `ms` milliseconds for reports, -1 for as long as it takes, and stores as many as
    /// there are and have room. Returns their number; 0 also if a signal came first.
    pub fn wait<const MOST: usize>(&self, out: &mut [Event; MOST], ms: libc::c_int) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let most = MOST as libc::c_int;
        // SAFETY: `events` has room for that many.
        let got = unsafe { libc::epoll_wait(self.as_raw_fd(), events.as_mut_ptr(), most, ms) };
        let got = usize::try_from(got).unwrap_or(0).min(MOST);
        for (to, event) in out.iter_mut().zip(&events[..got]) {
            let has = |bits: libc::c_int| event.events & bits as u32 != 0;
            *to = Event {
                number: event.u64,
                readable: has(libc::EPOLLIN | libc::EPOLLERR | libc::EPOLLHUP),
                writable: has(libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP),
            };
        }
        got
    }

    /// Replaces `out` by the numbers of descriptors that have something now; never waits.
    pub fn ready(&self, out: &mut Vec<u64>) {
        let mut events = [Event::default(); AT_ONCE];
        let got = self.wait(&mut events, 0);
        out.clear();
        out.extend(events[..got].iter().map(|event| event.number));
    }
}

/// A descriptor that becomes readable at a time.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Timer {
    /// Makes a timer that is not armed.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Timer> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: no memory is passed.
        owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) }).map(Timer)
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
        let none = std::ptr::null_mut();
        // SAFETY: `spec` lives through the call; no old value is asked for.
        unsafe { libc::timerfd_settime(self.as_raw_fd(), 0, &raw const spec, none) };
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
        set.change(&one, 7, Interest::default()).unwrap();
        set.ready(&mut ready);
        assert_eq!(ready, []);
        set.change(&one, 8, Interest::BOTH).unwrap();
        set.ready(&mut ready);
        assert_eq!(ready, [8]);
        set.remove(&one);
        set.ready(&mut ready);
        assert_eq!(ready, []);
    }

    #[test]
    fn arm__the_timer_is_told_when_its_time_has_come_and_not_when_it_is_disarmed() {
        let (set, timer) = (Epoll::new().unwrap(), Timer::new().unwrap());
        set.add(&timer, 1, Interest::READ).unwrap();
        let none = Event::default();
        timer.arm(Some(Duration::from_secs(3600)));
        timer.arm(None);
        assert_eq!(set.wait(&mut [none; 2], 0), 0);
        timer.arm(Some(Duration::ZERO));
        let mut events = [none; 2];
        assert_eq!(set.wait(&mut events, -1), 1);
        assert_eq!(events[0], Event { number: 1, readable: true, writable: false });
    }
}
