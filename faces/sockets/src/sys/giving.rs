//! Bytes that wait in a ring go back to TCP, where a program without this library is to read them.
//!
//! TCP takes bytes at the other end only, and in order. So the agent gets both sockets for a
//! moment: this end's, with the bytes of the ring, and the other end's, which its process lends.
//! Nothing is sent by a socket that is lent. The agent takes bytes by TCP that came after those of
//! the ring out, and sends all again.
//!
//! The other process may be computing or asleep, so a signal asks it: SIGURG, which is ignored
//! where no handler is left. It comes from the process's own bell, a socket to the agent; nobody
//! needs a right for it.

use super::lock::Lock;
use super::slot::{self, Slot, BROKEN, HELD, WANTED};
use super::table::{self, Connection};
use super::{board, line, real, stream, tcp};
use libc::{c_int, iovec};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use weft_streams::message::{Message, MESSAGE_MAX};

/// Longest time for which a send waits for a socket that is lent, in milliseconds.
const LENT_MS: u32 = 60_000;

/// This process's end of its bell, and the file behind it.
static BELL: AtomicI32 = AtomicI32::new(-1);
static FILE: AtomicU64 = AtomicU64::new(0);
/// Held to read the bell: messages are obeyed in order.
static LOCK: Lock = Lock::new();

/// Has the bytes that wait in the ring of a connection come by TCP. False if that failed: they stay
/// in the ring.
pub fn give_back(one: &Connection) -> bool {
    let Some(user) = stream::enter(*one) else { return true };
    if one.slot.has(HELD | WANTED) {
        // The next program sends behind what the agent sends.
        is_back(one, true);
    }
    let Some(_held) = one.slot.receiving.take() else { return false };
    user.dozes();
    let Some((before, parts, len)) = user.waiting() else { return true };
    let Some(memory) = memory_of(&parts, len) else { return false };
    let given = line::give_back(one, before, memory);
    line::close(memory);
    if given {
        user.give(len);
    }
    given
}

/// Returns memory with these bytes, which nobody changes.
fn memory_of(parts: &[iovec; 2], len: usize) -> Option<RawFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: the name is a C string; the parts are those of a ring.
    unsafe {
        let fd = libc::memfd_create(c"weft-sockets-back".as_ptr(), flags);
        if fd < 0 {
            return None;
        }
        let all = real::writev(fd, parts.as_ptr(), 2) == len as isize
            && real::fcntl(fd, libc::F_ADD_SEALS, seals.into()) == 0;
        if !all {
            line::close(fd);
        }
        all.then_some(fd)
    }
}

/// A connection ends whose bytes would be lost: an error tells it to both ends.
pub fn reset(one: &Connection) {
    board::stays(one.at, "bytes of its ring could not go back to TCP");
    // SAFETY: all-zero is a valid value: no family.
    unsafe {
        let none: libc::sockaddr = std::mem::zeroed();
        real::connect(one.fd, &none, size_of::<libc::sockaddr>() as libc::socklen_t);
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
    if bell().is_some() || !catches() {
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

/// Has this library handle SIGURG, unless the program does.
fn catches() -> bool {
    let own = on_bell as extern "C" fn(c_int) as usize;
    // SAFETY: all-zero is a valid value; then a handler that calls only what is safe in one.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        if real::sigaction(libc::SIGURG, std::ptr::null(), &mut old) != 0 {
            return false;
        }
        match old.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                let mut new: libc::sigaction = std::mem::zeroed();
                (new.sa_sigaction, new.sa_flags) = (own, libc::SA_RESTART);
                real::sigaction(libc::SIGURG, &new, std::ptr::null_mut()) == 0
            }
            handler => handler == own,
        }
    }
}

extern "C" fn on_bell(_: c_int) {
    let was = real::errno();
    answer();
    real::set_errno(was);
}

/// Obeys what the agent says by the bell.
fn answer() {
    let Some(_held) = LOCK.try_take() else { return };
    while let Some(message) = bell().and_then(next) {
        match message {
            Message::Lend(token) => {
                let Some(one) = connection_of(token) else {
                    say(&Message::Cancel(token), None);
                    continue;
                };
                let is_lent = one.slot.has(HELD) && !one.slot.has(WANTED);
                if !is_lent {
                    one.slot.set(WANTED);
                    try_lend(&one);
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

/// True once nothing keeps this process from sending by the socket of a connection; false if
/// something does, and `may_wait` is false.
pub fn is_back(one: &Connection, may_wait: bool) -> bool {
    let slot: &Slot = one.slot;
    let was = real::errno();
    for _ in 0..LENT_MS {
        answer();
        if !slot.has(HELD) || slot.has(BROKEN) {
            real::set_errno(was);
            return true;
        }
        if !may_wait {
            return false;
        }
        tcp::pause_ms(1);
    }
    slot.set(BROKEN);
    true
}
