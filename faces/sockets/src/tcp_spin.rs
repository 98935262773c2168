//! Spins on TCP, on connections to other hosts: a call that would sleep asks the kernel for bytes
//! for a bounded moment first, as long as that pays.
//!
//! A thread that sleeps is woken some 50 us after its bytes have come (virtual machines); one that
//! spins has them at once. The other end needs nothing for it, not even this library.

use crate::signals::{self, ENDING};
use crate::slot::{Slot, BULK, NAGLE, NONBLOCKING, SPINS};
use crate::sys::{calls, real, socket};
use crate::table::Connection;
use crate::{board, history, registrations, settings, spin, tcp};

/// A spin on TCP lasts so many times as long as one at a ring: the peer may have to be woken, and
/// the network takes its time.
pub const TIMES: u64 = 4;

/// Has waits for a connection spin from now on, if it leads to another host.
#[cold]
pub fn begin(one: &Connection) {
    let slot = one.slot;
    if slot.has(SPINS) || !settings::spins() {
        return;
    }
    let Some((local, remote)) = socket::names(one.fd) else { return };
    // A peer of this host would wait for a processor that a spin keeps, or shares memory soon.
    let is_elsewhere = local.address() != remote.address() && !remote.is_loopback();
    if !is_elsewhere || !settings::allows(local, remote) {
        return;
    }
    if calls::is_nonblocking(one.fd) {
        slot.set(NONBLOCKING);
    }
    slot.set(SPINS);
    registrations::spins(slot);
}

/// Bytes of a call from which on a connection carries long ones.
pub const LONG: isize = 64 << 10;

/// A connection to another host carries long sends, whose ends would wait for acknowledgements
/// (Nagle's algorithm), and with them the next ones. They gain twice the rate by TCP_NODELAY.
#[cold]
pub fn is_bulk(slot: &Slot, fd: i32) {
    if slot.has(SPINS) && !slot.has(BULK) && settings::is_on() && !board::is_off() {
        slot.set(BULK);
        if !tcp::is_set(fd, libc::TCP_NODELAY) {
            slot.set(NAGLE);
            tcp::do_not_delay(fd);
        }
    }
}

/// True if waits for a connection spin on TCP.
#[inline]
pub fn is_one(slot: &Slot) -> bool {
    // A confined program may not be allowed to ask the kernel.
    slot.has(SPINS) && slot.is_plain() && settings::is_on() && !board::is_off()
}

/// Makes a call that waits for bytes of a connection by TCP, after a spin on it.
pub fn before(one: &Connection, call: impl FnOnce() -> isize) -> isize {
    let slot = one.slot;
    if !is_one(slot) || slot.has(NONBLOCKING) {
        return call();
    }
    if history::may_pay(&slot.history) {
        // Bytes that are there say nothing about spins: a wait for several files may have come
        // before, whose spin was in vain.
        if tcp::has_input(one.fd) {
            return call();
        }
        let mut held = None;
        if spin::spin(&slot.history, 1, TIMES, (ENDING, &mut held), || tcp::has_input(one.fd)) {
            board::has_spun();
        } else if signals::end(held) {
            return real::fail(libc::EINTR) as isize;
        }
        return call();
    }
    if !history::is_sample(&slot.history) {
        return call();
    }
    let (n, waited) = spin::time(call);
    if n > 0 {
        history::learn(&slot.history, waited);
    }
    n
}
