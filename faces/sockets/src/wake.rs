//! Letting bytes come into rings.

use crate::slot::{Registration, Set, Slot, NONBLOCKING, READ, UNSEEN, WATCHED};
use crate::spin::WOKEN;
use crate::table::{self, Connection, Memory};
use crate::{affinity, board, history};
use std::sync::atomic::{AtomicU32, Ordering};

/// True if spins on a connection have paid, or are to be tried again, and its peer may run
/// meanwhile.
pub fn may_pay(history: &AtomicU32, slot: &Slot, memory: Memory) -> bool {
    if !history::may_pay(history) {
        return false;
    }
    let is_vain = affinity::shares_core(slot, memory);
    if is_vain {
        history::learn_vain(history);
    }
    !is_vain
}

/// Returns the time for which a spin on a connection lasts, as `spin` takes it: longer if the
/// peer had to be woken for what it has to answer.
pub fn times(slot: &Slot) -> u64 {
    if slot.sender.is_by_tcp() {
        WOKEN
    } else {
        1
    }
}

/// Lets bytes come into the ring, if every wait for them would see them there. The receiver's lock
/// is held. False if they come by TCP.
pub fn wake(connection: &Connection, memory: Memory) -> bool {
    let slot = connection.slot;
    if board::is_off() || slot.has(UNSEEN) || slot.has(NONBLOCKING) && !slot.has(WATCHED) {
        return false;
    }
    let seen = slot.registrations.iter().all(|one| {
        let number = one.set.load(Ordering::Acquire);
        let set = (number != 0).then(|| table::set_of(number));
        set.is_none_or(|set| set.is_some_and(|(set, _)| is_followed(set, connection, one)))
    });
    slot.receiver.set_core(memory.incoming(), affinity::only_core());
    seen && slot.receiver.wake(memory.incoming())
}

/// True if every wait in a set sees the bytes of a registration there. The receiver's lock is held.
pub fn is_followed(set: &Set, connection: &Connection, one: &Registration) -> bool {
    let events = one.events.load(Ordering::Relaxed);
    if events & READ == 0 || !connection.slot.is_shared() {
        // No wait in the set is for bytes; or they come by TCP.
        return true;
    }
    let odd = events & (libc::EPOLLONESHOT | libc::EPOLLEXCLUSIVE) as u32 != 0;
    // The marks are read after the place says that it may be awake: a thread that begins to sleep
    // sets its mark, then looks at the places.
    set.mark_awake(connection.at, one)
        && !odd
        && set.is_hooked.load(Ordering::Relaxed) != 0
        && set.unseen.load(Ordering::SeqCst) == 0
        && set.waiting.load(Ordering::SeqCst) == 0
}
