//! The room of callers for completions.

use crate::abi::CqTaggedEntry;
use libc::c_void;

/// A completion without error.
#[derive(Clone, Copy)]
pub struct Entry {
    pub fields: CqTaggedEntry,
    /// The sender's number in the receiver's address vector.
    pub source: u64,
}

/// A caller's room for completions.
pub struct Room {
    to: *mut c_void,
    count: usize,
    sources: *mut u64,
}

impl Room {
    /// Takes room of a caller.
    ///
    /// # Safety
    /// Until the call returns, `to` has room for `count` entries of the queue's format; `sources`,
    /// if not null, for as many numbers.
    #[inline]
    pub unsafe fn new(to: *mut c_void, count: usize, sources: *mut u64) -> Room {
        Room { to, count, sources }
    }

    /// Returns the number of entries that have room.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Gives the caller entries, of each the first `size` bytes; returns their number.
    #[inline]
    pub fn fill(&self, size: usize, mut next: impl FnMut() -> Option<Entry>) -> usize {
        let mut given = 0;
        while given < self.count {
            let Some(entry) = next() else { break };
            // SAFETY: promised by the caller; the longest format begins with all others.
            unsafe {
                let from = (&raw const entry.fields).cast::<u8>();
                std::ptr::copy_nonoverlapping(from, self.to.cast::<u8>().add(given * size), size);
                if !self.sources.is_null() {
                    *self.sources.add(given) = entry.source;
                }
            }
            given += 1;
        }
        given
    }
}
