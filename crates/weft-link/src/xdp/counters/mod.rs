//! Fetch-and-add served by the kernel: the XDP program of an interface adds and answers, whatever
//! the owner of the counters does meanwhile.
//!
//! A request is a frame of weft's EtherType for slot [`SLOT`]; the answer is the same frame sent
//! back. Requests of a client are numbered, and the program remembers the last of each client with
//! its answer: one that comes twice adds once, one that comes too late not at all. Requests and
//! answers are authenticated by a keyed hash, which the program checks and makes.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 18 | 1 | version: 1 |
//! | 19 | 1 | 0: which was my last request? 1: add; 2: answer |
//! | 20 | 2 | client |
//! | 22 | 2 | slot that the answer is for |
//! | 24 | 4 | counter |
//! | 28 | 4 | 0 |
//! | 32 | 8 | number of the request |
//! | 40 | 8 | what to add; in an answer, the value before, or the number of the last request |
//! | 48 | 8 | tag of bytes 16 to 47: SipHash-2-4 under the key of the counters |
//!
//! Before it stand Ethernet header and shim; all numbers are little-endian.

mod client;
mod program;
#[cfg(test)]
mod tests;

pub use super::sip::SipKey;
pub use client::{CounterClient, CounterError};

use super::sys::bpf;
use super::{attach, XdpMode};
use crate::ether::{EtherType, Interface};
use std::io;
use std::os::fd::OwnedFd;

/// The slot of requests.
pub const SLOT: u16 = u16::MAX;
/// Counters on an interface.
pub const COUNTERS: u32 = 1024;
/// Clients of an interface.
pub const CLIENTS: u32 = 1024;
/// Name of program and maps.
const NAME: &str = "weft_counters";

/// Counters in the kernel, added to by whoever reaches an interface. They start at 0 and end, and
/// the program is detached, when this is dropped or its process ends.
#[derive(Debug)]
pub struct KernelCounters {
    _link: OwnedFd,
    counters: OwnedFd,
    /// How the program works.
    pub mode: XdpMode,
}

impl KernelCounters {
    /// Attaches the program to an interface: who has the key may add to every counter. A new key
    /// each time: requests under an old one could be sent again. Needs `CAP_NET_ADMIN` and
    /// `CAP_BPF`. Frames for AF_XDP sockets pass, so an interface serves either these counters or
    /// the xdp link; packet sockets are not disturbed.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` where another program is attached.
    pub fn serve(
        interface: &Interface,
        kind: EtherType,
        key: SipKey,
    ) -> io::Result<KernelCounters> {
        let counters = bpf::array(COUNTERS, 8, NAME)?;
        let clients = bpf::array(CLIENTS, 16, NAME)?;
        let code = program::assemble(&clients, &counters, (kind, interface.mac), key);
        let program = bpf::load(&code, NAME, false)?;
        let (link, mode) = attach::alone(&program, interface)?;
        Ok(KernelCounters { _link: link, counters, mode })
    }

    /// The value of a counter.
    ///
    /// # Errors
    /// `ENOENT`: there is none of this number.
    pub fn read(&self, counter: u32) -> io::Result<u64> {
        bpf::read(&self.counters, counter)
    }

    /// Sets a counter, whatever is added meanwhile.
    ///
    /// # Errors
    /// `E2BIG`: there is none of this number.
    pub fn set(&self, counter: u32, value: u64) -> io::Result<()> {
        bpf::write(&self.counters, counter, value)
    }
}
