//! Packets that do not get through because of their length or type: questions for lengths, packets
//! in pieces, and the limit of the peer's patience.

use super::{Arrival, Kept, Out, Relay, RelayEvent};
use crate::id::PeerId;
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, flags, reason, Bye, Common, Packet, PacketType, Piece, Probe};

/// Most answers to questions for a length that wait for a link.
const ANSWERED_MAX: usize = 16;

impl Relay {
    /// Notes that a link carries packets of at most `mtu` bytes to a peer from now on.
    pub fn set_mtu(&mut self, now: Instant, peer: PeerId, link: u8, mtu: u32) {
        let Some(flow) = self.flow(peer) else { return };
        let before = flow.mtu();
        flow.mtu_of(link).into_iter().for_each(|path| path.set_most(now, mtu));
        self.note_mtu(now, peer, before);
    }

    /// Acts on a change of the length that all links to a peer carry.
    fn note_mtu(&mut self, now: Instant, peer: PeerId, before: u32) {
        let Some(flow) = self.flow(peer) else { return };
        let mtu = flow.mtu();
        if mtu < before {
            flow.resend(now);
        }
        if mtu != before {
            self.events.push_back(RelayEvent::Path(peer, mtu));
        }
        self.make_ready(peer);
    }

    /// Returns the next question for a length that is due.
    pub(super) fn next_probe(&mut self, now: Instant, peer: PeerId) -> Option<Out> {
        let flow = self.flow(peer).filter(|flow| flow.probe_at().is_some_and(|at| at <= now))?;
        let before = flow.mtu();
        let probe = flow.next_probe(now);
        let (session, ack, credit) = (flow.session_out, flow.recv.next_expected(), flow.credit());
        self.note_mtu(now, peer, before);
        let (link, imm, size) = probe?;
        let common = Common { session, ack, credit, imm, ..Common::default() };
        let header = wire::emit(&common, &Packet::Probe(Probe { size }));
        let padding = size.saturating_sub(Probe::LEN as u32);
        Some(Out { padding, ..Out::bare(peer, link, header) })
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
            let before = flow.mtu();
            flow.on_probed(now, common.imm, probe.size);
            self.note_mtu(now, peer, before);
            return Arrival::Drop;
        }
        if flow.session_out == 0 || flow.plain.len() >= ANSWERED_MAX {
            return Arrival::Drop;
        }
        let common = Common {
            flags: flags::REPLY,
            session: flow.session_out,
            ack: flow.recv.next_expected(),
            credit: flow.credit(),
            ..*common
        };
        let header = wire::emit(&common, &Packet::Probe(*probe));
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

    /// Gives up a peer to which packets do not get through: first it is told, then the rank.
    pub(super) fn report_stuck(&mut self, now: Instant, peer: PeerId) {
        let Some(Some(flow)) = self.flows.get_mut(peer.0 as usize) else { return };
        let oldest = flow.send.oldest_item().and_then(|(key, _)| self.kept.get(key));
        let (Some(kept), Some(since)) = (oldest, flow.send.stuck_since()) else { return };
        let kind = kept.header.as_slice().get(wire::field::TYPE).copied().unwrap_or_default();
        let Ok(kind) = PacketType::try_from(kind) else { return };
        let after_ms = now.since(since).as_millis() as u32;
        let stuck = RelayEvent::Stuck(peer, after_ms, kind, kept.payload);
        let common = Common { session: flow.session_out, ..Common::default() };
        let header = wire::emit(&common, &Packet::Bye(Bye { reason: reason::STUCK }));
        if self.farewells.iter().all(|(bye, _)| bye.peer != peer) {
            self.farewells.push_back((Out::bare(peer, flow.link(), header), stuck));
        }
    }
}
