//! One epoll instance with a timer in it.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use weft_link::WaitFd;
use weft_sys::epoll::{self, Event, Interest, Timer};

/// Most events taken in one call.
const MOST: usize = 8;
/// The number under which the timer is registered.
const TIMER: u64 = u64::MAX;

/// A descriptor and the number of its link.
pub(crate) type Entry = (WaitFd, u64);

pub(crate) struct Epoll {
    set: epoll::Epoll,
    timer: Timer,
}

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        let e = Epoll { set: epoll::Epoll::new()?, timer: Timer::new()? };
        e.set.add(&e.timer, TIMER, Interest::READ)?;
        Ok(e)
    }

    pub fn fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// Registers a descriptor for reading; a registered one stays.
    pub fn add(&self, entry: &Entry) {
        let _ = self.set.add(&entry.0.fd, pack(entry), Interest::READ);
    }

    pub fn remove(&self, fd: RawFd) {
        self.set.remove(&fd);
    }

    /// Makes the instance readable after `after`; `None` disarms.
    pub fn arm(&self, after: Option<Duration>) {
        self.timer.arm(after);
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
        let mut events = [Event::default(); MOST];
        let ready = self.set.wait(&mut events, timeout_ms);
        match events[..ready] {
            [] if timeout_ms < 0 => Woken::Links(u64::MAX),
            [event] if event.number != TIMER => Woken::By(unpack(event.number)),
            _ if ready == MOST => Woken::Links(u64::MAX),
            _ => {
                let data = events[..ready].iter().map(|event| event.number);
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

/// Sleeps until a descriptor is readable.
pub(crate) fn sleep_on(fd: RawFd) {
    let mut ask = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, as named.
    unsafe { libc::poll(&raw mut ask, 1, -1) };
}
