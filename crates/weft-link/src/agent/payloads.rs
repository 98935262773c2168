//! The bytes of packets that are kept until they are acknowledged.

use crate::Bytes;

/// Buffers by number. They are used again, so that in the long run nothing is allocated.
#[derive(Default)]
pub struct Payloads {
    /// Number n lies at n - 1.
    buffers: Vec<Vec<u8>>,
    free: Vec<u32>,
    bytes: usize,
}

impl Payloads {
    /// Keeps a copy; 0 for no bytes.
    pub fn keep(&mut self, payload: Bytes<'_>) -> u32 {
        if payload.is_empty() {
            return 0;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Vec::new());
            self.buffers.len() as u32
        });
        let buffer = &mut self.buffers[number as usize - 1];
        buffer.resize(payload.len(), 0);
        payload.copy_to(buffer);
        self.bytes += payload.len();
        number
    }

    /// The bytes of a number; none of 0 or of one that was let go.
    pub fn get(&self, number: u32) -> &[u8] {
        match number.checked_sub(1) {
            Some(at) => self.buffers.get(at as usize).map_or(&[], Vec::as_slice),
            None => &[],
        }
    }

    /// Lets go of a number.
    pub fn release(&mut self, number: u32) {
        let Some(at) = number.checked_sub(1) else { return };
        let Some(buffer) = self.buffers.get_mut(at as usize).filter(|b| !b.is_empty()) else {
            return;
        };
        self.bytes -= buffer.len();
        buffer.clear();
        self.free.push(number);
    }

    /// Bytes kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn keep__numbers_are_used_again_and_bytes_are_counted() {
        let mut all = Payloads::default();
        let (a, b) = (all.keep(Bytes::from_slice(b"one")), all.keep(Bytes::from_slice(b"three")));
        assert_eq!((all.get(a), all.get(b), all.bytes()), (&b"one"[..], &b"three"[..], 8));
        all.release(a);
        all.release(a);
        assert_eq!((all.get(a), all.bytes()), (&b""[..], 5));
        assert_eq!(all.keep(Bytes::from_slice(b"x")), a);
        assert_eq!(all.keep(Bytes::EMPTY), 0);
        assert_eq!(all.get(0), b"");
        all.release(0);
        all.release(99);
    }
}
