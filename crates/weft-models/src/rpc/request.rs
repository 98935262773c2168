//! Requests: the right to answer a call.

use super::{Inner, Rpc, Status};
use crate::net::Net;
use std::rc::{Rc, Weak};

/// The right to answer a call, now or later. Dropping it without an answer tells the caller so.
#[must_use = "its caller waits for an answer"]
pub struct Request<N: Net> {
    inner: Weak<Inner<N>>,
    from: usize,
    number: u32,
    /// Its place among the open requests; `None` if no answer is wanted.
    place: Option<u32>,
}

impl<N: Net> Request<N> {
    pub(super) fn new(
        inner: &Rc<Inner<N>>,
        from: usize,
        number: u32,
        place: Option<u32>,
    ) -> Request<N> {
        Request { inner: Rc::downgrade(inner), from, number, place }
    }

    /// Returns the rank that called.
    pub fn from(&self) -> usize {
        self.from
    }

    /// True if the caller wants an answer: it has called, not cast.
    pub fn wants_answer(&self) -> bool {
        self.number != 0
    }

    /// True if nobody waits for the answer any more: the caller has dropped the call, its deadline
    /// has passed, or it has failed.
    pub fn is_cancelled(&self) -> bool {
        let Some(place) = self.place else { return false };
        let Some(inner) = self.inner.upgrade() else { return true };
        let open = inner.open.borrow();
        open.get(place).is_none_or(|open| open.cancelled)
    }

    /// Returns the calls and services of this rank, to call others. `None` if they have been
    /// dropped.
    pub fn rpc(&self) -> Option<Rpc<N>> {
        Some(Rpc { inner: self.inner.upgrade()? })
    }

    /// Answers. The caller of an answer that is longer than 256 MiB gets an error in its place.
    pub fn answer(self, bytes: &[u8]) {
        self.answer_parts(&[bytes]);
    }

    /// Answers with bytes gathered from parts.
    pub fn answer_parts(mut self, parts: &[&[u8]]) {
        self.end(Status::Done, parts);
    }

    /// Refuses: the caller gets this text as an error.
    pub fn refuse(mut self, text: &str) {
        self.end(Status::Refused, &[text.as_bytes()]);
    }

    fn end(&mut self, status: Status, parts: &[&[u8]]) {
        if let (Some(place), Some(inner)) = (self.place.take(), self.inner.upgrade()) {
            inner.end(place, status, parts);
        }
    }
}

impl<N: Net> Drop for Request<N> {
    fn drop(&mut self) {
        // The service that panics answers with its panic.
        if !std::thread::panicking() {
            self.end(Status::Dropped, &[]);
        }
    }
}
