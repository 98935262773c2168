//! Packets that do not get through because of their length or type: questions for lengths, packets
//! in pieces, and the limit of the peer's patience.

use super::{Arrival, Out, Relay, RelayEvent};
use crate::connection::Policy;
use crate::id::PeerId;
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, flags, reason, Bye, Common, Packet, PacketType, Piece, Probe};
use core::time::Duration;

impl Relay {
    /// Notes that a link carries packets of at most `mtu` bytes to a peer from now on.
    pub fn set_mtu(&mut self, now: Instant, peer: PeerId, link: u8, mtu: u32) {
        let Some(flow) = self.flow(peer) else { return };
        let before = flow.links.mtu();
        flow.links.set_most(now, link, mtu);
        self.note_mtu(now, peer, before);
    }

    /// Acts on a change of the length that all links to a peer carry.
    fn note_mtu(&mut self, now: Instant, peer: PeerId, before: u32) {
        let Some(flow) = self.flow(peer) else { return };
        let mtu = flow.links.mtu();
        if mtu < before {
            flow.conn.windows.resend(now);
        }
        if mtu != before {
            self.events.push_back(RelayEvent::Path(peer, mtu));
        }
        self.make_ready(peer);
    }

    /// Returns the next question for a length that is due.
    pub(super) fn next_probe(&mut self, now: Instant, peer: PeerId) -> Option<Out> {
        let flow = self.flow(peer).filter(|flow| flow.probe_at().is_some_and(|at| at <= now))?;
        let before = flow.links.mtu();
        let probe = flow.next_probe(now);
        self.note_mtu(now, peer, before);
        probe
    }

    /// Handles a question for the length that gets through, which is answered in the rank's place,
    /// or an answer to the relay's own.
    pub(super) fn on_probe(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        probe: &Probe,
    ) -> Arrival {
        let Some(flow) = self.flow(peer) else { return Arrival::Drop };
        if common.flags & flags::REPLY != 0 {
            let before = flow.links.mtu();
            flow.links.on_probed(now, common.imm, probe.size);
            self.note_mtu(now, peer, before);
        } else if flow.is_open() && flow.conn.lengths.note(common.imm, probe.size, &Policy::AGENT) {
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
        let recv = &mut flow.conn.windows.recv;
        if recv.lacks(seq) {
            return Arrival::Piece(peer, [seq, recv.next_expected()], piece);
        }
        // A packet that had arrived whole is acknowledged again.
        recv.on_packet(seq);
        let due = recv.ack_due(now);
        self.stats.duplicates += 1;
        if due {
            self.make_ready(peer);
        }
        Arrival::Drop
    }

    /// Gives up a peer to which packets do not get through: first it is told, then the rank.
    pub(super) fn report_stuck(&mut self, peer: PeerId, time: Duration) {
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { return };
        let oldest = flow.conn.windows.send.oldest_item();
        let Some(kept) = oldest.and_then(|(key, _)| self.kept.get(key)) else { return };
        let kind = kept.header.as_slice().get(wire::field::TYPE).copied().unwrap_or_default();
        let Ok(kind) = PacketType::try_from(kind) else { return };
        let stuck = RelayEvent::Stuck(peer, time.as_millis() as u32, kind, kept.payload);
        let common = Common { session: flow.conn.session.number_out, ..Common::default() };
        let header = wire::emit(&common, &Packet::Bye(Bye { reason: reason::STUCK }));
        if self.farewells.iter().all(|(bye, _)| bye.peer != peer) {
            self.farewells.push_back((Out::bare(peer, flow.links.link(), header), stuck));
        }
    }
}
