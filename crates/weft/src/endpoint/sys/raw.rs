//! The interface below futures: blocking calls on borrowed memory, and posted operations with a
//! completion queue for higher interfaces.

use super::vanishing::Vanishing;
use super::Memory;
use crate::endpoint::driver::Driver;
use crate::endpoint::ops::{AwaitedRecv, OpTable, Owner, Ticket};
use crate::endpoint::polling::CLOSE_ROUNDS;
use crate::endpoint::{Endpoint, Inner, Status};
use crate::memory::zeroed;
use weft_core::engine::types::{Claimed, Completion, Probed, RecvArgs, Refused, SendArgs};
use weft_core::engine::Rights;
use weft_core::matching::RecvSpec;
use weft_core::wire::HeaderBuf;
use weft_core::{Engine, Instant, OpError, OpId, PeerId};
use weft_link::shm::Block;
use weft_link::Frame;

/// Most copies of messages queued for a peer; beyond it a blocking send waits.
pub(crate) const INJECTED_MAX: usize = 256;

/// Packets from lent memory that leave together, to a peer with unacknowledged packets.
const LENT_TRAIN: usize = 16;

/// Rounds of progress in which a blocking receive polls for its message before it is posted.
const AWAIT_ROUNDS: u32 = 16;

/// Marks a message as awaited, until this is dropped: also if a waker or handler panics.
struct Awaiting<'a>(&'a mut Inner);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.driver.end_await();
    }
}

/// The result of polling for a message.
pub(super) enum PollResult {
    Came(Result<Status, OpError>),
    /// The message has an operation.
    Posted(Ticket),
    Nothing,
}

impl Driver {
    /// Sends a message of one packet at once, if the link is reliable and has room now or soon, and
    /// no packet is queued before it. False if nothing was sent.
    #[inline(always)]
    pub(crate) fn send_now(&mut self, args: &SendArgs, data: &[u8]) -> bool {
        debug_assert!(!args.inject, "injected bytes may have to be kept");
        self.leave_if_copied();
        let Some(link) = self.link_of(args.peer) else { return false };
        let mut header = HeaderBuf::new();
        for may_wait in [true, false] {
            let engine = &mut self.intake.engine;
            let Some(reserved) = engine.reserve(args, &mut header) else { return false };
            let frame = Frame { peer: args.peer, header: header.as_slice(), payload: data };
            if self.links[link].send(&[frame]) == 1 {
                reserved.commit(&mut self.intake.engine, self.intake.time.now, args);
                return true;
            }
            reserved.roll_back(&mut self.intake.engine);
            // Queueing a message costs more, and makes later messages queue too.
            if !may_wait || !self.links[link].room_soon(args.peer) {
                break;
            }
        }
        false
    }

    /// Injects a message: a copy of `data` leaves at once if possible, else later.
    #[inline]
    pub(crate) fn inject(&mut self, args: SendArgs, data: &[u8]) -> Result<(), Refused> {
        self.post_kept(args, data, Owner::Nobody, |ops| ops.copy_of(data))
    }

    /// Sends a packet from lent memory, which holds `data`: at once or, while other packets are in
    /// flight, in a train with later ones.
    pub(crate) fn lend(
        &mut self,
        to: PeerId,
        tag: u64,
        data: &[u8],
        memory: Memory,
    ) -> Result<(), Refused> {
        let args = SendArgs::active(to, tag, data.len());
        if !self.intake.engine.peer_mut(to).has_unacked() {
            let mut memory = Some(memory);
            return self
                .post_kept(args, data, Owner::Lender, |_| memory.take().unwrap_or_default());
        }
        let now = self.intake.tick();
        let op = self.intake.engine.send(now, SendArgs { addr: memory.addr(), ..args })?;
        self.intake.ops.insert(op, Owner::Lender, memory);
        if self.intake.engine.peer(to).queued().is_multiple_of(LENT_TRAIN) {
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
        let now = self.intake.tick();
        let waits = self.is_coalesced(args.peer);
        if !waits && self.inject_now(now, &args, data, owner, &mut memory) {
            return Ok(());
        }
        let memory = memory(&mut self.intake.ops);
        let op = self.intake.engine.send(now, SendArgs { addr: memory.addr(), ..args })?;
        self.intake.ops.insert(op, owner, memory);
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
        let Some(reserved) = self.intake.engine.reserve(args, &mut header) else { return false };
        let frame = Frame { peer: args.peer, header: header.as_slice(), payload: data };
        let len = frame.header.len() + data.len();
        let link = self.link_by(args.peer, false, len as u32);
        if link.is_some_and(|link| self.links[link].send(&[frame]) != 1) {
            reserved.roll_back(&mut self.intake.engine);
            return false;
        }
        if let Some(op) = reserved.commit(&mut self.intake.engine, now, args) {
            let memory = memory(&mut self.intake.ops);
            self.intake.ops.insert(op, owner, memory);
        }
        true
    }

    /// Sends all peers a BYE, since this endpoint ends.
    pub(in crate::endpoint) fn send_byes(&mut self) {
        for t in self.intake.engine.close() {
            if let Some(link) = self.link_of(t.peer) {
                let frame = Frame { peer: t.peer, header: t.header.as_slice(), payload: &[] };
                self.links[link].send(&[frame]);
            }
        }
    }
}

impl Driver {
    /// Writes to a peer's memory, if the link can.
    pub(crate) fn write_remote(&mut self, peer: PeerId, addr: u64, from: &[u8]) -> bool {
        self.leave_if_copied();
        let link = self.link_of(peer);
        link.is_some_and(|l| self.links[l].write_direct(peer, addr, from).is_ok())
    }
}

impl Driver {
    /// Adds to a word of a peer's memory, if the link can.
    pub(crate) fn add_remote(&mut self, peer: PeerId, addr: u64, n: u64) -> Option<u64> {
        self.leave_if_copied();
        let link = self.link_of(peer)?;
        self.links[link].add_direct(peer, addr, n)
    }

    /// Shares memory that is registered under this key with a peer, which maps it, if the link can.
    pub(crate) fn share(&mut self, peer: PeerId, key: u64, block: &Block) -> bool {
        let link = self.link_of(peer);
        link.is_some_and(|l| self.links[l].share(peer, key, block))
    }

    /// Maps memory that a peer has shared.
    pub(crate) fn take_shared(&mut self, peer: PeerId) {
        let link = self.link_of(peer);
        link.into_iter().for_each(|l| self.links[l].take_shared(peer));
    }

    /// Forgets memory that a peer has shared under this key.
    pub(crate) fn forget_shared(&mut self, peer: PeerId, key: u64) {
        for link in &mut self.links {
            link.forget_shared(peer, key);
        }
    }
}

impl Inner {
    /// Polls briefly for an active message. `None` if it did not come, or if another packet came
    /// that must be handled first.
    #[inline]
    pub(crate) fn await_active(
        &mut self,
        source: Option<PeerId>,
        tag: u64,
        buffer: &mut [u8],
    ) -> Option<Result<Status, OpError>> {
        // The sender sets the argument.
        let spec = RecvSpec { source, tag, ignore: !0 << 32 };
        let begun =
            self.driver.intake.engine.matching_mut().await_active(spec, buffer.len() as u64);
        match begun.then(|| self.poll_for(buffer)) {
            Some(PollResult::Came(result)) => Some(result),
            _ => None,
        }
    }

    /// Polls for the message that the engine awaits.
    #[inline]
    pub(super) fn poll_for(&mut self, buffer: &mut [u8]) -> PollResult {
        let awaiting = Awaiting(self);
        let inner = &mut *awaiting.0;
        // SAFETY: only rounds of progress in this call use it, and `awaiting` forgets it at every
        // end of the call.
        inner.driver.intake.awaited =
            AwaitedRecv::new(unsafe { Memory::raw(buffer.as_mut_ptr(), buffer.len()) });
        // With more ranks than cores the sender may need this core; and a rank that must not spin
        // does not.
        let spins = inner.patience.spins();
        let (rounds, polls) = if spins { (AWAIT_ROUNDS, CLOSE_ROUNDS) } else { (1, 1) };
        inner.driver.polling.before_sleep = inner.patience.sleeps_at_once();
        for round in 0..rounds {
            if round > 0 || inner.driver.is_round_due() {
                let did = inner.driver.progress(1);
                inner.count(did);
            }
            let ends = |inner: &Inner| {
                !inner.driver.intake.engine.matching().awaits()
                    || !inner.driver.intake.ports.is_idle()
            };
            if ends(inner) || inner.driver.poll_closely(polls, 1) && ends(inner) {
                break;
            }
        }
        match inner.driver.intake.awaited.end() {
            (Some(done), _) => {
                PollResult::Came(done.error.map_or(Ok(Status::from(done.status)), Err))
            }
            (None, Some(ticket)) => PollResult::Posted(ticket),
            (None, None) => PollResult::Nothing,
        }
    }
}

impl Endpoint {
    /// Posts a send on the completion queue. `None` if it is done already; no completion follows
    /// then. With `args.inject` the bytes are copied, and no completion follows either.
    ///
    /// # Safety
    /// Unless injected or done, `ptr..ptr+args.len` stays valid and unchanged until the completion
    /// says `released` (always, for operations on this queue).
    pub unsafe fn post_send(
        &self,
        ptr: *const u8,
        mut args: SendArgs,
    ) -> Result<Option<OpId>, Refused> {
        let inner = &mut *self.inner.borrow_mut();
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(ptr, args.len as usize) };
        if !args.sync && !args.delivered && !args.active {
            let bytes = memory.read(0, args.len as usize);
            if inner.send_now(&SendArgs { inject: false, ..args }, bytes) {
                return Ok(None);
            }
        }
        let d = &mut inner.driver;
        if args.inject {
            return d.inject(args, memory.read(0, args.len as usize)).map(|()| None);
        }
        args.addr = memory.addr();
        let now = d.intake.tick();
        let op = d.intake.engine.send(now, args)?;
        d.intake.ops.insert(op, Owner::Queue, memory);
        d.send_started(args.peer, args.len as usize);
        Ok(Some(op))
    }

    /// Sends a copy of `data`, which is free when this returns; no completion follows.
    ///
    /// # Errors
    /// `Busy` while many messages wait to leave: make progress and try again.
    #[inline]
    pub fn inject(
        &self,
        to: PeerId,
        tag: u64,
        data: &[u8],
        imm: Option<u32>,
        untagged: bool,
    ) -> Result<(), Refused> {
        let inner = &mut *self.inner.borrow_mut();
        let args = SendArgs { data: imm, untagged, ..SendArgs::new(to, tag, data.len() as u64) };
        if inner.send_now(&args, data) {
            return Ok(());
        }
        let d = &mut inner.driver;
        if d.intake.engine.peer(to).queued() >= INJECTED_MAX {
            return Err(Refused::Busy);
        }
        d.inject(SendArgs { inject: true, ..args }, data)
    }

    /// Starts an operation on the completion queue; `start` gets the address of its memory.
    #[inline]
    fn post(
        &self,
        memory: Memory,
        start: impl FnOnce(&mut Engine, Instant, u64) -> Result<OpId, Refused>,
    ) -> Result<OpId, Refused> {
        let d = &mut self.inner.borrow_mut().driver;
        let now = d.intake.tick();
        let op = start(&mut d.intake.engine, now, memory.addr())?;
        d.intake.ops.insert(op, Owner::Queue, memory);
        if d.intake.engine.output().any() {
            d.flush();
        }
        Ok(op)
    }

    /// Posts a put on the completion queue.
    ///
    /// # Safety
    /// `ptr..ptr+len` stays valid and unchanged until the completion.
    pub unsafe fn post_put(
        &self,
        ptr: *const u8,
        len: usize,
        to: PeerId,
        (key, offset): (u64, u64),
        context: u64,
    ) -> Result<OpId, Refused> {
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(ptr, len) };
        self.post(memory, |engine, now, _| {
            engine.memory().put(now, to, key, offset, len as u64, context)
        })
    }

    /// Posts a get on the completion queue.
    ///
    /// # Safety
    /// `ptr..ptr+len` stays valid and untouched until the completion.
    pub unsafe fn post_get(
        &self,
        ptr: *mut u8,
        len: usize,
        from: PeerId,
        (key, offset): (u64, u64),
        context: u64,
    ) -> Result<OpId, Refused> {
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(ptr, len) };
        self.post(memory, |engine, now, _| {
            engine.memory().get(now, from, key, offset, len as u64, context)
        })
    }

    /// Posts a receive on the completion queue.
    ///
    /// # Safety
    /// `ptr..ptr+args.len` stays valid and untouched until the completion.
    pub unsafe fn post_recv(&self, ptr: *mut u8, args: RecvArgs) -> Result<OpId, Refused> {
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(ptr, args.len as usize) };
        self.post(memory, |engine, now, addr| {
            engine.matching_mut().recv(now, RecvArgs { addr, ..args })
        })
    }

    /// Posts the receive of a claimed message on the completion queue.
    ///
    /// # Safety
    /// `ptr..ptr+len` stays valid and untouched until the completion.
    pub unsafe fn post_recv_claimed(
        &self,
        claimed: Claimed,
        ptr: *mut u8,
        args: RecvArgs,
    ) -> Result<OpId, Refused> {
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(ptr, args.len as usize) };
        self.post(memory, |engine, now, addr| {
            engine.matching_mut().recv_claimed(now, claimed, RecvArgs { addr, ..args })
        })
    }

    /// True if there is room for one more operation, so that no receive is refused as busy.
    pub fn has_room(&self) -> bool {
        self.inner.borrow().driver.intake.engine.ops().has_room()
    }

    /// Returns the number of peers that have failed since the start. A caller that waits for a peer
    /// without an operation checks that peer when this number changes.
    #[inline]
    pub fn failures(&self) -> u64 {
        self.inner.borrow().driver.intake.engine.stats().peers_failed
    }

    /// Looks for a message without a tag.
    #[inline]
    pub fn probe_untagged(&self, from: Option<PeerId>) -> Option<Probed> {
        self.inner.borrow().driver.intake.engine.matching().probe_untagged(from)
    }

    /// Takes the oldest message without a tag out of matching.
    pub fn claim_untagged(&self, from: Option<PeerId>) -> Option<(Claimed, Probed)> {
        self.inner.borrow_mut().driver.intake.engine.matching_mut().claim_untagged(from)
    }

    /// Returns the next completion of a posted operation.
    pub fn poll_completion(&self) -> Option<Completion> {
        self.inner.borrow_mut().driver.intake.outcome.completions.pop_front()
    }

    /// Cancels a posted receive that has not matched. Exactly one completion follows either way.
    pub fn cancel(&self, op: OpId) -> bool {
        let d = &mut self.inner.borrow_mut().driver;
        let cancelled = d.intake.engine.ops_mut().cancel(op);
        d.intake.tick();
        d.flush();
        cancelled
    }

    /// Cancels a receive that is awaited and has not matched. False if it has ended.
    pub(crate) fn cancel_awaited(&self, ticket: Ticket) -> bool {
        let current = self.inner.borrow().driver.intake.ops.is_current(ticket);
        current && self.cancel(ticket.op)
    }

    /// Takes a posted operation back: when this returns its memory is not used any more, and no
    /// completion of it follows. A message in transmission is sent on from a copy.
    pub fn take_back(&self, op: OpId) {
        let d = &mut self.inner.borrow_mut().driver;
        let is_read = d.take_back_op(op);
        if let Some(ticket) = d.intake.ops.ticket(op) {
            d.intake.ops.take_back(ticket, is_read);
        }
        d.intake.outcome.completions.retain(|completion| completion.op != op);
    }

    /// Registers `len` bytes of new zeroed memory for remote use, and returns its key. `None` if no
    /// key is left, or this machine does not have so much memory.
    pub fn register(&self, len: usize, rights: Rights) -> Option<u64> {
        let memory = zeroed(len)?;
        let d = &mut self.inner.borrow_mut().driver;
        let random = d.intake.random_for_key();
        let key = d.intake.engine.regions_mut().register(len as u64, rights, random)?;
        d.intake.regions.insert(key, Memory::Owned(memory));
        Some(key)
    }

    /// Lets peers use the caller's memory under a key of its choice. False: the key is taken.
    ///
    /// # Safety
    /// Until `unregister`, each part of `ptr..ptr+len` that a peer names stays valid. It is read
    /// and written while the caller is in a call of this endpoint.
    pub unsafe fn register_at(&self, key: u64, ptr: *mut u8, len: usize, rights: Rights) -> bool {
        // SAFETY: promised by the caller.
        unsafe { self.register_from(key, 0, ptr, len, rights) }
    }

    /// Lets peers write to the caller's memory under a key of its choice: puts only. If the caller
    /// unmaps some of it, or makes it read-only, puts to that are refused as
    /// [`OpError::Unmapped`]. False: the key is taken.
    ///
    /// # Safety
    /// Until `unregister` nothing else is mapped in the place of `ptr..ptr+len`. `call` returns
    /// another number than before, and never 0, after the memory may have been unmapped or made
    /// read-only. Where the system forbids `process_vm_writev(2)`, that never happens.
    pub unsafe fn register_vanishing(
        &self,
        key: u64,
        (ptr, len): (*mut u8, usize),
        call: fn() -> u64,
    ) -> bool {
        let rights = Rights { read: false, write: true };
        let core = &mut self.inner.borrow_mut().driver.intake;
        let taken = !core.engine.regions_mut().register_as(key, 0, len as u64, rights);
        if !taken {
            core.regions.insert(key, Memory::Vanishing(Vanishing::new(ptr, len, call)));
        }
        !taken
    }

    /// Lets peers use the caller's memory under a key of its choice; peers' offsets begin at
    /// `first`, and not at 0 as with `register_at`. False: the key is taken. With the region's
    /// address as `first`, peers name bytes by their addresses.
    ///
    /// # Safety
    /// The caller keeps the rules of `register_at`.
    pub unsafe fn register_from(
        &self,
        key: u64,
        first: u64,
        ptr: *mut u8,
        len: usize,
        rights: Rights,
    ) -> bool {
        let d = &mut self.inner.borrow_mut().driver;
        let taken = !d.intake.engine.regions_mut().register_as(key, first, len as u64, rights);
        if !taken {
            // SAFETY: promised by the caller.
            d.intake.regions.insert(key, unsafe { Memory::raw(ptr, len) });
        }
        !taken
    }

    /// Ends remote use of a region and returns its memory.
    pub fn unregister(&self, key: u64) -> Vec<u8> {
        let d = &mut self.inner.borrow_mut().driver;
        d.intake.engine.regions_mut().unregister(key);
        d.intake.regions.remove(&key).map(Memory::into_vec).unwrap_or_default()
    }

    /// Reads a registered region of this endpoint.
    pub fn with_region<R>(&self, key: u64, f: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let d = &mut self.inner.borrow_mut().driver;
        let memory = d.intake.regions.get_mut(&key)?;
        let len = memory.len();
        memory.write(0, len).map(f)
    }
}
