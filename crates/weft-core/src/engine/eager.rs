//! Messages sent at once: EAGER, EAGER_FIRST, EAGER_MORE.

use super::op::{Kind, RecvState};
use super::types::{Completion, Event, OpKind, Payload, Placement, SendArgs};
use super::views::PeerView;
use super::{Engine, Stored, StoredState, ACTIVE_MAX, REQUESTS_MAX};
use crate::error::OpError;
use crate::id::{OpId, PeerId};
use crate::peer::{Desc, Item, Partial, Peer, Step, Target};
use crate::slab::Slab;
use crate::time::Instant;
use crate::wire::{flags, status, Common, Eager, EagerFirst, EagerMore, Fin, Packet};
use core::time::Duration;

/// Most packets of a message in one descriptor.
const RUN_MAX: u32 = 64;

pub(super) fn flags(a: &SendArgs) -> u16 {
    let mut f = 0;
    if a.sync {
        f |= flags::SYNC;
    }
    if a.active {
        f |= flags::ACTIVE;
    }
    if a.data.is_some() {
        f |= flags::DATA64;
    }
    if a.untagged {
        f |= flags::APART;
    }
    f
}

/// Returns the completion data in a header whose type has this high half.
pub(super) fn data_of(common: &Common, high: u32) -> Option<u64> {
    let data = u64::from(high) << 32 | u64::from(common.imm);
    (common.flags & flags::DATA64 != 0).then_some(data)
}

/// Returns the index of the matching queue of a message: tagged or untagged.
pub(super) fn queue_of(common: &Common) -> usize {
    usize::from(common.flags & flags::APART != 0)
}

/// Returns the next packet of an eager message, or, if packets are numbered, as many full ones as
/// follow its first.
pub(super) fn next(every: u32, p: &mut Peer, ops: &mut Slab<super::Op>, id: OpId) -> Step {
    let Some(op) = ops.get_mut(id.0) else { return Step::Gone };
    let Kind::Send(s) = &mut op.kind else { return Step::Gone };
    let mtu = u64::from(p.mtu_for(s.len));
    let (packet, imm) = if s.sent == 0 {
        if s.receipt && p.outgoing.requests >= REQUESTS_MAX
            || !p.conn.credit.take(s.len as usize, s.flags & flags::ACTIVE != 0)
        {
            return Step::Wait;
        }
        if s.receipt {
            op.request = true;
            p.outgoing.requests += 1;
        }
        let high = (s.data >> 32) as u32;
        // Only a message with a number can be answered.
        let packet = if s.len + Eager::LEN as u64 <= mtu && !s.receipt && high == 0 {
            Packet::Eager(Eager { tag: s.tag })
        } else {
            Packet::EagerFirst(EagerFirst { tag: s.tag, total: s.len, msg: id.0, data: high })
        };
        (packet, s.data as u32)
    } else {
        (Packet::EagerMore(EagerMore { offset: s.sent }), id.0)
    };
    let more = p.queue.has_more();
    let (room, left) = (mtu - packet.header_len() as u64, s.len - s.sent);
    let packets = match (s.sent, &p.conn.windows) {
        (1.., Some(w)) => (left / room).clamp(1, u64::from(w.run_max(every, more).min(RUN_MAX))),
        _ => 1,
    };
    // A message of two packets is halved: the first is in flight while the second is made.
    let room = if s.sent == 0 && left.div_ceil(room) == 2 { left.div_ceil(2) } else { room };
    let len = left.min(room * packets);
    // An empty message has a packet, too: the operation ends when its last packet is acknowledged.
    let payload = Payload::Op { op: id, offset: s.sent, len: len as u32 };
    s.sent += len;
    let last = s.sent == s.len;
    // The caller waits for the buffer, so the acknowledgement should not be delayed.
    let hurry = if last && !op.reported { flags::ACKNOW } else { 0 };
    // The operation ends when its packets are acknowledged, or when it is answered.
    op.finished |= last && !s.receipt;
    let receipt = if s.receipt { flags::SYNC } else { 0 };
    let bulk = s.len >= u64::from(p.path.caps.bulk_min);
    let flags = s.flags | hurry | receipt;
    Step::Send(Desc { packet, flags, imm, payload, bulk }, packets as u32, last)
}

impl Engine {
    /// Notes that the peer took messages out of its store, or an announced one: messages that lack
    /// credit wait on. Announced messages are taken one at a time, a round trip each; a receiver
    /// that was late once would get nothing else ever after.
    pub(super) fn takes_messages(&mut self, now: Instant, peer: PeerId) {
        let p = &mut self.peers[peer.0 as usize];
        if p.queue.without_credit_since != Instant::FAR {
            p.queue.without_credit_since = now;
            let patience = Duration::from_micros(u64::from(self.cfg.credit_patience_us));
            self.timers.arm(&mut p.conn, now + patience);
        }
    }

    /// Handles a lack of credit for the message at the head of the queue. Credit usually comes back
    /// soon, so the message waits; after `credit_patience_us`, if the receiver took nothing in that
    /// time, it is announced instead, because the receiver may be waiting for one behind it.
    pub(super) fn demote(&mut self, now: Instant, peer: PeerId) -> bool {
        let p = &mut self.peers[peer.0 as usize];
        let Some(&Item::Eager(id)) = p.queue.msgs.front() else { return false };
        let Some(Kind::Send(s)) = self.ops.get(id.0).map(|op| &op.kind) else { return false };
        if s.flags & flags::ACTIVE != 0 {
            return false;
        }
        let patience = Duration::from_micros(u64::from(self.cfg.credit_patience_us));
        if p.queue.without_credit_since == Instant::FAR {
            p.queue.without_credit_since = now;
            self.stats.credit_stalls += 1;
        }
        if now < p.queue.without_credit_since + patience {
            self.timers.arm(&mut p.conn, p.queue.without_credit_since + patience);
            return false;
        }
        self.stats.demoted += 1;
        p.queue.msgs[0] = Item::Rts(id);
        true
    }

    /// Handles a whole message.
    #[inline]
    pub(super) fn on_eager(
        &mut self,
        peer: PeerId,
        common: &Common,
        eager: &Eager,
        len: u64,
    ) -> Placement {
        let p = &mut self.peers[peer.0 as usize];
        if !p.conn.credit.outward.arrived(len as usize) {
            self.offend(peer);
            return Placement::None;
        }
        if common.flags & flags::ACTIVE != 0 {
            self.stats.messages_received += 1;
            return Placement::Active { peer, tag: eager.tag };
        }
        if let Some(id) = self.matching.posted[queue_of(common)].arrive(peer, eager.tag) {
            self.consumed(peer, len);
            self.matched(id, peer, eager.tag, len, data_of(common, 0));
            return self.complete_now(id);
        }
        if let Some(placement) = self.for_awaiting(peer, common, eager.tag, len) {
            return placement;
        }
        match self.store(peer, (common, 0), eager.tag, len, StoredState::Here) {
            Some(id) => {
                self.on_stored(peer, len);
                Placement::Store { id, offset: 0, total: len }
            }
            None => Placement::None,
        }
    }

    /// Ends a receive whose whole message is in this packet: the completion goes with the payload,
    /// not through the queue of events.
    #[inline]
    fn complete_now(&mut self, id: OpId) -> Placement {
        let Some(op) = self.ops.get(id.0) else { return Placement::None };
        let (peer, context, error, status) = (op.peer, op.context, op.error, op.status);
        if op.discard || op.reported {
            self.finish(id);
            return Placement::None;
        }
        self.ops.discard(id.0);
        if let Some(peer) = peer {
            self.peers[peer.0 as usize].watch.waiting -= 1;
        }
        let kind = OpKind::Recv;
        Placement::Done(Completion { op: id, context, kind, error, status, released: true })
    }

    /// Handles the first fragment of a message.
    pub(super) fn on_eager_first(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        first: &EagerFirst,
        len: u64,
    ) -> Placement {
        let p = &mut self.peers[peer.0 as usize];
        let credited = first.total <= u64::from(u32::MAX)
            && p.conn.credit.outward.arrived(first.total as usize);
        let receipt = (common.flags & flags::SYNC != 0).then_some(first.msg);
        let active = common.flags & flags::ACTIVE != 0;
        let too_long = active && first.total > ACTIVE_MAX;
        if p.incoming.partial.is_some() || len > first.total || !credited || too_long {
            self.offend(peer);
            return Placement::None;
        }
        let data = data_of(common, first.data);
        let from = (common, first.data);
        let target = if active {
            if len == first.total {
                self.stats.messages_received += 1;
                self.answer_eager(peer, receipt);
                return Placement::Active { peer, tag: first.tag };
            }
            let Some(id) = self.keep(peer, from, first.tag, first.total, StoredState::Arriving)
            else {
                return Placement::None;
            };
            Target::Active { id, tag: first.tag }
        } else if let Some(id) = self.arrive(now, queue_of(common), peer, first.tag) {
            self.matched(id, peer, first.tag, first.total, data);
            self.bind(now, id, peer);
            Target::Recv(id)
        } else {
            match self.store(peer, from, first.tag, first.total, StoredState::Arriving) {
                Some(id) => Target::Stored(id),
                None => return Placement::None,
            }
        };
        self.peers[peer.0 as usize].incoming.partial =
            Some(Partial { msg: first.msg, total: first.total, got: 0, target, receipt });
        self.fragment(peer, 0, len)
    }

    /// Tells the sender of a message, which has the number in `receipt` for it, that all of it has
    /// arrived.
    fn answer_eager(&mut self, peer: PeerId, receipt: Option<u32>) {
        if let Some(msg) = receipt {
            let fin = Fin { status: status::OK };
            self.answer_open(peer, Desc::bare(Packet::Fin(fin), msg));
        }
    }

    /// Returns true if fragments of `len` bytes in all, from this one on, come next in the message
    /// that arrives from the peer, and go to a receive.
    pub(super) fn goes_on(
        p: &Peer,
        ops: &Slab<super::Op>,
        common: &Common,
        more: &EagerMore,
        len: u64,
    ) -> Option<OpId> {
        let partial = p.incoming.partial?;
        let Target::Recv(id) = partial.target else { return None };
        let next = partial.msg == common.imm
            && partial.got == more.offset
            && len <= partial.total - partial.got
            && ops.get(id.0).is_some();
        next.then_some(id)
    }

    /// Handles a further fragment.
    pub(super) fn on_eager_more(
        &mut self,
        peer: PeerId,
        common: &Common,
        more: &EagerMore,
        len: u64,
    ) -> Placement {
        match self.peers[peer.0 as usize].incoming.partial {
            Some(p) if p.msg == common.imm && p.got == more.offset && len <= p.total - p.got => {
                self.fragment(peer, more.offset, len)
            }
            _ => {
                self.stats.violations += 1;
                Placement::None
            }
        }
    }

    /// Places the fragment at `offset` of the message arriving from `peer`; ends the message with
    /// the last.
    pub(super) fn fragment(&mut self, peer: PeerId, offset: u64, len: u64) -> Placement {
        let Some(mut partial) = self.peers[peer.0 as usize].incoming.partial else {
            return Placement::None;
        };
        partial.got += len;
        let last = partial.got == partial.total;
        self.peers[peer.0 as usize].incoming.partial = (!last).then_some(partial);
        if last {
            self.answer_eager(peer, partial.receipt);
        }
        match partial.target {
            Target::Recv(id) => {
                let room = match self.ops.get(id.0).map(|o| &o.kind) {
                    Some(Kind::Recv(r)) => r.len.saturating_sub(offset),
                    _ => 0,
                };
                if last {
                    self.consumed(peer, partial.total);
                    self.finish(id);
                }
                match len.min(room) {
                    0 => Placement::None,
                    len => Placement::Recv { op: id, offset, len },
                }
            }
            Target::Stored(id) => {
                if last {
                    self.stored_complete(id);
                }
                Placement::Store { id, offset, total: partial.total }
            }
            Target::Active { id, tag } if last => {
                self.matching.stored.remove(id);
                self.stats.messages_received += 1;
                Placement::ActiveStored { id, offset, peer, tag }
            }
            Target::Active { id, .. } => Placement::Store { id, offset, total: partial.total },
        }
    }

    /// Notes that all fragments of a stored message have arrived; the last is placed right after
    /// this.
    fn stored_complete(&mut self, id: u32) {
        let Some(s) = self.matching.stored.get_mut(id) else { return };
        s.state = StoredState::Here;
        if let Some(op) = s.taker.take() {
            self.take_stored(id, op);
        }
    }

    /// Moves a stored message into a receive and ends both.
    pub(super) fn take_stored(&mut self, id: u32, op: OpId) {
        let Some(s) = self.matching.stored.remove(id) else { return };
        self.taken(s.peer, s.len);
        match self.ops.get(op.0) {
            Some(_) => {
                let fits = self.matched(op, s.peer, s.tag, s.len, s.data);
                self.events.push_back(Event::CopyStored { id, op, len: fits });
                self.finish(op);
            }
            None => self.events.push_back(Event::FreeStored(id)),
        }
    }

    /// Records a message without a receive.
    pub(super) fn store(
        &mut self,
        peer: PeerId,
        (common, high): (&Common, u32),
        tag: u64,
        len: u64,
        state: StoredState,
    ) -> Option<u32> {
        let id = self.keep(peer, (common, high), tag, len, state)?;
        self.stats.unexpected += 1;
        self.matching.unexpected[queue_of(common)].add(peer, tag, id);
        Some(id)
    }

    /// Reserves an entry in the store. Without one the message is lost, and with it the session.
    fn keep(
        &mut self,
        peer: PeerId,
        (common, high): (&Common, u32),
        tag: u64,
        len: u64,
        state: StoredState,
    ) -> Option<u32> {
        let data = data_of(common, high);
        let id = self.matching.stored.insert(Stored { peer, tag, data, len, state, taker: None });
        if id.is_none() {
            self.offend(peer);
        }
        id
    }

    /// Notes in a receive the message it matched; returns the bytes that fit its buffer.
    pub(super) fn matched(
        &mut self,
        id: OpId,
        peer: PeerId,
        tag: u64,
        len: u64,
        data: Option<u64>,
    ) -> u64 {
        self.stats.messages_received += 1;
        let Some(op) = self.ops.get_mut(id.0) else { return 0 };
        let Kind::Recv(r) = &mut op.kind else { return 0 };
        r.state = RecvState::Eager;
        let fits = len.min(r.len);
        op.error = (len > r.len).then_some(OpError::Truncated { sent: len });
        op.status.source = Some(peer);
        op.status.tag = tag;
        op.status.len = fits;
        op.status.data = data;
        fits
    }

    /// Binds a receive to one peer, whatever sources it was posted for.
    pub(super) fn bind(&mut self, now: Instant, id: OpId, peer: PeerId) {
        if let Some(op) = self.ops.get_mut(id.0) {
            if op.peer.is_none() {
                op.peer = Some(peer);
                self.wait_for(now, peer);
            }
        }
    }

    /// Notes that the memory of an eager message is free: it pays back lent credit of the sender,
    /// or the sender gets its credit back.
    #[inline]
    pub(super) fn consumed(&mut self, peer: PeerId, len: u64) {
        let p = &mut self.peers[peer.0 as usize];
        let repaid = p.conn.credit.outward.is_extended() && self.repaid(peer, len);
        let p = &mut self.peers[peer.0 as usize];
        if !repaid {
            p.conn.credit.outward.consumed(len as usize);
        }
        if p.conn.credit.outward.worth_announcing() && p.failure().is_none() {
            p.conn.credit.ack_asked = true;
            self.make_ready(peer);
        }
    }
}

impl PeerView<'_> {
    /// Returns true if several small packets to a peer leave with one call of the link.
    #[inline]
    pub fn sends_trains(self) -> bool {
        self.kept().is_some_and(|p| {
            p.conn.windows.is_some() && (p.path.caps.train > 1 || p.path.caps.bulk_min != u32::MAX)
        })
    }
}
