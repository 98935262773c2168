//! Bytes that wait in the ring of a connection while its process becomes another program, where the
//! agent cannot bring them back to TCP.
//!
//! The bytes go along in memory of their own, whose descriptor the next program has. There this
//! library reads them before the bytes of TCP, as those of a ring that nobody writes to. This needs
//! a program of which it is known that it has this library ([`crate::program`]), and a process that
//! alone has the connection: two would have the bytes twice. The memory names the process, since a
//! child that another thread makes at that moment has the descriptor too.

mod sys;

use crate::failure::Failure;
use crate::slot::{DENIED, NEVER, NONBLOCKING, SHARED};
use crate::sys::{calls, real, socket};
use crate::table::{self, Connection, Mapped, Span};
use crate::{board, handback, own, stream, vfork};
use libc::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use sys::{List, LEN};
use weft_streams::count::Count;
use weft_streams::message::Other;

/// Connections whose bytes are kept at one moment.
const MOST: usize = 64;
/// Descriptors of one connection.
const COPIES: usize = 8;
/// Descriptors that are looked at when a program begins.
const LOOKED_AT: usize = 1024;
/// The first number of a head: a name and a version.
const MAGIC: u64 = u64::from_le_bytes(*b"wefkept1");

/// The head of the memory.
#[derive(Clone, Copy)]
#[repr(C)]
struct Head {
    magic: u64,
    /// The process, which keeps its number.
    process: u64,
    /// The socket's number.
    file: u64,
    /// The other end.
    other: [u64; 3],
    /// Descriptors of the connection; -1: none.
    copies: [i32; COPIES],
}

/// A connection whose bytes are kept: its descriptor and its slot, the memory, and their number.
#[derive(Clone, Copy)]
struct One {
    fd: RawFd,
    at: u32,
    memory: RawFd,
    len: u32,
}

/// Bytes that are kept while this process becomes another program. They are back in their rings
/// when it ends.
pub struct Kept {
    all: List,
    count: usize,
}

impl Kept {
    /// Keeps nothing yet.
    pub fn new() -> Kept {
        Kept { all: List::new(), count: 0 }
    }

    /// Keeps the bytes of a connection. No other thread reads it until this object ends.
    ///
    /// # Errors
    /// The bytes stay in the ring.
    pub fn keep(&mut self, one: &Connection) -> Result<(), Failure> {
        let count = self.count;
        let place = self.all.all().and_then(|all| all.get_mut(count));
        let place =
            place.ok_or_else(|| Failure::new("too many connections have bytes in memory"))?;
        let Some(user) = stream::enter(*one) else { return Ok(()) };
        handback::comes_back(one)?;
        let held = one.slot.receiving.take();
        let held =
            held.ok_or_else(|| Failure::new("a signal handler has interrupted a read of them"))?;
        let Some((before, bytes, len)) = user.waiting() else { return Ok(()) };
        let memory = memory_of(one, before, &bytes, len);
        let memory = memory.ok_or_else(|| Failure::new("the system has no memory for them"))?;
        user.give(len);
        std::mem::forget(held);
        *place = One { fd: one.fd, at: one.at as u32, memory, len: len as u32 };
        self.count += 1;
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let count = self.count;
        for one in self.all.all().iter().flat_map(|all| &all[..count]) {
            let at = one.at as usize;
            // Another thread may have closed it.
            let same = table::connection(one.fd).filter(|connection| connection.at == at);
            let user = same.and_then(stream::enter);
            user.iter().for_each(|user| user.take_back(one.len as usize));
            table::slot_at(at).iter().for_each(|slot| slot.receiving.free());
            calls::close(one.memory);
        }
    }
}

/// Returns memory with these bytes, for the next program.
fn memory_of(one: &Connection, before: u64, bytes: &Span, len: usize) -> Option<RawFd> {
    let copies = copies_of(one)?;
    let other = one.slot.other.get();
    let head = Head {
        magic: MAGIC,
        process: vfork::process().into(),
        file: own::file(one.fd)?,
        other: [other.program, other.token, other.key],
        copies,
    };
    let fd = calls::memory_file(c"weft-sockets-kept", 0, LEN, false)?;
    let fits = (fd as usize) < LOOKED_AT;
    if !fits || !sys::fill(fd, head, before, bytes, len) {
        calls::close(fd);
        return None;
    }
    calls::seal(fd);
    Some(fd)
}

/// Returns the descriptors of a connection that the next program has. `None`: there are too many.
fn copies_of(one: &Connection) -> Option<[i32; COPIES]> {
    let (mut copies, mut count, mut from) = ([-1; COPIES], 0, 0);
    while let Some(fd) = table::next(from, c_int::MAX) {
        from = fd + 1;
        let flags = calls::descriptor_flags(fd);
        let same = table::connection(fd).is_some_and(|other| other.at == one.at);
        if same && flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            *copies.get_mut(count)? = fd;
            count += 1;
        }
    }
    Some(copies)
}

/// Takes over what an earlier program of this process has left. `is_on`: this library may use it;
/// otherwise the connections end, as their bytes would be missing.
pub fn begin(is_on: bool) {
    let was = real::errno();
    own::each_open::<LOOKED_AT>(|fd| {
        if is_kept(fd) {
            take_over(fd, is_on);
        }
    });
    real::set_errno(was);
}

/// True if a descriptor is memory of this kind, which does not shrink.
fn is_kept(fd: RawFd) -> bool {
    let is_long = |facts: libc::stat| facts.st_size == LEN as i64;
    calls::seals(fd) == calls::LENGTH_SEALS && calls::facts(fd).is_some_and(is_long)
}

fn take_over(memory: RawFd, is_on: bool) {
    if let Some(head) = sys::head_of(memory).filter(|head| head.magic == MAGIC) {
        if head.process == u64::from(vfork::process()) {
            adopt(memory, &head, is_on);
        }
        calls::close(memory);
    }
}

/// The program has the connection whose bytes these are.
fn adopt(memory: RawFd, head: &Head, is_on: bool) {
    let is_its = |fd: &&i32| own::is_file(**fd, head.file);
    let mut copies = head.copies.iter().filter(is_its);
    let Some(&fd) = copies.next() else { return };
    let taken = is_on.then(|| Mapped::of(memory)).flatten();
    let Some((one, mapped)) = taken.and_then(|mapped| Some((table::begin(fd)?, mapped))) else {
        return socket::reset(fd);
    };
    copies.for_each(|&copy| table::copy(fd, copy));
    let [program, token, key] = head.other;
    let slot = one.slot;
    slot.other.set(Other { program, token, key });
    slot.set(NEVER);
    if calls::is_nonblocking(fd) {
        slot.set(NONBLOCKING);
    }
    slot.ask.state.store(DENIED, Ordering::Release);
    slot.counts().into_iter().for_each(Count::share);
    slot.sender.end();
    table::set_memory(one.at, mapped, true);
    slot.state.store(SHARED, Ordering::SeqCst);
    board::stays(one.at, "an earlier program has left bytes in memory");
}
