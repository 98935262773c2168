//! Bytes that wait in shared memory go back to TCP, as a program that cannot read them there takes
//! the connection over.
//!
//! Its process shows the socket and the bytes. The process at the other end is asked by its bell to
//! lend its socket, by which it sends nothing until it is told that the socket is free. Bytes by
//! TCP that came after those in memory are taken out, and all are sent once more, in order.
//!
//! The bytes are one record of a socket that both the process and the agent have: who takes it has
//! them. So a process that waits no longer takes its bytes back, and an agent that was stopped
//! meanwhile finds none. The agent takes the record when all else is ready.

use crate::sys::passing;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_cluster::share;
use weft_streams::message::{Message, Other};
use weft_streams::pairing::End;
use weft_streams::words::RING;
use weft_sys::passing::Received;
use weft_sys::threads::stack;
use weft_sys::Foreign;

/// Most connections whose bytes go back at one moment; one user has at most half of what others
/// leave.
const JOBS_MAX: usize = 128;
/// Memory of the stack of a job's thread.
const STACK: usize = 256 << 10;
/// Bytes by TCP that are taken out at a time.
const CHUNK: usize = 64 << 10;
/// Bytes that were taken out and not sent again, at most; and that part of the room that the kernel
/// has for bytes that were not read, below which it opens no window.
const TAKEN_MAX: usize = 256 << 10;
const WINDOW_PART: usize = 8;
/// Longest time until the other end has lent its socket. The process waits longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest time once bytes were taken out, which only the hand-back can return; and for these to
/// move.
const LONG_PATIENCE: Duration = Duration::from_secs(40);
/// Time between two rings of a bell.
const RING_AGAIN: Duration = Duration::from_millis(20);

/// A word by the bell about a socket that is to be lent.
enum Lent {
    /// The socket.
    Here(Foreign),
    /// A call sends by it now.
    Soon,
    /// The socket is not lent.
    Not,
}

struct Job {
    user: u32,
    /// None: the process at the other end has ended.
    lent: Option<SyncSender<Lent>>,
    thread: JoinHandle<()>,
}

/// The bytes that a process shows before its socket.
struct Shown {
    record: Foreign,
    before: u64,
    other: Other,
}

/// A process's socket for messages, and its number of the connection.
pub struct Way {
    /// The socket.
    pub socket: UnixStream,
    /// The number.
    pub token: u64,
}

impl Way {
    fn say(&self, message: &Message) {
        // A process that has ended hears nothing.
        let _ = passing::send(&self.socket, &message.encode(), None);
    }
}

/// The connections whose bytes go back.
#[derive(Default)]
pub struct Handback {
    shown: BTreeMap<End, Shown>,
    /// By the ends that lend their sockets.
    jobs: BTreeMap<End, Job>,
    /// Connections whose bytes went back, or were to.
    pub asked: u64,
}

/// The reasons for which bytes do not go back now.
pub enum Declined {
    /// Too many of this user's do already.
    Later,
    /// Bytes of this connection cannot be given back.
    Never,
}

impl Handback {
    /// A process shows bytes; its socket follows.
    pub fn shows(&mut self, end: End, record: Foreign, before: u64, other: Other) {
        self.shown.retain(|one, _| one.0 != end.0);
        self.shown.insert(end, Shown { record, before, other });
    }

    /// Returns the end that is to lend its socket, if the next one that `end` shows is for here.
    pub fn awaits(&self, end: End) -> Option<End> {
        self.shown.get(&end).map(|shown| (shown.other.program, shown.other.token))
    }

    /// Begins to bring the bytes back that `end` has shown, to the socket `fd` of a user.
    ///
    /// # Errors
    /// The bytes stay where they are.
    pub fn begin(
        &mut self,
        (end, user): (End, u32),
        asker: Way,
        fd: Foreign,
        bell: Way,
        lender: End,
    ) -> Result<(), Declined> {
        let Shown { record, before, other } = self.shown.remove(&end).ok_or(Declined::Never)?;
        self.jobs.retain(|_, job| !job.thread.is_finished());
        let of_user = share::count(user, self.jobs.values().map(|job| job.user));
        let is_admitted = share::admits(user, of_user, self.jobs.len(), JOBS_MAX);
        if self.jobs.contains_key(&lender) || !is_admitted {
            return Err(Declined::Later);
        }
        // A process says one thing at a time; more is not kept.
        let (lent, is_lent) = sync_channel(2);
        let taken = Taken { bytes: Vec::new(), passed: 0, before, ring: None };
        let work = Work { asker, bell, key: other.key, fd, record, is_lent, taken };
        let name = std::thread::Builder::new().name("bytes back".into()).stack_size(stack(STACK));
        let thread = name.spawn(|| work.run()).map_err(|_| Declined::Later)?;
        self.asked += 1;
        self.jobs.insert(lender, Job { user, lent: Some(lent), thread });
        Ok(())
    }

    /// This end does not ask for it any more.
    pub fn forget(&mut self, end: End) {
        self.shown.remove(&end);
    }

    /// A process has ended.
    pub fn gone(&mut self, program: u64) {
        self.shown.retain(|end, _| end.0 != program);
        let jobs = self.jobs.range_mut((program, 0)..=(program, u64::MAX));
        jobs.for_each(|(_, job)| job.lent = None);
    }

    /// A process lends a socket. False if nobody waits for it.
    pub fn lent(&mut self, end: End, fd: Foreign) -> bool {
        self.hears(end, Lent::Here(fd))
    }

    /// A process lends a socket as soon as a call has ended.
    pub fn lends_soon(&mut self, end: End) {
        self.hears(end, Lent::Soon);
    }

    /// A process does not lend a socket.
    pub fn lends_not(&mut self, end: End) {
        self.hears(end, Lent::Not);
    }

    fn hears(&mut self, end: End, what: Lent) -> bool {
        let lent = self.jobs.get(&end).and_then(|job| job.lent.as_ref());
        lent.is_some_and(|lent| lent.try_send(what).is_ok())
    }
}

/// Bytes by TCP that were taken out and go back, with those of memory among them.
struct Taken {
    /// Bytes to be sent.
    bytes: Vec<u8>,
    /// Bytes by TCP that are among them, or were.
    passed: u64,
    /// Bytes by TCP that come before those of memory.
    before: u64,
    /// The bytes of memory, until it is their turn.
    ring: Option<Vec<u8>>,
}

impl Taken {
    fn add(&mut self, bytes: &[u8]) {
        let left = self.before.saturating_sub(self.passed);
        let (first, rest) = bytes.split_at((left as usize).min(bytes.len()));
        self.bytes.extend_from_slice(first);
        self.passed += bytes.len() as u64;
        if self.passed >= self.before {
            self.add_ring();
        }
        self.bytes.extend_from_slice(rest);
    }

    fn add_ring(&mut self) {
        self.bytes.extend(self.ring.take().unwrap_or_default());
    }
}

/// The work for one connection, on a thread of its own.
struct Work {
    asker: Way,
    bell: Way,
    /// The number that both ends of the connection know.
    key: u64,
    fd: Foreign,
    /// The socket with the bytes of memory.
    record: Foreign,
    is_lent: Receiver<Lent>,
    taken: Taken,
}

const NOT: &str = "the other end does not lend its socket";

impl Work {
    fn run(mut self) {
        let lender = self.bell.token;
        let done = self.gather().and_then(|lent| {
            self.turn_over(&lent)?;
            Ok(lent)
        });
        match done {
            Ok(lent) => {
                // All that came by TCP before is taken out, so that the rest may be sent while the
                // new program reads.
                let Work { fd, taken, .. } = self;
                drop(fd);
                self.asker.say(&Message::Given(self.asker.token));
                // An error is the connection's, and both ends learn of it.
                let _ = passing::put(&lent, &taken.bytes);
                drop(lent);
                self.bell.say(&Message::Free(lender));
            }
            Err(why) => {
                if self.has_record() {
                    // Bytes would be missing.
                    passing::reset(&self.fd);
                }
                log::warn!("bytes of a socket program do not go back to TCP: {why}");
                self.bell.say(&Message::Free(lender));
                let (token, why) = (self.asker.token, why.to_string());
                self.asker.say(&Message::None { token, why });
            }
        }
    }

    /// True if the bytes of memory are here.
    fn has_record(&self) -> bool {
        self.taken.ring.is_some() || self.taken.passed > 0 || !self.taken.bytes.is_empty()
    }

    /// Takes the bytes of memory, unless they are here.
    fn take_record(&mut self) -> Result<(), &'static str> {
        if self.has_record() {
            return Ok(());
        }
        let mut bytes = vec![0; RING];
        match passing::recv(&self.record, &mut bytes, self.record.user()).and_then(Received::only) {
            Ok((len @ 1.., None)) => bytes.truncate(len),
            _ => return Err("its process waits no longer"),
        }
        self.taken.ring = Some(bytes);
        self.taken.add(&[]);
        Ok(())
    }

    /// Gets the other socket, then the bytes of memory.
    fn gather(&mut self) -> Result<Foreign, &'static str> {
        if !passing::has_record(&self.record) {
            return Err("no bytes were shown");
        }
        let lent = self.borrow()?;
        self.check(&lent)?;
        self.take_record()?;
        Ok(lent)
    }

    fn patience(&self) -> Duration {
        if self.has_record() {
            LONG_PATIENCE
        } else {
            PATIENCE
        }
    }

    /// Asks for the other socket until it is lent.
    fn borrow(&mut self) -> Result<Foreign, &'static str> {
        let (from, mut is_busy) = (Instant::now(), false);
        let token = self.bell.token;
        loop {
            self.bell.say(&Message::Lend { token, key: self.key });
            match self.is_lent.recv_timeout(RING_AGAIN) {
                Ok(Lent::Here(fd)) => return Ok(fd),
                Ok(Lent::Not) | Err(RecvTimeoutError::Disconnected) => return Err(NOT),
                Ok(Lent::Soon) => is_busy = true,
                Err(RecvTimeoutError::Timeout) if from.elapsed() > self.patience() => {
                    return Err(NOT);
                }
                // A call that sends may wait for room.
                Err(RecvTimeoutError::Timeout) if is_busy => self.make_room()?,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Bytes that may be taken out before others are sent.
    fn most(&self) -> usize {
        TAKEN_MAX + passing::room(&self.fd) / WINDOW_PART
    }

    /// Takes bytes by TCP out, some at a time.
    fn make_room(&mut self) -> Result<(), &'static str> {
        self.take_record()?;
        if self.taken.bytes.len() < self.most() {
            self.take(CHUNK)?;
        }
        Ok(())
    }

    /// Takes so many bytes by TCP out, at most; returns their number.
    fn take(&mut self, most: usize) -> Result<usize, &'static str> {
        let mut bytes = Vec::new();
        passing::take(&self.fd, &mut bytes, most).map_err(|_| "it has ended")?;
        self.taken.add(&bytes);
        Ok(bytes.len())
    }

    /// Sends all again, in order, until nothing is left of what came by TCP before. The rest
    /// has found no room.
    fn turn_over(&mut self, lent: &Foreign) -> Result<(), &'static str> {
        const UNKNOWN: &str = "the system does not count the bytes that are on their way";
        let mut left = passing::outstanding(&self.fd, lent).map_err(|_| UNKNOWN)?;
        let (most, mut since) = (self.most(), Instant::now());
        while left > 0 {
            let has_room = self.taken.bytes.len() < most;
            let taken = match has_room {
                true => self.take(CHUNK.min(usize::try_from(left).unwrap_or(CHUNK)))?,
                false => 0,
            };
            left = left.saturating_sub(taken as u64);
            let sent = passing::put_now(lent, &self.taken.bytes).map_err(|_| "it has ended")?;
            drop(self.taken.bytes.drain(..sent));
            if taken > 0 || sent > 0 {
                since = Instant::now();
                continue;
            }
            if since.elapsed() > LONG_PATIENCE {
                return Err("its bytes by TCP do not arrive");
            }
            passing::acknowledge(&self.fd);
            match has_room {
                true => drop(passing::awaits(&self.fd, RING_AGAIN)),
                false => passing::awaits_room(lent, RING_AGAIN),
            }
        }
        // A process that says more than it has says it of its own stream.
        self.taken.add_ring();
        let sent = passing::put_now(lent, &self.taken.bytes).map_err(|_| "it has ended")?;
        drop(self.taken.bytes.drain(..sent));
        Ok(())
    }

    /// True if the socket that was lent is the other end.
    fn check(&self, lent: &Foreign) -> Result<(), &'static str> {
        let own = passing::facts_of_any(&self.fd).ok_or("the connection has ended")?;
        let other = passing::facts_of_sender(lent).ok_or("the other end sends no more")?;
        match (own.local, own.remote) == (other.remote, other.local) {
            true => Ok(()),
            false => Err("another socket was lent"),
        }
    }
}

/// True if a call of the kernel may be tried again.
pub fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use weft_sys::foreign::ANYBODY;

    fn foreign(fd: impl Into<OwnedFd>) -> Foreign {
        Foreign::new(fd.into(), ANYBODY)
    }

    fn listener() -> Foreign {
        foreign(std::net::TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// Shows bytes of an end of this user's, and begins. The other end never answers.
    fn begins(handback: &mut Handback, user: u32, number: u64) -> bool {
        let way = |token| Way { socket: UnixStream::pair().unwrap().0, token };
        let (end, lender) = ((number, 1), (number, 2));
        let (record, own) = passing::pair().unwrap();
        passing::send(&own, b"bytes", None).unwrap();
        let other = Other { program: number, token: 2, key: 3 };
        handback.shows(end, foreign(record), 0, other);
        assert_eq!(handback.awaits(end), Some(lender));
        let fd = listener();
        handback.begin((end, user), way(1), fd, way(2), lender).is_ok()
    }

    #[test]
    fn begin__a_user_who_asks_for_all_leaves_half_to_others() {
        let mut handback = Handback::default();
        let of_user = |handback: &mut Handback, user: u32| {
            let all = u64::from(user) * 1000..;
            all.take_while(|number| begins(handback, user, *number)).count()
        };
        let shared = JOBS_MAX / 8 * 7;
        assert_eq!(of_user(&mut handback, 1), shared / 2);
        assert_eq!(of_user(&mut handback, 2), shared / 4);
        assert_eq!(of_user(&mut handback, 3), shared / 8);
    }

    #[test]
    fn begin__a_user_with_subordinate_users_has_one_share() {
        let mut handback = Handback::default();
        let users = 7_000_001..7_000_009u32;
        let all = users.flat_map(|user| (0..16).map(move |n| (user, n)));
        let begun =
            all.filter(|(user, n)| begins(&mut handback, *user, u64::from(*user) * 1000 + n));
        assert_eq!(begun.count(), JOBS_MAX / 8 * 7 / 2);
    }

    #[test]
    fn lent__sockets_that_nobody_waits_for_are_not_kept() {
        let mut handback = Handback::default();
        assert!(begins(&mut handback, 1, 7));
        let kept = (0..1000).filter(|_| handback.lent((7, 2), listener())).count();
        assert!(kept <= 4, "{kept}");
        assert!(!handback.lent((8, 2), listener()));
    }

    #[test]
    fn begin__a_process_that_waits_no_longer_has_its_bytes() {
        let mut handback = Handback::default();
        let (record, own) = passing::pair().unwrap();
        passing::send(&own, b"bytes", None).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(passing::recv(&record, &mut bytes, ANYBODY).unwrap().len, 5);
        let (asker, hears) = UnixStream::pair().unwrap();
        let (bell, _rings) = UnixStream::pair().unwrap();
        handback.shows((1, 1), foreign(record), 0, Other::default());
        let fd = listener();
        let copy = fd.try_clone().unwrap();
        let [asker, bell] = [asker, bell].map(|socket| Way { socket, token: 1 });
        assert!(handback.begin(((1, 1), 1), asker, fd, bell, (2, 2)).is_ok());
        let hears = OwnedFd::from(hears);
        passing::awaits(&hears, Duration::from_secs(60)).unwrap();
        let len = passing::recv(&hears, &mut [0; 300], ANYBODY).unwrap().len;
        assert!(len > 0);
        // Its connection goes on.
        assert!(!passing::has_record(&copy));
    }

    /// The byte at this place of what a peer sends.
    fn byte(at: usize) -> u8 {
        (at ^ at >> 8 ^ at >> 16) as u8
    }

    /// Sends by a socket until there is no room, at most so many bytes; returns their number.
    fn fill(fd: &OwnedFd, most: usize) -> usize {
        let all: Vec<u8> = (0..most).map(byte).collect();
        let (mut sent, mut vain) = (0, 0);
        while sent < most && vain < 20 {
            match passing::put_now(fd, &all[sent..]).unwrap() {
                0 => {
                    vain += 1;
                    passing::awaits_room(fd, Duration::from_millis(10));
                }
                n => (sent, vain) = (sent + n, 0),
            }
        }
        sent
    }

    /// Brings bytes back to a reader for which a peer has sent others by TCP, as many as there is
    /// room for at most; the reader gets all in order.
    fn goes_back(most: usize, before: usize) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = OwnedFd::from(listener.accept().unwrap().0);
        let sent = fill(&peer, most);
        let ring: Vec<u8> = (0..RING).map(|at| !byte(at)).collect();
        let (record, own) = passing::pair().unwrap();
        passing::send(&own, &ring, None).unwrap();
        let ((asker, hears), (bell, rings)) = (passing::pair().unwrap(), passing::pair().unwrap());
        let [asker, bell] = [asker, bell].map(|fd| Way { socket: UnixStream::from(fd), token: 1 });
        let mut handback = Handback::default();
        handback.shows((1, 1), foreign(record), before as u64, Other::default());
        let fd = foreign(reader.try_clone().unwrap());
        assert!(handback.begin(((1, 1), 1), asker, fd, bell, (2, 1)).is_ok());
        passing::awaits(&rings, Duration::from_secs(60)).unwrap();
        // A call sends by it at first.
        handback.lends_soon((2, 1));
        assert!(handback.lent((2, 1), foreign(peer.try_clone().unwrap())));
        passing::awaits(&hears, Duration::from_secs(60)).unwrap();
        let mut bytes = [0; 300];
        let len = passing::recv(&hears, &mut bytes, ANYBODY).unwrap().len;
        assert_eq!(Message::decode(&bytes[..len]), Ok(Message::Given(1)));
        let mut got = vec![0; sent + RING];
        std::io::Read::read_exact(&mut reader, &mut got).unwrap();
        let all: Vec<u8> = (0..sent).map(byte).collect();
        let (first, rest) = all.split_at(before.min(sent));
        assert!(got == [first, &ring, rest].concat(), "{sent} bytes, {before} before");
        // Then the socket is free, and nothing else has come.
        loop {
            passing::awaits(&rings, Duration::from_secs(60)).unwrap();
            let len = passing::recv(&rings, &mut bytes, ANYBODY).unwrap().len;
            if Message::decode(&bytes[..len]) == Ok(Message::Free(1)) {
                break;
            }
        }
        assert_eq!(passing::unread(&OwnedFd::from(reader)).unwrap(), 0);
    }

    #[test]
    fn begin__a_reader_gets_all_in_order() {
        for (most, before) in [(0, 0), (10, 0), (10, 4), (10, 10), (300_000, 1), (300_000, 100_000)]
        {
            goes_back(most, before);
        }
        // All room of the kernel's is taken, on both sides.
        for before in [0, 1_000_000, usize::MAX] {
            goes_back(64 << 20, before);
        }
    }

    #[test]
    fn taken__bytes_of_memory_come_where_they_belong() {
        let all: Vec<u8> = (0..100).collect();
        for before in [0, 1, 50, 99, 100, 1000] {
            for step in [1, 7, 100] {
                let ring = Some(b"ring".to_vec());
                let mut taken = Taken { bytes: Vec::new(), passed: 0, before, ring };
                taken.add(&[]);
                all.chunks(step).for_each(|some| taken.add(some));
                taken.add_ring();
                let (first, rest) = all.split_at((before as usize).min(100));
                assert_eq!(taken.bytes, [first, b"ring", rest].concat());
            }
        }
    }
}
