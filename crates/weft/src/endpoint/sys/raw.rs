//! The interface below futures: posted operations with a completion queue, and registered memory,
//! for higher interfaces.

use crate::endpoint::Endpoint;
use crate::memory::zeroed;
use crate::reactor::ops::{Owner, Ticket};
use crate::reactor::sys::vanishing::Vanishing;
use crate::reactor::sys::Memory;
use crate::reactor::INJECTED_MAX;
use weft_core::engine::types::{Claimed, Completion, Probed, RecvArgs, Refused, SendArgs};
use weft_core::engine::Rights;
use weft_core::{Engine, Instant, OpId, PeerId};

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
        let reactor = &mut *self.reactor.borrow_mut();
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(ptr, args.len as usize) };
        if !args.sync && !args.delivered && !args.active {
            let bytes = memory.read(0, args.len as usize);
            if reactor.send_now(&SendArgs { inject: false, ..args }, bytes) {
                return Ok(None);
            }
        }
        if args.inject {
            return reactor.inject(args, memory.read(0, args.len as usize)).map(|()| None);
        }
        args.addr = memory.addr();
        let now = reactor.receiver.tick();
        let op = reactor.receiver.engine.send(now, args)?;
        reactor.receiver.ops.insert(op, Owner::Queue, memory);
        reactor.send_started(args.peer, args.len as usize);
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
        let reactor = &mut *self.reactor.borrow_mut();
        let args = SendArgs { data: imm, untagged, ..SendArgs::new(to, tag, data.len() as u64) };
        if reactor.send_now(&args, data) {
            return Ok(());
        }
        if reactor.receiver.engine.peer(to).queued() >= INJECTED_MAX {
            return Err(Refused::Busy);
        }
        reactor.inject(SendArgs { inject: true, ..args }, data)
    }

    /// Starts an operation on the completion queue; `start` gets the address of its memory.
    #[inline]
    fn post(
        &self,
        memory: Memory,
        start: impl FnOnce(&mut Engine, Instant, u64) -> Result<OpId, Refused>,
    ) -> Result<OpId, Refused> {
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.tick();
        let op = start(&mut reactor.receiver.engine, now, memory.addr())?;
        reactor.receiver.ops.insert(op, Owner::Queue, memory);
        if reactor.receiver.engine.output().any() {
            reactor.flush();
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
        self.reactor.engine().ops().has_room()
    }

    /// Returns the number of peers that have failed since the start. A caller that waits for a peer
    /// without an operation checks that peer when this number changes.
    #[inline]
    pub fn failures(&self) -> u64 {
        self.reactor.engine().stats().peers_failed
    }

    /// Looks for a message without a tag.
    #[inline]
    pub fn probe_untagged(&self, from: Option<PeerId>) -> Option<Probed> {
        self.reactor.engine().matching().probe_untagged(from)
    }

    /// Takes the oldest message without a tag out of matching.
    pub fn claim_untagged(&self, from: Option<PeerId>) -> Option<(Claimed, Probed)> {
        self.reactor.engine_mut().matching_mut().claim_untagged(from)
    }

    /// Returns the next completion of a posted operation.
    pub fn poll_completion(&self) -> Option<Completion> {
        self.reactor.borrow_mut().receiver.outcome.completions.pop_front()
    }

    /// Cancels a posted receive that has not matched. Exactly one completion follows either way.
    pub fn cancel(&self, op: OpId) -> bool {
        let reactor = &mut *self.reactor.borrow_mut();
        let cancelled = reactor.receiver.engine.ops_mut().cancel(op);
        reactor.receiver.tick();
        reactor.flush();
        cancelled
    }

    /// Cancels a receive that is awaited and has not matched. False if it has ended.
    pub(crate) fn cancel_awaited(&self, ticket: Ticket) -> bool {
        let current = self.reactor.borrow().receiver.ops.is_current(ticket);
        current && self.cancel(ticket.op)
    }

    /// Takes a posted operation back: when this returns its memory is not used any more, and no
    /// completion of it follows. A message in transmission is sent on from a copy.
    pub fn take_back(&self, op: OpId) {
        let reactor = &mut *self.reactor.borrow_mut();
        let is_read = reactor.take_back_op(op);
        if let Some(ticket) = reactor.receiver.ops.ticket(op) {
            reactor.receiver.ops.take_back(ticket, is_read);
        }
        reactor.receiver.outcome.completions.retain(|completion| completion.op != op);
    }

    /// Registers `len` bytes of new zeroed memory for remote use, and returns its key. `None` if no
    /// key is left, or this machine does not have so much memory.
    pub fn register(&self, len: usize, rights: Rights) -> Option<u64> {
        let memory = zeroed(len)?;
        let reactor = &mut *self.reactor.borrow_mut();
        let random = reactor.receiver.random_for_key();
        let key = reactor.receiver.engine.regions_mut().register(len as u64, rights, random)?;
        reactor.receiver.regions.insert(key, Memory::Owned(memory));
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
    /// [`OpError::Unmapped`](crate::OpError::Unmapped). False: the key is taken.
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
        let receiver = &mut self.reactor.borrow_mut().receiver;
        let taken = !receiver.engine.regions_mut().register_as(key, 0, len as u64, rights);
        if !taken {
            receiver.regions.insert(key, Memory::Vanishing(Vanishing::new(ptr, len, call)));
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
        let reactor = &mut *self.reactor.borrow_mut();
        let taken =
            !reactor.receiver.engine.regions_mut().register_as(key, first, len as u64, rights);
        if !taken {
            // SAFETY: promised by the caller.
            reactor.receiver.regions.insert(key, unsafe { Memory::raw(ptr, len) });
        }
        !taken
    }

    /// Ends remote use of a region and returns its memory.
    pub fn unregister(&self, key: u64) -> Vec<u8> {
        let reactor = &mut *self.reactor.borrow_mut();
        reactor.receiver.engine.regions_mut().unregister(key);
        reactor.receiver.regions.remove(&key).map(Memory::into_vec).unwrap_or_default()
    }

    /// Reads a registered region of this endpoint.
    pub fn with_region<R>(&self, key: u64, f: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let reactor = &mut *self.reactor.borrow_mut();
        let memory = reactor.receiver.regions.get_mut(&key)?;
        let len = memory.len();
        memory.write(0, len).map(f)
    }
}
