//! Operations that end at once poll the network all the same.
//!
//! A program whose operations all end at once (short sends, reads of what is here) never waits, and
//! so would make no progress: other ranks that need something of it would wait for as long as it
//! goes on so. Each such operation therefore looks at a counter of the processor and makes progress
//! about every tenth of a millisecond.

use super::{Handle, Reactor};
use std::task::{Context, Poll, Waker};

/// Most rounds of progress for one operation.
const ROUNDS_MAX: u32 = 16;

impl Reactor {
    /// True if an operation that ends at once owes a round of progress now. Not where time is
    /// virtual, where a thread sleeps on the descriptor and is woken by what arrives, or in the
    /// call of a client, which gets no message meanwhile.
    #[inline]
    fn owes_round(&mut self) -> bool {
        self.polling.moments.is_over() && self.may_poll()
    }

    /// See [`Handle::poll_attend`].
    #[inline]
    fn poll_attend(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.owes_round() {
            return Poll::Ready(());
        }
        // A caller that cannot be woken polls again after a round that did something.
        self.absence.unreported |= cx.waker().will_wake(Waker::noop());
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    #[cold]
    fn may_poll(&mut self) -> bool {
        let reactor = self;
        let may = !reactor.polling.exact
            && !reactor.absence.watched
            && !reactor.receiver.ports.is_handling();
        if may {
            // The round reads the clock and polls every link.
            reactor.refresh(u64::MAX);
        }
        may
    }
}

impl Handle {
    /// Makes progress for an operation that has ended at once, if there was none for such an
    /// operation for about a tenth of a millisecond. Calls of the port's clients and tasks may run.
    #[inline]
    pub fn attend(&self) {
        if self.borrow_mut().owes_round() {
            self.attend_now();
        }
    }

    #[cold]
    fn attend_now(&self) {
        for _ in 0..ROUNDS_MAX {
            if !self.progress() {
                break;
            }
        }
    }

    /// Does what [`attend`](Self::attend) does for an operation that is polled as a future:
    /// `Pending` once if a round of progress is due, and the future is polled again after it.
    #[inline]
    pub fn poll_attend(&self, cx: &Context<'_>) -> Poll<()> {
        self.borrow_mut().poll_attend(cx)
    }
}
