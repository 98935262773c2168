//! Packets longer than a path carries: PROBE asks for the length that gets through, PIECE carries a
//! part of a packet that has its number already.

use super::{field, Common, HeaderBuf, Packet, PacketType};
use crate::config::MTU_MIN;

/// Parts of a payload begin at multiples of this, bytes.
pub const PIECE_UNIT: u32 = 64;
/// Longest payload that is cut, bytes.
pub const PIECES_MAX: u32 = 1 << 16;

packet! {
    /// Asks if a packet of this length gets through; zeros follow. With
    /// [`flags::REPLY`](super::flags::REPLY) it answers, and nothing follows.
    Probe, 32;
    pad 28..32;
    {
        /// Length of the packet that asks, header and payload.
        size / SIZE: u32 = 24, "{}";
    }
}

packet! {
    /// A part of the packet with the number `seq`: the packet's header, and then a part of its
    /// payload.
    Piece, 32;
    valid is_part;
    {
        /// Offset of the part in the payload, a multiple of [`PIECE_UNIT`].
        offset / OFFSET: u32 = 24, "{}";
        /// Length of the payload, at most [`PIECES_MAX`].
        total / TOTAL: u32 = 28, "{}";
    }
}

fn is_part(piece: &Piece) -> bool {
    piece.offset.is_multiple_of(PIECE_UNIT)
        && piece.offset < piece.total
        && piece.total <= PIECES_MAX
}

impl Piece {
    /// The longest part, in bytes, of a packet with a header of this length that fits a piece of
    /// `mtu` bytes.
    pub fn room(mtu: u32, header_len: usize) -> u32 {
        let around = (Piece::LEN + header_len) as u32;
        mtu.max(MTU_MIN).saturating_sub(around) / PIECE_UNIT * PIECE_UNIT
    }

    /// Returns the header of this part of the packet with the header `whole`.
    pub fn header_of(self, whole: &HeaderBuf) -> HeaderBuf {
        let common = Common { flags: 0, imm: 0, ..Common::read(&whole.bytes) };
        super::emit(&common, &Packet::Piece(self))
    }

    /// Returns the length of the header at the start of `bytes`, if that header belongs to the
    /// packet that a piece with the header `of` is a part of.
    pub fn whole_len(of: &[u8], bytes: &[u8]) -> Option<usize> {
        let (outer, _, _) = super::parse(of).ok()?;
        let (inner, packet, len) = super::parse(bytes).ok()?;
        let same = (outer.session, outer.seq) == (inner.session, inner.seq);
        (same && packet.is_sequenced()).then_some(len)
    }
}

impl Probe {
    /// Returns true if a packet with this header asks for a length: it must not be cut on its way.
    pub fn is_question(header: &[u8]) -> bool {
        header.get(field::TYPE) == Some(&(PacketType::Probe as u8))
    }
}
