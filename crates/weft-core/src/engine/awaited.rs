//! The receive whose caller only waits for it: a matching message of one packet is placed and
//! reported at once, without an operation. For a longer message the operation is made when its
//! first packet comes, as if it had been posted.

use super::op::{Kind, Recv, RecvState};
use super::types::{Awaited, Placement};
use super::views::{MatchingMut, MatchingView, OpsMut};
use super::{Engine, Op, TAGGED};
use crate::error::OpError;
use crate::event::Status;
use crate::id::{OpId, PeerId};
use crate::matching::RecvSpec;
use crate::peer::State;
use crate::time::Instant;
use crate::wire::{self, flags, Common, Eager};

/// The awaited message.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    spec: RecvSpec,
    /// Length of the buffer, and its address for a direct copy.
    len: u64,
    addr: u64,
    /// The flags of its header: `ACTIVE` for an active message.
    kind: u16,
}

impl Wanted {
    /// Returns the result for a message of `len` bytes.
    #[inline]
    fn met(&self, peer: PeerId, common: &Common, tag: u64, len: u64) -> Awaited {
        let error = (len > self.len).then_some(OpError::Truncated { sent: len });
        let data = super::eager::data_of(common, 0);
        let len = len.min(self.len);
        Awaited { status: Status { source: Some(peer), tag, len, data, value: 0 }, error }
    }
}

impl Engine {
    /// Returns true if nothing else is awaited, and the sender has answered.
    #[inline]
    fn may_await(&self, spec: RecvSpec) -> bool {
        let ready = |p: PeerId| {
            self.peers.get(p.0 as usize).is_some_and(|p| matches!(p.state, State::Ready))
        };
        self.matching.wanted.is_none() && spec.source.is_none_or(ready)
    }

    #[cold]
    fn is_here(&self, spec: RecvSpec) -> bool {
        self.matching.unexpected[TAGGED].peek(&spec).is_some()
    }

    /// Gives a whole message to the caller that awaits it, if it matches.
    #[inline]
    pub(super) fn for_awaiting(
        &mut self,
        peer: PeerId,
        common: &Common,
        tag: u64,
        len: u64,
    ) -> Option<Placement> {
        let wanted = self.matching.wanted.filter(|w| w.kind == 0)?;
        if super::eager::queue_of(common) != TAGGED || !wanted.spec.accepts(peer, tag) {
            return None;
        }
        self.matching.wanted = None;
        self.consumed(peer, len);
        self.stats.messages_received += 1;
        Some(Placement::Awaited(wanted.met(peer, common, tag, len)))
    }

    /// Handles the awaited message on the latency path: if this packet is that message and causes
    /// no urgent work. `None` if the packet is still to be handled; then nothing has changed.
    #[inline]
    pub fn handle_awaited(
        &mut self,
        now: Instant,
        from: Option<PeerId>,
        header: &[u8],
        len: u64,
    ) -> Option<Awaited> {
        let wanted = self.matching.wanted?;
        let (common, Eager { tag }) = wire::parse_message(header, wanted.kind)?;
        let index = wire::session_index(common.session);
        let peer = PeerId(index);
        let p = self.peers.get_mut(index as usize)?;
        let next = p.conn.session.number_in == common.session
            && p.state == State::Ready
            && p.conn.session.trusted.is_none()
            && !p.conn.credit.outward.is_extended()
            && p.conn.windows.as_ref().is_none_or(|w| w.is_next(&common) && p.queue.is_calm())
            && from.is_none_or(|f| f == peer)
            && wanted.spec.accepts(peer, tag)
            && (wanted.kind != 0 || self.matching.posted[TAGGED].is_empty());
        if !next || !p.conn.credit.outward.arrived(len as usize) {
            return None;
        }
        self.matching.wanted = None;
        p.conn.life.heard_at = now;
        p.conn.credit.outward.consumed(len as usize);
        let (grew, owed) = (
            p.conn.credit.inward.on_grant(common.credit),
            p.conn.credit.outward.worth_announcing(),
        );
        p.conn.credit.ack_asked |= owed;
        let urgent = owed || grew && p.queue.has_work();
        if grew && p.queue.without_credit_since != Instant::FAR {
            self.takes_messages(now, peer);
        }
        let p = &mut self.peers[peer.0 as usize];
        if let Some(w) = &mut p.conn.windows {
            w.recv.on_run(now, 1, common.flags & flags::ACKNOW != 0);
            let news = w.late_ack.is_none() && common.ack != w.send.oldest();
            if news {
                w.late_ack = Some((now, common.ack));
                self.make_ready_late(peer);
            }
            self.schedule_ack(now, peer);
        }
        if urgent {
            self.make_ready(peer);
        }
        self.stats.packets_received += 1;
        self.stats.bytes_received += len;
        self.stats.messages_received += 1;
        Some(wanted.met(peer, &common, tag, len))
    }

    /// Returns the receive of a message that needs an operation: a posted one, or else the awaited
    /// one, if it matches.
    #[inline]
    pub(super) fn arrive(
        &mut self,
        now: Instant,
        queue: usize,
        peer: PeerId,
        tag: u64,
    ) -> Option<OpId> {
        let posted = self.matching.posted[queue].arrive(peer, tag);
        if posted.is_some() || self.matching.wanted.is_none() || queue != TAGGED {
            return posted;
        }
        let wanted = self.matching.wanted.filter(|w| w.kind == 0 && w.spec.accepts(peer, tag))?;
        self.matching.wanted = None;
        let recv = Recv { len: wanted.len, addr: wanted.addr, state: RecvState::Posted };
        // Without room for the operation the message is stored, and the caller's own post is
        // refused.
        let op = self.add_op(now, Op::new(wanted.spec.source, 0, Kind::Recv(recv))).ok()?;
        self.matching.posted_awaited = Some(op);
        Some(op)
    }
}

impl MatchingView<'_> {
    /// Returns true if a message is still awaited: it has not come, has no operation, and no peer
    /// has failed.
    #[inline]
    pub fn awaits(self) -> bool {
        self.engine.matching.wanted.is_some()
    }
}

impl MatchingMut<'_> {
    /// Awaits a message that `spec` accepts: if it is one packet, it comes as
    /// [`Placement::Awaited`]; the wait ends then, or at `MatchingMut::end_await`. Receives posted
    /// before match first, and none may be posted meanwhile. A message of several packets, or an
    /// announced one, gets an operation as soon as its first packet arrives: see
    /// `MatchingMut::poll_posted`. False, and nothing has begun, if a matching message has arrived
    /// already, another is awaited, or the sender has not answered yet: then the caller has to post
    /// the receive. `len` and `addr` are the buffer's, as in [`super::types::RecvArgs`].
    #[inline]
    pub fn await_message(self, spec: RecvSpec, len: u64, addr: u64) -> bool {
        let clear = self.engine.may_await(spec)
            && (self.engine.matching.unexpected[TAGGED].is_empty() || !self.engine.is_here(spec));
        if clear {
            self.engine.matching.wanted = Some(Wanted { spec, len, addr, kind: 0 });
        }
        clear
    }

    /// Awaits an active message: the next one that `spec` accepts comes as [`Placement::Awaited`],
    /// unless the caller notes by `MatchingMut::handle_active_queued` that one has come otherwise.
    #[inline]
    pub fn await_active(self, spec: RecvSpec, len: u64) -> bool {
        let clear = self.engine.may_await(spec);
        if clear {
            self.engine.matching.wanted = Some(Wanted { spec, len, addr: 0, kind: flags::ACTIVE });
        }
        clear
    }

    /// Ends `await_message`.
    #[inline]
    pub fn end_await(self) {
        self.engine.matching.wanted = None;
    }

    /// Notes that an active message waits for its client: no later one may be taken as the awaited
    /// one.
    #[inline]
    pub fn handle_active_queued(self) {
        self.engine.matching.wanted.take_if(|w| w.kind == flags::ACTIVE);
    }

    /// Returns the operation of the awaited message, once, before anything is placed for it: its
    /// context is 0 until `OpsMut::set_context`.
    #[inline]
    pub fn poll_posted(self) -> Option<OpId> {
        self.engine.matching.posted_awaited.take()
    }
}

impl OpsMut<'_> {
    /// Gives an operation the context for its completion. False if it has ended.
    pub fn set_context(self, op: OpId, context: u64) -> bool {
        let op = self.engine.ops.get_mut(op.0).filter(|op| !op.reported);
        op.map(|op| op.context = context).is_some()
    }
}
