//! Messages of this member on their way, and the futures of their places.

use super::driver::Inner;
use super::OrderError;
use crate::net::Net;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use weft_core::slab::Slab;

/// The wait for a message.
#[derive(Default)]
pub(super) struct Waiter {
    pub place: Option<u64>,
    pub waker: Option<Waker>,
    /// The high half of its token.
    serial: u32,
}

/// Waiters by token: a key of the table, and above it a number that counts up, since keys come
/// again while messages whose wait was dropped are on their way.
#[derive(Default)]
pub(super) struct Waiters {
    all: Slab<Waiter>,
    serial: u32,
}

impl Waiters {
    /// Adds one, and returns its token. `None`: there are too many.
    pub fn push(&mut self) -> Option<u64> {
        self.serial = self.serial.wrapping_add(1);
        let waiter = Waiter { serial: self.serial, ..Waiter::default() };
        let key = self.all.insert(waiter)?;
        Some(u64::from(self.serial) << 32 | u64::from(key))
    }

    pub fn get_mut(&mut self, token: u64) -> Option<&mut Waiter> {
        let waiter = self.all.get_mut(token as u32)?;
        (waiter.serial == (token >> 32) as u32).then_some(waiter)
    }

    pub fn remove(&mut self, token: u64) {
        if self.get_mut(token).is_some() {
            self.all.remove(token as u32);
        }
    }

    /// Takes the wakers of all waits.
    pub fn take_wakers(&mut self) -> Vec<Waker> {
        let keys: Vec<u32> = self.all.keys().collect();
        let waker = |key| self.all.get_mut(key).and_then(|waiter| waiter.waker.take());
        keys.into_iter().filter_map(waker).collect()
    }
}

pub(super) enum State {
    Sent(u64),
    Refused(OrderError),
    Over,
}

/// A message on its way: a future of its place in the order, once it is delivered here.
#[must_use = "it tells when the message is delivered; to wait for nothing, drop it"]
pub struct Sent<N: Net> {
    pub(super) inner: Rc<Inner<N>>,
    pub(super) state: State,
}

impl<N: Net> Future for Sent<N> {
    type Output = Result<u64, OrderError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.inner.poll_attend(cx).is_pending() {
            return Poll::Pending;
        }
        let token = match std::mem::replace(&mut self.state, State::Over) {
            State::Sent(token) => token,
            State::Refused(error) => return Poll::Ready(Err(error)),
            State::Over => return Poll::Pending,
        };
        match self.inner.poll_sent(token, cx.waker()) {
            Some(result) => Poll::Ready(result),
            None => {
                self.state = State::Sent(token);
                Poll::Pending
            }
        }
    }
}

impl<N: Net> Drop for Sent<N> {
    fn drop(&mut self) {
        if let State::Sent(token) = self.state {
            self.inner.forget_sent(token);
        }
    }
}
