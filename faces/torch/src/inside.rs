//! The part of a process group that is used under its lock: the job, its group, and operations that
//! have begun. Nothing here calls the interpreter.

use crate::begin::Begun;
use crate::fault::Fault;
use crate::outcome::{Ended, Outcome};
use pyo3::{Py, PyAny};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use weft::{Endpoint, Group, Job};

/// An operation under way.
struct Running {
    begun: Begun,
    outcome: Arc<Outcome>,
    /// The tensors, which keep their memory. The interpreter drops them when it runs next.
    _tensors: Py<PyAny>,
    /// The name of the operation.
    name: &'static str,
    limit: Duration,
    until: Option<Instant>,
}

impl Running {
    fn poll(&mut self) -> Option<Ended> {
        let mut context = Context::from_waker(Waker::noop());
        match self.begun.as_mut().poll(&mut context) {
            Poll::Ready(ended) => Some(ended.map_err(|fault| fault.of(self.name))),
            Poll::Pending => None,
        }
    }
}

/// A job with its operations.
pub struct Inside {
    running: Vec<Running>,
    job: Job,
}

impl Inside {
    pub fn new(job: Job) -> Inside {
        Inside { running: Vec::new(), job }
    }

    pub fn endpoint(&self) -> &Endpoint {
        self.job.endpoint()
    }

    pub fn group(&self) -> &Group {
        self.job.world()
    }

    /// Begins an operation, which fails if it takes longer than `limit`. Its tensors are kept until
    /// it has ended.
    pub fn begin(
        &mut self,
        name: &'static str,
        (limit, tensors): (Duration, Py<PyAny>),
        begin: impl FnOnce(&Group) -> Begun,
    ) -> Arc<Outcome> {
        let outcome = Arc::new(Outcome::default());
        let begun = begin(self.group());
        let until = Instant::now().checked_add(limit);
        let mut running =
            Running { begun, outcome: Arc::clone(&outcome), _tensors: tensors, name, limit, until };
        match running.poll() {
            Some(ended) => _ = outcome.put(ended),
            None => self.running.push(running),
        }
        outcome
    }

    /// True while an operation is under way.
    pub fn is_busy(&self) -> bool {
        !self.running.is_empty()
    }

    /// Ends the operations that are done, and those that are late. Returns those of them whose ends
    /// functions of Python wait for; `ended` if any has ended.
    pub fn collect(&mut self) -> Collected {
        let mut collected = Collected::default();
        if self.running.is_empty() {
            return collected;
        }
        let now = Instant::now();
        let mut at = 0;
        while at < self.running.len() {
            let running = &mut self.running[at];
            let late = running.until.is_some_and(|until| now >= until);
            let ended = running.poll().or_else(|| late.then(|| Err(self.late(at))));
            match ended {
                Some(ended) => collected.add(&self.running.remove(at).outcome, ended),
                None => at += 1,
            }
        }
        collected
    }

    /// Ends all operations with a fault.
    pub fn end_all(&mut self, fault: &Fault) -> Collected {
        let mut collected = Collected::default();
        for running in self.running.drain(..) {
            collected.add(&running.outcome, Err(fault.clone().of(running.name)));
        }
        collected
    }

    /// Leaves the job; what is queued is sent for at most `flush`.
    pub fn leave(self, flush: Duration) {
        drop(self.running);
        self.job.leave(flush);
    }

    /// Returns the time until the next operation is late.
    pub fn patience(&self) -> Option<Duration> {
        let next = self.running.iter().filter_map(|running| running.until).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Returns the fault of a wait that has ended at a limit.
    pub fn late_after(&self, limit: Duration) -> Fault {
        let awaited = self.endpoint().waiting().awaited();
        let what = awaited.unwrap_or_else(|| "for other ranks".to_owned());
        let seconds = limit.as_secs_f64();
        Fault::late(format!("Timed out after {seconds} s, waiting {what}"))
    }

    fn late(&self, at: usize) -> Fault {
        let running = &self.running[at];
        self.late_after(running.limit).of(running.name)
    }
}

/// The operations that have ended.
#[derive(Default)]
pub struct Collected {
    /// True if there is one.
    pub any: bool,
    /// The operations whose ends functions of Python wait for.
    pub called: Vec<Arc<Outcome>>,
}

impl Collected {
    fn add(&mut self, outcome: &Arc<Outcome>, ended: Ended) {
        self.any = true;
        if outcome.put(ended) {
            self.called.push(Arc::clone(outcome));
        }
    }
}
