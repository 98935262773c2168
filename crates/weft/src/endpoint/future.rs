//! Futures of operations. Operations start when they are made; awaiting only collects the result.

use super::{Peer, Status};
use crate::reactor::ops::Ticket;
use crate::reactor::Handle;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use weft_core::{Instant, OpError};

pub(super) enum State {
    /// Started.
    Running(Ticket),
    /// Ended at once: refused, or injected and done.
    Ended(Result<Status, OpError>, Vec<u8>),
    /// The engine accepts no operation now, since the link is congested.
    Taken,
}

/// An operation in progress. Dropping it cancels a receive that has not matched; any other
/// operation runs to its end and its result is lost.
///
/// The operation ends with a [`Status`] or an error, and gives its buffer back in both cases.
///
/// ```
/// # let id = weft::EndpointId(7);
/// # let links: Vec<Box<dyn weft_link::Link>> = vec![Box::new(weft::SelfLink::new(id))];
/// # let (config, clock) = (weft::Config::default(), weft::Clock::system());
/// # let endpoint = weft::Endpoint::with_links(config, id, clock, links);
/// # let peer = endpoint.connect(&endpoint.address())?;
/// let received = endpoint.recv(Some(peer), 1, 0, vec![0; 100]);
/// let sent = endpoint.send(peer, 1, b"seven b".to_vec());
/// let (result, buffer) = received.wait();
/// let status = result?;
/// assert_eq!((status.len, &buffer[..7]), (7, &b"seven b"[..]));
/// let (result, _buffer) = sent.wait();
/// result?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the result tells whether the operation succeeded"]
pub struct Operation {
    pub(super) reactor: Handle,
    pub(super) state: State,
}

impl Operation {
    /// True if the result is there.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Running(ticket) => self.reactor.borrow().receiver.ops.is_done(*ticket),
            _ => true,
        }
    }

    /// Makes progress until the end, and returns result and buffer.
    pub fn wait(self) -> (Result<Status, OpError>, Vec<u8>) {
        self.reactor.clone().block_on(self)
    }
}

impl Operation {
    /// Returns error, status and buffer at the end: a message that was truncated has both error and
    /// status.
    pub(crate) async fn whole(mut self) -> (Option<OpError>, Status, Vec<u8>) {
        std::future::poll_fn(move |cx| self.poll_whole(cx)).await
    }

    fn poll_whole(&mut self, cx: &mut Context<'_>) -> Poll<(Option<OpError>, Status, Vec<u8>)> {
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Running(ticket) => {
                let done = {
                    let ops = &mut self.reactor.borrow_mut().receiver.ops;
                    let done = ops.take_done(ticket);
                    if done.is_none() {
                        ops.set_waker(ticket, cx.waker());
                    }
                    done
                };
                match done {
                    Some((completion, memory)) => {
                        let status = Status::from(completion.status);
                        Poll::Ready((completion.error, status, memory.into_vec()))
                    }
                    None => {
                        self.state = State::Running(ticket);
                        Poll::Pending
                    }
                }
            }
            State::Ended(result, buffer) => {
                if self.reactor.poll_attend(cx).is_pending() {
                    self.state = State::Ended(result, buffer);
                    return Poll::Pending;
                }
                let status = result.unwrap_or_default();
                Poll::Ready((result.err(), status, buffer))
            }
            State::Taken => Poll::Pending,
        }
    }
}

impl Future for Operation {
    type Output = (Result<Status, OpError>, Vec<u8>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let whole = self.get_mut().poll_whole(cx);
        whole.map(|(error, status, buffer)| (error.map_or(Ok(status), Err), buffer))
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if let State::Running(ticket) = self.state {
            let receiver = &mut self.reactor.borrow_mut().receiver;
            if receiver.ops.is_current(ticket) {
                receiver.engine.ops_mut().discard(ticket.op);
            }
            receiver.ops.abandon(ticket);
        }
    }
}

/// Resolves at a point in time.
pub struct Sleep {
    pub(super) reactor: Handle,
    pub(super) at: Instant,
    /// Number of its entry among the reactor's sleepers.
    pub(super) sleeper: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = self.reactor.clone();
        let reactor = &mut *shared.borrow_mut();
        if reactor.receiver.time.clock.now() >= self.at {
            return Poll::Ready(());
        }
        let number = *self.sleeper.get_or_insert_with(|| reactor.sleepers.begin());
        reactor.sleepers.insert(self.at, number, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.sleeper {
            self.reactor.borrow_mut().sleepers.remove(self.at, number);
        }
    }
}

/// Resolves after one round of progress.
#[derive(Default)]
pub struct Yield {
    yielded: bool,
}

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A peer whose silence is noticed, until this is dropped: see [`Peer::watch`].
pub struct PeerWatch<'a> {
    pub(super) peer: Peer<'a>,
}

impl Drop for PeerWatch<'_> {
    fn drop(&mut self) {
        self.peer.unexpect();
    }
}
