//! Closing: queued packets arrive, and peers get a BYE, repeated where it may be lost.

use super::Endpoint;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use weft_core::relay::{BYES, BYE_PAUSE_MAX};
use weft_core::Instant;

/// Longest wait between checks for unacknowledged packets, since a late transmission gives no
/// event.
const CHECK_EVERY: Duration = Duration::from_millis(5);

/// An endpoint that closes.
struct Closing {
    deadline: Instant,
    byes: u32,
    /// Time of the next BYE.
    next: Instant,
    arrived: bool,
}

impl Closing {
    fn new(deadline: Instant) -> Closing {
        Closing { deadline, byes: 0, next: deadline, arrived: false }
    }

    /// Does all due work. Returns the longest wait before the next call; `None` at the end.
    fn step(&mut self, endpoint: &Endpoint) -> Option<Duration> {
        let now = endpoint.now();
        let left = self.deadline.since(now);
        let reactor = &mut *endpoint.reactor.borrow_mut();
        if self.byes == 0 {
            self.arrived = reactor.receiver.engine.quiet();
            if !self.arrived && !left.is_zero() {
                return Some(left.min(CHECK_EVERY));
            }
            if !self.arrived {
                weft_link::warn!("closing with messages unacknowledged");
            }
        }
        // Peers that have closed too need no further BYE.
        let pause = reactor.receiver.engine.peers().bye_pause();
        if self.byes == 0 || pause.is_some() && now >= self.next {
            reactor.send_byes();
            self.byes += 1;
            self.next = now + pause?.min(BYE_PAUSE_MAX);
        }
        pause?;
        let told = self.byes == BYES || left.is_zero();
        (!told).then(|| self.next.since(now).min(left))
    }
}

impl Endpoint {
    /// Sends queued packets, waits until all are acknowledged (at most `timeout`) and sends the
    /// peers a BYE: once to those that close too; to the others a few times, a retransmission
    /// timeout apart, since it may be lost. Unfinished operations of groups are cancelled. True if
    /// all packets were acknowledged.
    pub fn close(&self, timeout: Duration) -> bool {
        self.reactor.end_tasks();
        let mut closing = Closing::new(self.now() + timeout);
        while let Some(wait) = closing.step(self) {
            self.wait(Some(wait));
        }
        closing.arrived
    }

    /// Closes the endpoint as [`close`](Endpoint::close) does, for programs that may be simulated.
    pub async fn closed(&self, timeout: Duration) -> bool {
        self.reactor.end_tasks();
        let mut closing = Closing::new(self.now() + timeout);
        while let Some(wait) = closing.step(self) {
            let mut sleep = pin!(self.sleep(wait));
            let mut begun = false;
            std::future::poll_fn(|cx| {
                if std::mem::replace(&mut begun, true) {
                    return Poll::Ready(());
                }
                let waker = cx.waker().clone();
                self.reactor.borrow_mut().receiver.outcome.arrivals.push(waker);
                sleep.as_mut().poll(cx)
            })
            .await;
        }
        closing.arrived
    }
}
