//! Frames in a stream: four bytes of length, little-endian, then the frame, which is a packet and
//! its trailer as in a datagram.

use weft_core::wire::COMMON_LEN;

/// Bytes of the length before each frame.
pub const PREFIX: usize = 4;
/// Longest frame: as in the gso link, so that a packet fits both.
pub const FRAME_MAX: usize = 65_360;

/// The start of a stream's unread bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextFrame {
    /// A frame of this many bytes follows the prefix, and all of them are there.
    Whole(usize),
    /// A frame of this many bytes follows the prefix, of which some are missing.
    Part(usize),
    /// The length is not known yet.
    Short,
    /// No frame has this length: the bytes are not weft's.
    Garbage,
}

/// Reads the length of the frame at the start of `bytes`; frames have a trailer of `trailer` bytes.
#[inline]
pub fn next(bytes: &[u8], trailer: usize) -> NextFrame {
    let Some(prefix) = bytes.first_chunk::<PREFIX>() else { return NextFrame::Short };
    let len = u32::from_le_bytes(*prefix) as usize;
    if !(COMMON_LEN + trailer..=FRAME_MAX).contains(&len) {
        return NextFrame::Garbage;
    }
    if bytes.len() - PREFIX >= len {
        NextFrame::Whole(len)
    } else {
        NextFrame::Part(len)
    }
}

/// Returns the prefix of a frame of this many bytes.
#[inline]
pub fn prefix(len: usize) -> [u8; PREFIX] {
    debug_assert!(len <= FRAME_MAX);
    (len as u32).to_le_bytes()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn next__takes_the_lengths_that_frames_have() {
        let of = |len: u32, there: usize| {
            let mut bytes = len.to_le_bytes().to_vec();
            bytes.resize(PREFIX + there, 0);
            next(&bytes, 16)
        };
        assert_eq!(next(&[], 16), NextFrame::Short);
        assert_eq!(next(&[40, 0, 0], 16), NextFrame::Short);
        assert_eq!(of(40, 0), NextFrame::Part(40));
        assert_eq!(of(40, 39), NextFrame::Part(40));
        assert_eq!(of(40, 41), NextFrame::Whole(40));
        assert_eq!(of(FRAME_MAX as u32, 5), NextFrame::Part(FRAME_MAX));
        for garbage in [0, 39, FRAME_MAX as u32 + 1, u32::from_le_bytes(*b"GET "), u32::MAX] {
            assert_eq!(of(garbage, 100), NextFrame::Garbage, "{garbage}");
        }
        assert_eq!(next(&prefix(77), 16), NextFrame::Part(77));
    }
}
