//! One epoll instance with a timer in it.

use crate::endpoint::wait::Entry;
use crate::endpoint::Endpoint;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;
use weft_link::WaitFd;

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
        e.add_as(e.timer.as_raw_fd(), TIMER);
        Ok(e)
    }

    pub fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Registers a descriptor for reading; a registered one stays.
    pub fn add(&self, entry: &Entry) {
        self.add_as(entry.0.fd, pack(entry));
    }

    fn add_as(&self, fd: RawFd, data: u64) {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: data };
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

    /// Sleeps until a registered descriptor is readable, or `hot`, which is not registered.
    pub fn sleep(&self, hot: Option<&Entry>) -> Woken {
        let Some(hot) = hot else { return self.take(-1) };
        let ask = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [ask(hot.0.fd), ask(self.fd())];
        // SAFETY: `fds` has as many entries as named.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) };
        match fds.map(|fd| ready > 0 && fd.revents != 0) {
            [true, false] => Woken::By(*hot),
            [false, true] => self.take(0),
            [true, true] => match self.take(0) {
                Woken::By(other) => Woken::Links(link_bit(hot) | link_bit(&other)),
                woken => Woken::Links(link_bit(hot) | woken.links()),
            },
            // A signal came first.
            [false, false] => Woken::Links(u64::MAX),
        }
    }

    /// Waits for events of the set, and takes them.
    fn take(&self, timeout_ms: i32) -> Woken {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let ready = wait(self.fd(), &mut events, timeout_ms);
        match events[..ready] {
            [] if timeout_ms < 0 => Woken::Links(u64::MAX),
            [event] if event.u64 != TIMER => Woken::By(unpack(event.u64)),
            _ if ready == MOST => Woken::Links(u64::MAX),
            _ => {
                let data = events[..ready].iter().map(|event| event.u64);
                let entries = data.filter(|&data| data != TIMER).map(unpack);
                Woken::Links(entries.fold(0, |all, entry| all | link_bit(&entry)))
            }
        }
    }
}

/// The end of a sleep.
#[derive(Debug)]
pub(crate) enum Woken {
    /// Only this descriptor is readable.
    By(Entry),
    /// Descriptors of these links are readable, a bit each; none, if the time has come.
    Links(u64),
}

impl Woken {
    /// Returns a bit for each link of which a descriptor is readable.
    pub fn links(&self) -> u64 {
        match self {
            Woken::By(entry) => link_bit(entry),
            Woken::Links(links) => *links,
        }
    }
}

fn link_bit(entry: &Entry) -> u64 {
    1 << entry.1
}

fn pack((of, link): &Entry) -> u64 {
    (of.fd as u64) << 8 | link
}

fn unpack(data: u64) -> Entry {
    (WaitFd { fd: (data >> 8) as RawFd }, data & 63)
}

/// Sleeps until a descriptor registered with an epoll instance is readable.
pub(crate) fn sleep_on(epoll: RawFd) {
    wait(epoll, &mut [libc::epoll_event { events: 0, u64: 0 }; MOST], -1);
}

/// Returns the number of events; 0 if a signal came first.
fn wait(epoll: RawFd, events: &mut [libc::epoll_event; MOST], timeout_ms: i32) -> usize {
    // SAFETY: `events` has room for as many entries as named.
    let ready = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), MOST as i32, timeout_ms) };
    usize::try_from(ready).unwrap_or(0).min(MOST)
}
