//! Operations on memory borrowed from a caller for as long as it waits.
//!
//! Borrowed memory may become invalid when the call ends, also by a panic, since handlers run while
//! it waits. So each operation has a guard ([`Starting`], then [`Borrowed`]) that only code of this
//! module holds, and that takes the operation back unless its result was collected: a send goes on
//! from a copy, received bytes are dropped, and a peer that knows the address of the memory loses
//! access before the guard is gone.

use crate::endpoint::{recv_args, Endpoint};
use crate::reactor::ops::{Owner, Ticket};
use crate::reactor::sys::awaited::{result_of, PollResult};
use crate::reactor::sys::Memory;
use crate::reactor::{error_of, Awaits, Reactor, Status, INJECTED_MAX};
use weft_core::engine::types::{AtomicCode, Refused, SendArgs};
use weft_core::matching::RecvSpec;
use weft_core::{Engine, Instant, OpError, OpId, PeerId};

/// The result of an operation that has ended, whose memory is not used any more. Only
/// [`Endpoint::collect`] makes it.
pub(crate) struct Ended {
    ticket: Ticket,
    result: Result<Status, OpError>,
}

/// An operation that has just been started, while the code after its start may still unwind.
pub(super) struct Starting<'a> {
    pub reactor: &'a mut Reactor,
    ticket: Ticket,
}

impl<'a> Starting<'a> {
    /// Records the memory of an operation that the engine has started.
    #[inline]
    pub fn new(reactor: &'a mut Reactor, op: OpId, memory: Memory) -> Starting<'a> {
        let ticket = reactor.receiver.ops.insert(op, Owner::Waiter, memory);
        Starting { reactor, ticket }
    }

    /// Returns the operation, which the caller must take back from now on.
    #[inline]
    pub fn pass(self) -> Ticket {
        let ticket = self.ticket;
        std::mem::forget(self);
        ticket
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.reactor.take_back(self.ticket);
    }
}

/// An awaited operation. Dropping this before the result was collected takes the operation back.
struct Borrowed<'a, W: Blocking> {
    at: &'a W,
    ticket: Ticket,
}

impl<W: Blocking> Borrowed<'_, W> {
    /// Waits for the result.
    #[inline]
    fn end(self) -> Result<Status, OpError> {
        let ended = self.at.wait_op(self.ticket);
        if ended.ticket == self.ticket {
            std::mem::forget(self);
        }
        ended.result
    }
}

impl<W: Blocking> Drop for Borrowed<'_, W> {
    fn drop(&mut self) {
        let ticket = self.ticket;
        self.at.reach(|endpoint| endpoint.reactor.borrow_mut().take_back(ticket));
    }
}

/// Calls that return when their operation has ended, with memory borrowed meanwhile.
pub(crate) trait Blocking: Sized {
    /// Calls `f` with the endpoint.
    fn reach<R>(&self, f: impl FnOnce(&Endpoint) -> R) -> R;

    /// Makes progress until the operation has ended.
    fn wait_op(&self, ticket: Ticket) -> Ended;

    /// Sends a message; returns when `data` is free.
    #[inline]
    fn send_from(&self, to: PeerId, tag: u64, data: &[u8]) -> Result<(), OpError> {
        let begun = self.reach(|endpoint| {
            // SAFETY: `Borrowed` ends with this call, and `data` lives longer.
            let begun = unsafe { endpoint.begin_send(to, tag, data) };
            if matches!(begun, Ok(None)) {
                endpoint.waiting().attend();
            }
            begun
        });
        match begun? {
            Some(ticket) => Borrowed { at: self, ticket }.end().map(|_| ()),
            None => Ok(()),
        }
    }

    /// Receives a message into `buffer`. `note` is asked before the operation starts, and gets the
    /// operation before another thread can use the endpoint.
    #[inline]
    fn recv_into(
        &self,
        spec: RecvSpec,
        buffer: &mut [u8],
        note: impl Fn(Option<Ticket>) -> Result<(), OpError>,
    ) -> Result<Status, OpError> {
        let ticket = self.reach(|endpoint| {
            note(None)?;
            // SAFETY: `Borrowed` ends with this call, and `buffer` lives longer.
            let ticket = unsafe { endpoint.begin_recv(spec, buffer) }?;
            let borrowed = Borrowed { at: endpoint, ticket };
            note(Some(ticket))?;
            std::mem::forget(borrowed);
            Ok::<_, OpError>(ticket)
        })?;
        Borrowed { at: self, ticket }.end()
    }

    /// Writes `data` to memory of a peer; returns when it is there.
    fn put_from(&self, to: PeerId, at: (u64, u64), data: &[u8]) -> Result<(), OpError> {
        // SAFETY: `Borrowed` ends with this call, and `data` lives longer.
        let ticket = self.reach(|endpoint| unsafe { endpoint.begin_put(to, at, data) })?;
        Borrowed { at: self, ticket }.end().map(|_| ())
    }

    /// Reads memory of a peer into `buffer`; returns when it is there.
    fn get_into(&self, from: PeerId, at: (u64, u64), buffer: &mut [u8]) -> Result<(), OpError> {
        // SAFETY: `Borrowed` ends with this call, and `buffer` lives longer.
        let ticket = self.reach(|endpoint| unsafe { endpoint.begin_get(from, at, buffer) })?;
        Borrowed { at: self, ticket }.end().map(|_| ())
    }

    /// Does an atomic operation on a word of a peer; gives the old value.
    fn atomic_at(
        &self,
        peer: PeerId,
        (key, offset): (u64, u64),
        code: AtomicCode,
        operands: (u64, u64),
    ) -> Result<u64, OpError> {
        let ticket = self.reach(|endpoint| {
            endpoint.begin(Memory::None, |engine, now| {
                engine.memory().atomic(now, peer, key, offset, code, operands, 0)
            })
        })?;
        Borrowed { at: self, ticket }.end().map(|status| status.value)
    }
}

impl Blocking for Endpoint {
    #[inline]
    fn reach<R>(&self, f: impl FnOnce(&Endpoint) -> R) -> R {
        f(self)
    }

    #[inline]
    fn wait_op(&self, ticket: Ticket) -> Ended {
        if let Some(ended) = self.collect(ticket) {
            self.waiting().attend();
            return ended;
        }
        loop {
            self.reactor.wait_by(None, 1, None);
            if let Some(ended) = self.collect(ticket) {
                return ended;
            }
        }
    }
}

impl Endpoint {
    /// Sends a message and returns when the buffer is free: at once up to `inject_max`.
    #[inline]
    pub fn send_blocking(&self, to: PeerId, tag: u64, data: &[u8]) -> Result<(), OpError> {
        self.send_from(to, tag, data)
    }

    /// Receives a message into `buffer` and returns when it is there. `from: None` accepts any
    /// source, also peers that connect later: only such a wait has no bound.
    #[inline]
    pub fn recv_blocking(
        &self,
        from: Option<PeerId>,
        tag: u64,
        ignore: u64,
        buffer: &mut [u8],
    ) -> Result<Status, OpError> {
        let spec = RecvSpec { source: from, tag, ignore };
        match self.await_message(spec, buffer) {
            PollResult::Came(done) => result_of(done),
            PollResult::Posted(ticket) => Borrowed { at: self, ticket }.end(),
            PollResult::Nothing => self.recv_into(spec, buffer, |_| Ok(())),
        }
    }

    /// Puts parts of `data`, whose first byte belongs at the given offset; returns when they are
    /// there.
    pub(crate) fn put_parts(
        &self,
        to: PeerId,
        key: u64,
        offset: u64,
        data: &[u8],
        parts: &[std::ops::Range<usize>],
    ) -> Result<(), OpError> {
        let mut result = Ok(());
        let mut all = Vec::with_capacity(parts.len());
        for part in parts {
            let at = (key, offset + part.start as u64);
            // SAFETY: each `Borrowed` ends with this call, and `data` does not before that.
            match unsafe { self.begin_put(to, at, &data[part.clone()]) } {
                Ok(ticket) => all.push(Borrowed { at: self, ticket }),
                Err(error) => result = Err(error),
            }
        }
        for borrowed in all {
            result = borrowed.end().map(|_| ()).and(result);
        }
        result
    }

    /// Collects the result of an awaited operation, once.
    #[inline]
    pub(crate) fn collect(&self, ticket: Ticket) -> Option<Ended> {
        let (done, _) = self.reactor.borrow_mut().receiver.ops.take_done(ticket)?;
        Some(Ended { ticket, result: done.result().map(Status::from) })
    }

    /// Polls briefly for the message, without an operation until it needs one.
    #[inline]
    pub(super) fn await_message(&self, spec: RecvSpec, buffer: &mut [u8]) -> PollResult {
        let reactor = &mut *self.reactor.borrow_mut();
        let (len, addr) = (buffer.len() as u64, buffer.as_mut_ptr() as u64);
        match reactor.receiver.engine.matching_mut().await_message(spec, len, addr) {
            true => reactor.poll_for(buffer),
            false => PollResult::Nothing,
        }
    }

    /// Starts a put.
    ///
    /// # Safety
    /// `data` stays valid and unchanged until the operation was collected or taken back.
    unsafe fn begin_put(
        &self,
        to: PeerId,
        (key, offset): (u64, u64),
        data: &[u8],
    ) -> Result<Ticket, OpError> {
        let len = data.len() as u64;
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(data.as_ptr(), data.len()) };
        self.begin(memory, |engine, now| engine.memory().put(now, to, key, offset, len, 0))
    }

    /// Starts a get.
    ///
    /// # Safety
    /// `buffer` stays valid and untouched until the operation was collected or taken back.
    unsafe fn begin_get(
        &self,
        from: PeerId,
        (key, offset): (u64, u64),
        buffer: &mut [u8],
    ) -> Result<Ticket, OpError> {
        let len = buffer.len() as u64;
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(buffer.as_mut_ptr(), buffer.len()) };
        self.begin(memory, |engine, now| engine.memory().get(now, from, key, offset, len, 0))
    }

    /// Starts an operation that will be collected.
    fn begin(
        &self,
        memory: Memory,
        start: impl FnOnce(&mut Engine, Instant) -> Result<OpId, Refused>,
    ) -> Result<Ticket, OpError> {
        let reactor = &mut *self.reactor.borrow_mut();
        let now = reactor.receiver.tick();
        let op = start(&mut reactor.receiver.engine, now).map_err(error_of)?;
        let begun = Starting::new(reactor, op, memory);
        begun.reactor.flush();
        Ok(begun.pass())
    }

    /// Starts a send. `None`: `data` is free already.
    ///
    /// # Safety
    /// `data` stays valid and unchanged until the operation was collected or taken back.
    #[inline]
    unsafe fn begin_send(
        &self,
        to: PeerId,
        tag: u64,
        data: &[u8],
    ) -> Result<Option<Ticket>, OpError> {
        let args = SendArgs::new(to, tag, data.len() as u64);
        if self.reactor.borrow_mut().send_now(&args, data) {
            return Ok(None);
        }
        while self.peer(to).queued() >= INJECTED_MAX {
            // Backpressure: earlier messages have to leave first.
            self.waiting().wait_for(Awaits::Room(Some(to)));
            self.reactor.borrow_mut().keep_coalescing(to);
        }
        let reactor = &mut *self.reactor.borrow_mut();
        let inject = data.len() <= reactor.receiver.engine.peer(to).inject_max();
        let args = SendArgs { inject, ..args };
        if args.inject {
            return reactor.inject(args, data).map(|()| None).map_err(error_of);
        }
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(data.as_ptr(), data.len()) };
        let now = reactor.receiver.tick();
        let args = SendArgs { addr: memory.addr(), ..args };
        let op = reactor.receiver.engine.send(now, args).map_err(error_of)?;
        let begun = Starting::new(reactor, op, memory);
        begun.reactor.send_started(to, data.len());
        Ok(Some(begun.pass()))
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// `buffer` stays valid and untouched until the operation was collected or taken back.
    #[inline]
    unsafe fn begin_recv(&self, spec: RecvSpec, buffer: &mut [u8]) -> Result<Ticket, OpError> {
        let reactor = &mut *self.reactor.borrow_mut();
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(buffer.as_mut_ptr(), buffer.len()) };
        let args = recv_args(spec, &memory);
        let op = reactor
            .receiver
            .engine
            .matching_mut()
            .recv(reactor.receiver.time.now, args)
            .map_err(error_of)?;
        let begun = Starting::new(reactor, op, memory);
        if begun.reactor.receiver.engine.output().any() {
            begun.reactor.receiver.tick();
            begun.reactor.flush();
        }
        Ok(begun.pass())
    }
}
