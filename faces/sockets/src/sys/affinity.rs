//! The processor of a thread that may run on one only.
//!
//! A look at a ring is vain while its peer waits for the same processor.

use super::slot::Slot;
use super::table::Memory;
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
        let core = ask();
        known.set((core, TIMES));
        core
    })
}

#[cold]
fn ask() -> Option<u32> {
    // SAFETY: all-zero is an empty set, and written for its size; numbers are within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &mut set) != 0 {
            return None;
        }
        if libc::CPU_COUNT(&set) != 1 {
            return None;
        }
        let all = 0..8 * size_of_val(&set);
        all.into_iter().find(|&core| libc::CPU_ISSET(core, &set)).map(|core| core as u32)
    }
}

/// True if the peer waits for the one processor that may run both ends, as long as this one looks.
pub fn shares_core(slot: &Slot, memory: Memory) -> bool {
    only_core().is_some_and(|core| slot.sender.core(memory.out()) == Some(core))
}
