//! Numbered packets that are longer than their path now carries: they are sent in pieces, each a
//! packet of its own, under the number of the whole. The window does not know of pieces: the peer
//! joins them below its window, and acknowledges the whole.
//!
//! This module also makes the packets that probe the length that a path carries, on request of the
//! driver, which knows the paths.

use super::types::{Event, Payload, Placement, Transmit};
use super::views::PeerMut;
use super::Engine;
use crate::connection::Policy;
use crate::id::PeerId;
use crate::peer::{Cut, Desc, Peer, State, Vain};
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, flags, Common, Packet, Piece, Probe};
use core::time::Duration;

/// Number of vain retransmissions with words of the peer in between after which it counts as heard.
/// One is not enough: the words may have been on their way when the packet left, or have waited for
/// this process.
const HEARD: u8 = 3;
/// Time between two such events.
const SAY_AGAIN: Duration = Duration::from_millis(10);

/// Returns true if packets of this descriptor are longer than the path carries now.
pub(super) fn is_too_long(p: &Peer, desc: &Desc) -> bool {
    let len = desc.len();
    len > p.path.mtu() && !(desc.bulk && len <= p.path.long_mtu())
}

/// Returns true if a packet that was to be sent and had to wait is longer than the path carries
/// now.
pub(super) fn is_too_long_now(p: &Peer, t: &Transmit) -> bool {
    let each = t.payload.len() / t.packets.max(1);
    let len = t.header.as_slice().len() as u32 + each;
    let fits = len <= p.path.mtu() || t.bulk && len <= p.path.long_mtu();
    !fits && p.conn.windows.is_some() && t.piece.is_none() && each > 0
}

impl Engine {
    pub(super) fn on_probe(
        &mut self,
        peer: PeerId,
        common: &Common,
        probe: &Probe,
        len: u64,
    ) -> Placement {
        let (number, size) = (common.imm, probe.size);
        if common.flags & flags::REPLY != 0 {
            return Placement::Probed { peer, number, size };
        }
        if u64::from(size) != Probe::LEN as u64 + len {
            self.stats.violations += 1;
            return Placement::None;
        }
        if self.peers[peer.0 as usize].conn.lengths.note(number, size, &Policy::RANK) {
            self.make_ready(peer);
        }
        Placement::None
    }

    /// Returns the next answer to a question of the peer.
    pub(super) fn next_answer(&mut self, peer: PeerId) -> Option<Transmit> {
        let p = &mut self.peers[peer.0 as usize];
        let (number, probe) = p.conn.lengths.next_answer()?;
        let common = p.conn.common(flags::REPLY, Seq(0), number);
        let header = wire::emit(&common, &Packet::Probe(probe));
        Some(Transmit::one(peer, header, Payload::None))
    }

    /// Reports that the oldest packet, which is sent again now, does not get through.
    pub(super) fn note_vain(&mut self, now: Instant, peer: PeerId, seq: Seq, desc: &Desc) {
        let p = &mut self.peers[peer.0 as usize];
        let Some(w) = &p.conn.windows else { return };
        let tries = w.send.oldest_item().map_or(0, |(_, tries)| tries);
        if seq != w.send.oldest() {
            return;
        }
        let (watch, heard_at) = (&mut p.watch, p.conn.life.heard_at);
        match &mut watch.vain {
            vain if vain.seq != seq || tries <= 1 => *vain = Vain { seq, at: now, heard: 0 },
            vain => {
                vain.heard = vain.heard.saturating_add(u8::from(heard_at > vain.at));
                vain.at = now;
            }
        }
        let Some(since) = w.doubted_since(now, seq) else { return };
        if now < watch.said_at + SAY_AGAIN {
            return;
        }
        watch.said_at = now;
        let heard = watch.vain.heard >= HEARD;
        let (bulk, len) = (desc.bulk, desc.len());
        let len = if is_too_long(p, desc) { p.path.mtu() } else { len };
        self.events.push_back(Event::PeerStuck { peer, since, bulk, len, heard });
    }

    /// Begins to send a packet in pieces, and returns the first.
    pub(super) fn cut(&mut self, peer: PeerId, seq: Seq, desc: Desc) -> Option<Transmit> {
        self.stats.packets_cut += 1;
        self.peers[peer.0 as usize].queue.cut = Some(Cut { seq, desc, at: 0 });
        self.next_piece(peer)
    }

    /// Returns the next piece of the packet that is being sent.
    pub(super) fn next_piece(&mut self, peer: PeerId) -> Option<Transmit> {
        let p = &mut self.peers[peer.0 as usize];
        let Cut { seq, desc, at } = p.queue.cut?;
        // The packet may have arrived meanwhile.
        let left = p.conn.windows.as_ref().is_some_and(|w| !seq.before(w.send.oldest()));
        let desc = self.still_there(desc);
        let p = &mut self.peers[peer.0 as usize];
        let total = desc.payload.len();
        if !left || at >= total {
            p.queue.cut = None;
            return (left && total == 0).then(|| self.emit_at(peer, &desc, seq));
        }
        let room = Piece::room(p.path.mtu(), desc.packet.header_len());
        let len = room.min(total - at);
        p.queue.cut = (at + len < total).then_some(Cut { seq, desc, at: at + len });
        let part = Desc { payload: desc.payload.part(at, len), ..desc };
        let piece = Some(Piece { offset: at, total });
        Some(Transmit { piece, ..self.emit_at(peer, &part, seq) })
    }

    pub(super) fn on_piece(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        piece: &Piece,
    ) -> Placement {
        let Some(w) = &mut self.peers[peer.0 as usize].conn.windows else {
            self.stats.violations += 1;
            return Placement::None;
        };
        let (seq, expected) = (common.seq, w.recv.next_expected());
        if w.recv.lacks(seq) {
            return Placement::Piece { peer, seq, expected, piece: *piece };
        }
        // A packet that had arrived whole is acknowledged again.
        w.recv.on_packet(seq);
        self.stats.duplicates += 1;
        self.note_repeat(now, peer);
        self.schedule_ack(now, peer);
        Placement::None
    }
}

impl PeerMut<'_> {
    /// Returns a packet of this length that asks the peer if it gets through; the answer repeats
    /// `number`. `None` if no packet can be lost, or the peer has not answered yet.
    pub fn ask_size(self, number: u32, size: u32) -> Option<Transmit> {
        let peer = self.peer;
        let p = self.engine.peers.get_mut(peer.0 as usize)?;
        if p.state != State::Ready || p.conn.windows.is_none() {
            return None;
        }
        let common = p.conn.header(0, Seq(0), number);
        let header = wire::emit(&common, &Packet::Probe(Probe { size }));
        let payload = Payload::Padding { len: size.checked_sub(Probe::LEN as u32)? };
        Some(Transmit::one(peer, header, payload))
    }
}
