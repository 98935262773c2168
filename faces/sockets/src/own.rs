//! Descriptors of this library: high numbers, which the program does not see. A program that closes
//! all descriptors closes them too; another file that gets the number is known by not being the
//! same file.

use crate::sys::calls;
use libc::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The lowest number of a hidden descriptor.
pub const HIDDEN: c_int = 512;

/// The connection to the agent.
pub static AGENT: Own = Own::new();
/// This process's end of its bell.
pub static BELL: Own = Own::new();
/// A descriptor that can always be read, by which epoll sets are made readable.
pub static KICKER: Own = Own::new();

/// A descriptor, if there is one, and the file behind it.
pub struct Own {
    fd: AtomicI32,
    file: AtomicU64,
}

impl Own {
    const fn new() -> Own {
        Own { fd: AtomicI32::new(-1), file: AtomicU64::new(0) }
    }

    /// Returns its number; -1: there is none.
    #[inline]
    pub fn number(&self) -> RawFd {
        self.fd.load(Ordering::Acquire)
    }

    /// True if a descriptor has its number.
    #[inline]
    pub fn has_number(&self, fd: RawFd) -> bool {
        fd >= 0 && fd == self.fd.load(Ordering::Relaxed)
    }

    /// Returns it, if it still is the file that it was.
    pub fn get(&self) -> Option<RawFd> {
        Some(self.number()).filter(|&fd| self.is(fd))
    }

    fn is(&self, fd: RawFd) -> bool {
        is_file(fd, self.file.load(Ordering::Relaxed))
    }

    /// Sets it; -1: there is none.
    pub fn set(&self, fd: RawFd) {
        self.file.store(file(fd).unwrap_or(0), Ordering::Release);
        self.fd.store(fd, Ordering::Release);
    }

    /// Sets it to a new descriptor, unless another thread has done so since it was `before`.
    /// Returns the one that it is now.
    pub fn set_from(&self, before: RawFd, new: RawFd) -> RawFd {
        self.file.store(file(new).unwrap_or(0), Ordering::Relaxed);
        match self.fd.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                calls::close(new);
                other
            }
        }
    }

    /// There is none from now on. Closes it, if it still is the file that it was.
    pub fn end(&self) {
        let fd = self.fd.swap(-1, Ordering::AcqRel);
        if self.is(fd) {
            calls::close(fd);
        }
    }
}

/// Returns the number of the file behind a descriptor.
pub fn file(fd: RawFd) -> Option<u64> {
    calls::facts(fd).map(|facts| facts.st_ino)
}

/// True if a descriptor still is the file that it was.
pub fn is_file(fd: RawFd, number: u64) -> bool {
    fd >= 0 && file(fd) == Some(number)
}

/// True if a descriptor is this library's own: a program that closes it closes nothing.
#[inline]
pub fn is_own(fd: c_int) -> bool {
    fd >= HIDDEN && [&AGENT, &BELL, &KICKER].iter().any(|one| one.has_number(fd))
}

/// Returns the lowest of this library's own descriptors from this number on.
pub fn next_own(from: u32) -> Option<u32> {
    let numbers = [&AGENT, &BELL, &KICKER].map(|one| u32::try_from(one.number()).ok());
    numbers.into_iter().flatten().filter(|&own| own >= from).min()
}

/// Calls `each` with the open ones of the descriptors below this number.
pub fn each_open<const N: usize>(each: impl FnMut(RawFd)) {
    let none = libc::pollfd { fd: -1, events: 0, revents: 0 };
    let mut all = [none; N];
    all.iter_mut().zip(0..).for_each(|(one, fd)| one.fd = fd);
    let most = calls::most_descriptors().min(N);
    // The list is looked at without a wait.
    if calls::poll(&mut all[..most], 0) >= 0 {
        let open = all[..most].iter().filter(|one| one.revents & libc::POLLNVAL == 0);
        open.map(|one| one.fd).for_each(each);
    }
}
