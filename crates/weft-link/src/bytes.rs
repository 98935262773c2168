//! Received payload bytes, possibly in memory that another process can write.

use crate::sys;
use std::marker::PhantomData;

/// A borrowed run of bytes that may change during a read (shared memory). Therefore no `&[u8]` of
/// these bytes is ever made.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    ptr: *const u8,
    len: usize,
    life: PhantomData<&'a u8>,
}

impl<'a> Bytes<'a> {
    /// An empty run of bytes.
    pub const EMPTY: Bytes<'static> = Bytes { ptr: [].as_ptr(), len: 0, life: PhantomData };

    /// Borrows an ordinary slice.
    pub fn from_slice(s: &'a [u8]) -> Bytes<'a> {
        Bytes { ptr: s.as_ptr(), len: s.len(), life: PhantomData }
    }

    /// Borrows raw memory.
    ///
    /// # Safety
    /// `ptr..ptr+len` is mapped and readable for `'a`; another process may write it meanwhile.
    #[allow(unsafe_code)]
    pub unsafe fn from_raw(ptr: *const u8, len: usize) -> Bytes<'a> {
        Bytes { ptr, len, life: PhantomData }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if `len` is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// Copies the first `dst.len()` bytes into `dst`. `dst.len()` must not exceed `len`. Copies
    /// nothing when `dst` is the same memory (the link wrote the payload where a prediction said).
    #[allow(unsafe_code)]
    pub fn copy_to(&self, dst: &mut [u8]) {
        assert!(dst.len() <= self.len);
        if std::ptr::eq(self.ptr, dst.as_ptr()) {
            return;
        }
        // SAFETY: source is readable for len bytes by construction; copy allows overlap.
        unsafe { sys::copy(self.ptr, dst.as_mut_ptr(), dst.len()) }
    }

    /// Copies the bytes into a new vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = vec![0; self.len];
        self.copy_to(&mut v);
        v
    }
}
