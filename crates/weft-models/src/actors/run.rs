//! Runs: objects have their turns until no message is left at any rank, or on its way.

use super::runtime::{Actors, Inner};
use super::turn::Action;
use super::{ActorCause, ActorError};
use crate::net::{Blocking, Net, RankFailure};
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// Turns between two rounds of progress.
const BATCH: u64 = 8;
/// Pauses without a turn before a rank looks again for the end of the run, if it has not come: the
/// first one, and the longest.
const FIRST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(1);

/// A wave that this rank takes part in, and a pause before the next one.
type Wave<'a> = Pin<Box<dyn Future<Output = Result<bool, RankFailure>> + 'a>>;
type Pause<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The end of a wait without work.
enum Waited {
    Work,
    Wave(Result<bool, RankFailure>),
    Pause,
}

/// Ends the run of this rank when it is over, or dropped.
struct Running<'a, N: Net>(&'a Inner<N>);

impl<N: Net> Drop for Running<'_, N> {
    fn drop(&mut self) {
        self.0.run.is_on.set(false);
        self.0.run.is_idle.set(false);
    }
}

impl<N: Net> Actors<N> {
    /// Gives objects their turns until no message is left at any rank, or on its way, and no object
    /// is moving. All ranks call this.
    ///
    /// # Errors
    /// A rank failed, or an object panicked or sent something that cannot be: all ranks get the
    /// error, and later runs too.
    pub async fn run(&self) -> Result<(), ActorError> {
        self.inner.to_the_end().await
    }
}

impl<N: Blocking> Actors<N> {
    /// Gives objects their turns until no message is left, with progress meanwhile.
    ///
    /// # Errors
    /// Returns the errors of [`run`](Actors::run).
    pub fn run_blocking(&self) -> Result<(), ActorError> {
        let net = &self.inner.net;
        net.may_wait().map_err(|why| ActorError {
            rank: net.rank(),
            object: None,
            cause: ActorCause::Inside(why),
        })?;
        net.block_on(self.run())
    }
}

impl<N: Net> Inner<N> {
    /// Runs until all ranks have nothing left.
    pub async fn to_the_end(&self) -> Result<(), ActorError> {
        let run = &self.run;
        run.is_on.set(true);
        let _running = Running(self);
        self.take_early();
        let (mut wave, mut pause): (Option<Wave<'_>>, Option<Pause<'_>>) = (None, None);
        let (mut length, mut turns) = (Duration::ZERO, run.turns.get());
        loop {
            self.work().await?;
            if wave.is_none() && pause.is_none() {
                match length.is_zero() {
                    true => wave = Some(Box::pin(self.quiescence.wave())),
                    false => pause = Some(Box::pin(self.net.sleep(length))),
                }
                turns = run.turns.get();
            }
            match self.wait(wave.as_mut(), pause.as_mut()).await {
                Waited::Work => {}
                Waited::Pause => {
                    pause = None;
                    // A rank that has turns in between is not at its end.
                    if turns == run.turns.get() {
                        wave = Some(Box::pin(self.quiescence.wave()));
                    }
                }
                Waited::Wave(Ok(true)) => break,
                Waited::Wave(Ok(false)) => {
                    wave = None;
                    length = (length * 2).clamp(FIRST, LONGEST);
                }
                Waited::Wave(Err(failure)) => return Err(self.failed(failure)),
            }
        }
        run.number.set(run.number.get().wrapping_add(1));
        Ok(())
    }

    /// Tells all ranks of a failure that this one has met with.
    fn failed(&self, failure: RankFailure) -> ActorError {
        let known = self.run.failure.borrow().clone();
        let error = known.unwrap_or_else(|| ActorError::failed(self.quiescence.failed(failure)));
        self.end_with(error.clone());
        error
    }

    /// Takes the messages of this run that came before it.
    fn take_early(&self) {
        let early = self.run.early.take();
        let number = self.run.number.get();
        for (from, kind, bytes) in early {
            match bytes.first() == Some(&number) {
                true => self.take(from, kind, &bytes),
                false => self.run.early.borrow_mut().push_back((from, kind, bytes)),
            }
        }
    }

    /// Gives objects here their turns until no message is left for them.
    async fn work(&self) -> Result<(), ActorError> {
        let mut turns = 0;
        loop {
            if let Some(error) = self.run.failure.borrow().clone() {
                self.queue.borrow_mut().clear();
                if let ActorCause::Failed(failure) = &error.cause {
                    self.quiescence.failed(failure.clone());
                }
                return Err(error);
            }
            if let Some(rank) = self.run.full.take() {
                // Messages of others arrive meanwhile, so this ends, or the rank fails.
                self.channel.room(rank).await;
            }
            let passes = match self.run.after.borrow().front() {
                Some(Action::Pass { array, element, time }) => Some((*array, *element, *time)),
                _ => None,
            };
            if let Some((array, element, time)) = passes {
                let since = self.net.now();
                self.net.compute(time).await;
                self.run.after.borrow_mut().pop_front();
                if let (Some(entry), true) = (self.entry(array), self.measures.get()) {
                    entry.store.add_load(element, self.net.now().since(since));
                }
                self.drain();
                continue;
            }
            let Some(item) = self.queue.borrow_mut().pop() else { return Ok(()) };
            self.execute(item);
            turns += 1;
            if turns % BATCH == 0 {
                self.net.yield_now().await;
            }
        }
    }

    /// Waits for work, the end of a wave, or of a pause.
    async fn wait(
        &self,
        mut wave: Option<&mut Wave<'_>>,
        mut pause: Option<&mut Pause<'_>>,
    ) -> Waited {
        self.run.is_idle.set(true);
        let waited = poll_fn(|cx| {
            if self.has_work() {
                return Poll::Ready(Waited::Work);
            }
            if let Some(wave) = &mut wave {
                if let Poll::Ready(ended) = wave.as_mut().poll(cx) {
                    return Poll::Ready(Waited::Wave(ended));
                }
            }
            if let Some(pause) = &mut pause {
                if pause.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Waited::Pause);
                }
            }
            self.park(cx.waker());
            Poll::Pending
        })
        .await;
        self.run.is_idle.set(false);
        waited
    }
}
