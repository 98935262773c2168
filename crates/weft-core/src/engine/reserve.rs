//! The latency path of a send: the packet of a message that may leave at once.
//!
//! [`Engine::reserve`] takes the message's credit and makes its header, the driver offers the
//! packet to the link, and then [`Reservation::commit`] or [`Reservation::roll_back`] ends the
//! reservation.
//! If no packet can be reserved, or the link has no room, the message takes the ordinary path
//! ([`Engine::send`]).

use super::eager::flags;
use super::op::{Kind, Op, Send};
use super::types::{Payload, SendArgs};
use super::Engine;
use crate::id::{OpId, PeerId};
use crate::peer::{Desc, State};
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, flags as flag, Eager, HeaderBuf, Packet};

/// The reserved packet of a message. [`Reservation::commit`] or [`Reservation::roll_back`] must
/// take it before any other call of the engine.
#[must_use = "credit and numbers stay taken"]
#[derive(Debug)]
pub struct Reservation {
    peer: PeerId,
    len: u32,
    /// Flags and number of a packet that stays in the window until it is acknowledged.
    numbered: Option<(u16, Seq)>,
}

impl Reservation {
    /// True if the bytes are needed until the operation that `commit` returns is released.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.numbered.is_some()
    }

    /// Ends a reservation whose packet the link has taken. Returns the operation that keeps the
    /// bytes, if there is one: it completes unseen, and its release is an event.
    #[inline(always)]
    pub fn commit(self, engine: &mut Engine, now: Instant, a: &SendArgs) -> Option<OpId> {
        engine.stats.messages_sent += 1;
        engine.stats.packets_sent += 1;
        engine.stats.bytes_sent += u64::from(self.len);
        let (flags, seq) = self.numbered?;
        engine.commit_numbered(now, a, flags, seq)
    }

    /// Ends a reservation whose packet the link has no room for: nothing was sent. The packet of
    /// the ordinary path carries the acknowledgement and the credit that this one's header had.
    #[cold]
    pub fn roll_back(self, engine: &mut Engine) {
        let p = &mut engine.peers[self.peer.0 as usize];
        p.conn.credit.inward.refund(self.len as usize);
        if let Some(count) = &mut p.conn.session.trusted {
            count.sent = Seq(count.sent.0.wrapping_sub(1));
        }
        if let Some(w) = p.conn.windows.as_mut().filter(|_| self.is_kept()) {
            w.unasked = w.unasked.saturating_sub(1);
        }
    }
}

impl Engine {
    /// Reserves the packet of a message that fits one packet, if no packet is queued before it, and
    /// writes its header. Where packets are numbered, only injected messages are sent so, since
    /// their bytes are kept.
    #[inline(always)]
    pub fn reserve(&mut self, a: &SendArgs, header: &mut HeaderBuf) -> Option<Reservation> {
        if a.sync || a.delivered {
            return None;
        }
        // Longer data need a longer header.
        let imm = u32::try_from(a.data.unwrap_or(0)).ok()?;
        let len = u32::try_from(a.len).ok()?;
        let p = self.peers.get_mut(a.peer.0 as usize)?;
        let clear = p.state == State::Ready
            && (a.active || len <= p.path.eager_max)
            && len.saturating_add(Eager::LEN as u32) <= p.path.mtu()
            && p.queue.is_clear();
        if !clear {
            return None;
        }
        if p.conn.windows.is_some() {
            return if a.inject { self.reserve_numbered(a, (len, imm), header) } else { None };
        }
        if !p.conn.credit.take(len as usize, a.active) {
            return None;
        }
        let common = p.conn.common(flags(a), Seq(0), imm);
        wire::emit_into(&common, &Packet::Eager(Eager { tag: a.tag }), header);
        Some(Reservation { peer: a.peer, len, numbered: None })
    }

    #[inline(always)]
    fn reserve_numbered(
        &mut self,
        a: &SendArgs,
        (len, imm): (u32, u32),
        header: &mut HeaderBuf,
    ) -> Option<Reservation> {
        if self.ended.is_some() || self.ops.is_full() {
            return None;
        }
        let p = &self.peers[a.peer.0 as usize];
        let w = p.conn.windows.as_ref()?;
        let clear = len < p.path.caps.bulk_min
            && p.queue.is_calm()
            && !p.queue.blocked
            && !p.greeting.has_due()
            && !w.recv.has_gap()
            && !w.send.has_gap();
        if !clear {
            return None;
        }
        if !w.send.can_send() && !self.has_room_after_all(a.peer) {
            return None;
        }
        let p = &mut self.peers[a.peer.0 as usize];
        let w = p.conn.windows.as_mut()?;
        let seq = w.send.next_seq();
        if p.queue.follows_bulk(w.send.oldest(), seq, 1, false)
            || !p.conn.credit.take(len as usize, a.active)
        {
            return None;
        }
        let mut flags = flags(a);
        if w.should_ask(1, self.cfg.ack_every, false) {
            flags |= flag::ACKNOW;
        }
        let common = p.conn.common(flags, seq, imm);
        wire::emit_into(&common, &Packet::Eager(Eager { tag: a.tag }), header);
        Some(Reservation { peer: a.peer, len, numbered: Some((flags, seq)) })
    }

    /// Handles a deferred acknowledgement. Returns true if that made room in the window.
    #[cold]
    fn has_room_after_all(&mut self, peer: PeerId) -> bool {
        self.acknowledge_late(peer);
        self.peers[peer.0 as usize].conn.windows.as_ref().is_some_and(|w| w.send.can_send())
    }

    #[inline(always)]
    fn commit_numbered(
        &mut self,
        now: Instant,
        a: &SendArgs,
        flags: u16,
        seq: Seq,
    ) -> Option<OpId> {
        let data = a.data.unwrap_or(0);
        let send = Send {
            tag: a.tag,
            len: a.len,
            flags,
            data,
            addr: a.addr,
            sent: a.len,
            asked: 0,
            announced: false,
            receipt: false,
        };
        let mut op = Op::new(Some(a.peer), a.context, Kind::Send(send));
        (op.reported, op.finished, op.unacked) = (true, true, 1);
        let op = self.add_op(now, op).ok()?;
        let p = &mut self.peers[a.peer.0 as usize];
        let w = p.conn.windows.as_mut()?;
        let idle = w.send.in_flight() == 0;
        let packet = Packet::Eager(Eager { tag: a.tag });
        let payload = Payload::Op { op, offset: 0, len: a.len as u32 };
        let pushed =
            w.send.push(now, Desc { packet, flags, imm: data as u32, payload, bulk: false });
        debug_assert_eq!(pushed, seq);
        if flags & flag::ACKNOW != 0 {
            w.note_asked();
        }
        let again = now + w.rtt.rto();
        p.conn.credit.ack_asked = false;
        if idle {
            self.timers.arm(&mut p.conn, again);
        }
        Some(op)
    }
}
