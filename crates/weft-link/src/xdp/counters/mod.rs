//! Fetch-and-add served by the kernel: the XDP program of an interface adds and answers, whatever
//! the owner of the counters does meanwhile.
//!
//! A request is a frame of weft's EtherType for slot [`SLOT`]; the answer is the same frame sent
//! back. Requests of a client are numbered, and the program remembers the last of each client with
//! its answer: one that comes twice adds once, one that comes too late not at all. They are **not
//! authenticated**: whoever can put frames on the wire can add. So the program is only attached
//! where somebody says that the interface is trusted, and never by a job of its own accord.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 18 | 1 | version: 1 |
//! | 19 | 1 | 0: which was my last request? 1: add; 2: answer |
//! | 20 | 2 | client |
//! | 22 | 2 | slot that the answer is for |
//! | 24 | 4 | counter |
//! | 28 | 8 | number of the request |
//! | 36 | 8 | what to add; in an answer, the value before, or the number of the last request |
//!
//! Before it stand Ethernet header and shim; all numbers are little-endian.

mod client;
mod program;
#[cfg(test)]
mod tests;

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
    /// Attaches the program to an interface that is trusted: every host on that wire may add to
    /// every counter. Needs `CAP_NET_ADMIN` and `CAP_BPF`. Frames for AF_XDP sockets pass, so an
    /// interface serves either these counters or the xdp link; packet sockets are not disturbed.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` where another program is attached.
    pub fn serve(trusted: &Interface, kind: EtherType) -> io::Result<KernelCounters> {
        let counters = bpf::array(COUNTERS, 8, NAME)?;
        let clients = bpf::array(CLIENTS, 16, NAME)?;
        let code = program::assemble(&clients, &counters, kind, trusted.mac);
        let program = bpf::load(&code, NAME, false)?;
        let (link, mode) = attach::alone(&program, trusted)?;
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
