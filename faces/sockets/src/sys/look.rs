//! Looks at TCP, on connections to other hosts: a call that would sleep asks the kernel for bytes
//! for a bounded moment first, as long as that pays.
//!
//! A thread that sleeps is woken some 50 us after its bytes have come (virtual machines); one that
//! looks has them at once. The other end needs nothing for it, not even this library.

use super::signals::{self, ENDING};
use super::slot::{Slot, BULK, LOOKS, NAGLE, NONBLOCKING};
use super::table::Connection;
use super::{board, real, set, settings, tcp, wake};

/// A look at TCP lasts so many times as long as one at a ring: the peer may have to be woken, and
/// the network takes its time.
pub const TIMES: u64 = 4;

/// Has waits for a connection look from now on, if it leads to another host.
#[cold]
pub fn begin(one: &Connection) {
    let slot = one.slot;
    if slot.has(LOOKS) || !settings::spins() {
        return;
    }
    let Some((local, remote)) = tcp::names(one.fd) else { return };
    // A peer of this host would wait for a processor that a look keeps, or shares memory soon.
    let is_elsewhere = local.address() != remote.address() && !remote.is_loopback();
    if !is_elsewhere || !settings::allows(local, remote) {
        return;
    }
    if tcp::is_nonblocking(one.fd) {
        slot.set(NONBLOCKING);
    }
    slot.set(LOOKS);
    set::looks(slot);
}

/// Bytes of a call from which on a connection carries long ones.
pub const LONG: isize = 64 << 10;

/// A connection to another host carries long sends, whose ends would wait for acknowledgements
/// (Nagle's algorithm), and with them the next ones. They gain twice the rate by TCP_NODELAY.
#[cold]
pub fn is_bulk(slot: &Slot, fd: i32) {
    if slot.has(LOOKS) && !slot.has(BULK) && settings::is_on() && !board::is_off() {
        slot.set(BULK);
        if !tcp::is_set(fd, libc::TCP_NODELAY) {
            slot.set(NAGLE);
            tcp::do_not_delay(fd);
        }
    }
}

/// True if waits for a connection look at TCP.
#[inline]
pub fn is_one(slot: &Slot) -> bool {
    // A confined program may not be allowed to ask the kernel.
    slot.has(LOOKS) && slot.is_plain() && settings::is_on() && !board::is_off()
}

/// Makes a call that waits for bytes of a connection by TCP, after a look at it.
pub fn before(one: &Connection, call: impl FnOnce() -> isize) -> isize {
    let slot = one.slot;
    if !is_one(slot) || slot.has(NONBLOCKING) {
        return call();
    }
    if wake::is_lucky(&slot.luck) {
        // Bytes that are there say nothing about looks: a wait for several files may have come
        // before, whose look was in vain.
        if tcp::has_input(one.fd) {
            return call();
        }
        let mut held = None;
        if wake::spin(&slot.luck, 1, TIMES, (ENDING, &mut held), || tcp::has_input(one.fd)) {
            board::looked();
        } else if signals::end(held) {
            return real::fail(libc::EINTR) as isize;
        }
        return call();
    }
    if !wake::is_sample(&slot.luck) {
        return call();
    }
    let (n, waited) = wake::time(call);
    if n > 0 {
        wake::learn(&slot.luck, waited);
    }
    n
}
