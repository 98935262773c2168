//! The interface below futures: blocking calls on borrowed memory, and posted operations with a
//! completion queue for interfaces built on top.

use super::Memory;
use crate::endpoint::driver::Driver;
use crate::endpoint::ops::{AwaitedRecv, OpTable, Owner};
use crate::endpoint::polling::CLOSE_ROUNDS;
use crate::endpoint::{Endpoint, Inner, Status};
use weft_core::engine::types::{Claimed, Completion, Probed, RecvArgs, Refused, SendArgs};
use weft_core::engine::Rights;
use weft_core::matching::RecvSpec;
use weft_core::wire::HeaderBuf;
use weft_core::{Engine, Instant, OpError, OpId, PeerId};
use weft_link::shm::Block;
use weft_link::Frame;

/// Copies of messages queued for a peer before a blocking send waits.
pub(crate) const INJECTED_MAX: usize = 256;

/// Packets from memory that is lent, to a peer that has others to acknowledge, that leave together.
const LENT_TRAIN: usize = 16;

/// Rounds of progress in which a blocking receive looks for its message before it is posted.
const AWAIT_ROUNDS: u32 = 16;

/// A message is awaited, until this is dropped: also when a waker or handler panics.
struct Awaiting<'a>(&'a mut Inner);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.driver.end_await();
    }
}

/// What became of a message that was looked for.
pub(super) enum Looked {
    Came(Result<Status, OpError>),
    /// It has an operation.
    Posted(OpId),
    Nothing,
}

impl Driver {
    /// Sends a message of one packet at once, if nothing stands in its way on a link that loses
    /// nothing, and the link has room now or in a moment. False: nothing was sent.
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
                self.intake.engine.commit(self.intake.time.now, args, reserved);
                return true;
            }
            self.intake.engine.roll_back(reserved);
            // A message that has to be queued costs more, and has those behind it queued.
            if !may_wait || !self.links[link].room_soon(args.peer) {
                break;
            }
        }
        false
    }

    /// Injects a message: a copy of `data` leaves at once if nothing stands in the way, else later.
    #[inline]
    pub(crate) fn inject(&mut self, args: SendArgs, data: &[u8]) -> Result<(), Refused> {
        self.post_kept(args, data, Owner::Nobody, |ops| ops.copy_of(data))
    }

    /// Sends a packet from memory that is lent, and holds `data`: at once, or while others are
    /// under way in a train with those that follow it.
    pub(crate) fn lend(
        &mut self,
        to: PeerId,
        tag: u64,
        data: &[u8],
        memory: Memory,
    ) -> Result<(), Refused> {
        let args = SendArgs::active(to, tag, data.len());
        if !self.intake.engine.is_underway(to) {
            let mut memory = Some(memory);
            return self
                .post_kept(args, data, Owner::Lender, |_| memory.take().unwrap_or_default());
        }
        let now = self.intake.tick();
        let op = self.intake.engine.send(now, SendArgs { addr: memory.addr(), ..args })?;
        self.intake.ops.insert(op, Owner::Lender, memory);
        if self.intake.engine.queued(to).is_multiple_of(LENT_TRAIN) {
            self.flush();
        }
        Ok(())
    }

    /// Sends a message whose bytes are kept in `memory` until nobody needs them.
    #[inline]
    fn post_kept(
        &mut self,
        args: SendArgs,
        data: &[u8],
        owner: Owner,
        mut memory: impl FnMut(&mut OpTable) -> Memory,
    ) -> Result<(), Refused> {
        let now = self.intake.tick();
        let waits = self.is_in_row(args.peer);
        if !waits && self.inject_now(now, &args, data, owner, &mut memory) {
            return Ok(());
        }
        let memory = memory(&mut self.intake.ops);
        let op = self.intake.engine.send(now, SendArgs { addr: memory.addr(), ..args })?;
        self.intake.ops.insert(op, owner, memory);
        match waits {
            true => self.wait_for_company(args.peer),
            false => self.send_started(args.peer, data.len()),
        }
        Ok(())
    }

    /// Sends an injected message of one packet, if nothing stands in its way and the link has room.
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
        if !link.is_none_or(|link| self.links[link].send(&[frame]) == 1) {
            self.intake.engine.roll_back(reserved);
            return false;
        }
        if let Some(op) = self.intake.engine.commit(now, args, reserved) {
            let memory = memory(&mut self.intake.ops);
            self.intake.ops.insert(op, owner, memory);
        }
        true
    }

    /// Tells all peers that this endpoint ends.
    pub(in crate::endpoint) fn say_bye(&mut self) {
        for t in self.intake.engine.close() {
            if let Some(link) = self.link_of(t.peer) {
                let frame = Frame { peer: t.peer, header: t.header.as_slice(), payload: &[] };
                self.links[link].send(&[frame]);
            }
        }
    }
}

impl Driver {
    /// Writes to a peer's memory, where the link can.
    pub(crate) fn write_remote(&mut self, peer: PeerId, addr: u64, from: &[u8]) -> bool {
        self.leave_if_copied();
        let link = self.link_of(peer);
        link.is_some_and(|l| self.links[l].write_direct(peer, addr, from).is_ok())
    }
}

impl Driver {
    /// Gives a peer memory to map that is registered here under this key, where the link can.
    pub(crate) fn share(&mut self, peer: PeerId, key: u64, block: &Block) -> bool {
        let link = self.link_of(peer);
        link.is_some_and(|l| self.links[l].share(peer, key, block))
    }

    /// Takes memory that a peer has given.
    pub(crate) fn take_shared(&mut self, peer: PeerId) {
        let link = self.link_of(peer);
        link.into_iter().for_each(|l| self.links[l].take_shared(peer));
    }

    /// Forgets memory that a peer has given under this key.
    pub(crate) fn forget_shared(&mut self, peer: PeerId, key: u64) {
        for link in &mut self.links {
            link.forget_shared(peer, key);
        }
    }
}

impl Inner {
    /// Looks for an active message for a moment. `None`: it did not come, or something else came
    /// that has to be dealt with first.
    #[inline]
    pub(crate) fn await_active(
        &mut self,
        source: Option<PeerId>,
        tag: u64,
        buffer: &mut [u8],
    ) -> Option<Result<Status, OpError>> {
        // The argument is the sender's.
        let spec = RecvSpec { source, tag, ignore: !0 << 32 };
        let begun = self.driver.intake.engine.await_active(spec, buffer.len() as u64);
        match begun.then(|| self.look_for(buffer)) {
            Some(Looked::Came(result)) => Some(result),
            _ => None,
        }
    }

    /// Looks for what the engine awaits.
    #[inline]
    pub(super) fn look_for(&mut self, buffer: &mut [u8]) -> Looked {
        let awaiting = Awaiting(self);
        let inner = &mut *awaiting.0;
        // SAFETY: nothing but rounds of progress here touches it, and `awaiting` forgets it however
        // this ends.
        inner.driver.intake.awaited =
            AwaitedRecv::new(unsafe { Memory::raw(buffer.as_mut_ptr(), buffer.len()) });
        // With more ranks than cores another one may have the message; and who does not want to
        // spin does not.
        let spins = inner.hand_over.is_zero() && !inner.spin.is_zero();
        let (rounds, looks) = if spins { (AWAIT_ROUNDS, CLOSE_ROUNDS) } else { (1, 1) };
        for round in 0..rounds {
            if round > 0 || inner.driver.is_round_due() {
                let did = inner.driver.progress(1);
                inner.count(did);
            }
            let ends = |inner: &Inner| {
                !inner.driver.intake.engine.awaits() || !inner.driver.intake.ports.is_idle()
            };
            if ends(inner) || inner.driver.look_closely(looks, 1) && ends(inner) {
                break;
            }
        }
        let awaited = std::mem::take(&mut inner.driver.intake.awaited);
        match (awaited.done, awaited.posted) {
            (Some(done), _) => Looked::Came(done.error.map_or(Ok(Status::from(done.status)), Err)),
            (None, Some(op)) => Looked::Posted(op),
            (None, None) => Looked::Nothing,
        }
    }
}

impl Endpoint {
    /// Posts a send on the completion queue. `None`: it is done already, and no completion follows.
    /// With `args.inject` the bytes are copied and no completion follows either.
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

    /// Sends a copy of `data`: it is free when this returns, and nothing completes.
    ///
    /// # Errors
    /// `Busy` when many messages wait to leave: make progress and try again.
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
        if d.intake.engine.queued(to) >= INJECTED_MAX {
            return Err(Refused::Busy);
        }
        d.inject(SendArgs { inject: true, ..args }, data)
    }

    /// Starts an operation on the completion queue; `start` is given the address of its memory.
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
        if d.intake.engine.has_output() {
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
        self.post(memory, |engine, now, _| engine.put(now, to, key, offset, len as u64, context))
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
        self.post(memory, |engine, now, _| engine.get(now, from, key, offset, len as u64, context))
    }

    /// Posts a receive on the completion queue.
    ///
    /// # Safety
    /// `ptr..ptr+args.len` stays valid and untouched until the completion.
    pub unsafe fn post_recv(&self, ptr: *mut u8, args: RecvArgs) -> Result<OpId, Refused> {
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(ptr, args.len as usize) };
        self.post(memory, |engine, now, addr| engine.recv(now, RecvArgs { addr, ..args }))
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
            engine.recv_claimed(now, claimed, RecvArgs { addr, ..args })
        })
    }

    /// Whether there is room for an operation more: no receive is refused as busy.
    pub fn has_room(&self) -> bool {
        self.inner.borrow().driver.intake.engine.has_room()
    }

    /// Peers that have failed since the start: who waits for one without an operation looks at them
    /// when this changes.
    #[inline]
    pub fn failures(&self) -> u64 {
        self.inner.borrow().driver.intake.engine.stats().peers_failed
    }

    /// Looks for a message without a tag.
    #[inline]
    pub fn probe_untagged(&self, from: Option<PeerId>) -> Option<Probed> {
        self.inner.borrow().driver.intake.engine.probe_untagged(from)
    }

    /// Takes the oldest message without a tag out of matching.
    pub fn claim_untagged(&self, from: Option<PeerId>) -> Option<(Claimed, Probed)> {
        self.inner.borrow_mut().driver.intake.engine.claim_untagged(from)
    }

    /// Next completion of a posted operation.
    pub fn poll_completion(&self) -> Option<Completion> {
        self.inner.borrow_mut().driver.intake.outcome.completions.pop_front()
    }

    /// Cancels a posted receive that has not matched. Exactly one completion follows either way.
    pub fn cancel(&self, op: OpId) -> bool {
        let d = &mut self.inner.borrow_mut().driver;
        let cancelled = d.intake.engine.cancel(op);
        d.intake.tick();
        d.flush();
        cancelled
    }

    /// Takes a posted operation back: when this returns nobody touches its memory any more, and no
    /// completion of it follows. A message that was being sent is sent from a copy.
    pub fn take_back(&self, op: OpId) {
        let d = &mut self.inner.borrow_mut().driver;
        d.take_back(op);
        d.intake.outcome.completions.retain(|completion| completion.op != op);
    }

    /// Registers `len` bytes of new memory, zeroed, for remote use; returns its key.
    pub fn register(&self, len: usize, rights: Rights) -> Option<u64> {
        let d = &mut self.inner.borrow_mut().driver;
        let random = weft_link::random_u64() as u32;
        let key = d.intake.engine.register(len as u64, rights, random)?;
        d.intake.regions.insert(key, Memory::Owned(vec![0; len]));
        Some(key)
    }

    /// Lets peers use the caller's memory under a key of its choice. False: the key is taken.
    ///
    /// # Safety
    /// Until `unregister`, whatever part of `ptr..ptr+len` a peer names stays valid, and is read
    /// and written while the caller is in a call of this endpoint.
    pub unsafe fn register_at(&self, key: u64, ptr: *mut u8, len: usize, rights: Rights) -> bool {
        // SAFETY: promised by the caller.
        unsafe { self.register_from(key, 0, ptr, len, rights) }
    }

    /// As `register_at`; peers count the bytes of the region from `first`, and not from 0. With its
    /// address for `first` they name bytes by their addresses.
    ///
    /// # Safety
    /// As for `register_at`.
    pub unsafe fn register_from(
        &self,
        key: u64,
        first: u64,
        ptr: *mut u8,
        len: usize,
        rights: Rights,
    ) -> bool {
        let d = &mut self.inner.borrow_mut().driver;
        let taken = !d.intake.engine.register_as(key, first, len as u64, rights);
        if !taken {
            // SAFETY: promised by the caller.
            d.intake.regions.insert(key, unsafe { Memory::raw(ptr, len) });
        }
        !taken
    }

    /// Ends remote use of a region and returns its memory.
    pub fn unregister(&self, key: u64) -> Vec<u8> {
        let d = &mut self.inner.borrow_mut().driver;
        d.intake.engine.unregister(key);
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
