//! Remote memory: PUT, GET and their REPLY.

use super::op::{self, Kind, Op};
use super::region::Rights;
use super::types::{Payload, Placement, Refused};
use super::views::MemoryMut;
use super::{Engine, REQUESTS_MAX};
use crate::error::OpError;
use crate::id::{OpId, PeerId};
use crate::peer::{Desc, Item, Peer, Step, StreamSource};
use crate::slab::Slab;
use crate::time::Instant;
use crate::transfer::pull::Pull;
use crate::wire::{flags, status, Common, Get, Packet, Put, Reply};

/// Counts a request about to be sent; returns another step for the queue, if that is not possible.
fn count(peer: &mut Peer, ops: &mut Slab<Op>, id: OpId) -> Option<Step> {
    let Some(op) = ops.get_mut(id.0) else { return Some(Step::Gone) };
    if !op.request {
        if peer.outgoing.requests >= REQUESTS_MAX {
            return Some(Step::Wait);
        }
        op.request = true;
        peer.outgoing.requests += 1;
    }
    None
}

/// Returns the packet of a get or an atomic operation.
pub(super) fn single(peer: &mut Peer, ops: &mut Slab<Op>, desc: Desc) -> Step {
    count(peer, ops, OpId(desc.imm)).unwrap_or(Step::Send(desc, 1, true))
}

/// Returns the next packet of a put.
pub(super) fn next(peer: &mut Peer, ops: &mut Slab<Op>, id: OpId) -> Step {
    if let Some(other) = count(peer, ops, id) {
        return other;
    }
    let Some(Kind::Put(p)) = ops.get_mut(id.0).map(|op| &mut op.kind) else { return Step::Gone };
    let len = (u64::from(peer.path.mtu()) - Put::LEN as u64).min(p.len - p.sent);
    // An offset beyond all memory is refused at the other side.
    let offset = p.offset.saturating_add(p.sent);
    let packet = Packet::Put(Put { key: p.key, offset, total: p.len });
    let payload = match len {
        0 => Payload::None,
        _ => Payload::Op { op: id, offset: p.sent, len: len as u32 },
    };
    p.sent += len;
    let last = p.sent == p.len;
    let flags = if last { flags::LAST } else { 0 };
    Step::Send(Desc { packet, flags, imm: id.0, payload, bulk: false }, 1, last)
}

impl Engine {
    pub(super) fn on_put(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        put: &Put,
        len: u64,
    ) -> Placement {
        let need = Rights { read: false, write: true };
        let at = self.regions.find(put.key, put.offset, len, need);
        self.stats.refused += u64::from(at.is_none());
        let p = &mut self.peers[peer.0 as usize];
        // A put is refused as a whole if any fragment is.
        if at.is_none() {
            p.incoming.put_status = status::REFUSED;
        }
        if common.flags & flags::LAST != 0 {
            let status = core::mem::replace(&mut p.incoming.put_status, status::OK);
            let reply = Packet::Reply(Reply { value: 0, status });
            self.answer(now, peer, Desc::bare(reply, common.imm));
        }
        match at {
            Some(offset) if len > 0 => {
                Placement::Region { key: put.key, offset, peer, put: common.imm }
            }
            _ => Placement::None,
        }
    }

    pub(super) fn on_get(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        get: &Get,
    ) -> Placement {
        let need = Rights { read: true, write: false };
        match self.regions.find(get.key, get.offset, get.len, need) {
            None => {
                self.stats.refused += 1;
                self.reply(now, peer, common.imm, 0, false);
            }
            Some(_) if get.len == 0 => self.reply(now, peer, common.imm, 0, true),
            Some(at) => {
                let source = StreamSource::Region(get.key);
                self.stream(now, peer, source, common.imm, at, at, get.len);
            }
        }
        Placement::None
    }

    /// Answers PUT, GET or ATOMIC.
    pub(super) fn reply(&mut self, now: Instant, peer: PeerId, op: u32, value: u64, ok: bool) {
        let status = if ok { status::OK } else { status::REFUSED };
        self.answer(now, peer, Desc::bare(Packet::Reply(Reply { value, status }), op));
    }

    /// Queues an answer to a request of the peer.
    pub(super) fn answer(&mut self, now: Instant, peer: PeerId, desc: Desc) {
        self.answer_open(peer, desc);
        if self.peers[peer.0 as usize].failure().is_none() {
            self.wake(now, peer);
        }
    }

    /// Queues an answer to a request of a peer whose session is open.
    pub(super) fn answer_open(&mut self, peer: PeerId, desc: Desc) {
        let most = 2 * self.asks_max(peer);
        let p = &mut self.peers[peer.0 as usize];
        if p.failure().is_some() {
            return;
        }
        if p.queue.ctrl.len() >= most {
            self.offend(peer);
            return;
        }
        p.queue.ctrl.push_back(desc);
        self.make_ready(peer);
    }

    pub(super) fn on_reply(&mut self, peer: PeerId, common: &Common, reply: &Reply) -> Placement {
        let id = OpId(common.imm);
        let mine = |o: &&mut Op| o.peer == Some(peer) && !o.finished;
        let Some(op) = self.ops.get_mut(id.0).filter(mine) else {
            self.stats.violations += 1;
            return Placement::None;
        };
        let error = match reply.status {
            status::OK => None,
            status::UNMAPPED => Some(OpError::Unmapped),
            _ => Some(OpError::Refused),
        };
        match &op.kind {
            Kind::Put(p) if p.sent == p.len && op.request => op.status.len = p.len,
            Kind::Get(pull) if error.is_some() || pull.want() == 0 => {}
            Kind::Atomic => {
                op.status.value = reply.value;
                op.status.len = 8;
            }
            _ => {
                self.stats.violations += 1;
                return Placement::None;
            }
        }
        op.error = error.or(op.error);
        // Packets that may still be sent again keep the buffer a little longer.
        self.finish(id);
        Placement::None
    }
}

impl MemoryMut<'_> {
    /// Writes `len` bytes of the operation's buffer to a region of the peer. Completes when the
    /// bytes are in the peer's memory.
    pub fn put(
        self,
        now: Instant,
        peer: PeerId,
        key: u64,
        offset: u64,
        len: u64,
        context: u64,
    ) -> Result<OpId, Refused> {
        self.engine.usable(now, peer)?;
        let kind = Kind::Put(op::Put { key, offset, len, sent: 0 });
        self.begin(now, peer, Op::new(Some(peer), context, kind), Item::Put)
    }

    /// Reads `len` bytes of a region of the peer into the operation's buffer.
    pub fn get(
        self,
        now: Instant,
        peer: PeerId,
        key: u64,
        offset: u64,
        len: u64,
        context: u64,
    ) -> Result<OpId, Refused> {
        self.engine.usable(now, peer)?;
        let mut op = Op::new(Some(peer), context, Kind::Get(Pull::new(len)));
        op.status.len = len;
        let packet = Packet::Get(Get { key, offset, len });
        self.begin(now, peer, op, |id| Item::Single(Desc::bare(packet, id.0)))
    }

    /// Adds an operation and queues what it sends.
    pub(super) fn begin(
        self,
        now: Instant,
        peer: PeerId,
        op: Op,
        item: impl FnOnce(OpId) -> Item,
    ) -> Result<OpId, Refused> {
        let id = self.engine.add_op(now, op)?;
        self.engine.stats.messages_sent += 1;
        self.engine.enqueue(now, peer, item(id));
        Ok(id)
    }

    /// Refuses the put whose packet was handled last: its bytes had no place, since the registered
    /// memory is not there any more, or may not be written to.
    pub fn handle_put_unmapped(self, peer: PeerId, put: u32) {
        self.engine.stats.refused += 1;
        let p = &mut self.engine.peers[peer.0 as usize];
        let reply = p.queue.ctrl.iter_mut().rev().find_map(|desc| match &mut desc.packet {
            Packet::Reply(reply) if desc.imm == put => Some(reply),
            _ => None,
        });
        match reply {
            Some(reply) => reply.status = status::UNMAPPED,
            None => p.incoming.put_status = status::UNMAPPED,
        }
    }
}
