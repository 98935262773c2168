//! Messages about a region: its number (8 bytes), then what the kind says.

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
    /// Rank whose copy is lost (4 bytes; all bits: the region is no more).
    pub const REFUSE: u8 = 19;
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

/// Splits the number of the region from the front of a message.
pub(super) fn number_of(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}
