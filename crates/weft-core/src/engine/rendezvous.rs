//! Announced messages: RTS, PULL, DATA, DIRECT_DONE, FIN.

use super::op::{Kind, Op, RecvState};
use super::types::{Direct, Event, Payload, Placement};
use super::views::{MemoryMut, OpsView};
use super::{eager, Engine, StoredState};
use crate::id::{OpId, PeerId};
use crate::peer::{Desc, Peer, Step, Stream, StreamSource};
use crate::slab::Slab;
use crate::time::Instant;
use crate::transfer::pull::{Part, Pull};
use crate::wire::{self, flags, status, Common, Data, DirectDone, Fin, Packet, Rts};

/// Parts the sender copies at a time: one being copied, one asked for.
const BACK_PARTS: u32 = 2;

/// Returns the announcement of a message, unless the peer has as many unfinished as it allows.
pub(super) fn announce(most: u32, p: &mut Peer, ops: &mut Slab<super::Op>, id: OpId) -> Step {
    let Some(Kind::Send(s)) = ops.get_mut(id.0).map(|op| &mut op.kind) else { return Step::Gone };
    if p.outgoing.rendezvous >= most.saturating_add(p.incoming.share.allowed) {
        return Step::Wait;
    }
    s.announced = true;
    p.outgoing.rendezvous += 1;
    let direct = p.path.caps.direct && s.len >= u64::from(p.path.limits.direct_min);
    let addr = if direct { s.addr } else { 0 };
    let data = (s.data >> 32) as u32;
    let rts = Rts { tag: s.tag, total: s.len, msg: id.0, data, addr };
    Step::Send(Desc::bare(Packet::Rts(rts), s.data as u32).with_flags(s.flags), 1, true)
}

/// Returns the packets that are left of a stream.
pub(super) fn packets_left(mtu: u32, stream: &Stream) -> u64 {
    (stream.end - stream.offset).div_ceil(u64::from(mtu) - Data::LEN as u64)
}

/// Returns the next packet of a stream, or as many full ones as it has, up to `most`; and their
/// number.
pub(super) fn next_data(mtu: u32, stream: &mut Stream, most: u32) -> (Desc, u32) {
    let room = u64::from(mtu) - Data::LEN as u64;
    let left = stream.end - stream.offset;
    let packets = u64::from(most).min(left / room).max(1);
    let len = left.min(room * packets) as u32;
    let offset = stream.offset;
    stream.offset += u64::from(len);
    let payload = match stream.source {
        StreamSource::Op(op) => Payload::Op { op, offset, len },
        StreamSource::Region(key) => Payload::Region { key, offset, len },
    };
    let packet = Packet::Data(Data { offset: offset - stream.shift });
    (Desc { packet, flags: 0, imm: stream.recv, payload, bulk: true }, packets as u32)
}

/// Returns the bytes of a full train.
pub(super) fn train_len(p: &Peer) -> u64 {
    (u64::from(p.path.long_mtu()) - Data::LEN as u64) * u64::from(p.path.caps.train.max(1))
}

/// Returns the bytes of one request: about `wanted`, in whole trains of full packets.
pub(super) fn block_len(wanted: u32, p: &Peer) -> u64 {
    let train = train_len(p);
    (u64::from(wanted) / train).max(1) * train
}

impl Engine {
    pub(super) fn on_rts(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        rts: &Rts,
    ) -> Placement {
        let asks_max = 2 * self.asks_max(peer);
        let none_left = self.announcements_left(peer) == 0;
        let p = &mut self.peers[peer.0 as usize];
        if none_left || p.queue.ctrl.len() >= asks_max {
            self.offend(peer);
            return Placement::None;
        }
        p.incoming.rendezvous += 1;
        // An address range that would exceed memory counts as no address.
        let addr = rts.addr.checked_add(rts.total).map_or(0, |_| rts.addr);
        let data = eager::data_of(common, rts.data);
        match self.arrive(now, eager::queue_of(common), peer, rts.tag) {
            Some(id) => {
                self.matched(id, peer, rts.tag, rts.total, data);
                self.pull(now, id, peer, rts.msg, addr);
            }
            None => {
                let state = StoredState::Announced { msg: rts.msg, addr };
                if self.store(peer, (common, rts.data), rts.tag, rts.total, state).is_some() {
                    self.on_unmatched(now, peer);
                }
            }
        }
        Placement::None
    }

    /// Starts fetching an announced message into a matched receive.
    pub(super) fn pull(&mut self, now: Instant, id: OpId, peer: PeerId, msg: u32, addr: u64) {
        self.bind(now, id, peer);
        let p = &self.peers[peer.0 as usize];
        let direct_min = u64::from(p.path.limits.direct_min);
        let Some(op) = self.ops.get_mut(id.0) else { return };
        let want = op.status.len;
        let Kind::Recv(r) = &mut op.kind else { return };
        let direct = p.path.caps.direct && addr != 0 && want >= direct_min;
        let addr = if direct { addr } else { 0 };
        let paced = !direct && p.conn.windows.is_some() && self.pulls.on();
        let pull = if paced { Pull::paced(want) } else { Pull::new(want) };
        r.state = RecvState::Pull { msg, addr, pull };
        if direct && !op.discard {
            self.read_on(id);
        } else if paced && want > 0 {
            self.queue_pull(now, peer, id);
        } else {
            self.ask_on(now, id);
        }
    }

    /// Continues direct copying: the next part for this side.
    fn read_on(&mut self, id: OpId) {
        let block = u64::from(self.cfg.direct_block);
        let Some(op) = self.ops.get_mut(id.0) else { return };
        let (Some(peer), Kind::Recv(r)) = (op.peer, &mut op.kind) else { return };
        let RecvState::Pull { addr, pull, .. } = &mut r.state else { return };
        if let Some(Part { offset, len }) = pull.claim_direct(block) {
            let (addr, total) = (*addr + offset, pull.want());
            let part = Direct { op: id, peer, addr, offset, len, total, recv: 0 };
            self.events.push_back(Event::DirectRead(part));
        }
    }

    /// Asks the sender to copy parts from the back.
    fn share(&mut self, now: Instant, id: OpId) {
        let block = u64::from(self.cfg.direct_block);
        let Some(op) = self.ops.get_mut(id.0) else { return };
        let (Some(peer), Kind::Recv(r)) = (op.peer, &mut op.kind) else { return };
        let RecvState::Pull { msg, pull, .. } = &mut r.state else { return };
        if r.addr == 0 {
            return;
        }
        while let Some(Part { offset, len }) = pull.claim_back(block, BACK_PARTS) {
            let ask = wire::Pull { offset, len, recv: id.0, addr: r.addr + offset };
            let desc = Desc::bare(Packet::Pull(ask), *msg).with_flags(flags::DIRECT);
            self.peers[peer.0 as usize].queue.ctrl.push_back(desc);
        }
        self.wake(now, peer);
    }

    /// Continues a transfer by packets: requests further blocks, or ends it when all has arrived.
    fn ask_on(&mut self, now: Instant, id: OpId) {
        let depth = u64::from(self.cfg.pull_depth);
        let Some(op) = self.ops.get_mut(id.0) else { return };
        let (Some(peer), Kind::Recv(r)) = (op.peer, &mut op.kind) else { return };
        let RecvState::Pull { msg, pull, .. } = &mut r.state else { return };
        if pull.complete() {
            let status = if op.error.is_some() { status::TRUNCATED } else { status::OK };
            let fin = Desc::bare(Packet::Fin(Fin { status }), *msg);
            let flags = self.announcement_ended(peer);
            self.peers[peer.0 as usize].queue.ctrl.push_back(fin.with_flags(flags));
            self.wake(now, peer);
            self.finish(id);
            return;
        }
        let p = &mut self.peers[peer.0 as usize];
        let block = block_len(self.cfg.pull_block, p);
        while !pull.is_paced() {
            let Some(Part { offset, len }) = pull.claim_packets(block, depth) else { break };
            let ask = wire::Pull { offset, len, recv: id.0, addr: 0 };
            p.queue.ctrl.push_back(Desc::bare(Packet::Pull(ask), *msg));
        }
        if !p.queue.ctrl.is_empty() {
            self.wake(now, peer);
        }
    }

    /// Requests the rest of a message by packets, this part included. False if no operation waits
    /// for it any more.
    fn packets_instead(&mut self, now: Instant, d: &Direct) -> bool {
        let Some(op) = self.ops.get_mut(d.op.0) else { return false };
        let Kind::Recv(r) = &mut op.kind else { return false };
        let RecvState::Pull { msg, addr, pull } = &mut r.state else { return false };
        *addr = 0;
        pull.reclaim_as_packets(Part { offset: d.offset, len: d.len });
        let ask = wire::Pull { offset: d.offset, len: d.len, recv: d.op.0, addr: 0 };
        let p = &mut self.peers[d.peer.0 as usize];
        p.queue.ctrl.push_back(Desc::bare(Packet::Pull(ask), *msg));
        self.ask_on(now, d.op);
        true
    }

    pub(super) fn on_pull(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        ask: &wire::Pull,
    ) -> Placement {
        let id = OpId(common.imm);
        let mut total = 0;
        // Each byte is requested once.
        let valid = match self.ops.get_mut(id.0).filter(|op| !op.finished) {
            Some(Op { peer: Some(p), kind: Kind::Send(s), .. }) if *p == peer && s.announced => {
                let fits = ask.offset.checked_add(ask.len).is_some_and(|end| end <= s.len)
                    && ask.len > 0
                    && ask.len <= s.len - s.asked;
                s.asked += if fits { ask.len } else { 0 };
                total = s.len;
                fits
            }
            _ => false,
        };
        if !valid {
            self.stats.violations += 1;
            return Placement::None;
        }
        self.takes_messages(now, peer);
        let direct = common.flags & flags::DIRECT != 0 && ask.addr != 0;
        if direct && self.peers[peer.0 as usize].path.caps.direct {
            let wire::Pull { offset, len, recv, addr } = *ask;
            let d = Direct { op: id, peer, addr, offset, len, total, recv };
            self.events.push_back(Event::DirectWrite(d));
        } else {
            self.stream(now, peer, StreamSource::Op(id), ask.recv, ask.offset, 0, ask.len);
        }
        Placement::None
    }

    /// Starts sending DATA packets.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn stream(
        &mut self,
        now: Instant,
        peer: PeerId,
        source: StreamSource,
        recv: u32,
        offset: u64,
        shift: u64,
        len: u64,
    ) {
        let most = self.asks_max(peer);
        let p = &mut self.peers[peer.0 as usize];
        if p.queue.data.len() >= most {
            self.offend(peer);
            return;
        }
        p.queue.data.push_back(Stream { source, recv, offset, shift, end: offset + len });
        self.wake(now, peer);
    }

    pub(super) fn on_data(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        data: &Data,
        len: u64,
    ) -> Placement {
        let id = OpId(common.imm);
        let Some(op) = self.ops.get_mut(id.0).filter(|o| o.peer == Some(peer)) else {
            self.stats.violations += 1;
            return Placement::None;
        };
        let discard = op.discard;
        if !op.pull().is_some_and(|pull| pull.arrived(data.offset, len)) {
            self.stats.violations += 1;
            return Placement::None;
        }
        self.pull_on(now, id, len);
        if discard {
            return Placement::None;
        }
        Placement::Recv { op: id, offset: data.offset, len }
    }

    /// Handles `count` consecutive DATA packets of one transfer, or EAGER_MORE packets of one
    /// message, at once, with `len` payload bytes in all that are already placed: those whose
    /// headers differ from `header`, the first one's, only in sequence number and offset. Returns
    /// the operation and the offset; `None`, and nothing is changed, if the packets are not the
    /// next ones: then each has to be handled by itself.
    pub fn handle_run(
        &mut self,
        now: Instant,
        header: &[u8],
        count: u32,
        len: u64,
    ) -> Option<(OpId, u64)> {
        let (common, packet, _) = wire::parse(header).ok()?;
        let index = wire::session_index(common.session);
        let p = self.peers.get_mut(index as usize)?;
        let peer = PeerId(index);
        let recv = &p.conn.windows.as_ref()?.recv;
        // Data contains its own destination: it need not wait for missing packets.
        let ahead = !recv.expects(common.seq);
        if ahead && !(matches!(packet, Packet::Data(_)) && recv.can_hold(common.seq, count)) {
            return None;
        }
        if p.conn.session.number_in != common.session || p.failure().is_some() {
            return None;
        }
        let (id, offset) = match &packet {
            Packet::Data(data) => {
                let id = OpId(common.imm);
                let op = self.ops.get_mut(id.0).filter(|o| o.peer == Some(peer) && !o.discard)?;
                (op.pull()?.arrived(data.offset, len).then_some(id)?, data.offset)
            }
            Packet::EagerMore(more) => {
                (Engine::goes_on(p, &self.ops, &common, more, len)?, more.offset)
            }
            _ => return None,
        };
        let w = p.conn.windows.as_mut()?;
        let mut gap = false;
        if ahead {
            let missing = w.recv.next_expected();
            gap = p.incoming.note_gap(missing);
            w.recv.hold_run(now, common.seq, count, common.flags & flags::ACKNOW != 0);
            self.stats.held += u64::from(count);
        } else {
            w.recv.on_run(now, count, common.flags & flags::ACKNOW != 0);
        }
        p.conn.life.heard_at = now;
        let grew = p.conn.credit.inward.on_grant(common.credit);
        self.stats.packets_received += u64::from(count);
        self.stats.bytes_received += len;
        if grew {
            self.takes_messages(now, peer);
            self.wake_queued(peer);
        }
        if gap {
            self.note_delay(now, None, 1);
        }
        self.acknowledged(now, peer, &common, None);
        match packet {
            // The bytes are already at this destination.
            Packet::EagerMore(_) => drop(self.fragment(peer, offset, len)),
            _ => self.pull_on(now, id, len),
        }
        self.schedule_ack(now, peer);
        Some((id, offset))
    }

    /// Handles data that arrived: requests more, or ends the transfer.
    #[inline]
    fn pull_on(&mut self, now: Instant, id: OpId, len: u64) {
        let Some(op) = self.ops.get_mut(id.0) else { return };
        let is_get = matches!(op.kind, Kind::Get(_));
        let Some(peer) = op.peer else { return };
        let Some(pull) = op.pull() else { return };
        let (complete, paced) = (pull.complete(), pull.is_paced());
        if is_get {
            if complete {
                self.finish(id);
            }
            return;
        }
        if paced {
            if complete {
                self.ask_on(now, id);
            }
            return self.pulled(now, peer, len);
        }
        let block = block_len(self.cfg.pull_block, &self.peers[peer.0 as usize]);
        if complete || pull.wants_packets(block, u64::from(self.cfg.pull_depth)) {
            self.ask_on(now, id);
        }
    }

    pub(super) fn on_direct_done(
        &mut self,
        now: Instant,
        peer: PeerId,
        common: &Common,
        done: &DirectDone,
    ) -> Placement {
        let id = OpId(common.imm);
        let op = self.ops.get_mut(id.0).filter(|o| o.peer == Some(peer));
        let Some(Kind::Recv(r)) = op.map(|o| &mut o.kind) else {
            self.stats.violations += 1;
            return Placement::None;
        };
        let RecvState::Pull { pull, addr, .. } = &mut r.state else {
            self.stats.violations += 1;
            return Placement::None;
        };
        if !pull.arrived_back(done.offset, done.len) {
            self.stats.violations += 1;
            return Placement::None;
        }
        if pull.complete() {
            self.ask_on(now, id);
        } else if *addr != 0 {
            self.share(now, id);
        }
        Placement::None
    }

    pub(super) fn on_fin(&mut self, peer: PeerId, common: &Common) -> Placement {
        let id = OpId(common.imm);
        let mine = |op: &&Op| op.peer == Some(peer) && !op.finished;
        let (announced, receipt) = match self.ops.get(id.0).filter(mine) {
            Some(Op { kind: Kind::Send(s), request, .. }) => {
                (s.announced, *request && s.sent == s.len)
            }
            _ => (false, false),
        };
        if announced {
            let p = &mut self.peers[peer.0 as usize];
            p.outgoing.rendezvous = p.outgoing.rendezvous.saturating_sub(1);
            let less = common.flags & flags::NACK != 0;
            p.incoming.share.allowed = p.incoming.share.allowed.saturating_sub(less.into());
            self.wake_queued(peer);
        } else if !receipt {
            self.stats.violations += 1;
            return Placement::None;
        }
        self.finish(id);
        Placement::None
    }
}

impl OpsView<'_> {
    /// Returns true if a message is being fetched for this operation.
    pub fn is_fetching(self, id: OpId) -> bool {
        self.engine.ops.get(id.0).is_some_and(|op| !op.finished)
    }
}

impl MemoryMut<'_> {
    /// Asks the sender of a message, which is ready when the driver is about to copy part `d` of
    /// it, to copy too, which may leave less of the part. The request should be sent before that
    /// copy.
    pub fn direct_share(self, now: Instant, d: &mut Direct) {
        let block = u64::from(self.engine.cfg.direct_block);
        if !self.engine.cfg.direct_share {
            return;
        }
        let Some(pull) = self.engine.ops.get_mut(d.op.0).and_then(Op::pull) else { return };
        pull.unclaim(Part { offset: d.offset, len: d.len });
        self.engine.share(now, d.op);
        let pull = self.engine.ops.get_mut(d.op.0).and_then(Op::pull);
        if let Some(part) = pull.and_then(|pull| pull.claim_direct(block)) {
            d.len = part.len;
        }
    }

    /// Notes that the driver has done, or could not do, a direct read.
    pub fn handle_direct_read(self, now: Instant, d: &Direct, ok: bool) {
        if !ok {
            if self.engine.packets_instead(now, d) {
                self.engine.stats.direct_failures += 1;
                self.engine.peers[d.peer.0 as usize].path.caps.direct = false;
            }
            return;
        }
        let Some(op) = self.engine.ops.get_mut(d.op.0) else { return };
        let Kind::Recv(r) = &mut op.kind else { return };
        let RecvState::Pull { pull, .. } = &mut r.state else { return };
        self.engine.stats.direct_bytes += d.len;
        pull.arrived(d.offset, d.len);
        if pull.complete() {
            self.engine.ask_on(now, d.op);
            return;
        }
        self.engine.read_on(d.op);
    }

    /// Notes that the driver has done, or could not do, a direct write.
    pub fn handle_direct_write(self, now: Instant, d: &Direct, ok: bool) {
        if self.engine.peers[d.peer.0 as usize].failure().is_some() {
            return;
        }
        if ok {
            self.engine.stats.direct_bytes += d.len;
            let done = DirectDone { offset: d.offset, len: d.len };
            self.engine.answer(now, d.peer, Desc::bare(Packet::DirectDone(done), d.recv));
        } else {
            self.engine.stats.direct_failures += 1;
            self.engine.stream(now, d.peer, StreamSource::Op(d.op), d.recv, d.offset, 0, d.len);
        }
    }

    /// Notes that the driver takes the rest of a message, `d` included, in packets.
    pub fn handle_direct_declined(self, now: Instant, d: &Direct) {
        if self.engine.packets_instead(now, d) {
            self.engine.stats.direct_declined += 1;
        }
    }
}
