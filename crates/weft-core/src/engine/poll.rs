//! Outgoing packets: whose turn it is, and what goes first.

use super::types::{Event, Payload, Transmit};
use super::{eager, put, rendezvous, session, Engine, QUANTUM};
use crate::id::PeerId;
use crate::peer::{Desc, Item, State, StreamSource};
use crate::reliability::Reliability;
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, flags, Ack, Packet};

impl Engine {
    /// The next thing the driver must act on.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next packet to send. Each must be offered to its link; if the link refuses it, it goes back
    /// by `refused`, the last one first; if it takes it, `accepted` is called.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        while let Some(&peer) = self.ready.front() {
            if let Some(t) = self.next_packet(now, peer) {
                self.stats.packets_sent += 1;
                self.stats.bytes_sent += u64::from(payload_len(&t.payload));
                self.quantum -= 1;
                if self.quantum == 0 {
                    self.quantum = QUANTUM;
                    self.ready.rotate_left(1);
                }
                return Some(t);
            }
            self.quantum = QUANTUM;
            self.ready.pop_front();
            self.peers[peer.0 as usize].ready = false;
        }
        None
    }

    /// The link took a packet whose payload lies in an operation's buffer.
    #[inline]
    pub fn accepted(&mut self, t: &Transmit) {
        let Payload::Op { op: id, .. } = t.payload else { return };
        if self.peers[t.peer.0 as usize].windows.is_some() {
            return;
        }
        if let Some(op) = self.ops.get_mut(id.0) {
            op.unacked -= 1;
            if op.unacked == 0 && op.finished {
                self.retire(id);
            }
        }
    }

    /// The link is full for this peer: the packet waits until `retry_blocked`, before those of this
    /// peer that wait already. Of a burst the last packet is given back first.
    pub fn refused(&mut self, t: Transmit) {
        self.stats.packets_sent -= 1;
        self.stats.bytes_sent -= u64::from(payload_len(&t.payload));
        let p = &mut self.peers[t.peer.0 as usize];
        if matches!(p.state, State::Failed(_)) {
            return;
        }
        if !p.blocked {
            p.blocked = true;
            self.blocked.push(t.peer);
        }
        p.stalled.push_front(t);
    }

    /// Links may have room again.
    #[inline]
    pub fn retry_blocked(&mut self) {
        while let Some(peer) = self.blocked.pop() {
            let p = &mut self.peers[peer.0 as usize];
            p.blocked = false;
            if !p.ready {
                p.ready = true;
                self.ready.push_back(peer);
            }
        }
    }

    /// Whether a link refused something that still waits.
    pub fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    fn next_packet(&mut self, now: Instant, peer: PeerId) -> Option<Transmit> {
        let p = &mut self.peers[peer.0 as usize];
        if p.blocked {
            return None;
        }
        if let Some(t) = p.stalled.pop_front() {
            return Some(t);
        }
        if let Some(t) = session::poll(&self.cfg, self.me.0, p) {
            return Some(t);
        }
        if p.state != State::Ready {
            return None;
        }
        if p.windows.as_ref().is_some_and(|w| w.recv.has_gap() && w.recv.ack_due(now)) {
            return self.poll_ack(now, peer);
        }
        let p = &mut self.peers[peer.0 as usize];
        let again = p.windows.as_mut().and_then(|w| w.send.next_retransmit(now));
        if let Some((seq, desc)) = again {
            self.stats.retransmitted += 1;
            // The answer tells what else is missing: have it at once.
            let desc = desc.with_flags(desc.flags | flags::ACKNOW);
            return Some(self.emit_at(peer, &desc, seq));
        }
        if p.windows.as_ref().is_none_or(|w| w.send.can_send()) {
            if let Some(desc) = self.next_desc(peer) {
                return Some(self.emit(now, peer, &desc));
            }
        }
        self.poll_ack(now, peer)
    }

    /// The next new packet: control first, then messages and data streams in turn.
    fn next_desc(&mut self, peer: PeerId) -> Option<Desc> {
        let p = &mut self.peers[peer.0 as usize];
        if let Some(desc) = p.ctrl.pop_front() {
            return Some(desc);
        }
        p.data_turn = !p.data_turn;
        if p.data_turn {
            self.next_stream(peer).or_else(|| self.next_message(peer))
        } else {
            self.next_message(peer).or_else(|| self.next_stream(peer))
        }
    }

    fn next_stream(&mut self, peer: PeerId) -> Option<Desc> {
        let p = &mut self.peers[peer.0 as usize];
        loop {
            let stream = p.data.front_mut()?;
            // The operation may be gone: the peer said FIN before it had everything.
            let alive = match stream.source {
                StreamSource::Op(op) => self.ops.get(op.0).is_some(),
                StreamSource::Region(_) => true,
            };
            if !alive {
                p.data.pop_front();
                continue;
            }
            let (desc, last) = rendezvous::next_data(p.caps.mtu, stream);
            if last {
                p.data.pop_front();
            }
            return Some(desc);
        }
    }

    fn next_message(&mut self, peer: PeerId) -> Option<Desc> {
        let p = &mut self.peers[peer.0 as usize];
        let (desc, last) = match *p.msgs.front()? {
            Item::Eager(op) => match eager::next(p, &mut self.ops, op) {
                Some((desc, last)) => {
                    if last {
                        self.sent_eager(op);
                    }
                    (desc, last)
                }
                None => {
                    self.demote(peer);
                    match self.peers[peer.0 as usize].msgs.front() {
                        Some(&Item::Rts(_)) => return self.next_message(peer),
                        _ => return None,
                    }
                }
            },
            Item::Rts(op) => {
                (rendezvous::announce(self.cfg.rendezvous_max, p, &mut self.ops, op)?, true)
            }
            Item::Put(op) => put::next(p.caps.mtu, &mut self.ops, op)?,
            Item::Single(desc) => (desc, true),
        };
        if last {
            self.peers[peer.0 as usize].msgs.pop_front();
        }
        Some(desc)
    }

    /// The last packet of an eager message is about to go out.
    fn sent_eager(&mut self, id: crate::OpId) {
        if let Some(op) = self.ops.get_mut(id.0) {
            op.finished = true;
            op.status.len = match &op.kind {
                super::Kind::Send(s) => s.len,
                _ => 0,
            };
        }
    }

    fn emit(&mut self, now: Instant, peer: PeerId, desc: &Desc) -> Transmit {
        if let Payload::Op { op, .. } = desc.payload {
            if let Some(op) = self.ops.get_mut(op.0) {
                op.unacked += 1;
            }
        }
        let p = &mut self.peers[peer.0 as usize];
        let seq = match &mut p.windows {
            Some(w) => {
                let seq = w.send.push(now, *desc);
                if w.send.in_flight() == 1 {
                    let at = now + w.rtt.rto();
                    self.timers.arm(p, at);
                }
                seq
            }
            None => Seq(0),
        };
        self.emit_at(peer, desc, seq)
    }

    fn emit_at(&mut self, peer: PeerId, desc: &Desc, seq: Seq) -> Transmit {
        let p = &mut self.peers[peer.0 as usize];
        let common = p.common(desc.flags, seq, desc.imm);
        p.ack_asked = false;
        Transmit { peer, header: wire::emit(&common, &desc.packet), payload: desc.payload }
    }

    /// An acknowledgement of its own, when nothing carried it.
    fn poll_ack(&mut self, now: Instant, peer: PeerId) -> Option<Transmit> {
        let p = &mut self.peers[peer.0 as usize];
        let due = p.windows.as_ref().is_some_and(|w| w.recv.ack_due(now));
        if !due && !p.ack_asked {
            return None;
        }
        p.ack_asked = false;
        let (sack, nack) = match &p.windows {
            Some(w) => {
                let go_back = w.send.mode() == Reliability::GoBackN;
                (w.recv.sack(), go_back && w.recv.has_gap())
            }
            None => (crate::reliability::SackMap([0; 4]), false),
        };
        let flags = if nack { flags::NACK } else { 0 };
        let common = p.common(flags, Seq(0), 0);
        if let Some(w) = &mut p.windows {
            w.recv.ack_sent();
        }
        self.stats.acks_sent += 1;
        let header = wire::emit(&common, &Packet::Ack(Ack { sack: sack.0 }));
        Some(Transmit { peer, header, payload: Payload::None })
    }
}

fn payload_len(payload: &Payload) -> u32 {
    match *payload {
        Payload::Op { len, .. } | Payload::Region { len, .. } => len,
        Payload::None | Payload::Address => 0,
    }
}
