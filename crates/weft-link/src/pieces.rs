//! Joins packets that arrive in pieces.

use crate::Bytes;
use std::collections::BTreeMap;
use weft_core::wire::{Piece, HEADER_MAX, PIECES_MAX, PIECE_UNIT};
use weft_core::{PeerId, Seq};

/// Packets of one peer that are joined at a time. The peer retransmits the oldest packets first, so
/// the oldest are kept.
const PACKETS_MAX: usize = 16;
const WORDS: usize = (PIECES_MAX / PIECE_UNIT / 64) as usize;

/// A packet of which some pieces arrived.
struct Parts {
    payload: Vec<u8>,
    /// One bit for each unit that arrived, and the number of units that are missing.
    here: [u64; WORDS],
    missing: u32,
}

impl Parts {
    fn new(total: u32) -> Parts {
        let missing = total.div_ceil(PIECE_UNIT);
        Parts { payload: vec![0; total as usize], here: [0; WORDS], missing }
    }

    /// Copies a piece that ends at the end of a unit or of the payload.
    fn take(&mut self, offset: usize, part: &[u8]) {
        self.payload[offset..offset + part.len()].copy_from_slice(part);
        let unit = PIECE_UNIT as usize;
        for at in offset / unit..(offset + part.len()).div_ceil(unit) {
            let (word, bit) = (at / 64, 1 << (at % 64));
            self.missing -= u32::from(self.here[word] & bit == 0);
            self.here[word] |= bit;
        }
    }
}

/// All incomplete packets of all peers. Each peer has at most `PACKETS_MAX`, 1 MiB in all.
#[derive(Default)]
pub struct Pieces {
    of: BTreeMap<PeerId, BTreeMap<u32, Parts>>,
}

impl Pieces {
    /// Takes a piece: `of` is its header, followed by the header of the packet that was cut, and by
    /// this part of the payload. All packets before `expected` have arrived. Returns header and
    /// payload of the packet when the last missing piece arrives.
    pub fn take(
        &mut self,
        (peer, seq, expected): (PeerId, Seq, Seq),
        piece: &Piece,
        of: &[u8],
        body: Bytes<'_>,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let packets = self.of.entry(peer).or_default();
        packets.retain(|&number, _| !Seq(number).before(expected));
        let body = body.to_vec();
        let head = Piece::whole_len(of, &body).filter(|&len| len <= HEADER_MAX)?;
        let (header, part) = body.split_at(head);
        let (offset, total) = (piece.offset as usize, piece.total as usize);
        let end = offset + part.len();
        let whole = end == total || end < total && part.len().is_multiple_of(PIECE_UNIT as usize);
        if part.is_empty()
            || !whole
            || packets.get(&seq.0).is_some_and(|p| p.payload.len() != total)
        {
            return None;
        }
        if !packets.contains_key(&seq.0) && packets.len() >= PACKETS_MAX {
            let ahead = |number: &u32| Seq(*number).distance_from(expected);
            let last = packets.keys().copied().max_by_key(ahead)?;
            if ahead(&seq.0) > ahead(&last) {
                return None;
            }
            packets.remove(&last);
        }
        let parts = packets.entry(seq.0).or_insert_with(|| Parts::new(piece.total));
        parts.take(offset, part);
        if parts.missing > 0 {
            return None;
        }
        let parts = packets.remove(&seq.0)?;
        if packets.is_empty() {
            self.of.remove(&peer);
        }
        Some((header.to_vec(), parts.payload))
    }

    /// Forgets the pieces of a peer.
    pub fn forget(&mut self, peer: PeerId) {
        self.of.remove(&peer);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft_core::wire::{self, Common, Data, HeaderBuf, Packet};

    const PEER: PeerId = PeerId(2);

    fn header(seq: u32) -> HeaderBuf {
        let common = Common { session: 7, seq: Seq(seq), ..Common::default() };
        wire::emit(&common, &Packet::Data(Data { offset: 4096 }))
    }

    /// Gives the part of packet `seq` that begins at `offset`.
    fn give(
        all: &mut Pieces,
        (seq, expected): (u32, u32),
        whole: &[u8],
        part: std::ops::Range<usize>,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let own = header(seq);
        let piece = Piece { offset: part.start as u32, total: whole.len() as u32 };
        let outer = piece.header_of(&own);
        let body = [own.as_slice(), &whole[part]].concat();
        let of = (PEER, Seq(seq), Seq(expected));
        all.take(of, &piece, outer.as_slice(), Bytes::from_slice(&body))
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
    }

    #[test]
    fn take__in_any_order_and_cuts_of_several_sizes() {
        let (mut all, whole) = (Pieces::default(), bytes(1000));
        assert!(give(&mut all, (5, 5), &whole, 640..1000).is_none());
        assert!(give(&mut all, (5, 5), &whole, 0..256).is_none());
        assert!(give(&mut all, (5, 5), &whole, 640..1000).is_none(), "twice");
        assert!(give(&mut all, (5, 5), &whole, 192..448).is_none());
        let (head, payload) = give(&mut all, (5, 5), &whole, 448..704).expect("whole");
        assert_eq!((head, payload), (header(5).as_slice().to_vec(), whole));
        assert!(all.of.is_empty());
    }

    #[test]
    fn take__what_contradicts_itself_is_refused() {
        let (mut all, whole) = (Pieces::default(), bytes(300));
        assert!(give(&mut all, (5, 5), &whole, 0..100).is_none(), "half a unit");
        assert!(give(&mut all, (5, 5), &whole, 64..64).is_none(), "nothing");
        assert!(give(&mut all, (5, 5), &whole, 0..256).is_none());
        assert!(give(&mut all, (5, 5), &bytes(301), 256..301).is_none(), "of another length");
        // A piece inside a piece, and a packet of another session.
        let piece = Piece { offset: 256, total: 300 };
        let own = header(5);
        let outer = piece.header_of(&own);
        let nested = [outer.as_slice(), &whole[256..]].concat();
        let mut other = [own.as_slice(), &whole[256..]].concat();
        other[4] ^= 1;
        for body in [nested, other, vec![], vec![0xff; 80]] {
            let of = (PEER, Seq(5), Seq(5));
            assert!(all.take(of, &piece, outer.as_slice(), Bytes::from_slice(&body)).is_none());
        }
        assert!(give(&mut all, (5, 5), &whole, 256..300).is_some());
    }

    #[test]
    fn take__few_at_a_time_those_that_are_needed_first() {
        let (mut all, whole) = (Pieces::default(), bytes(128));
        let start = u32::MAX - 5;
        let seq = |i: usize| start.wrapping_add(i as u32);
        for i in (0..3 * PACKETS_MAX).rev() {
            give(&mut all, (seq(i), start), &whole, 0..64);
            assert!(all.of[&PEER].len() <= PACKETS_MAX);
        }
        let done = |i: &usize| give(&mut all, (seq(*i), start), &whole, 64..128).is_some();
        assert_eq!((0..3 * PACKETS_MAX).filter(done).count(), PACKETS_MAX);
        give(&mut all, (seq(9), start), &whole, 0..64);
        assert!(all.of[&PEER].contains_key(&seq(9)));
        give(&mut all, (seq(20), seq(10)), &whole, 0..64);
        assert!(!all.of[&PEER].contains_key(&seq(9)), "what has come otherwise is forgotten");
        all.forget(PEER);
        assert!(all.of.is_empty());
    }
}
