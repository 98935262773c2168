//! The packets of a rank on their way to its links.

use super::payloads::Payloads;
use std::collections::VecDeque;
use weft_core::relay::Out;
use weft_core::wire::{field, PacketType, Piece, PIECES_MAX};
use weft_core::PeerId;
use weft_link::Bytes;

/// The payloads of packets, and the pieces of those that are longer than their link carries.
#[derive(Default)]
pub struct Outbox {
    /// The payloads, until their packets are acknowledged.
    pub payloads: Payloads,
    pieces: VecDeque<Out>,
    cut: u64,
}

impl Outbox {
    /// True if pieces wait.
    #[inline]
    pub fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Takes the next piece.
    #[inline]
    pub fn piece(&mut self) -> Option<Out> {
        self.pieces.pop_front()
    }

    /// Returns the number of packets that were cut into pieces.
    pub fn packets_cut(&self) -> u64 {
        self.cut
    }

    /// Returns a packet as its link carries it.
    #[inline]
    pub fn fitted(&mut self, out: Out) -> Out {
        let len = out.header.as_slice().len() + self.payloads.get(out.payload).len();
        if len > out.fits as usize || out.padding > 0 {
            return self.fit(out);
        }
        out
    }

    /// Makes the payload of a packet that only has a length, or the pieces of one that is longer
    /// than its link carries.
    #[cold]
    fn fit(&mut self, out: Out) -> Out {
        if out.padding > 0 {
            let zeros = vec![0; out.padding as usize];
            let payload = self.payloads.keep(Bytes::from_slice(&zeros));
            return Out { payload, last: true, ..out };
        }
        let header = out.header.as_slice();
        let kind = header.get(field::TYPE).and_then(|&kind| PacketType::try_from(kind).ok());
        let payload = self.payloads.get(out.payload).to_vec();
        let room = Piece::room(out.fits, header.len()) as usize;
        let cuts = kind.is_some_and(PacketType::is_sequenced) && room > 0;
        if !cuts || payload.is_empty() || payload.len() > PIECES_MAX as usize {
            return out;
        }
        let total = payload.len() as u32;
        for (offset, part) in (0..).step_by(room).zip(payload.chunks(room)) {
            let piece = Piece { offset, total };
            let body = [header, part].concat();
            let payload = self.payloads.keep(Bytes::from_slice(&body));
            let header = piece.header_of(&out.header);
            self.pieces.push_back(Out { header, payload, fits: u32::MAX, last: true, ..out });
        }
        self.cut += 1;
        self.pieces.pop_front().unwrap_or(out)
    }

    /// Drops the pieces for a peer.
    pub fn forget(&mut self, peer: PeerId) {
        let payloads = &mut self.payloads;
        self.pieces.retain(|out| {
            let stays = out.peer != peer;
            if !stays {
                payloads.release(out.payload);
            }
            stays
        });
    }
}
