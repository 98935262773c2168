//! Blocking: spin briefly, then sleep.

use super::sys::epoll::{Entry, Epoll, Woken};
use weft_core::Instant;
use weft_link::copied::Origin;
use weft_link::{Link, WaitFd};

/// The descriptors on which the endpoint sleeps: one set of them, and beside it the descriptor that
/// ended the last sleeps.
///
/// For each packet the kernel notifies every set that the socket is in, which costs its receive
/// path half a microsecond, also if no thread sleeps. The socket that packets come from is
/// therefore asked by itself while a wait of this endpoint sleeps, and not at all otherwise.
pub(crate) struct Waiter {
    /// A forked copy that changed the set would change it for the original, too.
    origin: Origin,
    epoll: Option<Epoll>,
    /// Descriptors in the set, each with its link.
    registered: Vec<Entry>,
    wanted: Vec<Entry>,
    scratch: Vec<WaitFd>,
    /// The descriptor outside the set.
    hot: Option<Entry>,
    /// The descriptor that shall be outside the set, and the consecutive sleeps that it ended.
    next: Option<(Entry, u32)>,
    /// Time at which the set becomes readable by itself.
    armed: Option<Instant>,
    /// Rounds of progress since the last sleep.
    rounds: u32,
}

/// Number of links whose descriptors are distinguished; further links count as always ready.
const LINKS: u64 = 64;
/// Rounds of progress without sleep after which the set of descriptors is emptied.
const AWAKE_ROUNDS: u32 = 256;
/// Consecutive sleeps ended by one descriptor after which it is asked by itself.
const SAME: u32 = 4;

/// The thread that sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleeper {
    /// A wait of the endpoint, by [`Waiter::sleep`].
    Endpoint,
    /// The program, on [`Waiter::fd`]: all descriptors are in the set.
    Program,
}

impl Waiter {
    pub fn new() -> Waiter {
        Waiter {
            origin: Origin::here(),
            epoll: Epoll::new().ok(),
            registered: Vec::new(),
            wanted: Vec::new(),
            scratch: Vec::new(),
            hot: None,
            next: None,
            armed: None,
            rounds: 0,
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
    pub fn sync<'a>(&mut self, sleeper: Sleeper, links: impl Iterator<Item = &'a dyn Link>) {
        self.leave_if_copied();
        let Some(epoll) = &self.epoll else { return };
        self.wanted.clear();
        for (link, number) in links.zip(0..) {
            link.wait_fds(&mut self.scratch);
            self.wanted.extend(self.scratch.drain(..).map(|fd| (fd, number % LINKS)));
        }
        let hot = self.hot.take().filter(|_| sleeper == Sleeper::Endpoint);
        if let Some(at) = hot.and_then(|hot| self.wanted.iter().position(|of| *of == hot)) {
            self.wanted.remove(at);
            self.hot = hot;
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
            epoll.add(new);
        }
        std::mem::swap(&mut self.registered, &mut self.wanted);
    }

    /// Counts a round of progress since the last sleep. True if the set is to be emptied now.
    #[inline]
    pub fn note_round(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        self.rounds.is_multiple_of(AWAKE_ROUNDS)
    }

    /// Counts rounds of progress anew: a sleep begins.
    pub fn note_sleep(&mut self) {
        self.rounds = 0;
    }

    /// Forgets the descriptors in the set until the next `sync`.
    #[cold]
    pub fn unregister_all(&mut self) {
        self.leave_if_copied();
        let Some(epoll) = &self.epoll else { return };
        self.registered.drain(..).for_each(|old| epoll.remove(old.0.fd));
    }

    /// Makes the set readable at `at` (in the time of `now`), or earlier: deadlines move with every
    /// message, and a rare needless wake-up costs less than a system call each time.
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
    pub fn sleep(&mut self) -> u64 {
        let Some(epoll) = &self.epoll else {
            std::thread::sleep(std::time::Duration::from_millis(1));
            return u64::MAX;
        };
        let all = self.registered.iter().chain(&self.hot);
        let told_apart = all.fold(0, |all, (_, link)| all | 1 << link);
        let woken = epoll.sleep(self.hot.as_ref());
        if let Woken::By(entry) = woken {
            self.note(entry);
        }
        woken.links() | !told_apart
    }

    /// Notes the descriptor that ended a sleep. One that ends several is asked by itself: it leaves
    /// the set, and `sync` puts the one before it back.
    fn note(&mut self, entry: Entry) {
        if self.hot == Some(entry) {
            self.next = None;
            return;
        }
        let times = self.next.filter(|(next, _)| *next == entry).map_or(1, |(_, times)| times + 1);
        self.next = Some((entry, times)).filter(|_| times < SAME);
        if times == SAME {
            self.registered.retain(|of| *of != entry);
            self.epoll.iter().for_each(|epoll| epoll.remove(entry.0.fd));
            self.hot = Some(entry);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
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

    use Sleeper::{Endpoint, Program};

    /// Returns bells and what rings them.
    fn bells<const N: usize>() -> ([Bell; N], [UnixStream; N]) {
        let mut ring = [const { None }; N];
        let bells = std::array::from_fn(|i| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ring[i] = Some(theirs);
            Bell(ours)
        });
        (bells, ring.map(Option::unwrap))
    }

    fn sync(waiter: &mut Waiter, sleeper: Sleeper, bells: &[Bell]) {
        waiter.sync(sleeper, bells.iter().map(|bell| bell as &dyn Link));
    }

    /// Rings, sleeps, and takes the byte.
    fn sleep(waiter: &mut Waiter, bells: &[Bell], ring: &mut UnixStream, at: usize) -> u64 {
        ring.write_all(b"x").unwrap();
        sync(waiter, Endpoint, bells);
        let ready = waiter.sleep();
        (&bells[at].0).read_exact(&mut [0]).unwrap();
        ready
    }

    #[test]
    fn let_go__the_next_sync_registers_again() {
        let (bells, [mut ring]) = bells();
        let mut waiter = Waiter::new();
        sync(&mut waiter, Program, &bells);
        waiter.unregister_all();
        assert_eq!(waiter.registered, []);
        ring.write_all(b"x").unwrap();
        sync(&mut waiter, Program, &bells);
        assert_eq!(waiter.registered, [(WaitFd { fd: bells[0].0.as_raw_fd() }, 0)]);
        // The sleep ends at once, since there is something to read.
        waiter.sleep();
    }

    #[test]
    fn sleep__names_the_links_that_have_something() {
        let (bells, [mut to_a, to_b, mut to_c]) = bells();
        let mut waiter = Waiter::new();
        sync(&mut waiter, Endpoint, &bells);
        to_c.write_all(b"x").unwrap();
        assert_eq!(waiter.sleep() & 0b111, 0b100);
        to_a.write_all(b"x").unwrap();
        assert_eq!(waiter.sleep() & 0b111, 0b101);
        assert_eq!(waiter.sleep() | 0b111, u64::MAX, "others may have something at any time");
        drop(to_b);
    }

    #[test]
    fn sleep__asks_the_descriptor_that_ended_the_last_sleeps_by_itself() {
        let (bells, [mut to_a, mut to_b]) = bells();
        let hot = |of: usize| Some((WaitFd { fd: bells[of].0.as_raw_fd() }, of as u64));
        let mut waiter = Waiter::new();
        for times in 1..=SAME + 2 {
            assert_eq!(sleep(&mut waiter, &bells, &mut to_a, 0) & 0b11, 0b01);
            assert_eq!(waiter.hot, hot(0).filter(|_| times >= SAME));
        }
        // Another may end a sleep, and both at once.
        assert_eq!(sleep(&mut waiter, &bells, &mut to_b, 1) & 0b11, 0b10);
        to_a.write_all(b"x").unwrap();
        assert_eq!(sleep(&mut waiter, &bells, &mut to_b, 1) & 0b11, 0b11);
        (&bells[0].0).read_exact(&mut [0]).unwrap();
        assert_eq!(waiter.hot, hot(0));
        (0..SAME).for_each(|_| _ = sleep(&mut waiter, &bells, &mut to_b, 1));
        assert_eq!(waiter.hot, hot(1));
        assert_eq!(sleep(&mut waiter, &bells, &mut to_a, 0) & 0b11, 0b01, "back in the set");
        // All of them wake a program that sleeps on the set itself.
        sync(&mut waiter, Program, &bells);
        assert_eq!((waiter.hot, waiter.registered.len()), (None, 2));
    }

    #[test]
    fn sleep__ends_at_the_armed_time_beside_a_descriptor_asked_by_itself() {
        let (bells, [mut to_a, _b]) = bells();
        let mut waiter = Waiter::new();
        (0..SAME).for_each(|_| _ = sleep(&mut waiter, &bells, &mut to_a, 0));
        assert!(waiter.hot.is_some());
        waiter.arm(Instant(0), Some(Instant(1000)));
        sync(&mut waiter, Endpoint, &bells);
        assert_eq!(waiter.sleep() & 0b11, 0);
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
