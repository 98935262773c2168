//! Receives that a caller polls for, without an operation until one is needed.

use super::posted::Posted;
use crate::reactor::ops::AwaitedRecv;
use crate::reactor::sys::Memory;
use weft_core::engine::types::Awaited;
use weft_core::matching::RecvSpec;
use weft_core::OpId;

/// Direct polls in a round: a caller may compute between two of them.
const POLLS: u32 = 2;

/// The state of an expected message.
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// The message has not come.
    Waiting,
    /// The message is in its buffer, and no longer expected.
    Came(Awaited),
    /// Its receive is posted: see [`Posted::adopt`].
    Posted(OpId),
    /// Its peer has failed, or there was no room for an operation: the caller must post the
    /// receive, which returns the error.
    Post,
}

impl Posted<'_> {
    /// Expects a message, instead of posting its receive: a message of one packet takes less work
    /// so, and a longer one is posted. At most one message at a time. False if the receive must be
    /// posted. It must also be posted if the message does not come soon, since an expected sender
    /// is not watched, and before any other receive of messages with tags, probe or claim.
    ///
    /// # Safety
    /// `ptr..ptr+len` stays valid and untouched until the message came or
    /// [`end_expected`](Self::end_expected).
    #[inline]
    pub unsafe fn expect(self, ptr: *mut u8, len: usize, spec: RecvSpec) -> bool {
        let receiver = &mut self.reactor.borrow_mut().receiver;
        let begun = receiver.engine.matching_mut().await_message(spec, len as u64, ptr as u64);
        if begun {
            // SAFETY: promised by the caller.
            receiver.awaited = AwaitedRecv::new(unsafe { Memory::raw(ptr, len) });
        }
        begun
    }

    /// A round of progress for a caller that polls for the expected message. True if anything
    /// happened.
    #[inline]
    pub fn progress_expected(self) -> bool {
        let mut reactor = self.reactor.borrow_mut();
        let mut did = false;
        if reactor.is_round_due() || !reactor.has_direct_poll() {
            did = reactor.progress(1);
            reactor.count(did);
        } else {
            did |= reactor.poll_closely(POLLS, 1);
        }
        match did {
            true => self.reactor.call_back(reactor, true),
            false => false,
        }
    }

    /// Returns the state of the expected message.
    #[inline]
    pub fn expected(self) -> Expected {
        let receiver = &mut self.reactor.borrow_mut().receiver;
        if receiver.engine.matching().awaits() {
            return Expected::Waiting;
        }
        match receiver.awaited.end() {
            (Some(came), _) => Expected::Came(came),
            (None, Some(ticket)) => Expected::Posted(ticket.op),
            (None, None) => Expected::Post,
        }
    }

    /// Sends the completion of an expected message that was posted to the completion queue, with
    /// this context. If it has ended already, returns its result instead.
    pub fn adopt(self, op: OpId, context: u64) -> Option<Awaited> {
        let receiver = &mut self.reactor.borrow_mut().receiver;
        let ticket = receiver.ops.ticket(op)?;
        if let Some((done, _)) = receiver.ops.take_done(ticket) {
            return Some(Awaited { status: done.status, error: done.error });
        }
        receiver.engine.ops_mut().set_context(op, context);
        receiver.ops.queue(ticket);
        None
    }

    /// Ends the expectation of [`expect`](Self::expect): the memory is not written any more.
    pub fn end_expected(self) {
        self.reactor.borrow_mut().end_await();
    }
}
