//! Messages that leave at once or are queued, and operations that are taken back.

use super::ops::{OpTable, Owner, Ticket};
use super::sys::Memory;
use super::Reactor;
use weft_core::engine::types::{Refused, SendArgs};
use weft_core::wire::HeaderBuf;
use weft_core::{Instant, OpId, PeerId};
use weft_link::shm::Block;
use weft_link::{Frame, SharedMemory};

/// Packets from borrowed memory that leave together, to a peer with unacknowledged packets.
const BORROWED_TRAIN: usize = 16;

impl Reactor {
    /// Sends a message of one packet at once, if the link is reliable and has room now or soon, and
    /// no packet is queued before it. False if nothing was sent.
    #[inline(always)]
    pub fn send_now(&mut self, args: &SendArgs, data: &[u8]) -> bool {
        let sent = self.send_uncounted(args, data);
        if sent {
            self.count_sent();
        }
        sent
    }

    #[inline(always)]
    fn send_uncounted(&mut self, args: &SendArgs, data: &[u8]) -> bool {
        debug_assert!(!args.inject, "injected bytes may have to be kept");
        self.leave_if_copied();
        let Some(link) = self.link_of(args.peer) else { return false };
        let mut header = HeaderBuf::new();
        for may_wait in [true, false] {
            let engine = &mut self.receiver.engine;
            let Some(reserved) = engine.reserve(args, &mut header) else { return false };
            let frame = Frame { peer: args.peer, header: header.as_slice(), payload: data };
            if self.links[link].send(&[frame]) == 1 {
                reserved.commit(&mut self.receiver.engine, self.receiver.time.now, args);
                return true;
            }
            reserved.roll_back(&mut self.receiver.engine);
            // Queueing a message costs more, and makes later messages queue too.
            if !may_wait || !self.has_room_soon(link, args.peer) {
                break;
            }
        }
        false
    }

    /// Waits a short time for room in the ring of a peer. False if there is none.
    #[cold]
    fn has_room_soon(&mut self, link: usize, peer: PeerId) -> bool {
        self.links[link].memory().is_some_and(|memory| memory.room_soon(peer))
    }

    /// Returns the part of a peer's link that reaches the peer's memory.
    pub(super) fn memory_of(&mut self, peer: PeerId) -> Option<&mut dyn SharedMemory> {
        let link = self.link_of(peer)?;
        self.links[link].memory()
    }

    /// Injects a message: a copy of `data` leaves at once if possible, else later.
    #[inline]
    pub fn inject(&mut self, args: SendArgs, data: &[u8]) -> Result<(), Refused> {
        self.post_kept(args, data, Owner::Nobody, |ops| ops.copy_of(data))
    }

    /// Sends a packet from borrowed memory, which holds `data`: at once or, while other packets are
    /// in flight, in a train with later ones.
    pub fn send_borrowed(
        &mut self,
        to: PeerId,
        tag: u64,
        data: &[u8],
        memory: Memory,
    ) -> Result<(), Refused> {
        let args = SendArgs::active(to, tag, data.len());
        if !self.receiver.engine.peer_mut(to).has_unacked() {
            let mut memory = Some(memory);
            return self
                .post_kept(args, data, Owner::Program, |_| memory.take().unwrap_or_default());
        }
        let now = self.receiver.tick();
        let op = self.receiver.engine.send(now, SendArgs { addr: memory.addr(), ..args })?;
        self.receiver.ops.insert(op, Owner::Program, memory);
        if self.receiver.engine.peer(to).queued().is_multiple_of(BORROWED_TRAIN) {
            self.flush();
        }
        Ok(())
    }

    /// Sends a message whose bytes stay in `memory` until they are not needed any more.
    #[inline]
    fn post_kept(
        &mut self,
        args: SendArgs,
        data: &[u8],
        owner: Owner,
        mut memory: impl FnMut(&mut OpTable) -> Memory,
    ) -> Result<(), Refused> {
        let now = self.receiver.tick();
        let waits = self.is_coalesced(args.peer);
        if !waits && self.inject_now(now, &args, data, owner, &mut memory) {
            return Ok(());
        }
        let memory = memory(&mut self.receiver.ops);
        let op = self.receiver.engine.send(now, SendArgs { addr: memory.addr(), ..args })?;
        self.receiver.ops.insert(op, owner, memory);
        match waits {
            true => self.coalesce(args.peer),
            false => self.send_started(args.peer, data.len()),
        }
        Ok(())
    }

    /// Sends an injected message of one packet, if no packet is queued before it and the link has
    /// room.
    #[inline]
    fn inject_now(
        &mut self,
        now: Instant,
        args: &SendArgs,
        data: &[u8],
        owner: Owner,
        memory: &mut impl FnMut(&mut OpTable) -> Memory,
    ) -> bool {
        let mut header = HeaderBuf::new();
        let Some(reserved) = self.receiver.engine.reserve(args, &mut header) else { return false };
        let frame = Frame { peer: args.peer, header: header.as_slice(), payload: data };
        let len = frame.header.len() + data.len();
        let link = self.link_by(args.peer, false, len as u32);
        if link.is_some_and(|link| self.links[link].send(&[frame]) != 1) {
            reserved.roll_back(&mut self.receiver.engine);
            return false;
        }
        if let Some(op) = reserved.commit(&mut self.receiver.engine, now, args) {
            let memory = memory(&mut self.receiver.ops);
            self.receiver.ops.insert(op, owner, memory);
        }
        true
    }

    /// Sends all peers a BYE, since this endpoint ends.
    pub fn send_byes(&mut self) {
        for t in self.receiver.engine.close() {
            if let Some(link) = self.link_of(t.peer) {
                let frame = Frame { peer: t.peer, header: t.header.as_slice(), payload: &[] };
                self.links[link].send(&[frame]);
            }
        }
    }

    /// Writes to a peer's memory, if the link can.
    pub fn write_remote(&mut self, peer: PeerId, addr: u64, from: &[u8]) -> bool {
        self.leave_if_copied();
        self.memory_of(peer).is_some_and(|memory| memory.write_direct(peer, addr, from).is_ok())
    }

    /// Adds to a word of a peer's memory, if the link can.
    pub fn add_remote(&mut self, peer: PeerId, addr: u64, n: u64) -> Option<u64> {
        self.leave_if_copied();
        self.memory_of(peer)?.add_direct(peer, addr, n)
    }

    /// Shares memory that is registered under this key with a peer, which maps it, if the link can.
    pub fn share(&mut self, peer: PeerId, key: u64, block: &Block) -> bool {
        self.memory_of(peer).is_some_and(|memory| memory.share(peer, key, block))
    }

    /// Maps memory that a peer has shared.
    pub fn take_shared(&mut self, peer: PeerId) {
        self.memory_of(peer).into_iter().for_each(|memory| memory.take_shared(peer));
    }

    /// Forgets memory that a peer has shared under this key.
    pub fn forget_shared(&mut self, peer: PeerId, key: u64) {
        for memory in self.links.iter_mut().filter_map(|link| link.memory()) {
            memory.forget_shared(peer, key);
        }
    }
}

impl Reactor {
    /// Takes an operation back: when this returns, neither this endpoint nor a peer uses its memory
    /// any more. The operation runs to its end unseen.
    #[cold]
    pub fn take_back(&mut self, ticket: Ticket) {
        // A later operation may have the number of one that has ended.
        let is_read = self.receiver.ops.is_current(ticket) && self.take_back_op(ticket.op);
        self.receiver.ops.take_back(ticket, is_read);
    }

    /// Makes the engine and the peer forget the memory of an operation. True if it is read.
    pub fn take_back_op(&mut self, op: OpId) -> bool {
        let taken = self.receiver.engine.ops_mut().take_back(op);
        if let Some(peer) = taken.and_then(|taken| taken.known_to) {
            self.memory_of(peer).into_iter().for_each(|memory| memory.take_back_memory(peer));
        }
        taken.is_some_and(|taken| taken.is_read)
    }
}

impl Reactor {
    /// Ends the awaited receive: its memory is not written any more.
    #[inline]
    pub fn end_await(&mut self) {
        self.receiver.engine.matching_mut().end_await();
        if let (_, Some(ticket)) = self.receiver.awaited.end() {
            self.take_back(ticket);
        }
    }
}
