//! Operations posted on the completion queue, below futures, for higher interfaces.

use crate::endpoint::Endpoint;
use crate::reactor::ops::{Owner, Ticket};
use crate::reactor::sys::Memory;
use crate::reactor::{Handle, INJECTED_MAX};
use weft_core::engine::types::{Claimed, Completion, Probed, RecvArgs, Refused, SendArgs};
use weft_core::{Engine, Instant, OpId, PeerId};

/// Operations posted on the endpoint's completion queue, as [`Endpoint::posted`] gives them: the
/// caller keeps their memory, and takes their completions out by [`poll`](Self::poll).
#[derive(Clone, Copy)]
pub struct Posted<'a> {
    pub(super) reactor: &'a Handle,
}

impl Endpoint {
    /// Returns the operations posted on the completion queue.
    #[inline]
    pub fn posted(&self) -> Posted<'_> {
        Posted { reactor: &self.reactor }
    }
}

impl Posted<'_> {
    /// Posts a send on the completion queue. `None` if it is done already; no completion follows
    /// then. With `args.inject` the bytes are copied, and no completion follows either.
    ///
    /// # Safety
    /// Unless injected or done, `ptr..ptr+args.len` stays valid and unchanged until the completion
    /// says `released` (always, for operations on this queue).
    pub unsafe fn send(self, ptr: *const u8, mut args: SendArgs) -> Result<Option<OpId>, Refused> {
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
        self,
        to: PeerId,
        tag: u64,
        data: &[u8],
        imm: Option<u64>,
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
        self,
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
    pub unsafe fn put(
        self,
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
    pub unsafe fn get(
        self,
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
    pub unsafe fn recv(self, ptr: *mut u8, args: RecvArgs) -> Result<OpId, Refused> {
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
    pub unsafe fn recv_claimed(
        self,
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
    pub fn has_room(self) -> bool {
        self.reactor.engine().ops().has_room()
    }

    /// Takes the oldest matching message out of matching; receive it with `recv_claimed`. Repeated
    /// claims count as a wait, as with [`probe`](Endpoint::probe).
    pub fn claim(self, from: Option<PeerId>, tag: u64, ignore: u64) -> Option<(Claimed, Probed)> {
        self.reactor.borrow_mut().claim(from, tag, ignore)
    }

    /// Looks for a message without a tag.
    #[inline]
    pub fn probe_untagged(self, from: Option<PeerId>) -> Option<Probed> {
        self.reactor.engine().matching().probe_untagged(from)
    }

    /// Takes the oldest message without a tag out of matching.
    pub fn claim_untagged(self, from: Option<PeerId>) -> Option<(Claimed, Probed)> {
        self.reactor.engine_mut().matching_mut().claim_untagged(from)
    }

    /// Returns the next completion of a posted operation.
    pub fn poll(self) -> Option<Completion> {
        self.reactor.borrow_mut().receiver.outcome.completions.pop_front()
    }

    /// Cancels a posted receive that has not matched. Exactly one completion follows either way.
    pub fn cancel(self, op: OpId) -> bool {
        let reactor = &mut *self.reactor.borrow_mut();
        let cancelled = reactor.receiver.engine.ops_mut().cancel(op);
        reactor.receiver.tick();
        reactor.flush();
        cancelled
    }

    /// Cancels a receive that is awaited and has not matched. False if it has ended.
    pub(crate) fn cancel_awaited(self, ticket: Ticket) -> bool {
        let current = self.reactor.borrow().receiver.ops.is_current(ticket);
        current && self.cancel(ticket.op)
    }

    /// Takes a posted operation back: when this returns its memory is not used any more, and no
    /// completion of it follows. A message in transmission is sent on from a copy.
    pub fn take_back(self, op: OpId) {
        let reactor = &mut *self.reactor.borrow_mut();
        let is_read = reactor.take_back_op(op);
        if let Some(ticket) = reactor.receiver.ops.ticket(op) {
            reactor.receiver.ops.take_back(ticket, is_read);
        }
        reactor.receiver.outcome.completions.retain(|completion| completion.op != op);
    }
}
