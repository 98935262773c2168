//! Outgoing packets: choice of the peer, and order of its packets.

use super::types::{Event, Payload, Transmit};
use super::views::{LinksMut, Output, PeerMut};
use super::{cut, eager, put, rendezvous, session, Engine, QUANTUM};
use crate::id::PeerId;
use crate::peer::{Desc, Item, State, Step, StreamSource};
use crate::reliability::{Reliability, LANES};
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, flags, status, Ack, Common, Packet, Reply};
use core::time::Duration;

impl Engine {
    /// Returns the next event that the driver must act on.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the next packet to send. Each must be offered to its link; if the link refuses it,
    /// it goes back by `handle_refused`, in the order given; if the link accepts it,
    /// `handle_accepted` is called.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        while let Some(&peer) = self.turns.ready.front() {
            if let Some(t) = self.next_packet(now, peer) {
                self.stats.packets_sent += u64::from(t.packets);
                self.stats.bytes_sent += u64::from(t.payload.len());
                self.turns.quantum = self.turns.quantum.saturating_sub(t.packets);
                if self.turns.quantum == 0 {
                    self.turns.quantum = QUANTUM;
                    self.turns.ready.rotate_left(1);
                }
                return Some(t);
            }
            self.turns.quantum = QUANTUM;
            self.turns.ready.pop_front();
            self.peers[peer.0 as usize].queue.ready = false;
        }
        self.turns.urgent = false;
        None
    }

    fn next_packet(&mut self, now: Instant, peer: PeerId) -> Option<Transmit> {
        self.acknowledge_late(peer);
        let p = &mut self.peers[peer.0 as usize];
        if p.queue.blocked || p.queue.held {
            return None;
        }
        while let Some(t) = p.queue.stalled.pop_front() {
            // A packet that is too long now counts as lost, and is sent again in pieces.
            if !cut::is_too_long_now(p, &t) {
                return Some(self.current(t));
            }
        }
        if let Some((word, report)) = p.greeting.last_word.take() {
            let t = session::last_word(&self.cfg, self.me.0, p, word);
            if let (Some(failure), true) = (p.failure(), report) {
                self.events.push_back(Event::PeerFailed(peer, failure));
            }
            return Some(t);
        }
        if let Some(t) = session::poll(&self.cfg, self.me.0, p) {
            return Some(t);
        }
        if p.state != State::Ready {
            return None;
        }
        if p.conn.windows.as_ref().is_some_and(|w| w.recv.has_gap() && w.recv.ack_due(now)) {
            return self.poll_ack(now, peer);
        }
        if self.peers[peer.0 as usize].conn.lengths.owes() {
            return self.next_answer(peer);
        }
        if let Some(t) = self.next_piece(peer) {
            return Some(t);
        }
        let p = &mut self.peers[peer.0 as usize];
        let again = p.conn.windows.as_mut().and_then(|w| w.send.next_retransmit(now));
        if let Some((seq, desc)) = again {
            self.stats.retransmitted += 1;
            // If the timer fired for this packet, nothing else watches it.
            let rto = p.conn.windows.as_ref().map_or(Duration::ZERO, |w| w.rtt.rto());
            self.timers.arm(&mut p.conn, now + rto);
            let desc = self.still_there(desc);
            // The answer shows the other missing packets, so it should come at once.
            let desc = desc.with_flags(desc.flags | flags::ACKNOW);
            self.note_vain(now, peer, seq, &desc);
            if cut::is_too_long(&self.peers[peer.0 as usize], &desc) {
                return self.cut(peer, seq, desc);
            }
            return Some(self.emit_at(peer, &desc, seq));
        }
        if p.conn.windows.as_ref().is_none_or(|w| w.send.can_send()) {
            if let Some((desc, packets)) = self.next_desc(now, peer) {
                return Some(self.emit(now, peer, &desc, packets));
            }
        }
        self.poll_ack(now, peer)
    }

    /// Returns the next new packet: control first, then messages and data streams in turn.
    fn next_desc(&mut self, now: Instant, peer: PeerId) -> Option<(Desc, u32)> {
        let p = &mut self.peers[peer.0 as usize];
        if let Some(desc) = p.queue.ctrl.pop_front() {
            return Some((desc, 1));
        }
        p.queue.data_turn = !p.queue.data_turn;
        if p.queue.data_turn {
            self.next_stream(peer).or_else(|| self.next_message(now, peer))
        } else {
            self.next_message(now, peer).or_else(|| self.next_stream(peer))
        }
    }

    /// Returns data to be sent: a packet, or as many as make a train.
    fn next_stream(&mut self, peer: PeerId) -> Option<(Desc, u32)> {
        let p = &mut self.peers[peer.0 as usize];
        let mtu = p.bulk_mtu();
        let room = p.conn.windows.as_ref().map_or(1, |w| w.send.room());
        let most = p.path.caps.train.min(room).max(1);
        let least = p.conn.windows.as_ref().map_or(1, |w| w.least_run(p.path.caps.train));
        loop {
            let stream = p.queue.data.front_mut()?;
            // The operation may be gone: the peer said FIN before it had everything.
            let alive = match stream.source {
                StreamSource::Op(op) => self.ops.get(op.0).is_some(),
                StreamSource::Region(key) => self.regions.has(key),
            };
            if !alive {
                let (source, recv) = (stream.source, stream.recv);
                p.queue.data.pop_front();
                match source {
                    StreamSource::Op(_) => continue,
                    StreamSource::Region(_) => return Some((refusal(recv), 1)),
                }
            }
            if room < least && rendezvous::packets_left(mtu, stream) > u64::from(room) {
                return None;
            }
            let (desc, packets) = rendezvous::next_data(mtu, stream, most);
            if stream.offset == stream.end {
                p.queue.data.pop_front();
            }
            return Some((desc, packets));
        }
    }

    fn next_message(&mut self, now: Instant, peer: PeerId) -> Option<(Desc, u32)> {
        loop {
            let p = &mut self.peers[peer.0 as usize];
            let item = *p.queue.msgs.front()?;
            let many = p.has_many();
            let step = match item {
                Item::Eager(op) => eager::next(self.cfg.ack_every, p, &mut self.ops, op),
                Item::Rts(op) => {
                    rendezvous::announce(self.cfg.rendezvous_max, p, &mut self.ops, op)
                }
                Item::Put(op) => put::next(p, &mut self.ops, op),
                Item::Single(desc) => put::single(p, &mut self.ops, desc),
            };
            match step {
                Step::Send(mut desc, packets, last) => {
                    desc.bulk |= many;
                    if last {
                        p.queue.msgs.pop_front();
                    }
                    if matches!(item, Item::Eager(_)) {
                        p.queue.without_credit_since = Instant::FAR;
                    }
                    return Some((desc, packets));
                }
                Step::Gone => {
                    p.queue.msgs.pop_front();
                }
                // The receiver holds messages after a gap, which use up the credit: it returns with
                // the gap closed.
                Step::Wait if p.conn.windows.as_ref().is_some_and(|w| w.send.has_gap()) => {
                    return None
                }
                Step::Wait if self.demote(now, peer) => {}
                Step::Wait => return None,
            }
        }
    }

    /// Returns the packet itself, or a refusal in its place (and under its number) if the region it
    /// was to be read from was unregistered meanwhile.
    pub(super) fn still_there(&self, desc: Desc) -> Desc {
        match desc.payload {
            Payload::Region { key, .. } if !self.regions.has(key) => refusal(desc.imm),
            _ => desc,
        }
    }

    /// Returns a packet that the link refused before, with the present header fields.
    fn current(&self, t: Transmit) -> Transmit {
        let Payload::Region { key, .. } = t.payload else { return t };
        if self.regions.has(key) {
            return t;
        }
        let Ok((common, _, _)) = wire::parse(t.header.as_slice()) else { return t };
        // A piece too: the packet is refused as a whole, under its number.
        let desc = refusal(common.imm);
        let common = Common { flags: desc.flags, ..common };
        Transmit::one(t.peer, wire::emit(&common, &desc.packet), Payload::None)
    }

    pub(super) fn emit(
        &mut self,
        now: Instant,
        peer: PeerId,
        desc: &Desc,
        packets: u32,
    ) -> Transmit {
        if let Payload::Op { op, .. } = desc.payload {
            if let Some(op) = self.ops.get_mut(op.0) {
                op.unacked += packets;
            }
        }
        let p = &mut self.peers[peer.0 as usize];
        let mut desc = *desc;
        let mut bulk = desc.bulk;
        let more = p.queue.has_more();
        let (mut stripe, stripes_max) = (0, self.cfg.stripes.min(LANES as u32 - 1) as u8);
        let seq = match &mut p.conn.windows {
            Some(w) => {
                let idle = w.send.in_flight() == 0;
                let seq = w.send.next_seq();
                // The only message: an answer acknowledges it, or no program waits for the
                // acknowledgement.
                let message = matches!(desc.packet, Packet::Eager(_) | Packet::EagerFirst(_))
                    || matches!(desc.packet, Packet::EagerMore(_));
                let more = !message || more;
                if w.should_ask(packets, self.cfg.ack_every, more) {
                    desc.flags |= flags::ACKNOW;
                }
                bulk = p.queue.follows_bulk(w.send.oldest(), seq, packets, desc.bulk);
                // Two paths have two queues: see `SendWindow::push_run`.
                let in_any_order = w.send.mode() == Reliability::Selective;
                // On a link without trains, one packet is the most that it accepts at once.
                let unit = packets > 1 || p.path.caps.train < 2;
                if in_any_order && unit && matches!(desc.packet, Packet::Data(_)) {
                    stripe = p.queue.stripes.next(now, p.path.caps.stripes.min(stripes_max));
                }
                let apart = p.path.caps.bulk_min != u32::MAX || p.path.caps.stripes > 1;
                let lane = if bulk && apart { 1 + stripe } else { 0 };
                w.send.push_run(now, desc, packets, lane);
                if desc.flags & flags::ACKNOW != 0 {
                    w.note_asked();
                } else if matches!(desc.packet, Packet::Pull(_)) {
                    // The data that a PULL asks for acknowledges it.
                    w.send.mark_prompt();
                }
                if idle {
                    let at = now + w.rtt.rto();
                    self.timers.arm(&mut p.conn, at);
                }
                seq
            }
            None => Seq(0),
        };
        Transmit { packets, bulk, stripe, ..self.emit_at(peer, &desc, seq) }
    }

    pub(super) fn emit_at(&mut self, peer: PeerId, desc: &Desc, seq: Seq) -> Transmit {
        let p = &mut self.peers[peer.0 as usize];
        let common = p.conn.common(desc.flags, seq, desc.imm);
        p.conn.credit.ack_asked = false;
        let header = wire::emit(&common, &desc.packet);
        Transmit { bulk: desc.bulk, ..Transmit::one(peer, header, desc.payload) }
    }

    /// Returns an acknowledgement packet, if no other packet carried the acknowledgement.
    fn poll_ack(&mut self, now: Instant, peer: PeerId) -> Option<Transmit> {
        let p = &mut self.peers[peer.0 as usize];
        let due = p.conn.windows.as_ref().is_some_and(|w| w.recv.ack_due(now));
        if !due && !p.conn.credit.ack_asked {
            return None;
        }
        p.conn.credit.ack_asked = false;
        let (ack, flags) = match &mut p.conn.windows {
            Some(w) => w.acknowledge(),
            None => (Ack { sack: [0; 4] }, 0),
        };
        let common = p.conn.common(flags, Seq(0), 0);
        self.stats.acks_sent += 1;
        let header = wire::emit(&common, &Packet::Ack(ack));
        Some(Transmit::one(peer, header, Payload::None))
    }
}

/// Returns the answer to a get that cannot continue.
fn refusal(op: u32) -> Desc {
    Desc::bare(Packet::Reply(Reply { value: 0, status: status::REFUSED }), op)
}

impl PeerMut<'_> {
    /// Notes that the link accepts nothing more for this peer (`true`), until it says so (`false`):
    /// waiting packets are not tried before.
    pub fn hold(self, held: bool) {
        let peer = self.peer;
        let Some(p) = self.engine.peers.get_mut(peer.0 as usize) else { return };
        let held = held && p.failure().is_none();
        if core::mem::replace(&mut p.queue.held, held) == held {
            return;
        }
        if held {
            self.engine.turns.held += 1;
        } else {
            self.engine.turns.held -= 1;
            self.engine.make_ready(peer);
        }
    }
}

impl LinksMut<'_> {
    /// Notes that the link accepted a packet whose payload lies in an operation's buffer.
    #[inline]
    pub fn handle_accepted(self, t: &Transmit) {
        let Payload::Op { op: id, .. } = t.payload else { return };
        if self.engine.peers[t.peer.0 as usize].conn.windows.is_some() {
            return;
        }
        if let Some(op) = self.engine.ops.get_mut(id.0) {
            op.unacked -= 1;
            if op.unacked == 0 && op.finished {
                self.engine.retire(id);
            }
        }
    }

    /// Notes that the link is full for this peer: the packet waits until `handle_unblocked`, before
    /// those of this peer that wait already. Of a burst the last packet is given back first.
    pub fn handle_refused(self, t: Transmit) {
        self.engine.stats.packets_sent -= u64::from(t.packets);
        self.engine.stats.bytes_sent -= u64::from(t.payload.len());
        let p = &mut self.engine.peers[t.peer.0 as usize];
        if matches!(p.state, State::Failed(_)) {
            return;
        }
        if !p.queue.blocked {
            self.engine.turns.blocked.push(t.peer);
        }
        p.queue.put_back(t);
    }

    /// Notes that links may have room again.
    #[inline]
    pub fn handle_unblocked(self) {
        while let Some(peer) = self.engine.turns.blocked.pop() {
            self.engine.peers[peer.0 as usize].queue.blocked = false;
            self.engine.make_ready(peer);
        }
    }
}

impl Output<'_> {
    /// Returns true if a link refused a packet that still waits, and may accept it at any time.
    pub fn blocked(self) -> bool {
        !self.engine.turns.blocked.is_empty()
    }

    /// Returns true if any peer is held: its link may release it at any time.
    #[inline]
    pub fn held(self) -> bool {
        self.engine.turns.held > 0
    }
}
