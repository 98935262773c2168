//! The memory of the list.

use crate::slot::SLOTS;
use crate::sys::memory;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};
use weft_streams::board::{Entry, Head, ENTRY};

/// Bytes of the list.
pub const LEN: usize = ENTRY * (1 + SLOTS);

static BOARD: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the head of the list, once there is one.
pub fn head() -> Option<&'static Head> {
    // SAFETY: mapped for good, of this length; all of it are atomics, for which zeros are valid.
    unsafe { BOARD.load(Ordering::Acquire).cast::<Head>().as_ref() }
}

/// Returns the place of a slot's connection, once there is a list.
#[inline]
pub fn entry(at: usize) -> Option<&'static Entry> {
    let base = BOARD.load(Ordering::Acquire);
    if base.is_null() || at >= SLOTS {
        return None;
    }
    // SAFETY: within the mapping, which stays; all of it are atomics, for which zeros are valid.
    unsafe { base.add(ENTRY * (1 + at)).cast::<Entry>().as_ref() }
}

/// Has the list be in this memory from now on, with so many entries of the former one. False if the
/// system has no memory.
pub fn replace(fd: RawFd, entries: usize) -> bool {
    let Some(at) = memory::map_file(fd, LEN) else { return false };
    let old = BOARD.load(Ordering::Acquire);
    if !old.is_null() && entries > 0 {
        let len = ENTRY * (1 + entries.min(SLOTS));
        // SAFETY: both are mapped for this length. Counts that change meanwhile may be lost.
        unsafe { std::ptr::copy_nonoverlapping(old, at, len) };
    }
    BOARD.store(at, Ordering::Release);
    true
}
