//! One epoll instance with a timer in it.

use crate::endpoint::Endpoint;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Most events taken in one call.
const MOST: usize = 8;
/// The number under which the timer is registered.
const TIMER: u64 = u64::MAX;

pub(crate) struct Epoll {
    epoll: OwnedFd,
    timer: OwnedFd,
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Endpoint {
    /// A descriptor that becomes readable when `progress` has something to do, for the caller's own
    /// `epoll` or `poll`: level-triggered, and never read. Before each sleep `prepare_wait` must
    /// return true; after it call `finish_wait`, whatever ended the sleep; then call `progress`
    /// until it has nothing more to do. Example: `examples/epoll.rs`.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.inner.borrow().waiter.fd()?;
        // SAFETY: this handle keeps the owner of the descriptor alive, and the owner never changes
        // it.
        Some(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: plain system calls without pointers.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: as above.
        let timer = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        let e = Epoll { epoll, timer };
        e.add(e.timer.as_raw_fd(), TIMER);
        Ok(e)
    }

    pub fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Registers a descriptor for reading, under a number below 64; a registered one stays.
    pub fn add(&self, fd: RawFd, number: u64) {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number };
        // SAFETY: `event` lives through the call.
        unsafe { libc::epoll_ctl(self.fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
    }

    pub fn remove(&self, fd: RawFd) {
        // SAFETY: no pointer is read for EPOLL_CTL_DEL.
        unsafe { libc::epoll_ctl(self.fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Makes the instance readable after `after`; `None` disarms.
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
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &spec, std::ptr::null_mut());
        }
    }

    /// Sleeps until a descriptor is readable, and returns the numbers of readable ones, a bit each.
    /// All bits are set if the sleep was cut short or there may be more.
    pub fn wait(&self) -> u64 {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let ready = wait(self.fd(), &mut events);
        if ready == 0 || ready == MOST {
            return u64::MAX;
        }
        let numbers = events[..ready].iter().map(|event| event.u64);
        numbers.filter(|&number| number != TIMER).fold(0, |all, number| all | 1 << (number & 63))
    }
}

/// Sleeps until a descriptor registered with an epoll instance is readable.
pub(crate) fn sleep_on(epoll: RawFd) {
    wait(epoll, &mut [libc::epoll_event { events: 0, u64: 0 }; MOST]);
}

/// Returns the number of events; 0 if a signal came first.
fn wait(epoll: RawFd, events: &mut [libc::epoll_event; MOST]) -> usize {
    // SAFETY: `events` has room for as many entries as named.
    let ready = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), MOST as i32, -1) };
    usize::try_from(ready).unwrap_or(0).min(MOST)
}
