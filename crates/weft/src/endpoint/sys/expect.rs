//! Receives that a caller polls for, without an operation until one is needed.

use super::Memory;
use crate::endpoint::driver::Driver;
use crate::endpoint::ops::AwaitedRecv;
use crate::endpoint::Endpoint;
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
    /// Its receive is posted: see [`Endpoint::adopt`].
    Posted(OpId),
    /// Its peer has failed, or there was no room for an operation: the caller must post the
    /// receive, which returns the error.
    Post,
}

impl Driver {
    /// Ends the awaited receive: its memory is not written any more.
    #[inline]
    pub fn end_await(&mut self) {
        self.intake.engine.matching_mut().end_await();
        if let (_, Some(ticket)) = self.intake.awaited.end() {
            self.take_back(ticket);
        }
    }
}

impl Endpoint {
    /// Expects a message, instead of posting its receive: a message of one packet takes less work
    /// so, and a longer one is posted. At most one message at a time. False if the receive must be
    /// posted. It must also be posted if the message does not come soon, since an expected sender
    /// is not watched, and before any other receive of messages with tags, probe or claim.
    ///
    /// # Safety
    /// `ptr..ptr+len` stays valid and untouched until the message came or `end_expected`.
    #[inline]
    pub unsafe fn expect_message(&self, ptr: *mut u8, len: usize, spec: RecvSpec) -> bool {
        let core = &mut self.inner.borrow_mut().driver.intake;
        let begun = core.engine.matching_mut().await_message(spec, len as u64, ptr as u64);
        if begun {
            // SAFETY: promised by the caller.
            core.awaited = AwaitedRecv::new(unsafe { Memory::raw(ptr, len) });
        }
        begun
    }

    /// A round of progress for a caller that polls for the expected message. True if anything
    /// happened.
    #[inline]
    pub fn progress_expected(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let mut did = false;
        if inner.driver.is_round_due() || !inner.driver.has_direct_poll() {
            did = inner.driver.progress(1);
            inner.count(did);
        } else {
            did |= inner.driver.poll_closely(POLLS, 1);
        }
        match did {
            true => self.call_back(inner, true),
            false => false,
        }
    }

    /// Returns the state of the expected message.
    #[inline]
    pub fn expected(&self) -> Expected {
        let core = &mut self.inner.borrow_mut().driver.intake;
        if core.engine.matching().awaits() {
            return Expected::Waiting;
        }
        match core.awaited.end() {
            (Some(came), _) => Expected::Came(came),
            (None, Some(ticket)) => Expected::Posted(ticket.op),
            (None, None) => Expected::Post,
        }
    }

    /// Sends the completion of an expected message that was posted to the completion queue, with
    /// this context. If it has ended already, returns its result instead.
    pub fn adopt(&self, op: OpId, context: u64) -> Option<Awaited> {
        let core = &mut self.inner.borrow_mut().driver.intake;
        let ticket = core.ops.ticket(op)?;
        if let Some((done, _)) = core.ops.take_done(ticket) {
            return Some(Awaited { status: done.status, error: done.error });
        }
        core.engine.ops_mut().set_context(op, context);
        core.ops.queue(ticket);
        None
    }

    /// Ends the expectation of `expect_message`: the memory is not written any more.
    pub fn end_expected(&self) {
        self.inner.borrow_mut().driver.end_await();
    }
}
