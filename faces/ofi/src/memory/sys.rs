//! The memory itself: its addresses come from callers.

use crate::abi::{err, Ioc};
use crate::offer::PIECES;
use libc::{c_int, c_void};
use std::ptr::null_mut;
use std::slice::from_raw_parts;
use weft::memory::seems_mapped;

/// Memory that a caller has lent to an operation, which uses it until it has ended. It is one of
/// the structures `iovec`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Borrowed {
    start: *mut u8,
    len: usize,
}

impl Borrowed {
    /// No memory.
    pub const NONE: Borrowed = Borrowed { start: null_mut(), len: 0 };

    /// Takes memory of a caller.
    ///
    /// # Safety
    /// Until the operation that gets it has ended, the bytes can be read and, if the operation
    /// writes, be written.
    #[inline]
    pub unsafe fn new(start: *const c_void, len: usize) -> Borrowed {
        Borrowed { start: start.cast_mut().cast(), len }
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn start(self) -> *mut u8 {
        self.start
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns true if there is no memory at all, as opposed to none of its bytes.
    pub fn is_null(self) -> bool {
        self.start.is_null()
    }

    /// Returns at most `len` of its bytes, from one on.
    pub fn part(self, from: usize, len: usize) -> Borrowed {
        let from = from.min(self.len);
        Borrowed { start: self.start.wrapping_add(from), len: len.min(self.len - from) }
    }

    /// Returns true if it may be memory of this process: it is of a usual length, or all mapped.
    #[inline]
    pub fn seems_mapped(self) -> bool {
        seems_mapped(self.start.cast(), self.len)
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self.len {
            0 => &[],
            // SAFETY: the caller gave the memory until the operation has ended.
            len => unsafe { from_raw_parts(self.start, len) },
        }
    }

    /// Copies as many of these bytes as have room; returns the rest.
    #[inline]
    pub fn write(self, bytes: &[u8]) -> &[u8] {
        let (now, later) = bytes.split_at(self.len.min(bytes.len()));
        if !now.is_empty() {
            // SAFETY: the caller gave the memory until the operation has ended, and it is as long.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), self.start, now.len()) };
        }
        later
    }
}

/// Elements of an atomic operation in a caller's memory: one of the structures `fi_ioc`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Elements {
    start: *mut u8,
    count: usize,
}

impl Elements {
    /// Takes memory of a caller.
    ///
    /// # Safety
    /// The promise of [`Borrowed::new`], for so many elements of the operation's type.
    pub unsafe fn new(start: *const c_void, count: usize) -> Elements {
        Elements { start: start.cast_mut().cast(), count }
    }

    /// Takes a list of a caller.
    ///
    /// # Safety
    /// There are so many structures, and each is what [`Elements::new`] takes.
    pub unsafe fn list<'a>(list: *const Ioc, count: usize) -> Result<&'a [Elements], c_int> {
        // SAFETY: promised by the caller; the structures have the same fields.
        unsafe { self::list(list.cast(), count) }
    }

    /// Returns the address of the first element.
    pub fn start(self) -> *mut u8 {
        self.start
    }

    /// Returns the number of elements.
    pub fn count(self) -> usize {
        self.count
    }

    /// Returns the memory of elements of `size` bytes. `None`: it is too long.
    pub fn memory(self, size: usize) -> Option<Borrowed> {
        Some(Borrowed { start: self.start, len: self.count.checked_mul(size)? })
    }
}

/// Returns the structures in a caller's list.
///
/// # Errors
/// `FI_EINVAL`: the list is null, or longer than is offered.
///
/// # Safety
/// There are so many structures, until the call returns.
#[inline]
pub unsafe fn list<'a, T>(list: *const T, count: usize) -> Result<&'a [T], c_int> {
    match count {
        0 => Ok(&[]),
        // SAFETY: promised by the caller.
        1..=PIECES if !list.is_null() => Ok(unsafe { from_raw_parts(list, count) }),
        _ => Err(err::EINVAL),
    }
}

/// The provider's own memory in place of a caller's in several pieces.
pub struct Bounce {
    bytes: Vec<u8>,
    memory: Borrowed,
    /// The destination of the bytes; empty for a send.
    pieces: Vec<Borrowed>,
}

impl Bounce {
    /// Creates memory for an operation, and for the bytes it receives their destination.
    pub fn new(mut bytes: Vec<u8>, pieces: &[Borrowed]) -> Box<Bounce> {
        let memory = Borrowed { start: bytes.as_mut_ptr(), len: bytes.len() };
        Box::new(Bounce { bytes, memory, pieces: pieces.to_vec() })
    }

    /// Lends the memory to an operation, whose record keeps this object until it has ended.
    #[inline]
    pub fn memory(&self) -> Borrowed {
        self.memory
    }

    /// Copies received bytes to the caller's pieces.
    pub fn scatter(&self, len: usize) {
        let mut rest = &self.bytes[..len.min(self.bytes.len())];
        for piece in &self.pieces {
            rest = piece.write(rest);
        }
    }
}
