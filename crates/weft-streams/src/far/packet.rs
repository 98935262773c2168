//! The packets between the two ends of a connection between hosts: `PROTOCOL.md`, section Sockets
//! between hosts.
//!
//! Each packet is a whole statement of its sender's state, so that a later one makes up for one
//! that was lost, and one that comes late or twice says nothing new.

use super::seal::{Key, Siphash};
use super::Pos;

/// Version of the packets: byte 0 of each.
pub const VERSION: u8 = 1;
/// Bytes before the data.
pub const HEAD: usize = 48;
/// Bytes of the tag behind the data.
pub const TAG: usize = 8;
/// Most bytes of data: with UDP and IPv6 a packet fits into 1500 bytes of Ethernet.
pub const DATA_MAX: usize = 1344;
/// Longest packet.
pub const PACKET_MAX: usize = HEAD + DATA_MAX + TAG;

/// Bytes of the stream that a packet carries, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// The phase, and the position of the first byte in it.
    pub at: Pos,
    /// Bytes by TCP before the phase.
    pub after: u64,
    /// Number of bytes; 0: none.
    pub len: usize,
}

/// A packet without its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarPacket {
    /// Number of the receiver's changes between awake (odd) and asleep (even).
    pub word: u32,
    /// The phase of the other end's bytes that this end is in, and the bytes that it has taken.
    pub ack: Pos,
    /// The last phase of this end's bytes that has ended, and its length.
    pub stop: Pos,
    /// The last phase of the other end's bytes of which this end knows that it has ended.
    pub heard: u32,
    /// The data.
    pub data: Data,
}

fn tag_of(key: &Key, bytes: &[u8]) -> [u8; TAG] {
    let mut hash = Siphash::new(key);
    hash.update(bytes);
    hash.finish().to_le_bytes()
}

impl FarPacket {
    /// Writes the head to the start of `to`, where `data.len` bytes of data are behind it, and the
    /// tag behind these. Returns the length of the packet.
    pub fn seal(&self, key: &Key, to: &mut [u8; PACKET_MAX]) -> usize {
        let data = self.data;
        to[..HEAD].fill(0);
        to[0] = VERSION;
        to[2..4].copy_from_slice(&(data.len as u16).to_le_bytes());
        to[4..8].copy_from_slice(&self.word.to_le_bytes());
        to[8..16].copy_from_slice(&self.ack.0.to_le_bytes());
        to[16..24].copy_from_slice(&self.stop.0.to_le_bytes());
        to[24..28].copy_from_slice(&self.heard.to_le_bytes());
        to[32..40].copy_from_slice(&data.at.0.to_le_bytes());
        to[40..48].copy_from_slice(&data.after.to_le_bytes());
        let end = HEAD + data.len;
        let tag = tag_of(key, &to[..end]);
        to[end..end + TAG].copy_from_slice(&tag);
        end + TAG
    }

    /// Checks and reads a packet; its data begin at `HEAD`. `None`: it is none of the holder of the
    /// key, or is cut.
    pub fn open(key: &Key, bytes: &[u8]) -> Option<FarPacket> {
        let (body, tag) = bytes.split_last_chunk::<TAG>()?;
        let (head, data) = body.split_first_chunk::<HEAD>()?;
        if head[0] != VERSION || head[1] != 0 || head[28..32] != [0; 4] || data.len() > DATA_MAX {
            return None;
        }
        let different = tag_of(key, body).iter().zip(tag).fold(0, |all, (a, b)| all | (a ^ b));
        let len = usize::from(u16::from_le_bytes([head[2], head[3]]));
        if different != 0 || len != data.len() {
            return None;
        }
        let number = |at: usize| head[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let small = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        Some(FarPacket {
            word: small(4),
            ack: Pos(number(8)),
            stop: Pos(number(16)),
            heard: small(24),
            data: Data { at: Pos(number(32)), after: number(40), len },
        })
    }
}

/// Opens bytes under a fixed key, and again with a right tag, for fuzzing. No input may cause a
/// panic; an accepted packet must have one encoding.
///
/// # Panics
/// One of these conditions does not hold.
pub fn check_packet(bytes: &[u8]) {
    let key = [7; 16];
    let mut sealed = bytes.to_vec();
    sealed.extend(tag_of(&key, bytes));
    for bytes in [bytes, &sealed] {
        let Some(packet) = FarPacket::open(&key, bytes) else { continue };
        let mut again = [0; PACKET_MAX];
        again[HEAD..HEAD + packet.data.len].copy_from_slice(&bytes[HEAD..bytes.len() - TAG]);
        let len = packet.seal(&key, &mut again);
        assert_eq!(&again[..len], bytes, "two encodings: {packet:?}");
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn open__what_was_sealed_and_nothing_else() {
        let packet = FarPacket {
            word: 3,
            ack: Pos::new(2, 9),
            stop: Pos::new(4, 1),
            heard: 2,
            data: Data { at: Pos::new(5, 7), after: 1 << 40, len: 5 },
        };
        let (key, mut bytes) = ([9; 16], [0; PACKET_MAX]);
        bytes[HEAD..HEAD + 5].copy_from_slice(b"hello");
        let len = packet.seal(&key, &mut bytes);
        assert_eq!(FarPacket::open(&key, &bytes[..len]), Some(packet));
        assert_eq!(FarPacket::open(&[8; 16], &bytes[..len]), None);
        for end in 0..len {
            assert_eq!(FarPacket::open(&key, &bytes[..end]), None);
        }
        for at in 0..len {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(FarPacket::open(&key, &other[..len]), None, "byte {at}");
            check_packet(&other[..len]);
            check_packet(&other[..len - TAG]);
        }
    }
}
