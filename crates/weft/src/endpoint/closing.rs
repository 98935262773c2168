//! Closing: what is queued arrives, and the peers are told, again where the first time may be lost.

use super::Endpoint;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use weft_core::relay::{BYES, BYE_PAUSE_MAX};
use weft_core::Instant;

/// Longest wait between looks at what is unacknowledged: what is sent late tells nobody.
const LOOK: Duration = Duration::from_millis(5);

/// An endpoint that closes.
struct Closing {
    deadline: Instant,
    byes: u32,
    /// When the peers are told again.
    next: Instant,
    arrived: bool,
}

impl Closing {
    fn new(deadline: Instant) -> Closing {
        Closing { deadline, byes: 0, next: deadline, arrived: false }
    }

    /// Does what is due. How long something may take to happen before the next call; `None` at the
    /// end.
    fn step(&mut self, endpoint: &Endpoint) -> Option<Duration> {
        let now = endpoint.now();
        let left = self.deadline.since(now);
        let driver = &mut endpoint.inner.borrow_mut().driver;
        if self.byes == 0 {
            self.arrived = driver.intake.engine.quiet();
            if !self.arrived && !left.is_zero() {
                return Some(left.min(LOOK));
            }
            if !self.arrived {
                log::warn!("closing with messages unacknowledged");
            }
        }
        // Of those who have closed as well nobody is left to be told.
        let pause = driver.intake.engine.bye_pause();
        if self.byes == 0 || pause.is_some() && now >= self.next {
            driver.say_bye();
            self.byes += 1;
            self.next = now + pause?.min(BYE_PAUSE_MAX);
        }
        pause?;
        let told = self.byes == BYES || left.is_zero();
        (!told).then(|| self.next.since(now).min(left))
    }
}

impl Endpoint {
    /// Sends what is queued, waits until all of it is acknowledged (at most `timeout`) and tells
    /// the peers that this endpoint ends: those that close as well once, the others again, a
    /// retransmission timeout apart, for the few times that it may be lost. Operations of groups
    /// that have not ended are cancelled. Whether all has been acknowledged.
    pub fn close(&self, timeout: Duration) -> bool {
        self.end_tasks();
        let mut closing = Closing::new(self.now() + timeout);
        while let Some(wait) = closing.step(self) {
            self.wait(Some(wait));
        }
        closing.arrived
    }

    /// As [`close`](Endpoint::close), for programs that may be simulated.
    pub async fn closed(&self, timeout: Duration) -> bool {
        self.end_tasks();
        let mut closing = Closing::new(self.now() + timeout);
        while let Some(wait) = closing.step(self) {
            let mut sleep = pin!(self.sleep(wait));
            let mut begun = false;
            std::future::poll_fn(|cx| {
                if std::mem::replace(&mut begun, true) {
                    return Poll::Ready(());
                }
                let waker = cx.waker().clone();
                self.inner.borrow_mut().driver.intake.outcome.arrivals.push(waker);
                sleep.as_mut().poll(cx)
            })
            .await;
        }
        closing.arrived
    }
}
