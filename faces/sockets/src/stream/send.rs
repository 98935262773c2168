//! Sending: into the ring, or by TCP.

use super::{with, Use};
use crate::parts::Parts;
use crate::signals::{self, ENDING};
use crate::slot::{BROKEN, CORKED, HELD, NONBLOCKING, NOTIFIED};
use crate::sys::{calls, real};
use crate::{board, loan, registrations, settings, spin, tcp, urgent, wake};
use libc::c_int;
use std::sync::atomic::Ordering;
use weft_streams::count::Call;
use weft_streams::sender::Way;
use weft_streams::words::RING;

/// Bytes published at a time: the receiver copies one piece while the sender copies the next.
const PIECE: usize = 8 << 10;
/// Checks of a ring that the receiver does not empty, before the kernel is asked if it has ended:
/// of the first sends, and of all others.
const SENDS: u64 = 1;
const STUCK: u64 = 16;
/// Times of a spin on an empty ring for which a sender spins on a full one.
const LONG: u64 = 50;
/// Flags of a send that need nothing of the kernel.
const PLAIN_SEND: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_MORE;

enum Ring {
    /// All is written.
    Done,
    /// The ring is full.
    Full,
    /// The rest goes by TCP.
    Tcp,
    /// The caller has not the bytes that it names.
    Fault,
}

impl Use {
    /// Sends, as sendmsg(2) does without address and control messages.
    pub fn send(&self, parts: Parts<'_>, flags: c_int) -> isize {
        let slot = self.slot();
        if slot.has(BROKEN) {
            return real::fail(libc::ECONNRESET) as isize;
        }
        if flags & libc::MSG_OOB != 0 {
            // The peer's count of bytes by TCP may leave the urgent one out.
            slot.sender.end();
        }
        let (mut sent, mut is_stuck) = (0, false);
        loop {
            let held = slot.sending.take();
            if held.is_some() && flags & !PLAIN_SEND == 0 && !slot.has(CORKED) {
                match self.fill_ring(&parts, &mut sent) {
                    Ok(Ring::Done) => return sent as isize,
                    Ok(Ring::Full)
                        if sent > 0
                            && slot.has(NONBLOCKING)
                            && registrations::notify_of_space(slot) =>
                    {
                        return sent as isize;
                    }
                    Ok(Ring::Full) if !is_stuck && settings::spins() => {
                        drop(held);
                        match self.gets_space() {
                            None => return with(sent, real::fail(libc::EINTR) as isize),
                            Some(has_space) => is_stuck = !has_space,
                        }
                        continue;
                    }
                    Ok(Ring::Fault) => return with(sent, real::fail(libc::EFAULT) as isize),
                    Ok(Ring::Full | Ring::Tcp) => {}
                    Err(_) => return with(sent, self.broken()),
                }
            }
            if slot.sender.is_left(self.memory.out()) {
                loan::is_asked();
            }
            let free = (!slot.has(HELD)).then(|| slot.sender.by_tcp(Some(self.memory.out())));
            drop(held);
            let Some(call) = free.or_else(|| self.begins_tcp(flags)) else {
                return with(sent, -1);
            };
            let quiet = if sent > 0 { libc::MSG_NOSIGNAL } else { 0 };
            // Bytes that the kernel held back would hold up those that follow in the ring.
            let flags = flags & !libc::MSG_MORE | quiet;
            let cut = parts.cut(sent, parts.len() - sent);
            let rung = urgent::rung();
            let n = urgent::steady(|| cut.send(self.connection.fd, flags));
            call.done(n.max(0) as u64);
            loan::has_sent(&self.connection);
            let is_cut = n > 0 && sent + (n as usize) < parts.len();
            if !is_cut || parts.fits() && !urgent::has_rung(rung) {
                return with(sent, n);
            }
            sent += n as usize;
        }
    }

    /// Spins on a full ring until the receiver takes bytes out. A receiver takes first what came by
    /// TCP before, and bytes that went by TCP now would be the next to be taken first. False: it
    /// takes none for a long while, or that does not pay. `None`: a signal ends the send.
    fn gets_space(&self) -> Option<bool> {
        let (slot, words) = (self.slot(), self.memory.out());
        let unread = slot.sender.unread(words).max(1);
        let has_space = || slot.sender.unread(words) < unread;
        if !wake::may_pay(&slot.send_history, slot, self.memory) {
            return Some(false);
        }
        let mut held = None;
        let signals = (ENDING, &mut held);
        let found = spin::spin(&slot.send_history, spin::POLLS, LONG, signals, has_space);
        (found || !signals::end(held)).then_some(found)
    }

    /// Begins a call that sends by the kernel. `None`: the agent has the socket, and the call is
    /// not to wait.
    pub fn begins_tcp(&self, flags: c_int) -> Option<Call<'static>> {
        let (one, slot) = (&self.connection, self.slot());
        loop {
            let held = slot.sending.take();
            if !slot.has(HELD) {
                return Some(slot.sender.by_tcp(Some(self.memory.out())));
            }
            drop(held);
            let may_wait = flags & libc::MSG_DONTWAIT == 0 && !calls::is_nonblocking(one.fd);
            if !loan::is_back(one, if may_wait { loan::EVER } else { 0 }) {
                real::set_errno(libc::EAGAIN);
                return None;
            }
            if slot.has(BROKEN) {
                real::set_errno(libc::ECONNRESET);
                return None;
            }
        }
    }

    /// Writes as much as the ring takes.
    fn fill_ring(&self, parts: &Parts<'_>, sent: &mut usize) -> Result<Ring, weft_streams::Broken> {
        let (slot, words) = (self.slot(), self.memory.out());
        loop {
            let (at, space, switch) = match slot.sender.way(words)? {
                Way::Tcp => return Ok(Ring::Tcp),
                Way::Full if self.is_deserted(false) => return Ok(Ring::Tcp),
                Way::Full => return Ok(Ring::Full),
                Way::Ring { at, space, switch } => (at, space, switch),
            };
            if space < RING && self.is_deserted(*sent == 0) {
                return Ok(Ring::Tcp);
            }
            let n = space.min(parts.len() - *sent).min(PIECE);
            if !self.memory.put(at, parts, *sent, n) {
                return Ok(Ring::Fault);
            }
            if !slot.sender.publish(words, n, switch)? {
                return Ok(Ring::Tcp);
            }
            *sent += n;
            board::entry(self.connection.at).iter().for_each(|entry| entry.went(n));
            if *sent == parts.len() {
                return Ok(Ring::Done);
            }
        }
    }

    /// Looks now and then if a peer that does not empty the ring has ended: nobody else says so.
    /// `is_send`: another send begins.
    fn is_deserted(&self, is_send: bool) -> bool {
        let slot = self.slot();
        let read = slot.sender.written() - slot.sender.unread(self.memory.out()) as u64;
        let (last, checks) =
            (slot.stuck.load(Ordering::Relaxed) >> 8, slot.stuck.load(Ordering::Relaxed) & 0xff);
        let checks = if last == read & (u64::MAX >> 8) { checks + 1 } else { 0 };
        let ask = checks == STUCK || checks == SENDS && is_send;
        // After the first time it is asked every `STUCK` checks alone.
        let checks = if checks == STUCK { SENDS + 1 } else { checks };
        slot.stuck.store(read << 8 | checks, Ordering::Relaxed);
        if ask && !slot.has(NOTIFIED) && tcp::has_ended(self.connection.fd) {
            slot.sender.end();
            self.is_alone();
            return true;
        }
        false
    }

    /// The peer has ended. If it has not said so before, its process was killed before it had read
    /// all: TCP would have had a reset by now, after which a send fails.
    fn is_alone(&self) {
        let slot = self.slot();
        if !slot.receiver.is_notified_of_end(self.memory.incoming()) {
            slot.set(NOTIFIED);
            real::shutdown(self.connection.fd, libc::SHUT_WR);
        }
    }
}
