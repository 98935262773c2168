//! Reads and writes of registered memory, by this library and by operations of the endpoint.
//!
//! The program promises that the memory is there until its region ends; the state takes operations
//! that use a region back before. Memory of the face lives until its operation has ended.

use super::{Memory, Posted, Span};
use crate::descriptor::{IMMEDIATE_AT, LENGTH_AT, STATUS_AT};
use std::sync::atomic::{AtomicU32, Ordering};
use weft::port::Port;
use weft::{OpError, OpId, PeerId, Refused, Rights, SendArgs, Status};

impl Memory {
    /// Names memory of a program.
    ///
    /// # Safety
    /// Until the region ends that gets it, `start..start + len` is memory of the process, and
    /// writable where anything is received or written to it.
    pub unsafe fn new(start: *mut u8, len: usize) -> Memory {
        Memory { start, len }
    }

    /// Lets the other sides of connections use the memory, by its addresses and a key. False if the
    /// endpoint has no room for it.
    pub(super) fn register(&self, port: &Port, key: u64, rights: Rights) -> bool {
        let (regions, first) = (port.endpoint().regions(), self.start.addr() as u64);
        // SAFETY: promised to `new`; the end of the region ends it.
        unsafe { regions.register_from(key, first, self.start, self.len, rights) }
    }
}

impl<'a> Span<'a> {
    /// Returns the bytes, to be read at once.
    pub fn bytes(&self) -> &'a [u8] {
        // SAFETY: within memory that is there. A program that changes bytes that are being sent
        // sends arbitrary bytes.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Copies bytes to its start, as many as both have; returns their number.
    pub fn fill(&self, from: &[u8]) -> usize {
        let len = from.len().min(self.len);
        // SAFETY: within memory that is there. The two may overlap, where a program sends to
        // itself.
        unsafe { std::ptr::copy(from.as_ptr(), self.start, len) };
        len
    }

    /// Polls briefly for a message of the port, and stores it at the start.
    #[inline]
    pub(super) fn poll_into(
        &self,
        port: &Port,
        from: PeerId,
        number: u32,
    ) -> Option<Result<Status, OpError>> {
        // SAFETY: within memory that is there. The program leaves the memory of a posted descriptor
        // alone, and this call runs none of its code.
        let into = unsafe { std::slice::from_raw_parts_mut(self.start, self.len) };
        port.poll_for(Some(from), number, into)
    }

    /// Starts a send of all bytes, whatever length `args` have.
    pub(super) fn post_send(&self, port: &Port, args: SendArgs) -> Result<Option<OpId>, Refused> {
        let args = SendArgs { len: self.len as u64, ..args };
        // SAFETY: the memory is there until the operation ends, or is taken back.
        unsafe { port.endpoint().posted().send(self.start, args) }
    }

    /// Starts a write of the bytes to memory of the other side, or a read of that to the bytes; a
    /// completion with the context follows.
    ///
    /// # Errors
    /// Returns the errors of [`weft::endpoint::Posted::put`].
    pub fn remote(
        &self,
        port: &Port,
        is_write: bool,
        (peer, at): (PeerId, (u64, u64)),
        context: u64,
    ) -> Result<OpId, Refused> {
        let posted = port.endpoint().posted();
        // SAFETY: the memory is there until the operation ends, or is taken back.
        unsafe {
            match is_write {
                true => posted.put(self.start, self.len, peer, at, context),
                false => posted.get(self.start, self.len, peer, at, context),
            }
        }
    }
}

impl Posted<'_> {
    /// Reads a number of the descriptor.
    #[inline]
    pub(super) fn field<T: Number>(&self, at: usize) -> T {
        debug_assert!(at + size_of::<T>() <= self.all.len);
        // SAFETY: inside the region, aligned since the descriptor and all offsets are. A program
        // that changes a posted descriptor meanwhile gets one of the values.
        unsafe { self.all.start.wrapping_add(at).cast::<T>().read_volatile() }
    }

    /// Writes the result, the status last: a program may look at it.
    #[inline]
    pub fn finish(&self, status: u32, length: u32, immediate: Option<u32>) {
        let word = |at: usize| self.all.start.wrapping_add(at).cast::<u32>();
        // SAFETY: inside the region, and aligned; promised to be writable.
        unsafe {
            if let Some(data) = immediate {
                word(IMMEDIATE_AT).write_volatile(data);
            }
            word(LENGTH_AT).write_volatile(length);
            AtomicU32::from_ptr(word(STATUS_AT)).store(status, Ordering::Release);
        }
    }

    /// Clears the status.
    pub fn begin(&self) {
        let status = self.all.start.wrapping_add(STATUS_AT).cast();
        // SAFETY: as in `finish`.
        unsafe { AtomicU32::from_ptr(status).store(0, Ordering::Relaxed) };
    }
}

/// The types of a descriptor's fields.
pub(super) trait Number: Copy {}

impl Number for u16 {}
impl Number for u32 {}
impl Number for u64 {}
