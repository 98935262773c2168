//! Handles of objects. A handle is a number that only looks like a pointer: nothing behind it is
//! read, so a wrong one is refused whatever it is.

use crate::table::{Key, GENERATION_BITS};

/// The kind of object that a handle names: its highest byte, from 0x80 on. No address of a process
/// has such a byte.
pub type Kind = u8;

const INDEX_BITS: u32 = 24;
const SEAT_AT: u32 = GENERATION_BITS + INDEX_BITS;
const KIND_AT: u32 = SEAT_AT + 8;

/// Returns the handle of an object that belongs to the seat with this number.
#[inline]
pub fn pack(kind: Kind, seat: u8, key: Key) -> u64 {
    u64::from(kind) << KIND_AT
        | u64::from(seat) << SEAT_AT
        | u64::from(key.generation) << INDEX_BITS
        | u64::from(key.index)
}

/// Returns the seat and the key in a handle of this kind.
#[inline]
pub fn unpack(kind: Kind, handle: u64) -> Option<(u8, Key)> {
    let low = |bits: u32, at: u32| (handle >> at) as u32 & ((1 << bits) - 1);
    let key = Key { index: low(INDEX_BITS, 0), generation: low(GENERATION_BITS, INDEX_BITS) };
    (handle >> KIND_AT == u64::from(kind)).then_some(((handle >> SEAT_AT) as u8, key))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn unpack__gives_back_what_was_packed_and_refuses_other_kinds() {
        let key = Key { index: 0x123456, generation: 0xabcdef };
        let handle = pack(0xa2, 63, key);
        assert_eq!(unpack(0xa2, handle), Some((63, key)));
        for kind in [0xa1, 0xa3, 0xb1] {
            assert_eq!(unpack(kind, handle), None);
        }
        for wrong in [0, 1, u64::MAX, std::ptr::from_ref(&key) as u64] {
            assert_eq!(unpack(0xa2, wrong), None);
        }
    }
}
