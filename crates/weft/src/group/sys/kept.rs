//! Memory that an operation keeps until it has ended, though Rust does not own it.

use super::field::Field;
use std::marker::PhantomData;

/// Memory that a collective operation uses until it has ended: bytes of its own, or memory of
/// another language. [`Placed`](crate::Placed) has the operations on it.
pub struct Kept {
    ptr: *mut u8,
    len: usize,
    own: Option<Vec<u8>>,
    /// A field is of one thread.
    thread: PhantomData<*mut u8>,
}

impl Kept {
    /// Names memory of the caller.
    ///
    /// # Safety
    /// Until this, or the operation that has it, was dropped, `ptr..ptr + len` is initialised
    /// memory that stays valid. Nobody else uses it meanwhile, but for other operations that only
    /// read it. An operation that only reads it writes nothing.
    pub unsafe fn new(ptr: *mut u8, len: usize) -> Kept {
        Kept { ptr, len, own: None, thread: PhantomData }
    }

    /// Takes over bytes.
    pub fn of(mut bytes: Vec<u8>) -> Kept {
        let (ptr, len) = (bytes.as_mut_ptr(), bytes.len());
        Kept { ptr, len, own: Some(bytes), thread: PhantomData }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes, if they were taken over.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        self.own
    }

    /// Returns the memory as a field of an operation.
    pub(in crate::group) fn field(&mut self, may_write: bool) -> Field<'_> {
        let ptr = match self.len {
            0 => std::ptr::NonNull::dangling().as_ptr(),
            _ => self.ptr,
        };
        // SAFETY: the maker of `self` has promised it, or `own` has the memory; the field borrows
        // `self`, so that there is one at a time.
        unsafe { Field::new(ptr, self.len, may_write) }
    }
}
