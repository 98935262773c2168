//! Reasons why a connection stays TCP, as `weft sockets status` shows them.

use crate::board;
use crate::slot::Slot;
use std::sync::atomic::Ordering;

/// A reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Why {
    /// A call that only the kernel serves.
    Call = 1,
    /// Urgent bytes, inline or not.
    Urgent,
    /// Times of arrival.
    Times,
    /// SO_RCVLOWAT.
    Least,
    /// SO_PEEK_OFF.
    Peek,
    /// Another protocol above TCP, or a repaired socket.
    Above,
    /// Signals for bytes.
    Signals,
    /// Another process or program has it.
    Passed,
    /// The C library writes to it, or reads from it.
    Printed,
    /// Bytes have moved past this library.
    Moved,
    /// Several processes have it.
    Shared,
    /// The process has as many in memory as it may.
    Most,
    /// The program has a ring of io_uring.
    Ring,
}

/// Their texts, of at most 48 bytes.
const TEXTS: [&str; 14] = [
    "",
    "the program uses what only TCP carries",
    "the program receives or sends urgent bytes",
    "the program has asked for times of arrival",
    "the program has set SO_RCVLOWAT",
    "the program has set SO_PEEK_OFF",
    "it has a protocol above TCP, or is repaired",
    "the program gets signals for its bytes",
    "another program or process has it",
    "the C library reads or writes it (stdio)",
    "bytes went past the library (system calls)",
    "several processes have it",
    "the process has too many in memory",
    "the program uses io_uring",
];

impl Why {
    /// Returns the text.
    fn text(self) -> &'static str {
        TEXTS[self as usize]
    }
}

/// Notes a reason. False: it was known.
pub fn note(at: usize, slot: &Slot, why: Why) -> bool {
    let is_new = slot.ask.why.swap(why as u32, Ordering::Relaxed) != why as u32;
    if is_new {
        board::stays(at, why.text());
    }
    is_new
}

/// Returns the text of the reason that was noted, if there is one.
pub fn text(slot: &Slot) -> Option<&'static str> {
    TEXTS
        .get(slot.ask.why.load(Ordering::Relaxed) as usize)
        .copied()
        .filter(|text| !text.is_empty())
}
