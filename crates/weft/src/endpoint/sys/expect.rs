//! Receives that a caller polls for, without an operation for as long as one is not needed.

use super::Memory;
use crate::endpoint::driver::AwaitedRecv;
use crate::endpoint::Endpoint;
use weft_core::engine::types::Awaited;
use weft_core::matching::RecvSpec;

/// Close looks in a round: a caller may compute between two of them.
const LOOKS: u32 = 2;

/// What became of an expected message.
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// It has not come.
    Waiting,
    /// It is in its buffer, and expected no more.
    Came(Awaited),
    /// What came needs an operation: the receive is to be posted.
    Post,
}

impl Endpoint {
    /// Expects a message, instead of posting its receive: it is taken in with less work if it is
    /// one packet. At most one at a time. False: the receive is to be posted. It is to be posted
    /// too when the message does not come soon, since nobody watches over a peer that is expected
    /// to send, and before any other receive of messages with tags, probe or claim.
    ///
    /// # Safety
    /// `ptr..ptr+len` stays valid and untouched until the message came or `end_expected`.
    #[inline]
    pub unsafe fn expect_message(&self, ptr: *mut u8, len: usize, spec: RecvSpec) -> bool {
        let core = &mut self.inner.borrow_mut().driver.core;
        let begun = core.engine.await_message(spec, len as u64);
        if begun {
            // SAFETY: promised by the caller.
            core.awaited = AwaitedRecv { memory: unsafe { Memory::raw(ptr, len) }, done: None };
        }
        begun
    }

    /// A round of progress for a caller that polls for the expected message. True if anything
    /// happened.
    #[inline]
    pub fn progress_expected(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let mut did = false;
        if inner.driver.is_round_due() || !inner.driver.has_close_look() {
            did = inner.driver.progress(1);
            inner.count(did);
        } else {
            did |= inner.driver.look_closely(LOOKS, 1);
        }
        match did {
            true => self.call_back(inner, true),
            false => false,
        }
    }

    /// What became of the expected message.
    #[inline]
    pub fn expected(&self) -> Expected {
        let core = &mut self.inner.borrow_mut().driver.core;
        if core.engine.awaits() {
            return Expected::Waiting;
        }
        match core.awaited.done.take() {
            Some(came) => {
                core.awaited.memory = Memory::None;
                Expected::Came(came)
            }
            None => Expected::Post,
        }
    }

    /// Ends what `expect_message` began. A message that came is to be asked for before.
    pub fn end_expected(&self) {
        let core = &mut self.inner.borrow_mut().driver.core;
        core.engine.end_await();
        core.awaited = AwaitedRecv::default();
    }
}
