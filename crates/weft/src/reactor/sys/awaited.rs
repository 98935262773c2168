//! Polls for a message that the caller does nothing but wait for, without an operation until it
//! needs one.

use super::Memory;
use crate::reactor::ops::{AwaitedRecv, Status, Ticket};
use crate::reactor::polling::CLOSE_ROUNDS;
use crate::reactor::Reactor;
use weft_core::engine::types::Awaited;
use weft_core::matching::RecvSpec;
use weft_core::{OpError, PeerId};

/// Rounds of progress in which a blocking receive polls for its message before it is posted.
const AWAIT_ROUNDS: u32 = 16;

/// Marks a message as awaited, until this is dropped: also if a waker or handler panics.
struct Awaiting<'a>(&'a mut Reactor);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.end_await();
    }
}

/// The result of polling for a message.
pub(crate) enum PollResult {
    Came(Awaited),
    /// The message has an operation.
    Posted(Ticket),
    Nothing,
}

/// Returns the result of a message that came.
#[inline]
pub(crate) fn result_of(done: Awaited) -> Result<Status, OpError> {
    done.error.map_or(Ok(Status::from(done.status)), Err)
}

impl Reactor {
    /// Polls briefly for an active message. `None` if it did not come, or if another packet came
    /// that must be handled first.
    #[inline]
    pub fn await_active(
        &mut self,
        source: Option<PeerId>,
        tag: u64,
        buffer: &mut [u8],
    ) -> Option<Result<Status, OpError>> {
        // The sender sets the argument.
        let spec = RecvSpec { source, tag, ignore: !0 << 32 };
        let begun = self.receiver.engine.matching_mut().await_active(spec, buffer.len() as u64);
        match begun.then(|| self.poll_for(buffer)) {
            Some(PollResult::Came(done)) => Some(result_of(done)),
            _ => None,
        }
    }

    /// Polls for the message that the engine awaits.
    #[inline]
    pub fn poll_for(&mut self, buffer: &mut [u8]) -> PollResult {
        let awaiting = Awaiting(self);
        let reactor = &mut *awaiting.0;
        // SAFETY: only rounds of progress in this call use it, and `awaiting` forgets it at every
        // end of the call.
        reactor.receiver.awaited =
            AwaitedRecv::new(unsafe { Memory::raw(buffer.as_mut_ptr(), buffer.len()) });
        // With more ranks than cores the sender may need this core; and a rank that must not spin
        // does not.
        let spins = reactor.patience.spins();
        let (rounds, polls) = if spins { (AWAIT_ROUNDS, CLOSE_ROUNDS) } else { (1, 1) };
        reactor.polling.before_sleep = reactor.patience.sleeps_at_once();
        for round in 0..rounds {
            if round > 0 || reactor.is_round_due() {
                let did = reactor.progress(1);
                reactor.count(did);
            }
            let ends = |reactor: &Reactor| {
                !reactor.receiver.engine.matching().awaits() || !reactor.receiver.ports.is_idle()
            };
            if ends(reactor) || reactor.poll_closely(polls, 1) && ends(reactor) {
                break;
            }
        }
        match reactor.receiver.awaited.end() {
            (Some(done), _) => PollResult::Came(done),
            (None, Some(ticket)) => PollResult::Posted(ticket),
            (None, None) => PollResult::Nothing,
        }
    }
}
