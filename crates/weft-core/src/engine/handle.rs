//! Incoming packets: finds the sender, checks the order, and calls the handler of the type.

use super::types::Placement;
use super::Engine;
use crate::caps::{LinkCaps, Pulse};
use crate::connection::Acknowledged;
use crate::error::PeerFailure;
use crate::id::PeerId;
use crate::peer::{LastWord, Peer, State};
use crate::reliability::{SackMap, Verdict};
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, flags, reason, Common, Packet, WireError};

impl Engine {
    /// Handles one packet: its header and the length of the payload behind it. `from` is the sender
    /// if the link knows it; `caps` are the link's. Returns the driver's action on the payload.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now: Instant,
        from: Option<PeerId>,
        caps: &LinkCaps,
        header: &[u8],
        payload_len: u64,
    ) -> Placement {
        let (common, packet) = match wire::parse(header) {
            Ok((common, packet, _)) => (common, packet),
            Err(error) => return self.refuse(error),
        };
        self.stats.packets_received += 1;
        self.stats.bytes_received += payload_len;
        if let Packet::Hello(hello) = &packet {
            return self.on_hello(now, *caps, &common, hello);
        }
        let Some(peer) = self.sender(from, common.session) else { return Placement::None };
        let p = &mut self.peers[peer.0 as usize];
        match packet {
            Packet::Ack(_) if common.imm != 0 => p.note_still(now, Pulse::of_code(common.imm)),
            _ => p.conn.life.heard_at = now,
        }
        let grew = p.conn.credit.inward.on_grant(common.credit);
        let (windowed, trusted) = (p.conn.windows.is_some(), p.conn.session.trusted.is_some());
        if grew {
            self.takes_messages(now, peer);
            self.wake_queued(peer);
        }
        if !windowed {
            if trusted && !self.counted(peer, common.seq) {
                return Placement::None;
            }
            return self.route(now, peer, &common, &packet, payload_len);
        }
        self.handle_windowed(now, peer, &common, &packet, payload_len)
    }

    /// Returns true if a packet over a trusted network is the next one; otherwise the session ends.
    fn counted(&mut self, peer: PeerId, seq: Seq) -> bool {
        let Some(count) = &mut self.peers[peer.0 as usize].conn.session.trusted else {
            return true;
        };
        if count.expected == seq {
            count.expected = seq.next();
            return true;
        }
        self.stats.gaps += 1;
        self.end_peer(peer, PeerFailure::Lost, Some(LastWord::Bye(reason::LOST)));
        false
    }

    fn refuse(&mut self, error: WireError) -> Placement {
        match error {
            WireError::Version { .. } => self.stats.wrong_version += 1,
            _ => self.stats.malformed += 1,
        }
        Placement::None
    }

    /// Returns the peer of a session number, if it is open and agrees with the link's sender.
    #[inline]
    fn sender(&mut self, from: Option<PeerId>, session: u32) -> Option<PeerId> {
        let index = wire::session_index(session);
        match self.peers.get(index as usize) {
            Some(p)
                if p.conn.session.number_in == session && !matches!(p.state, State::Failed(_)) =>
            {
                if from.is_some_and(|f| f.0 != index) {
                    self.stats.wrong_source += 1;
                    return None;
                }
                Some(PeerId(index))
            }
            _ => {
                self.stats.stale_session += 1;
                None
            }
        }
    }

    fn handle_windowed(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        packet: &Packet,
        payload_len: u64,
    ) -> Placement {
        let sack = match packet {
            Packet::Ack(ack) => Some(SackMap(ack.sack)),
            _ => None,
        };
        match packet {
            Packet::Eager(_) if self.may_acknowledge_late(peer, common) => {
                if let Some(w) = &mut self.peers[peer.0 as usize].conn.windows {
                    w.late_ack = Some((now, common.ack));
                }
                self.make_ready_late(peer);
            }
            _ => self.acknowledged(now, peer, common, sack.as_ref()),
        }
        if !packet.is_sequenced() {
            return self.route(now, peer, common, packet, payload_len);
        }
        let p = &mut self.peers[peer.0 as usize];
        let Some(w) = &mut p.conn.windows else { return Placement::None };
        let verdict = w.on_packet(now, common.seq, common.flags & flags::ACKNOW != 0);
        let placement = match verdict {
            Verdict::Deliver => {
                if w.recv.has_gap() {
                    self.replaying = Some(peer);
                }
                self.route(now, peer, common, packet, payload_len)
            }
            Verdict::Hold => {
                self.stats.held += 1;
                match packet {
                    // A DATA packet contains its own destination: it need not wait for earlier
                    // ones.
                    Packet::Data(_) => {
                        let missing = w.recv.next_expected();
                        if p.incoming.note_gap(missing) {
                            self.note_delay(now, None, 1);
                        }
                        self.route(now, peer, common, packet, payload_len)
                    }
                    _ => Placement::Hold { peer, seq: common.seq },
                }
            }
            Verdict::Duplicate => {
                self.stats.duplicates += 1;
                if common.flags & flags::ACKNOW != 0 {
                    self.note_repeat(now, peer);
                }
                Placement::None
            }
            Verdict::Gap => {
                self.stats.gaps += 1;
                Placement::None
            }
            Verdict::Outside => {
                self.stats.outside_window += 1;
                Placement::None
            }
        };
        self.schedule_ack(now, peer);
        placement
    }

    #[inline]
    pub(super) fn schedule_ack(&mut self, now: Instant, peer: PeerId) {
        let p = &mut self.peers[peer.0 as usize];
        let Some(w) = &p.conn.windows else { return };
        match w.recv.ack_deadline() {
            Some(at) if at <= now => self.make_ready(peer),
            Some(at) => self.timers.arm(&mut p.conn, at),
            None => {}
        }
    }

    /// Returns true if the acknowledgement in a message can be handled after the message: nothing
    /// waits for it.
    #[inline]
    fn may_acknowledge_late(&mut self, peer: PeerId, common: &Common) -> bool {
        self.acknowledge_late(peer);
        let p = &self.peers[peer.0 as usize];
        p.conn.windows.as_ref().is_some_and(|w| !w.send.has_gap())
            && common.flags & flags::NACK == 0
            && p.queue.is_calm()
    }

    /// Handles an acknowledgement that was put off.
    #[inline]
    pub(super) fn acknowledge_late(&mut self, peer: PeerId) {
        let late =
            self.peers[peer.0 as usize].conn.windows.as_mut().and_then(|w| w.late_ack.take());
        if let Some((at, ack)) = late {
            let late = Acknowledged { ack, nack: false, waits: false };
            self.take_ack(at, peer, late, None);
        }
    }

    #[inline]
    pub(super) fn acknowledged(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        sack: Option<&SackMap>,
    ) {
        self.acknowledge_late(peer);
        self.take_ack(now, peer, Acknowledged::of(common, sack.is_some()), sack);
    }

    fn take_ack(
        &mut self,
        now: Instant,
        peer: PeerId,
        acknowledged: Acknowledged,
        sack: Option<&SackMap>,
    ) {
        let p = &mut self.peers[peer.0 as usize];
        let Some(w) = &mut p.conn.windows else { return };
        let ops = &mut self.ops;
        let mut free = [crate::OpId(0); 32];
        let mut frees = 0;
        let mut more = alloc::vec::Vec::new();
        let (outcome, delay) = w.on_ack(now, acknowledged, sack, &mut |desc, packets| {
            let super::types::Payload::Op { op: id, .. } = desc.payload else { return };
            let Some(op) = ops.get_mut(id.0) else { return };
            op.unacked -= packets;
            if op.unacked == 0 && op.finished {
                match free.get_mut(frees) {
                    Some(slot) => {
                        *slot = id;
                        frees += 1;
                    }
                    None => more.push(id),
                }
            }
        });
        if outcome.invalid {
            self.stats.bad_ack += 1;
        }
        if outcome.newly_acked == 0 && outcome.lost == 0 {
            return;
        }
        if outcome.lost > 0 && w.send.has_silent_lane() && p.queue.stripes.lost(now) {
            self.stats.stripes_lost += 1;
        }
        let wake = w.send.awaiting_retransmit() > 0 || p.queue.has_work();
        if delay.is_some() && p.incoming.pulled > 0 {
            self.note_delay(now, delay, 0);
        }
        if wake {
            self.make_ready(peer);
        }
        for id in free.into_iter().take(frees).chain(more) {
            self.retire(id);
        }
    }

    /// Returns the next held packet that is now in order. The driver passes it to `handle_replay`,
    /// if it keeps one under that number.
    #[inline]
    pub fn poll_replay(&mut self) -> Option<(PeerId, Seq)> {
        let peer = self.replaying?;
        let next = match self.peers[peer.0 as usize].conn.windows.as_mut() {
            Some(w) => w.recv.next_held(),
            None => None,
        };
        if next.is_none() {
            self.replaying = None;
        }
        next.map(|seq| (peer, seq))
    }

    /// Handles a held packet that is now in order.
    pub fn handle_replay(
        &mut self,
        now: Instant,
        peer: PeerId,
        header: &[u8],
        len: u64,
    ) -> Placement {
        if self.peers.get(peer.0 as usize).is_none_or(|p| p.failure().is_some()) {
            return Placement::None;
        }
        match wire::parse(header) {
            Ok((common, packet, _)) => self.route(now, peer, &common, &packet, len),
            Err(_) => Placement::None,
        }
    }

    #[inline]
    fn route(
        &mut self,
        now: Instant,
        peer: PeerId,
        c: &Common,
        packet: &Packet,
        len: u64,
    ) -> Placement {
        match packet {
            Packet::Eager(h) => self.on_eager(peer, c, h, len),
            Packet::EagerFirst(h) => self.on_eager_first(now, peer, c, h, len),
            Packet::EagerMore(h) => self.on_eager_more(peer, c, h, len),
            Packet::Rts(h) => self.on_rts(now, peer, c, h),
            Packet::Pull(h) => self.on_pull(now, peer, c, h),
            Packet::Data(h) => self.on_data(now, peer, c, h, len),
            Packet::DirectDone(h) => self.on_direct_done(now, peer, c, h),
            Packet::Fin(_) => self.on_fin(peer, c),
            Packet::Put(h) => self.on_put(now, peer, c, h, len),
            Packet::Get(h) => self.on_get(now, peer, c, h),
            Packet::Atomic(h) => self.on_atomic(now, peer, c, h),
            Packet::Reply(h) => self.on_reply(peer, c, h),
            Packet::Nop(_) => self.on_nop(now, peer, c),
            Packet::Bye(h) => self.on_bye(peer, h),
            Packet::Probe(h) => self.on_probe(peer, c, h, len),
            Packet::Piece(h) => self.on_piece(now, peer, c, h),
            Packet::Ack(_) | Packet::Hello(_) => Placement::None,
            // These travel between agents; there is none here.
            Packet::Mcast(_) | Packet::Grant(_) => Placement::None,
        }
    }

    /// Handles a NOP: on links without windows it asks for an acknowledgement. It may grant
    /// announcements.
    fn on_nop(&mut self, now: Instant, peer: PeerId, common: &Common) -> Placement {
        if common.imm > 0 {
            self.may_announce(peer, common.imm);
        }
        let p: &mut Peer = &mut self.peers[peer.0 as usize];
        if p.conn.windows.is_none() && common.flags & flags::ACKNOW != 0 {
            p.conn.credit.ack_asked = true;
            self.wake(now, peer);
        }
        Placement::None
    }
}
