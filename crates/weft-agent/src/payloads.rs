//! The bytes of packets that are kept until they are acknowledged.

use weft_link::Bytes;

/// Highest size of the memory kept in free buffers; beyond it, a freed buffer returns its memory.
const SPARE_MAX: usize = 4 << 20;

/// Buffers by number. They are reused, so in the long run nothing is allocated.
#[derive(Default)]
pub struct Payloads {
    /// Buffer number n has the index n - 1.
    buffers: Vec<Vec<u8>>,
    free: Vec<u32>,
    bytes: usize,
    /// Memory of the free buffers, in bytes.
    spare: usize,
}

impl Payloads {
    /// Keeps a copy and returns its number; 0 for an empty payload.
    pub fn keep(&mut self, payload: Bytes<'_>) -> u32 {
        if payload.is_empty() {
            return 0;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Vec::new());
            self.buffers.len() as u32
        });
        let buffer = &mut self.buffers[number as usize - 1];
        self.spare -= buffer.capacity();
        buffer.resize(payload.len(), 0);
        payload.copy_to(buffer);
        self.bytes += payload.len();
        number
    }

    /// Returns the bytes of a number; empty for 0 and for a released number.
    pub fn get(&self, number: u32) -> &[u8] {
        match number.checked_sub(1) {
            Some(at) => self.buffers.get(at as usize).map_or(&[], Vec::as_slice),
            None => &[],
        }
    }

    /// Frees the buffer of a number.
    pub fn release(&mut self, number: u32) {
        let Some(at) = number.checked_sub(1) else { return };
        let Some(buffer) = self.buffers.get_mut(at as usize).filter(|b| !b.is_empty()) else {
            return;
        };
        self.bytes -= buffer.len();
        if self.spare + buffer.capacity() <= SPARE_MAX {
            buffer.clear();
            self.spare += buffer.capacity();
        } else {
            *buffer = Vec::new();
        }
        self.free.push(number);
    }

    /// Returns the number of bytes kept.
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

    #[test]
    fn release__what_is_not_needed_is_given_back() {
        let mut all = Payloads::default();
        let one = [1; 32 << 10];
        // Each buffer had a large payload before.
        for round in 0..64 {
            let small: Vec<u32> =
                (0..64 * round).map(|_| all.keep(Bytes::from_slice(&[1]))).collect();
            let large: Vec<u32> = (0..64).map(|_| all.keep(Bytes::from_slice(&one))).collect();
            small.into_iter().chain(large).for_each(|number| all.release(number));
            let held: usize = all.buffers.iter().map(Vec::capacity).sum();
            assert!(held <= SPARE_MAX && held == all.spare, "{held} after {round}");
        }
        assert_eq!(all.bytes(), 0);
    }
}
