//! A program that computes without a look at its endpoint.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use weft_core::Instant;

/// Until when a host's program computes.
#[derive(Default)]
pub(crate) struct Busy {
    until: Cell<Option<Instant>>,
    waker: RefCell<Option<Waker>>,
}

impl Busy {
    /// Computes until then.
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

    /// When it is done.
    pub fn until(&self) -> Option<Instant> {
        self.until.get()
    }

    /// Whether it computes now. The program goes on when it does not any more.
    pub fn is_busy(&self, now: Instant) -> bool {
        let busy = self.until.get().is_some_and(|until| now < until);
        if !busy && self.until.take().is_some() {
            self.waker.take().into_iter().for_each(Waker::wake);
        }
        busy
    }
}
