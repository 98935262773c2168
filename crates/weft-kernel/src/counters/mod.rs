//! Fetch-and-add served by the kernel: the XDP program of an interface adds and answers, while the
//! owner of the counters may do other work.
//!
//! A request is a UDP datagram over IPv4; the answer is the same frame sent back. Requests of a
//! client are numbered, and the program remembers the last request of each client with its answer:
//! a request that arrives twice adds once, a request that arrives too late does not add. Requests
//! and answers are authenticated by a keyed hash under the client's own key; the program checks and
//! makes this hash.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 1 | version: 2 |
//! | 1 | 1 | 0: request for the number of the last request; 1: add; 2: answer |
//! | 2 | 2 | client |
//! | 4 | 4 | counter, of those that the client may add to |
//! | 8 | 8 | number of the request |
//! | 16 | 8 | number to add; in an answer, the value before, or the number of the last request |
//! | 24 | 8 | tag of bytes 0 to 23: SipHash-2-4 under the client's key |
//!
//! All numbers are little-endian.

mod client;
mod program;
mod request;
#[cfg(test)]
mod tests;

pub use crate::sip::SipKey;
pub use client::CounterClient;

use crate::sys::SharedArray;
use program::{ANSWERED, COUNT, DONE, FIRST, STATE, TAKEN};
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};
use weft_core::EndpointId;
use weft_link::ether::Interface;
use weft_link::ports::Ports;
use weft_link::secure::{JobKey, Purpose};
use weft_link::xdp::bpf;
use weft_link::xdp::{attach, XdpMode};

/// Number of counters of a host.
pub const COUNTERS: u32 = 1024;
/// Number of clients of a host.
pub const CLIENTS: u16 = 1024;
/// Name of program and maps.
const NAME: &str = "weft_counters";
/// Longest time for a program to answer a request that it has taken.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the key of a client. The owner of the counters and the client derive it from the key of
/// their job and a number drawn for each admission.
pub fn client_key(job: &JobKey, owner: EndpointId, client: EndpointId, nonce: u64) -> SipKey {
    let context = [owner.0, client.0, nonce].map(u64::to_le_bytes);
    SipKey(job.derive(Purpose::Counters, context.as_flattened()))
}

/// Counters in the kernel, to which admitted clients add. The program is detached when this is
/// dropped or its process ends.
#[derive(Debug)]
pub struct KernelCounters {
    _links: Vec<OwnedFd>,
    /// Reserves the port.
    _socket: UdpSocket,
    port: u16,
    addresses: Vec<Ipv4Addr>,
    words: SharedArray,
    clients: SharedArray,
    taken: RefCell<Taken>,
    /// The mode of the program on the first interface.
    pub mode: XdpMode,
}

/// The counters and clients in use, and their users.
#[derive(Debug)]
struct Taken {
    words: Vec<Option<u32>>,
    clients: Vec<Option<u32>>,
    /// Number of admissions so far.
    given: u64,
}

/// True if a user may take `more` of these: the user leaves a quarter to others.
fn may_take(all: &[Option<u32>], user: u32, more: usize) -> bool {
    let has = all.iter().filter(|&&of| of == Some(user)).count();
    has + more <= all.len() / 4 * 3
}

/// The data that a client needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Its number.
    pub client: u16,
    /// The port of the counters.
    pub port: u16,
    /// Number of addresses of the counters.
    pub addresses: u16,
}

impl KernelCounters {
    /// Attaches the program to the interfaces that have an IPv4 address, for a port of `ports`.
    /// Needs `CAP_NET_ADMIN` and `CAP_BPF`; later calls need no right. The program passes on frames
    /// for AF_XDP sockets, so an interface serves either these counters or the xdp link; packet
    /// sockets are not disturbed.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` if another program is attached; no interface has an address.
    pub fn serve(interfaces: &[Interface], ports: Ports) -> io::Result<KernelCounters> {
        let mut counters = KernelCounters::detached(ports)?;
        for interface in interfaces {
            let of = interface.ips.iter().find_map(|(ip, _)| match ip {
                IpAddr::V4(ip) => Some(*ip),
                IpAddr::V6(_) => None,
            });
            let Some(ip) = of else { continue };
            let (link, mode) = attach::alone(&counters.load(ip)?, interface)?;
            if counters.addresses.is_empty() {
                counters.mode = mode;
            }
            counters._links.push(link);
            counters.addresses.push(ip);
        }
        if counters.addresses.is_empty() {
            let why = "no interface has an IPv4 address";
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, why));
        }
        Ok(counters)
    }

    /// Makes counters that no interface serves.
    fn detached(ports: Ports) -> io::Result<KernelCounters> {
        let socket = ports.bind(None, |port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))?;
        Ok(KernelCounters {
            _links: Vec::new(),
            port: socket.local_addr()?.port(),
            _socket: socket,
            addresses: Vec::new(),
            words: SharedArray::new(COUNTERS, 1, NAME)?,
            clients: SharedArray::new(CLIENTS.into(), program::WORDS, NAME)?,
            taken: RefCell::new(Taken {
                words: vec![None; COUNTERS as usize],
                clients: vec![None; CLIENTS.into()],
                given: 0,
            }),
            mode: XdpMode::Generic,
        })
    }

    /// Loads the program for an address, without attaching it.
    fn load(&self, ip: Ipv4Addr) -> io::Result<OwnedFd> {
        let address = SocketAddrV4::new(ip, self.port);
        let code = program::assemble(&self.clients, &self.words, address);
        bpf::load(&code, NAME, false)
    }

    /// Returns an address of the counters.
    pub fn address(&self, number: usize) -> Option<Ipv4Addr> {
        self.addresses.get(number).copied()
    }

    /// Takes `count` consecutive counters for a user and sets each to `value`; returns the first.
    /// `None` if there are not enough, or the user would have more than three quarters of all.
    pub fn open(&self, user: u32, count: u32, value: u64) -> Option<u32> {
        let taken = &mut self.taken.borrow_mut().words;
        let count = usize::try_from(count).ok().filter(|&n| n > 0 && may_take(taken, user, n))?;
        let mut free = 0;
        let end = taken.iter().position(|of| {
            free = if of.is_none() { free + 1 } else { 0 };
            free == count
        });
        let at = end? + 1 - count;
        taken[at..at + count].fill(Some(user));
        (at..at + count).for_each(|word| self.word(word as u32).store(value, SeqCst));
        Some(at as u32)
    }

    /// Returns the numbers of counters and of clients in use.
    pub fn in_use(&self) -> (usize, usize) {
        let taken = self.taken.borrow();
        let of = |all: &[Option<u32>]| all.iter().flatten().count();
        (of(&taken.words), of(&taken.clients))
    }

    /// Frees counters. Their clients must be dismissed before.
    pub fn close(&self, first: u32, count: u32) {
        self.taken.borrow_mut().words[first as usize..][..count as usize].fill(None);
    }

    /// Returns a counter, to which programs may add at any time.
    ///
    /// # Panics
    /// `counter` is not below [`COUNTERS`].
    pub fn word(&self, counter: u32) -> &AtomicU64 {
        self.words.word(counter, 0)
    }

    /// Admits a client with this key: it may add to `count` counters from `first` on, which it
    /// numbers from 0. Each admission needs a new key: requests under an old key could be replayed.
    /// `None` if no client number is free, or clients of this user have three quarters of them.
    pub fn admit(&self, user: u32, key: &SipKey, first: u32, count: u32) -> Option<Admission> {
        let taken = &mut *self.taken.borrow_mut();
        let free = taken.clients.iter().position(Option::is_none);
        let at = free.filter(|_| may_take(&taken.clients, user, 1))?;
        taken.clients[at] = Some(user);
        taken.given += 1;
        let client = at as u16;
        let word = |at| self.clients.word(client.into(), at);
        // Different from all numbers of the client before: a program may still be about to take one
        // of those.
        [TAKEN, DONE].into_iter().for_each(|at| word(at).store(taken.given << 32, Relaxed));
        for (at, part) in (STATE..).zip(key.state()) {
            word(at).store(part, Relaxed);
        }
        word(FIRST).store(first.into(), Relaxed);
        word(COUNT).store(count.into(), Release);
        Some(Admission { client, port: self.port, addresses: self.addresses.len() as u16 })
    }

    /// Ends the service of a client. Returns the number of its last served request, and the answer.
    pub fn end(&self, client: u16) -> (u64, u64) {
        let word = |at| self.clients.word(client.into(), at);
        let last = word(TAKEN).swap(u64::MAX, SeqCst);
        word(COUNT).store(0, Release);
        let done = || word(DONE).load(Acquire);
        let until = Instant::now() + ANSWER_TIMEOUT;
        // A program that has taken the request is about to set this word.
        while last != u64::MAX && done() != last && Instant::now() < until {
            std::thread::yield_now();
        }
        (done(), word(ANSWERED).load(Relaxed))
    }

    /// Frees a client's number.
    pub fn dismiss(&self, client: u16) {
        self.end(client);
        self.taken.borrow_mut().clients[usize::from(client)] = None;
    }
}
