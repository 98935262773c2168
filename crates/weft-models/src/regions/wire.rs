//! Messages about a region: its number (as few bytes as it needs, see [`Number`]), then what the
//! kind says. A short region and all that goes with it so fit in one line of a cache.

use super::Access;

/// From a rank to the home of the region.
pub(super) mod to_home {
    /// Access (1 byte): the sender wants it.
    pub const ASK: u8 = 1;
    /// Flags (1 byte), bytes if the copy was written: the answer to a revocation.
    pub const ACK: u8 = 2;
    /// Flags (1 byte), bytes if the copy was written: the sender has given its copy up.
    pub const FLUSH: u8 = 3;
}

/// From the home of the region to another rank.
pub(super) mod from_home {
    /// Access (1 byte), flags (1), bytes if the receiver has no copy.
    pub const GRANT: u8 = 17;
    /// Access that is left (1 byte; 0: none).
    pub const REVOKE: u8 = 18;
    /// Rank whose copy is lost (4 bytes; all bits: the region is no more; the home: it serves no
    /// region any more), and why it failed.
    pub const REFUSE: u8 = 19;
}

/// Between any two ranks, without the number of a region.
pub(super) mod among {
    /// A home (4 bytes), and a rank (4 bytes) that it has given up and that may live.
    pub const GIVEN_UP: u8 = 33;
}

/// Flag: the region's bytes follow.
pub(super) const DATA: u8 = 1;
/// Flag: the sender still has a copy to read.
pub(super) const KEPT: u8 = 2;

/// Methods of calls.
pub(super) mod method {
    /// Number of the region; the answer is the number of items (8 bytes) and the name of their
    /// type.
    pub const MAP: u16 = 1;
    /// Number of the region; the answer is the ranks that hold it up (4 bytes each).
    pub const HOLDERS: u16 = 2;
    /// Number of a region that the caller writes; the answer is 1 when it is deleted, else 0.
    pub const DELETE: u16 = 3;
    /// Number of a region of the caller that is deleted; the answer is empty.
    pub const DELETED: u16 = 4;
    /// The caller has copies of regions of this home: the answer is 1 if they are good still, 0 if
    /// the home has given the caller up.
    pub const CONFIRM: u16 = 5;
}

pub(super) fn access_code(access: Option<Access>) -> u8 {
    match access {
        None => 0,
        Some(Access::Read) => 1,
        Some(Access::Write) => 2,
    }
}

pub(super) fn access_of(code: u8) -> Option<Access> {
    match code {
        1 => Some(Access::Read),
        2 => Some(Access::Write),
        _ => None,
    }
}

/// The number of a region in a message: seven bits a byte, the lowest first; all bytes but the last
/// have the highest bit (LEB128).
pub(super) struct Number {
    bytes: [u8; 10],
    len: usize,
}

impl Number {
    pub fn new(number: u64) -> Number {
        let (mut bytes, mut len, mut rest) = ([0; 10], 0, number);
        loop {
            let more = rest >> 7 != 0;
            bytes[len] = (rest & 0x7f) as u8 | u8::from(more) << 7;
            (len, rest) = (len + 1, rest >> 7);
            if !more {
                return Number { bytes, len };
            }
        }
    }
}

impl std::ops::Deref for Number {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Splits the number of the region from the front of a message.
pub(super) fn number_of(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has one bit of the number.
        number |= bits.checked_shl(7 * at as u32).filter(|all| all >> (7 * at) == bits)?;
        if byte & 0x80 == 0 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn number_of__numbers_come_back_and_nonsense_is_none() {
        for number in [0, 1, 127, 128, 300, 1 << 32, u64::MAX - 1, u64::MAX] {
            let bytes = [&Number::new(number)[..], b"rest"].concat();
            assert_eq!(number_of(&bytes), Some((number, &b"rest"[..])));
            (0..bytes.len() - 4).for_each(|len| assert_eq!(number_of(&bytes[..len]), None));
        }
        assert_eq!(number_of(&[0xff; 12]), None);
        let mut large = [0xff; 10];
        large[9] = 2;
        assert_eq!(number_of(&large), None);
    }
}
