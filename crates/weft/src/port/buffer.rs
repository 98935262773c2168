//! Memory of messages, used again and again.

use std::ops::{Deref, DerefMut};

/// Memory of a message. Its vector never shrinks, so that it need not be cleared again.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// Makes it `len` bytes long. The bytes hold anything.
    #[inline]
    pub fn resize(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        self.len = len;
        &mut self.bytes[..len]
    }

    /// Makes it `len` bytes long, if it is longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The bytes; the buffer is empty from then on.
    pub fn take(&mut self) -> Vec<u8> {
        self.bytes.truncate(self.len);
        self.len = 0;
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        let len = bytes.len();
        Buffer { bytes, len }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}
