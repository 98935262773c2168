//! Calls that need as good as nothing of this library: on files that are no connections, and on a
//! connection by TCP whose bytes the calling thread counts.

use crate::slot::{Slot, SPINS};
use crate::{agent, owner, table, tcp_spin, tipc, urgent};
use libc::{c_int, ssize_t};
use weft_streams::count::{Call, Count};

/// The count of a direction.
type Of = fn(&Slot) -> &Count;

/// Of bytes that come in.
pub(super) fn incoming(slot: &Slot) -> &Count {
    &slot.receiver.tcp
}

/// Of bytes that go out.
pub(super) fn out(slot: &Slot) -> &Count {
    &slot.sender.tcp
}

/// The call as far as a connection by TCP is concerned.
#[derive(Clone, Copy)]
pub(super) struct Usual {
    /// The kernel alone carries it out.
    pub is_usual: bool,
    /// On some connections a spin comes first.
    pub may_spin: bool,
    /// The call takes or sends the bytes that it returns.
    pub moves: bool,
}

impl Usual {
    /// All of it.
    pub const ALL: Usual = Usual { is_usual: true, may_spin: true, moves: true };
}

/// Makes a call of the kernel that needs no more than to be counted, or nothing at all. `None`: it
/// needs more.
#[inline(always)]
pub(super) fn on(fd: c_int, of: Of, usual: Usual, call: impl Fn() -> ssize_t) -> Option<ssize_t> {
    let Some(slot) = table::slot(fd) else { return (!tipc::is(fd)).then(call) };
    if !usual.is_usual || usual.may_spin && slot.has(SPINS) {
        return None;
    }
    let under_way = of(slot).own_call(owner::thread())?;
    Some(count(fd, slot, under_way, usual.moves, call))
}

/// Makes a call that is under way, and counts the bytes that it returns if it `moves` them.
#[inline(always)]
pub(super) fn count(
    fd: c_int,
    slot: &Slot,
    under_way: Call<'_>,
    moves: bool,
    call: impl Fn() -> ssize_t,
) -> ssize_t {
    let n = urgent::steady(call);
    if moves && n > 0 {
        under_way.done(n as u64);
        agent::after_call(slot, fd);
        if n >= tcp_spin::LONG {
            tcp_spin::is_bulk(slot, fd);
        }
    }
    n
}

/// Does all else that a call needs, out of the way of calls that need nothing.
#[inline(never)]
pub(super) fn rest(call: impl FnOnce() -> ssize_t) -> ssize_t {
    call()
}
