//! Messages from and into memory whose owner awaits their end in a future: like blocking calls,
//! with a guard each that takes the operation back if its result is not collected.

use super::borrowed::Starting;
use crate::endpoint::{recv_args, Endpoint, Status, COPIED_MAX};
use crate::reactor::ops::Ticket;
use crate::reactor::sys::awaited::PollResult;
use crate::reactor::sys::Memory;
use crate::reactor::{error_of, Reactor};
use std::task::{Context, Poll};
use weft_core::engine::types::{Refused, SendArgs};
use weft_core::matching::RecvSpec;
use weft_core::{OpError, OpId};

enum State {
    Running(Ticket),
    /// Refused, or done at once.
    Ended(Option<OpError>, Status),
    Taken,
}

/// An operation on memory that its owner keeps. Dropped before its end, it is taken back: neither
/// this endpoint nor a peer uses the memory any more.
pub(crate) struct Placed<'a> {
    endpoint: &'a Endpoint,
    state: State,
}

impl Endpoint {
    /// Sends a message; `args` has its peer, match bits and completion data.
    ///
    /// # Safety
    /// `ptr..ptr + args.len` stays valid and unchanged until the returned operation was dropped,
    /// which happens.
    pub(crate) unsafe fn send_placed(&self, args: SendArgs, ptr: *const u8) -> Placed<'_> {
        let reactor = &mut *self.reactor.borrow_mut();
        let len = args.len as usize;
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(ptr, len) };
        let status = Status { source: Some(args.peer), tag: args.tag, len, ..Status::default() };
        if reactor.send_now(&args, memory.read(0, len)) {
            return self.placed(State::Ended(None, status));
        }
        let peer = reactor.receiver.engine.peer(args.peer);
        if !args.sync && len <= peer.inject_max() && peer.queued() * len < COPIED_MAX {
            let args = SendArgs { inject: true, ..args };
            let sent = reactor.inject(args, memory.read(0, len));
            return self.placed(State::Ended(sent.err().map(error_of), status));
        }
        let now = reactor.receiver.tick();
        let started = reactor.receiver.engine.send(now, SendArgs { addr: memory.addr(), ..args });
        self.begun(reactor, started, memory)
    }

    /// Receives a message of at most `len` bytes.
    ///
    /// # Safety
    /// `ptr..ptr + len` stays valid and untouched until the returned operation was dropped, which
    /// happens.
    pub(crate) unsafe fn recv_placed(
        &self,
        spec: RecvSpec,
        ptr: *mut u8,
        len: usize,
    ) -> Placed<'_> {
        let reactor = &mut *self.reactor.borrow_mut();
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::raw(ptr, len) };
        let now = reactor.receiver.tick();
        let args = recv_args(spec, &memory);
        let started = reactor.receiver.engine.matching_mut().recv(now, args);
        self.begun(reactor, started, memory)
    }

    /// Polls briefly for a message of at most `len` bytes, and receives it as
    /// [`recv_placed`](Self::recv_placed) does if it has not come by then. For a caller that waits
    /// for nothing else.
    ///
    /// # Safety
    /// See [`recv_placed`](Self::recv_placed).
    pub(crate) unsafe fn recv_polled(
        &self,
        spec: RecvSpec,
        ptr: *mut u8,
        len: usize,
    ) -> Placed<'_> {
        // SAFETY: promised by the caller; the slice ends before another use.
        let buffer = unsafe { std::slice::from_raw_parts_mut(ptr, len) };
        match self.await_message(spec, buffer) {
            PollResult::Came(done) => {
                self.placed(State::Ended(done.error, Status::from(done.status)))
            }
            PollResult::Posted(ticket) => self.placed(State::Running(ticket)),
            // SAFETY: as above.
            PollResult::Nothing => unsafe { self.recv_placed(spec, ptr, len) },
        }
    }

    fn begun(
        &self,
        reactor: &mut Reactor,
        started: Result<OpId, Refused>,
        memory: Memory,
    ) -> Placed<'_> {
        let op = match started {
            Ok(op) => op,
            Err(refused) => {
                return self.placed(State::Ended(Some(error_of(refused)), Status::default()));
            }
        };
        let begun = Starting::new(reactor, op, memory);
        begun.reactor.flush();
        self.placed(State::Running(begun.pass()))
    }

    fn placed(&self, state: State) -> Placed<'_> {
        Placed { endpoint: self, state }
    }
}

impl Placed<'_> {
    /// True if it has ended: its memory is free.
    pub fn is_free(&self) -> bool {
        !matches!(self.state, State::Running(_))
    }

    /// Returns error and status at the end: a message that was truncated has both.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<(Option<OpError>, Status)> {
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Running(ticket) => {
                let ops = &mut self.endpoint.reactor.borrow_mut().receiver.ops;
                match ops.take_done(ticket) {
                    Some((done, _)) => Poll::Ready((done.error, Status::from(done.status))),
                    None => {
                        ops.set_waker(ticket, cx.waker());
                        self.state = State::Running(ticket);
                        Poll::Pending
                    }
                }
            }
            State::Ended(error, status) => {
                if self.endpoint.reactor.poll_attend(cx).is_pending() {
                    self.state = State::Ended(error, status);
                    return Poll::Pending;
                }
                Poll::Ready((error, status))
            }
            State::Taken => Poll::Pending,
        }
    }
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        if let State::Running(ticket) = self.state {
            self.endpoint.reactor.borrow_mut().take_back(ticket);
        }
    }
}
