//! A program that computes without progress on its endpoint.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use weft_core::Instant;

/// The time until which a host's program computes.
#[derive(Default)]
pub(crate) struct Busy {
    until: Cell<Option<Instant>>,
    waker: RefCell<Option<Waker>>,
}

impl Busy {
    /// Computes until `until`.
    pub async fn compute(&self, until: Instant) {
        self.until.set(Some(until));
        poll_fn(|cx| match self.until.get() {
            None => Poll::Ready(()),
            Some(_) => {
                *self.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await;
    }

    /// Returns the time at which the computation ends.
    pub fn until(&self) -> Option<Instant> {
        self.until.get()
    }

    /// Returns true if it computes now; wakes the program once the computation has ended.
    pub fn is_busy(&self, now: Instant) -> bool {
        let busy = self.until.get().is_some_and(|until| now < until);
        if !busy && self.until.take().is_some() {
            self.waker.take().into_iter().for_each(Waker::wake);
        }
        busy
    }
}
