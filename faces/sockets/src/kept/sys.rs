//! The memory in which bytes are kept, and the list of connections whose bytes are.

use super::{Head, One, MOST};
use crate::sys::{calls, memory};
use crate::table::Span;
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;
use weft_streams::words::{Words, HEAD, RING, SEGMENT, STRIDE};

/// Bytes of the memory: those of a segment, then the page of its head.
pub const LEN: usize = SEGMENT + 4096;

/// A list, which is not on the stack: that may be small. Null: there is none yet.
pub struct List(*mut [One; MOST]);

impl List {
    /// A list without memory.
    pub fn new() -> List {
        List(std::ptr::null_mut())
    }

    /// Returns the entries. `None`: the system has no memory.
    pub fn all(&mut self) -> Option<&mut [One; MOST]> {
        if self.0.is_null() {
            self.0 = memory::map_own(size_of::<[One; MOST]>())?.cast();
        }
        // SAFETY: a mapping of this size, for which zeros are valid, of this object alone.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the mapping of the list.
            unsafe { memory::unmap(self.0.cast(), size_of::<[One; MOST]>()) };
        }
    }
}

/// Puts bytes, which stand behind so many of TCP, and a head into the memory. False: it cannot be
/// mapped.
pub fn fill(fd: RawFd, head: Head, before: u64, bytes: &Span, len: usize) -> bool {
    let Some(base) = memory::map_file(fd, LEN) else { return false };
    // SAFETY: the mapping has this length: words and a ring of each direction, and the head. The
    // bytes are those of a ring.
    unsafe {
        bytes.copy_to(base.add(HEAD + RING));
        (*base.add(STRIDE).cast::<Words>()).leave(len, before);
        base.add(SEGMENT).cast::<Head>().write(head);
        memory::unmap(base, LEN);
    }
    true
}

/// Reads the head of memory.
pub fn head_of(fd: RawFd) -> Option<Head> {
    // SAFETY: all-zero is a valid value of numbers, which have no padding between them.
    unsafe {
        let mut head: Head = zeroed();
        let bytes = std::slice::from_raw_parts_mut((&raw mut head).cast(), size_of::<Head>());
        (calls::read_at(fd, bytes, SEGMENT as u64) == size_of::<Head>()).then_some(head)
    }
}
