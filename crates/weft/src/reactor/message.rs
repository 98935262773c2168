//! Messages for clients, and their reusable memory.

use std::ops::{Deref, DerefMut};
use weft_core::{Engine, PeerId};

/// Exclusive bound of a client's own numbers.
pub const NUMBERS: u32 = 1 << 24;

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

/// A message that arrived for a client. [`Port::release`](crate::port::Port::release) gives its
/// credit back to the sender.
#[must_use = "its sender's credit comes back with Port::release"]
pub struct Arrived {
    /// The sender.
    pub source: PeerId,
    /// The client's own number, less than [`NUMBERS`].
    pub number: u32,
    /// The argument that the sender gave.
    pub argument: u32,
    /// The payload.
    pub data: Buffer,
    /// Bytes of credit that the message holds.
    credit: u32,
    /// True if it was noted as kept.
    pub(crate) kept: bool,
}

impl Arrived {
    #[inline]
    pub(crate) fn new(source: PeerId, tag: u64, data: Buffer) -> Arrived {
        let credit = data.len() as u32;
        let (number, argument) = (tag as u32 & (NUMBERS - 1), (tag >> 32) as u32);
        Arrived { source, number, argument, data, credit, kept: false }
    }

    #[inline]
    pub(crate) fn credit(&self) -> u64 {
        u64::from(self.credit)
    }

    /// Gives its credit back.
    #[inline]
    pub(crate) fn repay(&self, engine: &mut Engine) {
        match self.kept {
            false => engine.peer_mut(self.source).release(self.credit()),
            true => engine.peer_mut(self.source).release_kept(self.credit()),
        }
    }
}
