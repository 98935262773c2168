//! Reusable memory of messages.

use std::ops::{Deref, DerefMut};

/// Memory of a message. Its vector never shrinks, so it need not be cleared for the next message.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// Makes the buffer `len` bytes long, with arbitrary content.
    #[inline]
    pub fn resize(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        self.len = len;
        &mut self.bytes[..len]
    }

    /// Shortens the buffer to `len` bytes, if it is longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Takes the bytes; the buffer is empty afterwards.
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
