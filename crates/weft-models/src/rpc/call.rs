//! Calls as futures.

use super::{kind, CallError, Cause, Inner};
use crate::net::{Blocking, Net};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A call in progress: a future of the answer's bytes. Dropping it cancels the call, which the
/// service may notice ([`Request::is_cancelled`](super::Request::is_cancelled)).
///
/// # Errors
/// The rank failed, does not serve the method, refused, panicked, or let the request go without an
/// answer; or the deadline has passed.
#[must_use = "a call that is dropped is cancelled"]
pub struct Call<N: Net> {
    inner: Rc<Inner<N>>,
    to: usize,
    method: u16,
    state: State,
    deadline: Option<Deadline>,
    /// True if the answer was asked for in vain: the next time the rank is watched.
    asked: bool,
}

struct Deadline {
    after: Duration,
    sleep: Pin<Box<dyn Future<Output = ()>>>,
}

enum State {
    Running(u32),
    /// The call could not begin.
    Refused(Cause),
    Over,
}

impl<N: Net> Call<N> {
    pub(super) fn new(
        inner: &Rc<Inner<N>>,
        (to, method): (usize, u16),
        started: Result<u32, Cause>,
    ) -> Call<N> {
        let state = started.map_or_else(State::Refused, State::Running);
        Call { inner: Rc::clone(inner), to, method, state, deadline: None, asked: false }
    }

    /// Sets a deadline, counted from now. When it passes, the call ends with an error; the service
    /// may have run, or may still run.
    pub fn within(mut self, time: Duration) -> Call<N> {
        let sleep = Box::pin(self.inner.net.sleep(time));
        self.deadline = Some(Deadline { after: time, sleep });
        self
    }

    /// Returns the answer if it is there. A call that has ended so is over. From the second one
    /// on that was in vain, the silence of the rank is noticed: it ends the call with an error.
    pub fn take(&mut self) -> Option<Result<Vec<u8>, CallError>> {
        let result = match std::mem::replace(&mut self.state, State::Over) {
            State::Running(number) => {
                let mut calls = self.inner.calls.borrow_mut();
                let answer = calls.get_mut(&number).and_then(|call| call.answer.take());
                match answer {
                    Some(answer) => {
                        calls.remove(&number);
                        answer
                    }
                    None => {
                        drop(calls);
                        self.state = State::Running(number);
                        // The first round of progress finds the answer of a rank that serves at
                        // once.
                        if std::mem::replace(&mut self.asked, true) {
                            self.watch();
                        }
                        return None;
                    }
                }
            }
            State::Refused(cause) => Err(cause),
            State::Over => return None,
        };
        let (rank, method) = (self.to, self.method);
        Some(result.map_err(|cause| CallError { rank, method, cause }))
    }

    /// Returns the error of a call by a desk that has ended.
    pub(super) fn closed(&self) -> CallError {
        CallError { rank: self.to, method: self.method, cause: Cause::Closed }
    }

    /// Notices the silence of the rank while the call runs.
    fn watch(&self) {
        let State::Running(number) = self.state else { return };
        let mut calls = self.inner.calls.borrow_mut();
        let Some(call) = calls.get_mut(&number).filter(|call| !call.watched) else { return };
        if self.to != self.inner.net.rank() {
            call.watched = self.inner.net.expect(self.to);
        }
    }

    /// Ends the call without its answer.
    fn give_up(&mut self) {
        let State::Running(number) = std::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        let Some(call) = self.inner.calls.borrow_mut().remove(&number) else { return };
        if call.watched {
            self.inner.net.unexpect(self.to);
        }
        if call.answer.is_none() {
            // A rank that has failed needs no notice.
            _ = self.inner.channel.post(self.to, kind::CANCEL, &[&number.to_le_bytes()]);
        }
    }

    fn late(&mut self, after: Duration) -> CallError {
        self.give_up();
        CallError { rank: self.to, method: self.method, cause: Cause::Deadline { after } }
    }
}

impl<N: Blocking> Call<N> {
    /// Waits for the answer, with progress meanwhile.
    ///
    /// # Errors
    /// Returns the errors of the future.
    pub fn wait(mut self) -> Result<Vec<u8>, CallError> {
        if let Err(why) = self.inner.net.may_wait() {
            let (rank, method) = (self.to, self.method);
            return Err(CallError { rank, method, cause: Cause::Inside(why) });
        }
        if self.deadline.is_some() {
            let net = self.inner.net.clone();
            return net.block_on(self);
        }
        loop {
            if let Some(result) = self.take() {
                return result;
            }
            // The first round finds the answer of a rank that serves at once.
            if !self.inner.net.poll() {
                self.watch();
                self.inner.net.wait(None);
            }
        }
    }
}

impl<N: Net> Future for Call<N> {
    type Output = Result<Vec<u8>, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.take() {
            return Poll::Ready(result);
        }
        let State::Running(number) = self.state else { return Poll::Pending };
        // A caller that cannot be woken polls again soon.
        if !cx.waker().will_wake(Waker::noop()) {
            self.watch();
            if let Some(call) = self.inner.calls.borrow_mut().get_mut(&number) {
                call.waker = Some(cx.waker().clone());
            }
        }
        let late = self.deadline.as_mut().and_then(|deadline| {
            deadline.sleep.as_mut().poll(cx).is_ready().then_some(deadline.after)
        });
        match late {
            Some(after) => Poll::Ready(Err(self.late(after))),
            None => Poll::Pending,
        }
    }
}

impl<N: Net> Drop for Call<N> {
    fn drop(&mut self) {
        self.give_up();
    }
}
