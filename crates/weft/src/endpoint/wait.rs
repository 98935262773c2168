//! Blocking without burning: spin for a moment, then sleep on one descriptor.

use super::sys::epoll::Epoll;
use weft_core::Instant;
use weft_link::WaitFd;

/// The descriptor everything can be waited on, and what is registered with it.
pub(crate) struct Waiter {
    epoll: Option<Epoll>,
    registered: Vec<WaitFd>,
    wanted: Vec<WaitFd>,
}

impl Waiter {
    pub fn new() -> Waiter {
        Waiter { epoll: Epoll::new().ok(), registered: Vec::new(), wanted: Vec::new() }
    }

    /// The descriptor: readable when `progress` has something to do.
    pub fn fd(&self) -> Option<std::os::fd::RawFd> {
        self.epoll.as_ref().map(Epoll::fd)
    }

    /// Registers exactly the descriptors the links name now.
    pub fn sync(&mut self, collect: impl FnOnce(&mut Vec<WaitFd>)) {
        let Some(epoll) = &self.epoll else { return };
        self.wanted.clear();
        collect(&mut self.wanted);
        if self.wanted == self.registered {
            return;
        }
        // A number that was closed and opened again is another descriptor: renew all that moved.
        for old in &self.registered {
            if !self.wanted.contains(old) {
                epoll.remove(old.fd);
            }
        }
        for new in &self.wanted {
            epoll.add(new.fd);
        }
        std::mem::swap(&mut self.registered, &mut self.wanted);
    }

    /// Forgets the descriptors until the next `sync`. While they are registered the kernel tells
    /// epoll of every packet, which costs its receive path half a microsecond even though nobody
    /// sleeps.
    #[cold]
    pub fn let_go(&mut self) {
        let Some(epoll) = &self.epoll else { return };
        self.registered.drain(..).for_each(|old| epoll.remove(old.fd));
    }

    /// Makes the descriptor readable at `at` (in the time of `now`).
    pub fn arm(&self, now: Instant, at: Option<Instant>) {
        if let Some(epoll) = &self.epoll {
            epoll.arm(at.map(|at| at.since(now)));
        }
    }

    /// Sleeps until a descriptor is readable or the armed time has come.
    pub fn sleep(&self) {
        match &self.epoll {
            Some(epoll) => epoll.wait(),
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn let_go__the_next_sync_registers_again() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let fd = WaitFd { fd: ours.as_raw_fd() };
        let mut waiter = Waiter::new();
        waiter.sync(|out| out.push(fd));
        waiter.let_go();
        assert_eq!(waiter.registered, []);
        theirs.write_all(b"x").unwrap();
        waiter.sync(|out| out.push(fd));
        assert_eq!(waiter.registered, [fd]);
        // Ends at once, since there is something to read.
        waiter.sleep();
    }
}
