//! Reads and writes of a connection that shares memory.

mod receive;
mod send;

use crate::slot::{Slot, BROKEN};
use crate::sys::real;
use crate::table::{Connection, Memory, Span};
use crate::tcp;
use libc::{c_int, c_uint};
use std::sync::atomic::Ordering;
use weft_streams::receiver::Next;

/// A call that uses the shared memory of a connection.
pub struct Use {
    connection: Connection,
    memory: Memory,
}

impl Drop for Use {
    fn drop(&mut self) {
        self.connection.slot.users.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Begins a call. `None`: the connection does not share memory.
#[inline]
pub fn enter(connection: Connection) -> Option<Use> {
    let slot = connection.slot;
    if !slot.is_shared() {
        return None;
    }
    slot.users.fetch_add(1, Ordering::SeqCst);
    let memory = connection.is_here().then(|| connection.memory()).flatten();
    if memory.is_none() {
        slot.users.fetch_sub(1, Ordering::SeqCst);
    }
    Some(Use { connection, memory: memory? })
}

/// Adds bytes to a result of the kernel: an error counts only if nothing was moved before it.
fn with(before: usize, result: isize) -> isize {
    match result {
        0.. => before as isize + result,
        _ if before > 0 => before as isize,
        _ => result,
    }
}

impl Use {
    fn slot(&self) -> &'static Slot {
        self.connection.slot
    }

    /// The end of a connection whose peer broke the rules.
    fn broken(&self) -> isize {
        self.slot().set(BROKEN);
        self.slot().sender.end();
        real::fail(libc::ECONNRESET) as isize
    }

    /// Splices bytes to a pipe. `call` is the call of the kernel, for so many bytes.
    pub fn splice(
        &self,
        to: c_int,
        len: usize,
        flags: c_uint,
        call: impl Fn(usize) -> isize,
    ) -> isize {
        let (slot, words) = (self.slot(), self.memory.incoming());
        loop {
            let Some(held) = slot.receiving.take() else {
                return real::fail(libc::EAGAIN) as isize;
            };
            let most = match slot.receiver.next(words) {
                Err(_) => return self.broken(),
                Ok(Next::Ring { at, len: there }) => {
                    let n = self.pipe(to, at, there.min(len));
                    slot.receiver.take(words, n.max(0) as usize);
                    drop(held);
                    let is_full = n < 0 && real::errno() == libc::EAGAIN;
                    if !is_full || flags & libc::SPLICE_F_NONBLOCK != 0 || !tcp::drains(to) {
                        return n;
                    }
                    continue;
                }
                Ok(Next::Tcp(left)) => usize::try_from(left).map_or(len, |left| left.min(len)),
                Ok(Next::Open) => match slot.receiver.sleep(words) {
                    Ok(true) => len,
                    Ok(false) => continue,
                    Err(_) => return self.broken(),
                },
            };
            let under_way = slot.receiver.tcp.call();
            drop(held);
            let n = call(most);
            under_way.done(n.max(0) as u64);
            return n;
        }
    }

    /// Writes as many bytes of the ring to a pipe as it takes at once: the receiver's lock is held.
    fn pipe(&self, to: c_int, at: u64, len: usize) -> isize {
        let mut done = 0;
        while done < len && tcp::has_space(to) {
            // A pipe with space takes so many bytes without a wait.
            let n = (len - done).min(libc::PIPE_BUF);
            match self.memory.span(at + done as u64, n).write_to(to) {
                n @ 1.. => done += n as usize,
                n => return with(done, n),
            }
        }
        match done {
            0 => real::fail(libc::EAGAIN) as isize,
            done => done as isize,
        }
    }

    /// All further bytes come by TCP, after those in the ring. The holder of the receiver's lock
    /// calls it.
    pub fn make_inactive(&self) {
        self.slot().receiver.make_inactive(self.memory.incoming());
    }

    /// No further byte comes by the ring. Those that are there stay.
    pub fn end_receiving(&self) {
        self.slot().receiver.end(self.memory.incoming());
    }

    /// No further byte goes by the ring.
    pub fn end_sending(&self) {
        self.slot().sender.end();
    }

    /// The program ends its sending direction.
    pub fn say_end(&self) {
        self.slot().sender.say_end(self.memory.out());
    }

    /// Returns the bytes that wait in the ring: the number of those by TCP that come before them,
    /// the bytes, and their number. The holder of the receiver's lock calls it.
    pub fn waiting(&self) -> Option<(u64, Span, usize)> {
        let (slot, words) = (self.slot(), self.memory.incoming());
        let (before, at, len) = match slot.receiver.next(words) {
            Ok(Next::Ring { at, len }) => (0, at, len),
            Ok(Next::Tcp(left)) => (left, slot.receiver.taken(), slot.receiver.unread(words)),
            Ok(Next::Open) | Err(_) => return None,
        };
        Some((before, self.memory.span(at, len), len))
    }

    /// Bytes that waited come by TCP. The holder of the receiver's lock calls it.
    pub fn give(&self, len: usize) {
        self.slot().receiver.take(self.memory.incoming(), len);
    }

    /// Bytes that were given are in the ring again. The holder of the receiver's lock calls it.
    pub fn take_back(&self, len: usize) {
        self.slot().receiver.untake(self.memory.incoming(), len);
    }

    /// The bytes in the ring that comes in.
    pub fn in_ring(&self) -> usize {
        self.slot().receiver.unread(self.memory.incoming())
    }

    /// True if an urgent byte is next; `by_tcp`: it is the next one of TCP, before which come those
    /// in the ring.
    pub fn is_at_mark(&self, by_tcp: bool) -> bool {
        let slot = self.slot();
        let Some(_held) = slot.receiving.take() else { return by_tcp };
        let next = slot.receiver.next(self.memory.incoming());
        by_tcp && !matches!(next, Ok(Next::Ring { .. }) | Err(_))
    }

    /// Bytes that can be read beyond those that TCP has, `by_tcp`.
    pub fn unread(&self, by_tcp: u64) -> isize {
        self.slot().receiver.unread_behind(self.memory.incoming(), by_tcp) as isize
    }

    /// Bytes that can be read, or 1 if there are none and no more come: TCP_INQ tells that.
    pub fn left(&self) -> c_int {
        let fd = self.connection.fd;
        let by_tcp = tcp::unread(fd).unwrap_or(0);
        let all = by_tcp as i64 + self.unread(by_tcp) as i64;
        match all {
            ..1 => tcp::has_ended(fd).into(),
            all => all.min(c_int::MAX.into()) as c_int,
        }
    }
}
