//! Runs: consecutive DATA packets of one transfer, or EAGER_MORE packets of one message, which the
//! link hands to the driver together. Both packet types have the same layout.
//!
//! A link that has received several packets writes their payload into the memory of the driver's
//! [`Prediction`], and delivers the packets with one call ([`Sink::run`]).

use crate::{Prediction, Sink};
use weft_core::wire::{field, session_of, Data, PacketType};

/// Position of the offset in the header of a DATA packet.
const OFFSET: usize = Data::OFFSET.range().start;

/// True if a packet may be part of a run.
#[inline]
pub fn is_part(packet: &[u8]) -> bool {
    let kinds = [PacketType::Data as u8, PacketType::EagerMore as u8];
    packet.get(field::TYPE).is_some_and(|kind| kinds.contains(kind))
}

/// The accepted packets of a run, whose payload is in predicted memory.
pub struct Run {
    header: [u8; Data::LEN],
    seq: u32,
    offset: u64,
    /// Bytes from the start of the memory to the payload of the first packet.
    skip: usize,
    packets: usize,
    /// Payload bytes so far.
    len: usize,
}

impl Run {
    /// Begins an empty run with this packet, if the packet belongs to the predicted transfer and
    /// its payload to the predicted memory.
    pub fn start(p: &Prediction<'_>, packet: &[u8]) -> Option<Run> {
        let header = *packet.first_chunk::<{ Data::LEN }>()?;
        let (seq, offset) = seq_and_offset(&header);
        let ours = header[field::TYPE] == p.kind as u8
            && session_of(&header) == Some(p.session)
            && header[field::IMM] == p.imm.to_le_bytes();
        let skip = usize::try_from(offset.checked_sub(p.offset)?).ok()?;
        (ours && skip < p.memory.len()).then_some(Run {
            header,
            seq,
            offset,
            skip,
            packets: 0,
            len: 0,
        })
    }

    /// Returns the number of packets so far.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Returns the memory for the `len` payload bytes of a packet; `None` if the packet does not
    /// continue the run.
    #[inline]
    pub fn place<'a>(
        &self,
        memory: &'a mut [u8],
        packet: &[u8],
        len: usize,
    ) -> Option<&'a mut [u8]> {
        let header = packet.first_chunk::<{ Data::LEN }>()?;
        let same = header[..field::SEQ.start] == self.header[..field::SEQ.start]
            && header[field::SEQ.end..OFFSET] == self.header[field::SEQ.end..OFFSET];
        let next =
            (self.seq.wrapping_add(self.packets as u32), self.offset.checked_add(self.len as u64)?);
        if !same || seq_and_offset(header) != next || len == 0 {
            return None;
        }
        let at = self.skip + self.len;
        memory.get_mut(at..at.checked_add(len)?)
    }

    /// Appends a packet that was accepted; its payload is in its memory.
    #[inline]
    pub fn push(&mut self, len: usize) {
        self.packets += 1;
        self.len += len;
    }

    /// Delivers the run. Returns false if the packets have to be delivered one by one.
    pub fn deliver(&self, sink: &mut dyn Sink) -> bool {
        self.packets > 0 && sink.run(&self.header, self.packets as u32, self.len as u64)
    }
}

#[inline]
fn seq_and_offset(header: &[u8; Data::LEN]) -> (u32, u64) {
    let (mut seq, mut offset) = ([0; 4], [0; 8]);
    seq.copy_from_slice(&header[field::SEQ]);
    offset.copy_from_slice(&header[Data::OFFSET.range()]);
    (u32::from_le_bytes(seq), u64::from_le_bytes(offset))
}
