//! An allocator that counts the memory that each thread holds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counted.
pub struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Returns the bytes that this thread has allocated and not freed.
pub fn live() -> usize {
    LIVE.get()
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        // SAFETY: promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: promised by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}
