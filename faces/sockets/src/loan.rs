//! Sockets on loan to the agent: it sends bytes of the peer's ring by them (`handback`), and
//! nothing else is sent meanwhile.
//!
//! This process may be computing or asleep, so a signal asks it: SIGURG, which is ignored where no
//! handler is left. It comes from the process's own bell, a socket to the agent; nobody needs a
//! right for it. A process that blocks the signal answers when it next uses the connection.

use crate::lock::Lock;
use crate::own::{BELL, HIDDEN};
use crate::reach;
use crate::slot::{self, Slot, BROKEN, HELD, WANTED};
use crate::sys::{calls, real, socket};
use crate::table::{self, Connection};
use crate::vfork::process;
use libc::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use weft_streams::message::{Message, MESSAGE_MAX};

/// A wait without end: that of a send whose socket is on loan.
pub const EVER: u32 = u32::MAX;

/// Held to read the bell: messages are obeyed in order.
static LOCK: Lock = Lock::new();

/// This process is a child: its parent's bell is not its own.
pub fn is_child() {
    LOCK.free();
    ends();
}

/// The agent is not answered any more.
pub fn ends() {
    BELL.end();
}

/// Makes the bell, unless there is one, or this library does not have its signal. Returns the
/// agent's end, for the agent.
pub fn make_bell(has_signal: impl FnOnce() -> bool) -> Option<RawFd> {
    if BELL.get().is_some() || !has_signal() {
        return None;
    }
    let [own, other] = socket::pair()?;
    let fd = calls::move_to(own, HIDDEN);
    let is_ready = |fd: &RawFd| calls::rings(*fd, process() as c_int, libc::SIGURG);
    let Some(rings) = fd.filter(is_ready) else {
        calls::close(fd.unwrap_or(-1));
        calls::close(other);
        return None;
    };
    BELL.set(rings);
    Some(other)
}

/// Obeys what the agent says by the bell.
pub fn answer() {
    let Some(_held) = LOCK.try_take() else { return };
    while let Some(message) = BELL.get().and_then(next) {
        match message {
            Message::Lend { token, key } => {
                let of_key = |one: &Connection| one.slot.other.get().key == key;
                let Some(one) = connection_of(token).filter(of_key) else {
                    say(&Message::Cancel(token), None);
                    continue;
                };
                let is_on_loan = one.slot.has(HELD) && !one.slot.has(WANTED);
                if !is_on_loan {
                    one.slot.set(WANTED);
                    try_loan(&one);
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
    let n = socket::receive(fd, &mut bytes, libc::MSG_DONTWAIT);
    match n {
        1.. => Message::decode(&bytes[..n as usize]).ok(),
        0 => {
            has_no_agent(fd);
            None
        }
        _ => None,
    }
}

/// The agent has ended: nobody knows how much it sent by the sockets that it had on loan.
fn has_no_agent(fd: RawFd) {
    BELL.set(-1);
    calls::close(fd);
    let Some(region) = slot::region() else { return };
    table::each_slot(region, |_, slot| {
        if slot.has(HELD) && !slot.has(WANTED) {
            slot.set(BROKEN);
        }
        slot.clear(HELD | WANTED);
    });
}

fn say(message: &Message, pass: Option<RawFd>) -> bool {
    BELL.get().is_some_and(|fd| reach::say(fd, message, pass))
}

/// Returns the connection of a token, by a descriptor of this process.
fn connection_of(token: u64) -> Option<Connection> {
    let at = (token & u64::from(u32::MAX)) as usize;
    let slot = table::slot_at(at)?;
    if slot.token(at) != token {
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

/// Gives a socket on loan that the agent has asked for, unless a call is under way that sends by
/// it: that call does it when it ends.
#[cold]
pub fn try_loan(one: &Connection) {
    let (slot, was) = (one.slot, real::errno());
    {
        let Some(_held) = slot.sending.take() else { return };
        slot.set(HELD);
    }
    if slot.sender.tcp.calls() > 0 {
        return;
    }
    if slot.flags.fetch_and(!WANTED, Ordering::AcqRel) & WANTED != 0 {
        let is_said = say(&Message::Lent(slot.token(one.at)), Some(one.fd));
        if !is_said {
            slot.clear(HELD);
        }
        real::set_errno(was);
    }
}

/// A call has ended that sent by the socket of a connection.
#[inline]
pub fn has_sent(one: &Connection) {
    if one.slot.has(WANTED) {
        try_loan(one);
    }
}

/// The peer takes no more bytes from the ring: it may have asked for the socket, and this process
/// may block the signal that says so.
#[cold]
pub fn is_asked() {
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
        calls::pause_ms(1);
        waited = waited.saturating_add(1);
    }
}
