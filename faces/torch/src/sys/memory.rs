//! The memory of tensors.

use weft::Kept;

/// Pieces of memory, one behind the other: those of tensors.
///
/// The package's Python files make it of contiguous tensors, which they keep until the operation
/// has ended; all bytes of a piece are there until then. A program that changes a tensor meanwhile
/// mixes old bytes and new, as over any backend.
#[derive(Clone, Debug, Default)]
pub struct Memory(Vec<(usize, usize)>);

impl Memory {
    /// Makes the memory of pieces: address and length in bytes.
    pub fn new(pieces: Vec<(usize, usize)>) -> Memory {
        Memory(pieces)
    }

    /// Joins memory of several parts. Pieces that follow each other in memory become one.
    pub fn joined(parts: &[Memory]) -> Memory {
        let mut all: Vec<(usize, usize)> = Vec::new();
        for &(address, len) in parts.iter().flat_map(|part| &part.0).filter(|piece| piece.1 > 0) {
            match all.last_mut() {
                Some(last) if last.0 + last.1 == address => last.1 += len,
                _ => all.push((address, len)),
            }
        }
        Memory(all)
    }

    /// Returns the length of all pieces in bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.1).sum()
    }

    /// True if both have a byte.
    pub fn overlaps(&self, other: &Memory) -> bool {
        let meets = |one: &(usize, usize), two: &(usize, usize)| {
            one.0 < two.0 + two.1 && two.0 < one.0 + one.1
        };
        self.0.iter().any(|one| other.0.iter().any(|two| meets(one, two)))
    }

    /// Returns a copy of the bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0_u8; self.len()];
        let mut at = 0;
        for &(address, len) in self.0.iter().filter(|piece| piece.1 > 0) {
            let to = bytes[at..at + len].as_mut_ptr();
            // SAFETY: `len` bytes are at `address` (see above), and at `to`, which is memory of
            // this function alone.
            unsafe { std::ptr::copy_nonoverlapping(address as *const u8, to, len) };
            at += len;
        }
        bytes
    }

    /// Returns the memory itself for an operation, or a copy if it is in several pieces.
    pub fn kept(&self) -> Kept {
        match Memory::joined(std::slice::from_ref(self)).0[..] {
            // SAFETY: the memory is there until the operation has ended (see above), which drops
            // what it was given.
            [(address, len)] => unsafe { Kept::new(address as *mut u8, len) },
            _ => Kept::of(self.bytes()),
        }
    }

    /// Writes bytes, as many as fit.
    pub fn fill(&self, mut bytes: &[u8]) {
        for &(address, len) in &self.0 {
            let part;
            (part, bytes) = bytes.split_at(len.min(bytes.len()));
            if part.is_empty() {
                continue;
            }
            // SAFETY: `part.len()` bytes are at `address`, and the caller of the operation gave
            // them to be written; `part` is memory of this library, which no tensor shares.
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), address as *mut u8, part.len());
            }
        }
    }

    /// Copies the bytes of other memory, which may be the same.
    pub fn copy(&self, from: &Memory) {
        match (&self.0[..], &from.0[..]) {
            (&[(to, len)], &[(from, given)]) if len == given => {
                // SAFETY: `len` bytes are at both addresses (see above); they may overlap.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len) };
            }
            _ => self.fill(&from.bytes()),
        }
    }
}
