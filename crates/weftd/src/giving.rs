//! Bytes that wait in shared memory go back to TCP, as a program that cannot read them there takes
//! the connection over.
//!
//! Its process shows the socket and the bytes. The process at the other end is asked by its bell to
//! lend its socket, by which it sends nothing until it is told that the socket is free. Bytes by
//! TCP that came after those in memory are taken out, and all are sent once more, in order.

use crate::sys::passing;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_streams::message::Message;
use weft_streams::pairing::{End, Facts};
use weft_streams::words::RING;

/// Most pairs remembered; the oldest are forgotten.
const PAIRS_MAX: usize = 65_536;
/// Most connections whose bytes go back at one moment.
const JOBS_MAX: usize = 64;
/// Most bytes by TCP that are taken out.
const TAKEN_MAX: usize = 64 << 20;
/// Longest time until the other end has lent its socket and until its bytes have arrived.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two rings of a bell.
const RING_AGAIN: Duration = Duration::from_millis(20);

/// A socket by its numbers.
type Socket = (u64, u64);

fn socket(facts: &Facts) -> Socket {
    (facts.namespace, facts.cookie)
}

struct Job {
    lent: Sender<Option<OwnedFd>>,
    thread: JoinHandle<()>,
}

/// The bytes that a process shows before its socket.
struct Shown {
    /// The bytes.
    bytes: Vec<u8>,
    /// Bytes by TCP that are to be read before them.
    before: usize,
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
        let _ = passing::send(self.socket.as_raw_fd(), &message.encode(), None);
    }
}

/// The connections that may come back, and those that do.
#[derive(Default)]
pub struct Giving {
    /// The other end of each socket that shares memory.
    pairs: BTreeMap<Socket, End>,
    shown: BTreeMap<End, Shown>,
    jobs: BTreeMap<End, Job>,
    /// Connections whose bytes went back, or were to.
    pub asked: u64,
}

impl Giving {
    /// Two ends share memory from now on.
    pub fn paired(&mut self, ends: [(Option<Facts>, End); 2]) {
        let [(one, end), (other, other_end)] = ends;
        for (facts, end) in [(one, other_end), (other, end)] {
            if self.pairs.len() >= PAIRS_MAX {
                self.pairs.pop_first();
            }
            if let Some(facts) = facts {
                self.pairs.insert(socket(&facts), end);
            }
        }
    }

    /// A process shows bytes; its socket follows.
    pub fn shows(&mut self, end: End, memory: OwnedFd, before: u64) {
        let bytes = read(memory).unwrap_or_default();
        self.shown.retain(|one, _| one.0 != end.0);
        self.shown.insert(end, Shown { bytes, before: before as usize });
    }

    /// True if the next socket that this end shows is for here.
    pub fn awaits(&self, end: End) -> bool {
        self.shown.contains_key(&end)
    }

    /// A process shows its socket; returns the end that is to lend its own.
    pub fn lender(&mut self, fd: &OwnedFd) -> Option<End> {
        self.jobs.retain(|_, job| !job.thread.is_finished());
        let end = self.pairs.get(&socket(&passing::facts_of_any(fd)?)).copied()?;
        (self.jobs.len() < JOBS_MAX && !self.jobs.contains_key(&end)).then_some(end)
    }

    /// Begins to bring the bytes back that `end` has shown.
    pub fn begin(&mut self, end: End, asker: Way, fd: OwnedFd, lender: End, bell: Way) {
        let Some(Shown { bytes, before }) = self.shown.remove(&end) else { return };
        self.asked += 1;
        if let Some(facts) = passing::facts_of_any(&fd) {
            self.pairs.remove(&socket(&facts));
        }
        let (lent, is_lent) = channel();
        let work = Work { asker, bell, fd, bytes, before, is_lent, taken: Vec::new() };
        self.jobs.insert(lender, Job { lent, thread: std::thread::spawn(|| work.run()) });
    }

    /// This end does not ask for it any more.
    pub fn forget(&mut self, end: End) {
        self.shown.remove(&end);
    }

    /// A process has ended.
    pub fn gone(&mut self, program: u64) {
        self.shown.retain(|end, _| end.0 != program);
        let jobs = self.jobs.range((program, 0)..=(program, u64::MAX));
        jobs.for_each(|(_, job)| {
            let _ = job.lent.send(None);
        });
    }

    /// A process lends a socket, or says that it has none. False if nobody waits for it.
    pub fn lent(&mut self, end: End, fd: Option<OwnedFd>) -> bool {
        self.jobs.get(&end).is_some_and(|job| job.lent.send(fd).is_ok())
    }
}

/// Returns the bytes of a memory that does not change its length.
fn read(memory: OwnedFd) -> io::Result<Vec<u8>> {
    if !passing::is_sealed(&memory) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = File::from(memory);
    let mut bytes = vec![0; (file.metadata()?.len() as usize).min(RING)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The work for one connection, on a thread of its own.
struct Work {
    asker: Way,
    bell: Way,
    fd: OwnedFd,
    bytes: Vec<u8>,
    before: usize,
    is_lent: Receiver<Option<OwnedFd>>,
    /// Bytes by TCP that were taken out.
    taken: Vec<u8>,
}

impl Work {
    fn run(mut self) {
        let lender = self.bell.token;
        match self.gather() {
            Ok(lent) => {
                let (taken, before) = (&self.taken, self.before.min(self.taken.len()));
                let all = [&taken[..before], &self.bytes[..], &taken[before..]].concat();
                drop(self.fd);
                self.asker.say(&Message::Given(self.asker.token));
                // An error is the connection's, and both ends learn of it.
                let _ = passing::put(&lent, &all);
                drop(lent);
                self.bell.say(&Message::Free(lender));
            }
            Err(why) => {
                if !self.taken.is_empty() {
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

    /// Gets the other socket, and has all bytes by TCP arrive.
    fn gather(&mut self) -> Result<OwnedFd, &'static str> {
        const NOT: &str = "the other end does not lend its socket";
        if self.bytes.is_empty() {
            return Err("no bytes were shown");
        }
        let from = Instant::now();
        let lent = loop {
            self.bell.say(&Message::Lend(self.bell.token));
            match self.is_lent.recv_timeout(RING_AGAIN) {
                Ok(Some(fd)) => break fd,
                Ok(None) | Err(RecvTimeoutError::Disconnected) => return Err(NOT),
                Err(RecvTimeoutError::Timeout) if from.elapsed() > PATIENCE => return Err(NOT),
                // A call that sends may wait for room.
                Err(RecvTimeoutError::Timeout) => drop(self.take()?),
            }
        };
        self.check(&lent)?;
        let from = Instant::now();
        while from.elapsed() < PATIENCE {
            // In this order: what is acknowledged has arrived.
            let left = passing::unacknowledged(&lent).map_err(|_| NOT)?;
            if !self.take()? && left == 0 {
                return Ok(lent);
            }
            passing::acknowledge(&self.fd);
            std::thread::sleep(Duration::from_micros(if left > 0 { 200 } else { 0 }));
        }
        Err("its bytes by TCP do not arrive")
    }

    /// Takes bytes out that came by TCP after those in memory. True if there were some.
    fn take(&mut self) -> Result<bool, &'static str> {
        let there = passing::unread(&self.fd).map_err(|_| "the socket is none")?;
        if self.taken.is_empty() && there <= self.before {
            return Ok(false);
        }
        let had = self.taken.len();
        passing::take(&self.fd, &mut self.taken, TAKEN_MAX).map_err(|_| "it has ended")?;
        Ok(self.taken.len() > had)
    }

    /// True if the socket that was lent is the other end.
    fn check(&self, lent: &OwnedFd) -> Result<(), &'static str> {
        let own = passing::facts_of_any(&self.fd).ok_or("the connection has ended")?;
        let other = passing::facts_of_sender(lent).ok_or("the other end sends no more")?;
        match (own.local, own.remote) == (other.remote, other.local) {
            true => Ok(()),
            false => Err("another socket was lent"),
        }
    }
}
