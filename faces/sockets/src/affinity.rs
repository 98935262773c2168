//! The processor of a thread that may run on one only.
//!
//! A spin on a ring is vain while its peer waits for the same processor.

use crate::slot::Slot;
use crate::sys::calls;
use crate::table::Memory;
use std::cell::Cell;

/// Questions that are answered from memory: a thread may be moved at any time.
const TIMES: u32 = 256;

thread_local! {
    /// The answer, and how many times it still holds.
    static KNOWN: Cell<(Option<u32>, u32)> = const { Cell::new((None, 0)) };
}

/// Returns the only processor that may run this thread. `None`: there are several.
#[inline]
pub fn only_core() -> Option<u32> {
    KNOWN.with(|known| {
        let (core, left) = known.get();
        if left > 0 {
            known.set((core, left - 1));
            return core;
        }
        let core = calls::only_processor();
        known.set((core, TIMES));
        core
    })
}

/// True if the peer waits for the one processor that may run both ends, as long as this one spins.
pub fn shares_core(slot: &Slot, memory: Memory) -> bool {
    only_core().is_some_and(|core| slot.sender.core(memory.out()) == Some(core))
}
