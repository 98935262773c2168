//! Bytes that wait in a ring go back to TCP, where a program without this library is to read them.
//!
//! TCP takes bytes at the other end only, and in order. So the agent gets both sockets for a
//! moment: this end's, with the bytes of the ring, and the other end's, which its process lends.
//! Nothing is sent by a socket that is lent. The agent takes bytes by TCP that came after those of
//! the ring out, and sends all again.
//!
//! The other process may be computing or asleep, so a signal asks it: SIGURG, which is ignored
//! where no handler is left. It comes from the process's own bell, a socket to the agent; nobody
//! needs a right for it. A process that blocks the signal answers when it next uses the connection.
//!
//! The bytes are one record of a pair of sockets, whose other end the agent has too. So bytes that
//! cannot go back, or not in time, are taken back here, and stay in the ring.

use super::lock::Lock;
use super::slot::{self, Slot, BROKEN, HELD, WANTED};
use super::table::{self, Connection};
use super::urgent;
use super::{board, line, real, stream, tcp};
use libc::{c_int, iovec};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use weft_streams::message::{Message, MESSAGE_MAX};

/// Time for which the start of another program waits for a socket that is lent, in milliseconds.
const PATIENCE_MS: u32 = 5_000;
/// A wait without end: that of a send whose socket is lent.
pub const EVER: u32 = u32::MAX;

/// This process's end of its bell, and the file behind it.
static BELL: AtomicI32 = AtomicI32::new(-1);
static FILE: AtomicU64 = AtomicU64::new(0);
/// Held to read the bell: messages are obeyed in order.
static LOCK: Lock = Lock::new();

/// The reason for which bytes stay in a ring.
#[derive(Clone, Copy)]
pub struct Why {
    text: [u8; WHY],
    len: usize,
}

/// Longest reason.
const WHY: usize = 112;

impl Why {
    /// Makes one, as long as there is room.
    pub fn new(text: &str) -> Why {
        let mut why = Why { text: [0; WHY], len: 0 };
        for (to, from) in why.text.iter_mut().zip(text.bytes()) {
            *to = from;
            why.len += 1;
        }
        why
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

/// Has the bytes that wait in the ring of a connection come by TCP.
///
/// # Errors
/// They stay in the ring; or the connection has ended by an error, which its reads tell.
pub fn give_back(one: &Connection) -> Result<(), Why> {
    let Some(user) = stream::enter(*one) else { return Ok(()) };
    comes_back(one)?;
    let Some(_held) = one.slot.receiving.take() else {
        return Err(Why::new("a signal handler has interrupted a read of them"));
    };
    user.dozes();
    let Some((before, parts, len)) = user.waiting() else { return Ok(()) };
    if line::is_over() {
        return Err(Why::new(
            "the program has confined itself, or shares descriptors with a child",
        ));
    }
    let [own, record] =
        record_of(&parts, len).ok_or_else(|| Why::new("the system has no descriptors for it"))?;
    let given = line::give_back(one, before, record, || has_taken(record));
    [own, record].into_iter().for_each(line::close);
    given?;
    user.give(len);
    // The peer's bytes may have gone back meanwhile.
    comes_back(one)
}

/// Waits for the socket, if it is lent: the next program sends behind what the agent sends.
///
/// # Errors
/// The agent keeps it.
pub fn comes_back(one: &Connection) -> Result<(), Why> {
    let is_here = !one.slot.has(HELD | WANTED) || is_back(one, PATIENCE_MS);
    is_here.then_some(()).ok_or_else(|| Why::new("the agent still sends by the socket"))
}

/// Returns a pair of sockets, of which the second one has a record with these bytes.
fn record_of(parts: &[iovec; 2], len: usize) -> Option<[RawFd; 2]> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors; then the parts are those of a ring.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) != 0 {
            return None;
        }
        if real::writev(ends[0], parts.as_ptr(), 2) == len as isize {
            return Some(ends);
        }
    }
    ends.into_iter().for_each(line::close);
    None
}

/// Takes the record back. False: the agent has it.
fn has_taken(record: RawFd) -> bool {
    let mut byte = 0u8;
    // SAFETY: room for one byte; the rest of a record is thrown away.
    unsafe { real::recv(record, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) > 0 }
}

/// A connection ends whose bytes would be lost: an error tells it to both ends.
pub fn reset(one: &Connection) {
    board::stays(one.at, "bytes of its ring could not go back to TCP");
    one.slot.set(BROKEN);
    reset_socket(one.fd);
}

/// The same of a socket.
pub fn reset_socket(fd: RawFd) {
    // SAFETY: all-zero is a valid value: no family.
    unsafe {
        let none: libc::sockaddr = std::mem::zeroed();
        real::connect(fd, &none, size_of::<libc::sockaddr>() as libc::socklen_t);
    }
}

/// True if a descriptor is this library's own.
#[inline]
pub fn is_own(fd: c_int) -> bool {
    fd >= 0 && fd == BELL.load(Ordering::Relaxed)
}

/// Returns this library's own descriptor.
pub fn own() -> Option<u32> {
    u32::try_from(BELL.load(Ordering::Relaxed)).ok()
}

/// This process is a child: its parent's bell is not its own.
pub fn is_child() {
    LOCK.free();
    ends();
}

/// The agent is not answered any more.
pub fn ends() {
    let fd = BELL.swap(-1, Ordering::AcqRel);
    if line::is_file(fd, FILE.load(Ordering::Relaxed)) {
        line::close(fd);
    }
}

fn bell() -> Option<RawFd> {
    let fd = BELL.load(Ordering::Acquire);
    line::is_file(fd, FILE.load(Ordering::Relaxed)).then_some(fd)
}

/// Makes the bell, unless there is one. Returns the agent's end, for the agent.
pub fn make_bell() -> Option<RawFd> {
    if bell().is_some() || !urgent::is_caught() {
        return None;
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: descriptors of this library.
    let fd = unsafe { real::fcntl(ends[0], libc::F_DUPFD_CLOEXEC, line::HIDDEN.into()) };
    line::close(ends[0]);
    let own = line::process();
    // SAFETY: no memory is passed.
    let rings = unsafe {
        fd >= 0
            && real::fcntl(fd, libc::F_SETOWN, own.into()) == 0
            && real::fcntl(fd, F_SETSIG, libc::SIGURG.into()) == 0
            && real::fcntl(fd, libc::F_SETFL, (libc::O_ASYNC | libc::O_NONBLOCK).into()) == 0
    };
    if !rings {
        line::close(fd);
        line::close(ends[1]);
        return None;
    }
    FILE.store(line::file(fd).unwrap_or(0), Ordering::Release);
    BELL.store(fd, Ordering::Release);
    Some(ends[1])
}

/// Its number on all machines that this library is built for.
const F_SETSIG: c_int = 10;

/// Obeys what the agent says by the bell.
pub fn answer() {
    let Some(_held) = LOCK.try_take() else { return };
    while let Some(message) = bell().and_then(next) {
        match message {
            Message::Lend { token, key } => {
                let of_key = |one: &Connection| one.slot.other.get().key == key;
                let Some(one) = connection_of(token).filter(of_key) else {
                    say(&Message::Cancel(token), None);
                    continue;
                };
                let is_lent = one.slot.has(HELD) && !one.slot.has(WANTED);
                if !is_lent {
                    one.slot.set(WANTED);
                    try_lend(&one);
                }
                if one.slot.has(WANTED) {
                    say(&Message::Soon(token), None);
                }
            }
            Message::Free(token) => {
                connection_of(token).iter().for_each(|one| one.slot.clear(HELD | WANTED));
            }
            _ => {}
        }
    }
}

/// Receives the next message of the agent.
fn next(fd: RawFd) -> Option<Message> {
    let mut bytes = [0u8; MESSAGE_MAX];
    let (at, len) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: room for so many bytes.
    let n = unsafe { real::recv(fd, at, len, libc::MSG_DONTWAIT) };
    match n {
        1.. => Message::decode(&bytes[..n as usize]).ok(),
        0 => {
            has_no_agent(fd);
            None
        }
        _ => None,
    }
}

/// The agent has ended: nobody knows how much it sent by the sockets that were lent to it.
fn has_no_agent(fd: RawFd) {
    BELL.store(-1, Ordering::Release);
    line::close(fd);
    let Some(region) = slot::region() else { return };
    table::each_slot(region, |_, slot| {
        if slot.has(HELD) && !slot.has(WANTED) {
            slot.set(BROKEN);
        }
        slot.clear(HELD | WANTED);
    });
}

fn say(message: &Message, pass: Option<RawFd>) -> bool {
    bell().is_some_and(|fd| line::say_by(fd, message, pass))
}

/// Returns the connection of a token, by a descriptor of this process.
fn connection_of(token: u64) -> Option<Connection> {
    let at = (token & u64::from(u32::MAX)) as usize;
    let slot = table::slot_at(at)?;
    if line::token(at, slot) != token {
        return None;
    }
    let of_it = |fd| table::connection(fd).filter(|one| one.at == at);
    of_it(slot.ask.fd.load(Ordering::Relaxed) as c_int).or_else(|| {
        let mut from = 0;
        loop {
            let fd = table::next(from, c_int::MAX)?;
            match of_it(fd) {
                Some(one) => return Some(one),
                None => from = fd + 1,
            }
        }
    })
}

/// Lends a socket that the agent has asked for, unless a call is under way that sends by it: that
/// call does it when it ends.
#[cold]
pub fn try_lend(one: &Connection) {
    let (slot, was) = (one.slot, real::errno());
    {
        let Some(_held) = slot.sending.take() else { return };
        slot.set(HELD);
    }
    if slot.sender.tcp.calls() > 0 {
        return;
    }
    if slot.flags.fetch_and(!WANTED, Ordering::AcqRel) & WANTED != 0 {
        let lent = say(&Message::Lent(line::token(one.at, slot)), Some(one.fd));
        if !lent {
            slot.clear(HELD);
        }
        real::set_errno(was);
    }
}

/// A call has ended that sent by the socket of a connection.
#[inline]
pub fn has_sent(one: &Connection) {
    if one.slot.has(WANTED) {
        try_lend(one);
    }
}

/// The peer takes no more bytes from the ring: it may have asked for the socket, and this process
/// may block the signal that says so.
#[cold]
pub fn looks() {
    let was = real::errno();
    answer();
    real::set_errno(was);
}

/// True once nothing keeps this process from sending by the socket of a connection; false if
/// something does for so many milliseconds. The agent that has the socket may wait for the peer,
/// whose program reads slowly, for as long as TCP would.
pub fn is_back(one: &Connection, most_ms: u32) -> bool {
    let slot: &Slot = one.slot;
    let (was, mut waited) = (real::errno(), 0);
    loop {
        answer();
        if !slot.has(HELD) || slot.has(BROKEN) {
            real::set_errno(was);
            return true;
        }
        if most_ms != EVER && waited >= most_ms {
            return false;
        }
        tcp::pause_ms(1);
        waited = waited.saturating_add(1);
    }
}
