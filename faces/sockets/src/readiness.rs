//! The bytes of connections that wait in rings, where the kernel does not see them.

use crate::slot::{Slot, NOTIFIED, UNSEEN};
use crate::table::{self, Connection};
use crate::{settings, stream, tcp, wake};

/// Lets bytes of a connection come into its ring. False if they come by TCP.
pub fn wake(at: usize, slot: &'static Slot) -> bool {
    let is_awake = table::with_memory(at, slot, |memory| {
        let held = slot.receiving.take();
        // The descriptor does not matter here.
        let is_awake = held.is_some() && wake::wake(&Connection::of_slot(slot, at), memory);
        drop(held);
        is_awake
    });
    is_awake == Some(true)
}

/// True if a connection has bytes in its ring that are next.
pub fn is_readable(at: usize, slot: &Slot) -> bool {
    let readable = |memory: table::Memory| slot.receiver.is_readable(memory.incoming());
    table::with_memory(at, slot, readable).unwrap_or(false)
}

/// True if a connection has bytes in its ring, next ones or ones behind bytes of TCP.
pub fn holds_bytes(at: usize, slot: &Slot) -> bool {
    let holds = |memory: table::Memory| slot.receiver.has_bytes(memory.incoming());
    table::with_memory(at, slot, holds).unwrap_or(false)
}

/// True if the descriptor is a connection that has bytes in its ring that are next.
pub fn has_bytes(fd: i32) -> bool {
    let Some(connection) = table::connection(fd) else { return false };
    connection.is_here() && is_readable(connection.at, connection.slot)
}

/// True if the descriptor is a connection whose peer was killed before it had read all, of which
/// the program knows nothing yet. TCP would have had a reset, and tells of an error.
pub fn is_broken(fd: i32) -> bool {
    let Some(one) = table::connection(fd).filter(|one| one.slot.is_shared()) else { return false };
    let is_left = |memory: table::Memory| {
        let slot = one.slot;
        slot.sender.unread(memory.out()) > 0 && !slot.receiver.is_notified_of_end(memory.incoming())
    };
    !one.slot.has(NOTIFIED)
        && table::with_memory(one.at, one.slot, is_left).unwrap_or(false)
        && settings::is_on()
        && tcp::has_ended(fd)
}

/// The state of a connection before a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing is in its ring, and nothing will come there.
    Empty,
    /// Bytes by TCP come before those in its ring; the kernel tells of them.
    Later,
    /// Its ring has bytes that are next.
    Readable,
}

/// Has all further bytes of a connection come by TCP.
pub fn lie_down(at: usize, slot: &Slot) -> Rest {
    let rest = table::with_memory(at, slot, |memory| {
        let words = memory.incoming();
        let Some(_held) = slot.receiving.take() else {
            // A handler of a signal that interrupted a read: the wait ends, which it may always.
            return Rest::Readable;
        };
        if slot.receiver.sleep(words) == Ok(true) {
            return Rest::Empty;
        }
        slot.receiver.make_inactive(words);
        match slot.receiver.is_readable(words) {
            true => Rest::Readable,
            false => Rest::Later,
        }
    });
    rest.unwrap_or(Rest::Empty)
}

/// No byte of a connection comes by a ring any more, as waits for it cannot be followed.
pub fn never(connection: &Connection) {
    connection.slot.set(UNSEEN);
    if let Some(user) = stream::enter(*connection) {
        user.end_receiving();
    }
}
