//! Queues of jobs at their owners.

use super::{Aggregator, Item, Quiescence};
use crate::net::{Blocking, Net, RankFailure};
use crate::park;
use crate::together::may_wait;
use std::cell::{Cell, RefCell};
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Jobs that are done between two rounds of progress.
const BATCH: usize = 128;

/// A wave that this rank takes part in.
type Wave<'a> = Pin<Box<dyn Future<Output = Result<bool, RankFailure>> + 'a>>;

/// Jobs that this rank has, the newest last.
struct Queue<J> {
    jobs: RefCell<Vec<J>>,
    /// Jobs of ranks that have begun the next run.
    early: RefCell<Vec<J>>,
    run: Cell<u8>,
    received: Cell<u64>,
    wakers: RefCell<Vec<Waker>>,
}

/// The counts of a run at this rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Jobs that were done here.
    pub jobs: u64,
    /// Jobs that this rank has pushed to others.
    pub pushed: u64,
    /// Messages in which they went.
    pub messages: u64,
}

/// The jobs of all ranks. A rank keeps it until all others have ended their runs.
pub struct Jobs<N: Net, J: Item> {
    net: N,
    queue: Rc<Queue<J>>,
    aggregator: Aggregator<N>,
    quiescence: Quiescence<N>,
    failure: RefCell<Option<RankFailure>>,
    /// A rank for which too much waits.
    full: Cell<Option<usize>>,
    compute: Cell<Duration>,
}

/// The way for a job to push others.
pub struct Next<'a, N: Net, J: Item> {
    jobs: &'a Jobs<N, J>,
}

impl<N: Net, J: Item> Next<'_, N, J> {
    /// Pushes a job to its owner.
    ///
    /// # Panics
    /// There is no such rank.
    #[inline]
    pub fn push(&self, owner: usize, job: &J) {
        self.jobs.push(owner, job);
    }

    /// Lets time pass for the job where the clock does not see programs compute: see
    /// [`Net::compute`].
    pub fn compute(&self, time: Duration) {
        self.jobs.compute.set(self.jobs.compute.get() + time);
    }
}

impl<N: Net, J: Item> Jobs<N, J> {
    /// Opens the jobs of all ranks, which call this with the same arguments; `number` (0 to 255)
    /// tells several queues apart. Most jobs in a message are `per_message`, a matter of speed
    /// alone. Jobs that came before have waited. A number can be opened again once all ranks have
    /// dropped theirs.
    ///
    /// # Panics
    /// The number is too large, or a job has no bytes.
    pub fn open(net: &N, number: u16, per_message: usize) -> Jobs<N, J> {
        let queue = Rc::new(Queue {
            jobs: RefCell::default(),
            early: RefCell::default(),
            run: Cell::new(0),
            received: Cell::new(0),
            wakers: RefCell::default(),
        });
        let into = Rc::clone(&queue);
        let receive = move |_: usize, run: u8, record: &[u8]| {
            into.received.set(into.received.get() + 1);
            if run == into.run.get() {
                into.jobs.borrow_mut().push(J::get(record));
                into.wake();
            } else {
                into.early.borrow_mut().push(J::get(record));
            }
        };
        let aggregator = Aggregator::of_runs(net, number, J::SIZE, per_message, receive);
        Jobs {
            net: net.clone(),
            queue,
            aggregator,
            quiescence: Quiescence::open(net, number),
            failure: RefCell::default(),
            full: Cell::new(None),
            compute: Cell::new(Duration::ZERO),
        }
    }

    /// Pushes a job to its owner: also before a run, for a first one.
    ///
    /// # Panics
    /// There is no such rank.
    #[inline]
    pub fn push(&self, owner: usize, job: &J) {
        if owner == self.net.rank() {
            self.queue.jobs.borrow_mut().push(*job);
            return;
        }
        self.quiescence.sent(1);
        match self.aggregator.push_with(owner, |buffer| job.put(buffer)) {
            Ok(()) if self.aggregator.is_full(owner) => self.full.set(Some(owner)),
            Ok(()) => {}
            Err(failure) => drop(self.failure.replace(Some(failure))),
        }
    }

    /// Does jobs until no rank has one left and none is on its way; `work` does one, and pushes
    /// those that it makes. The newest job of a rank comes first. All ranks call this.
    ///
    /// # Errors
    /// A rank has failed, and its jobs with it.
    pub async fn run(&self, mut work: impl FnMut(J, &Next<'_, N, J>)) -> Result<Done, RankFailure> {
        let (pushed, messages) = self.aggregator.counts();
        let mut jobs = 0;
        let mut wave: Option<Wave<'_>> = None;
        loop {
            jobs += self.do_batch(&mut work);
            if let Some(failure) = self.failure.borrow().clone() {
                return Err(self.told(failure));
            }
            self.quiescence.received(self.queue.received.take());
            let time = self.compute.take();
            if !time.is_zero() {
                self.net.compute(time).await;
            }
            if let Some(owner) = self.full.take() {
                // Jobs of others arrive meanwhile, so this ends.
                self.aggregator.room(owner).await;
            }
            if !self.queue.jobs.borrow().is_empty() {
                self.net.yield_now().await;
                continue;
            }
            self.aggregator.flush().map_err(|failure| self.told(failure))?;
            self.quiescence.received(self.queue.received.take());
            let under_way = wave.get_or_insert_with(|| Box::pin(self.quiescence.wave()));
            match self.job_or(under_way).await {
                None => {}
                Some(ended) => {
                    wave = None;
                    if ended? {
                        self.begin_next();
                        break;
                    }
                    self.net.yield_now().await;
                }
            }
        }
        let (all_pushed, all_messages) = self.aggregator.counts();
        Ok(Done { jobs, pushed: all_pushed - pushed, messages: all_messages - messages })
    }

    /// Tells all ranks of a failure that this one has met with. This rank may leave with it, and
    /// others would take the leaver for the one that has failed.
    fn told(&self, failure: RankFailure) -> RankFailure {
        self.quiescence.failed(failure)
    }

    /// Ends a run: what comes from now on belongs to the next one.
    fn begin_next(&self) {
        let run = self.queue.run.get().wrapping_add(1);
        self.queue.run.set(run);
        self.aggregator.run.set(run);
        self.queue.jobs.borrow_mut().append(&mut self.queue.early.borrow_mut());
    }

    fn do_batch(&self, work: &mut impl FnMut(J, &Next<'_, N, J>)) -> u64 {
        let next = Next { jobs: self };
        let mut done = 0;
        while done < BATCH as u64 && self.full.get().is_none() {
            let Some(job) = self.queue.jobs.borrow_mut().pop() else { break };
            work(job, &next);
            done += 1;
        }
        done
    }

    /// Waits for the end of a wave, or for a job.
    async fn job_or<F: Future + Unpin>(&self, wave: &mut F) -> Option<F::Output> {
        poll_fn(|cx| {
            if !self.queue.jobs.borrow().is_empty() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(ended) = Pin::new(&mut *wave).poll(cx) {
                return Poll::Ready(Some(ended));
            }
            park(&mut self.queue.wakers.borrow_mut(), cx.waker());
            Poll::Pending
        })
        .await
    }
}

impl<J> Queue<J> {
    #[inline]
    fn wake(&self) {
        if !self.wakers.borrow().is_empty() {
            self.wakers.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl<N: Blocking, J: Item> Jobs<N, J> {
    /// Does jobs until no rank has one left, with progress meanwhile.
    ///
    /// # Errors
    /// Returns the errors of [`run`](Jobs::run).
    pub fn run_blocking(&self, work: impl FnMut(J, &Next<'_, N, J>)) -> Result<Done, RankFailure> {
        may_wait(&self.net)?;
        self.net.block_on(self.run(work))
    }
}
