//! Waits that a caller builds itself: of a program with an `epoll` of its own, and of interfaces on
//! top of the endpoint.

use super::{Awaits, Endpoint};
use crate::reactor::{Handle, Sleeper};
use std::task::{Context, Poll};
use std::time::Duration;
use weft_core::{Instant, OpError};

/// The parts of a wait, as [`Endpoint::waiting`] gives them.
#[derive(Clone, Copy)]
pub struct Waiting<'a> {
    pub(super) reactor: &'a Handle,
}

impl Endpoint {
    /// Returns the parts of a wait, for callers that build waits of their own.
    #[inline]
    pub fn waiting(&self) -> Waiting<'_> {
        Waiting { reactor: &self.reactor }
    }
}

impl Waiting<'_> {
    /// Makes progress for an operation that has ended at once, if there was none for such an
    /// operation for about a tenth of a millisecond. Calls of the port's clients and tasks may run.
    #[inline]
    pub fn attend(self) {
        self.reactor.attend();
    }

    /// Does what [`attend`](Self::attend) does for an operation that is polled as a future:
    /// `Pending` once if a round of progress is due, and the future is polled again after it.
    #[inline]
    pub fn poll_attend(self, cx: &Context<'_>) -> Poll<()> {
        self.reactor.poll_attend(cx)
    }

    /// Waits until [`progress`](Endpoint::progress) did something, for a client whose program waits
    /// for `awaits`: a long wait is logged with it.
    pub fn wait_for(self, awaits: Awaits) {
        self.reactor.wait_for(awaits);
    }

    /// Makes progress for as long as [`wait`](Endpoint::wait) would before it sleeps, at most for a
    /// time. True if anything happened.
    pub fn wait_awake(self, at_most: Duration) -> bool {
        self.reactor.wait_awake(at_most)
    }

    /// True if the settings ask for waits that never sleep.
    pub fn polls_always(self) -> bool {
        self.reactor.polls_always()
    }

    /// Records that the program computes, not waits, while the caller makes progress in its place.
    pub fn program_computes(self) {
        self.reactor.borrow_mut().waits.computes = true;
    }

    /// Returns the operations that the program waits for now, with their peers, for people: such as
    /// "for a message with tag 0x1 from rank 1 ...". `None` if there is none.
    pub fn awaited(self) -> Option<String> {
        self.reactor.borrow().awaited()
    }

    /// Returns the reason why no wait can succeed any more, for any peer.
    pub fn end_error(self) -> Option<OpError> {
        let reactor = &mut *self.reactor.borrow_mut();
        reactor.leave_if_copied();
        reactor.receiver.engine.ops().end_error()
    }

    /// Returns the number of peers that have failed since the start. A caller that waits for a peer
    /// without an operation checks that peer when this number changes.
    #[inline]
    pub fn failures(self) -> u64 {
        self.reactor.engine().stats().peers_failed
    }

    /// True if time passes only when a simulator advances it.
    pub fn time_is_virtual(self) -> bool {
        self.reactor.borrow().polling.exact
    }

    /// Returns the time of the next `progress` call that is needed although nothing arrives.
    pub fn next_timeout(self) -> Option<Instant> {
        self.reactor.borrow().next_timeout()
    }

    /// Announces that this thread is about to sleep on [`fd`](Self::fd). False if there is work:
    /// call `progress` instead of sleeping, and no [`finish`](Self::finish).
    pub fn prepare(self) -> bool {
        self.reactor.prepare(Sleeper::Program)
    }

    /// Ends the wait that [`prepare`](Self::prepare) began.
    pub fn finish(self) {
        self.reactor.borrow_mut().end_sleep(u64::MAX);
    }

    /// Sets the wake-up of a thread that sleeps on [`fd`](Self::fd), for operations that other
    /// threads have begun. With `at_once` it wakes now.
    pub fn rearm(self, at_once: bool) {
        self.reactor.rearm(at_once);
    }
}
