//! Packets that do not get through because of their length or type: questions for lengths, packets
//! in pieces, and the limit of the peer's patience.

use super::{Arrival, Kept, Relay, RelayEvent};
use crate::id::PeerId;
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, flags, Common, Packet, PacketType, Piece};

/// Most answers to questions for a length that wait for a link.
const ANSWERED_MAX: usize = 16;
impl Relay {
    /// Answers a question for the length that gets through, in the rank's place.
    pub(super) fn on_probe(&mut self, peer: PeerId, common: &Common, probe: &Packet) -> Arrival {
        let Some(flow) = self.flow(peer) else { return Arrival::Drop };
        let asks = common.flags & flags::REPLY == 0;
        if !asks || flow.session_out == 0 || flow.plain.len() >= ANSWERED_MAX {
            return Arrival::Drop;
        }
        let common = Common {
            flags: flags::REPLY,
            session: flow.session_out,
            ack: flow.recv.next_expected(),
            credit: flow.credit(),
            ..*common
        };
        let header = wire::emit(&common, probe);
        if let Some(key) = self.kept.insert(Kept { header, payload: 0, shared: false }) {
            self.flow(peer).into_iter().for_each(|f| f.plain.push_back(key));
            self.make_ready(peer);
        }
        Arrival::Drop
    }

    pub(super) fn on_piece(
        &mut self,
        now: Instant,
        peer: PeerId,
        seq: Seq,
        piece: Piece,
    ) -> Arrival {
        let Some(flow) = self.flow(peer) else { return Arrival::Drop };
        if flow.recv.lacks(seq) {
            return Arrival::Piece(peer, [seq, flow.recv.next_expected()], piece);
        }
        // A packet that had arrived whole is acknowledged again.
        flow.recv.on_packet(seq);
        let due = flow.recv.ack_due(now);
        self.stats.duplicates += 1;
        if due {
            self.make_ready(peer);
        }
        Arrival::Drop
    }

    /// Reports to the rank that packets to a peer do not get through.
    pub(super) fn report_stuck(&mut self, now: Instant, peer: PeerId) {
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { return };
        let oldest = flow.send.oldest_item().and_then(|(key, _)| self.kept.get(key));
        let (Some(kept), Some(since)) = (oldest, flow.send.stuck_since()) else { return };
        let kind = kept.header.as_slice().get(wire::field::TYPE).copied().unwrap_or_default();
        let Ok(kind) = PacketType::try_from(kind) else { return };
        let after_ms = now.since(since).as_millis() as u32;
        self.events.push_back(RelayEvent::Stuck(peer, after_ms, kind, kept.payload));
    }
}
