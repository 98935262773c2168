//! Blocking: spin briefly, then sleep on one descriptor.

use super::sys::epoll::Epoll;
use weft_core::Instant;
use weft_link::copied::Origin;
use weft_link::{Link, WaitFd};

/// The descriptor on which the endpoint sleeps, and the descriptors registered with it.
pub(crate) struct Waiter {
    /// A forked copy that changed the set would change it for the original, too.
    origin: Origin,
    epoll: Option<Epoll>,
    /// Registered descriptors, each with its link.
    registered: Vec<(WaitFd, u64)>,
    wanted: Vec<(WaitFd, u64)>,
    scratch: Vec<WaitFd>,
    /// Time at which the descriptor becomes readable by itself.
    armed: Option<Instant>,
}

/// Number of links whose descriptors are distinguished; further links count as always ready.
const LINKS: u64 = 64;

impl Waiter {
    pub fn new() -> Waiter {
        Waiter {
            origin: Origin::here(),
            epoll: Epoll::new().ok(),
            registered: Vec::new(),
            wanted: Vec::new(),
            scratch: Vec::new(),
            armed: None,
        }
    }

    /// Returns the descriptor, which is readable when `progress` has something to do.
    pub fn fd(&self) -> Option<std::os::fd::RawFd> {
        self.epoll.as_ref().map(Epoll::fd)
    }

    /// Makes a new set in a forked copy of the process.
    fn leave_if_copied(&mut self) {
        if !self.origin.is_here() {
            *self = Waiter::new();
        }
    }

    /// Registers exactly the descriptors the links name now.
    pub fn sync<'a>(&mut self, links: impl Iterator<Item = &'a dyn Link>) {
        self.leave_if_copied();
        let Some(epoll) = &self.epoll else { return };
        self.wanted.clear();
        for (link, number) in links.zip(0..) {
            link.wait_fds(&mut self.scratch);
            self.wanted.extend(self.scratch.drain(..).map(|fd| (fd, number)));
        }
        if self.wanted == self.registered {
            return;
        }
        // A number that was closed and opened again is another descriptor: register all changed
        // ones anew.
        for old in &self.registered {
            if !self.wanted.contains(old) {
                epoll.remove(old.0.fd);
            }
        }
        for new in &self.wanted {
            epoll.add(new.0.fd, new.1 % LINKS);
        }
        std::mem::swap(&mut self.registered, &mut self.wanted);
    }

    /// Forgets the descriptors until the next `sync`. While they are registered, the kernel
    /// notifies epoll of every packet, which costs its receive path half a microsecond even if no
    /// thread sleeps.
    #[cold]
    pub fn let_go(&mut self) {
        self.leave_if_copied();
        let Some(epoll) = &self.epoll else { return };
        self.registered.drain(..).for_each(|old| epoll.remove(old.0.fd));
    }

    /// Makes the descriptor readable at `at` (in the time of `now`), or earlier: deadlines move
    /// with every message, and a rare needless wake-up costs less than a system call each time.
    pub fn arm(&mut self, now: Instant, at: Option<Instant>) {
        self.leave_if_copied();
        let Some(epoll) = &self.epoll else { return };
        if self.armed.is_some_and(|armed| armed > now && at.is_none_or(|at| armed <= at)) {
            return;
        }
        if at.is_some() || self.armed.is_some() {
            epoll.arm(at.map(|at| at.since(now)));
            self.armed = at;
        }
    }

    /// Sleeps until a descriptor is readable or the armed time has come. Returns a bit for each
    /// link that may have packets, also for links without a descriptor.
    pub fn sleep(&self) -> u64 {
        match &self.epoll {
            Some(epoll) => {
                let told_apart =
                    self.registered.iter().fold(0, |all, (_, link)| all | 1 << (link % LINKS));
                epoll.wait() | !told_apart
            }
            None => {
                std::thread::sleep(std::time::Duration::from_millis(1));
                u64::MAX
            }
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
    use weft_core::{LinkCaps, PeerId};
    use weft_link::{Address, Frame, LinkError, PeerInfo, Sink};

    /// A link that has only a descriptor.
    struct Bell(UnixStream);

    impl Link for Bell {
        fn caps(&self) -> LinkCaps {
            LinkCaps::memory("bell", 64)
        }
        fn advertise(&self, _: &mut Address) {}
        fn connect(&mut self, _: &PeerInfo) -> Result<LinkCaps, LinkError> {
            Err(LinkError::Unsupported)
        }
        fn disconnect(&mut self, _: PeerId) {}
        fn send(&mut self, frames: &[Frame<'_>]) -> usize {
            frames.len()
        }
        fn recv(&mut self, _: usize, _: &mut dyn Sink) -> usize {
            0
        }
        fn wait_fds(&self, out: &mut Vec<WaitFd>) {
            out.push(WaitFd { fd: self.0.as_raw_fd() });
        }
    }

    impl weft_link::DirectMemory for Bell {}

    impl weft_link::Trains for Bell {}

    impl weft_link::ClosePoll for Bell {}

    impl weft_link::Reach for Bell {}

    #[test]
    fn let_go__the_next_sync_registers_again() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let bell = Bell(ours);
        let all = [(WaitFd { fd: bell.0.as_raw_fd() }, 0)];
        let mut waiter = Waiter::new();
        waiter.sync([&bell as &dyn Link].into_iter());
        waiter.let_go();
        assert_eq!(waiter.registered, []);
        theirs.write_all(b"x").unwrap();
        waiter.sync([&bell as &dyn Link].into_iter());
        assert_eq!(waiter.registered, all);
        // The sleep ends at once, since there is something to read.
        waiter.sleep();
    }

    #[test]
    fn sleep__names_the_links_that_have_something() {
        let pairs = [(); 3].map(|()| UnixStream::pair().unwrap());
        let [(a, mut to_a), (b, to_b), (c, mut to_c)] = pairs;
        let bells = [a, b, c].map(Bell);
        let mut waiter = Waiter::new();
        waiter.sync(bells.iter().map(|bell| bell as &dyn Link));
        to_c.write_all(b"x").unwrap();
        assert_eq!(waiter.sleep() & 0b111, 0b100);
        to_a.write_all(b"x").unwrap();
        assert_eq!(waiter.sleep() & 0b111, 0b101);
        assert_eq!(waiter.sleep() | 0b111, u64::MAX, "others may have something at any time");
        drop(to_b);
    }

    #[test]
    fn arm__an_earlier_alarm_serves_until_it_has_passed() {
        let mut waiter = Waiter::new();
        let at = |us: u64| Some(Instant(us * 1000));
        waiter.arm(Instant(0), at(100));
        waiter.arm(Instant(50_000), at(150));
        assert_eq!(waiter.armed, at(100), "ends the sleep early, once");
        waiter.arm(Instant(50_000), None);
        assert_eq!(waiter.armed, at(100));
        waiter.arm(Instant(50_000), at(70));
        assert_eq!(waiter.armed, at(70));
        waiter.arm(Instant(70_000), at(150));
        assert_eq!(waiter.armed, at(150));
        waiter.arm(Instant(150_000), None);
        assert_eq!(waiter.armed, None);
    }
}
