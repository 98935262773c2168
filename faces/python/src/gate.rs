//! The lock of a job, and waits.
//!
//! Threads of Python call at any time. A call holds the lock while it works; one of the threads
//! that wait makes progress for all, and sleeps without the lock. No call enters the interpreter
//! while it has the lock, and every wait has left it: so the two locks do not wait for each other,
//! and a signal handler or a destructor of the program may call in turn.

use crate::fault::{Fault, Kind};
use crate::inside::Inside;
use crate::models::Models;
use crate::senders::Senders;
use crate::sys::{sleep_on, Owned, Shows};
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use std::any::Any;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use weft_link::copied::Origin;
use weft_sys::lock::Lock;

/// Longest time between two looks for signals, which may have come to another thread.
const LOOK: Duration = Duration::from_millis(200);
/// A piece of spinning, after which other threads may have the lock.
const PIECE: Duration = Duration::from_micros(5);

struct State {
    /// `None` when the job has been left.
    job: Option<Owned>,
    /// True while a thread, the leader, makes progress for all.
    leader: bool,
    /// True while the leader sleeps, without the lock.
    asleep: bool,
    /// True when the job is about to be left.
    ending: bool,
    /// Number of threads that wait for the leader.
    followers: usize,
}

/// The one that executes operations of shared objects.
pub trait Executes: Any + Send + Sync {
    /// True in an operation that this thread executes.
    fn is_inside(&self) -> bool;

    /// Handles what has come. False inside an operation.
    ///
    /// # Errors
    /// The job was left; the exception of a signal handler.
    fn execute(&self, py: Python<'_>, gate: &Gate) -> PyResult<bool>;

    /// Returns the value itself.
    fn as_any(&self) -> &dyn Any;
}

/// A job that many threads use.
pub struct Gate {
    origin: Origin,
    state: Lock<State>,
    progressed: Condvar,
    spin: Duration,
    /// Time after which a wait is worth a line in the log.
    warn_after: Duration,
    /// Longest time of a call in nanoseconds; 0: no limit.
    limit: AtomicU64,
    /// The one that executes operations of shared objects, once there are some.
    worker: OnceLock<Box<dyn Executes>>,
}

/// The end of a part of a wait.
enum Round<T> {
    Came(T),
    Late,
    /// A signal may have come.
    Look,
    /// Shared objects have something to do.
    Work,
}

/// The leader, until dropped: also if a panic unwinds.
struct Leading<'a>(&'a Gate);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.end_of_lead(&mut self.0.state.lock());
    }
}

/// Returns the fault of a call after the end of the job.
pub fn finished() -> Fault {
    Fault::new(Kind::Finished, "the job has been left (finish): no call is possible any more")
}

impl Shows for Gate {
    fn hide(&self, key: u64) {
        self.end_of_models(|models| models.hide(key));
    }
}

impl State {
    fn inside(&mut self) -> Result<&mut Inside, Fault> {
        match (&mut self.job, self.ending) {
            (Some(job), false) => Ok(job.get()),
            _ => Err(finished()),
        }
    }
}

impl Gate {
    pub fn new(inside: Inside, spin: Duration, warn_after: Duration) -> Gate {
        let job = Some(Owned::new(inside));
        let state = State { job, leader: false, asleep: false, ending: false, followers: 0 };
        Gate {
            origin: Origin::here(),
            state: Lock::new(state),
            progressed: Condvar::new(),
            spin,
            warn_after,
            limit: AtomicU64::new(0),
            worker: OnceLock::new(),
        }
    }

    /// Has waits execute operations of shared objects.
    pub fn set_worker(&self, worker: impl Executes) {
        // A second one is the same.
        let _known = self.worker.set(Box::new(worker));
    }

    /// Returns the one that executes operations of shared objects, which is of this type.
    pub fn worker<T: Executes>(&self) -> Option<&T> {
        self.worker.get()?.as_any().downcast_ref()
    }

    /// Returns the time after which a wait is worth a line in the log; zero: it never is.
    pub fn warn_after(&self) -> Duration {
        self.warn_after
    }

    /// Returns the longest time of a call, if there is a limit.
    pub fn limit(&self) -> Option<Duration> {
        let limit = self.limit.load(Ordering::Relaxed);
        (limit > 0).then(|| Duration::from_nanos(limit))
    }

    /// Sets the longest time of a call.
    pub fn set_limit(&self, limit: Option<Duration>) {
        let nanos = limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.limit.store(if limit.is_some() { nanos.max(1) } else { 0 }, Ordering::Relaxed);
    }

    /// # Errors
    /// This thread executes an operation of a shared object: other ranks may need its end before
    /// they do what it would wait for.
    pub fn check_outside(&self) -> Result<(), Fault> {
        match self.worker.get().is_some_and(|worker| worker.is_inside()) {
            false => Ok(()),
            true => Err(Fault::new(
                Kind::Operation,
                "a call that may wait for other ranks, inside an operation of a shared object, \
                 which must not wait: make the call before or after the operation",
            )),
        }
    }

    /// # Errors
    /// This process is a copy of the one that joined: another thread may have had the lock at that
    /// moment.
    pub fn check_origin(&self) -> Result<(), Fault> {
        match self.origin.is_here() {
            true => Ok(()),
            false => Err(Fault::new(
                Kind::Forked,
                "this process is a copy, made by fork, of the rank that joined the job: fork \
                 before weft.init, or use multiprocessing's method spawn",
            )),
        }
    }

    /// Calls `f` under the lock. It must not enter the interpreter.
    ///
    /// # Errors
    /// The job was left, or this process is a copy; the error of `f`.
    pub fn with<T>(&self, f: impl FnOnce(&mut Inside) -> Result<T, Fault>) -> Result<T, Fault> {
        self.check_origin()?;
        let mut state = self.state.lock();
        let result = f(state.inside()?);
        match state.asleep {
            // An operation begun here may need a retransmission before the leader would wake.
            true => state.inside()?.endpoint().waiting().rearm(false),
            // A program may wait for nothing: its calls serve the other ranks all the same.
            false => state.inside()?.endpoint().waiting().attend(),
        }
        result
    }

    /// Calls `f` under the lock as [`with`](Self::with) does, for work that may take long: other
    /// threads of Python run meanwhile.
    ///
    /// # Errors
    /// Returns the errors of `with`.
    pub fn long<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Inside) -> Result<T, Fault> + Send,
    ) -> PyResult<T> {
        py.detach(|| self.with(f)).map_err(|fault| fault.raise(py))
    }

    /// Ends an operation on a region, forgets a region, or the showing of its memory, if the job is
    /// still there.
    pub fn end_of_models(&self, f: impl FnOnce(&mut Models)) {
        if self.origin.is_here() {
            let mut state = self.state.lock();
            if let Some(models) = state.job.as_mut().and_then(|job| job.get().used_models()) {
                f(models);
            }
        }
    }

    /// Forgets an operation, if the job is still there.
    pub fn forget(&self, number: u64) {
        if self.origin.is_here() {
            let mut state = self.state.lock();
            if let Some(job) = &mut state.job {
                job.get().forget(number);
            }
        }
    }

    /// Ends the watch of a receive from any rank over the other ranks, if the job is still there.
    pub fn end_senders(&self, senders: Option<Senders>) {
        let Some(senders) = senders.filter(|_| self.origin.is_here()) else { return };
        if let Some(job) = &mut self.state.lock().job {
            senders.end(job.get());
        }
    }

    /// Waits until `look` finds something, at most until a time: then `None`. Without a time the
    /// limit of the job holds. Signals are handled meanwhile, and other threads of Python run.
    ///
    /// # Errors
    /// This thread executes an operation of a shared object; the exception of a signal handler; the
    /// error of `look`; the job was left; the limit has passed.
    pub fn wait<T: Send>(
        &self,
        py: Python<'_>,
        until: Option<Instant>,
        mut look: impl FnMut(&mut Inside) -> Result<Option<T>, Fault> + Send,
    ) -> PyResult<Option<T>> {
        self.check_outside().map_err(|fault| fault.raise(py))?;
        let works = self.worker.get().is_some();
        let limit = self.limit().filter(|_| until.is_none());
        let until = until.or_else(|| Instant::now().checked_add(limit?));
        loop {
            match py.detach(|| self.round(until, works, &mut look)) {
                Ok(Round::Came(found)) => return Ok(Some(found)),
                Ok(Round::Late) => match limit {
                    Some(limit) => return Err(self.late(py, limit)),
                    None => return Ok(None),
                },
                Ok(Round::Look) => py.check_signals()?,
                Ok(Round::Work) => {
                    if let Some(worker) = self.worker.get() {
                        worker.execute(py, self)?;
                    }
                }
                Err(fault) => return Err(fault.raise(py)),
            }
        }
    }

    /// Returns the exception of a wait that has ended at the limit.
    fn late(&self, py: Python<'_>, limit: Duration) -> PyErr {
        let awaited = self.with(|inside| Ok(inside.endpoint().waiting().awaited()));
        match awaited {
            Ok(awaited) => {
                let what = awaited.unwrap_or_else(|| "for other ranks".to_string());
                let limit = limit.as_secs_f64();
                let text = format!("no end within {limit} s (Job.timeout): waiting {what}");
                PyTimeoutError::new_err(text)
            }
            Err(fault) => fault.raise(py),
        }
    }

    fn round<T>(
        &self,
        until: Option<Instant>,
        works: bool,
        look: &mut impl FnMut(&mut Inside) -> Result<Option<T>, Fault>,
    ) -> Result<Round<T>, Fault> {
        self.check_origin()?;
        let mut state = self.state.lock();
        let end = Instant::now() + LOOK;
        let mut at_once = true;
        loop {
            let inside = state.inside()?;
            inside.collect();
            if let Some(found) = look(inside)? {
                if at_once {
                    inside.endpoint().waiting().attend();
                }
                return Ok(Round::Came(found));
            }
            at_once = false;
            if works && inside.has_events() {
                return Ok(Round::Work);
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Ok(Round::Late);
            }
            if now >= end {
                return Ok(Round::Look);
            }
            let left = until.map_or(end, |until| until.min(end)).saturating_duration_since(now);
            if state.leader {
                if state.asleep {
                    state.inside()?.endpoint().waiting().rearm(false);
                }
                state = self.follow(state, left);
                continue;
            }
            state.leader = true;
            let leading = Leading(self);
            let signalled;
            (state, signalled) = self.lead(state, left)?;
            self.end_of_lead(&mut state);
            std::mem::forget(leading);
            if signalled {
                return Ok(Round::Look);
            }
        }
    }

    /// Waits for the leader, at most for a time.
    fn follow<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        limit: Duration,
    ) -> MutexGuard<'a, State> {
        state.followers += 1;
        let waited = self.progressed.wait_timeout(state, limit);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.followers -= 1;
        state
    }

    /// Has other threads that wait look again: shared objects have changed.
    pub fn tell(&self) {
        if !self.origin.is_here() {
            return;
        }
        let mut state = self.state.lock();
        if state.followers > 0 {
            self.progressed.notify_all();
        }
        if let (true, Ok(inside)) = (state.asleep, state.inside()) {
            inside.endpoint().waiting().rearm(true);
        }
    }

    /// Makes the place of the leader free.
    fn end_of_lead(&self, state: &mut State) {
        state.leader = false;
        // A notice is a system call, also where nobody waits for it.
        if state.followers > 0 {
            self.progressed.notify_all();
        }
    }

    /// Makes progress for all, and sleeps without the lock if there is nothing to do. True if a
    /// signal came.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        limit: Duration,
    ) -> Result<(MutexGuard<'a, State>, bool), Fault> {
        let begun = Instant::now();
        loop {
            if state.inside()?.endpoint().wait(Some(PIECE)) {
                return Ok((state, false));
            }
            if begun.elapsed() >= self.spin {
                break;
            }
            if self.state.is_awaited() {
                drop(state);
                std::thread::yield_now();
                state = self.state.lock();
            }
        }
        let endpoint = state.inside()?.endpoint();
        if !endpoint.waiting().prepare() {
            return Ok((state, false));
        }
        let Some(fd) = endpoint.waiting().fd().map(|fd| fd.as_raw_fd()) else {
            return Ok((state, false));
        };
        state.asleep = true;
        drop(state);
        let signalled = !sleep_on(fd, limit);
        let mut state = self.state.lock();
        state.asleep = false;
        if let Some(job) = &mut state.job {
            job.get().endpoint().waiting().finish();
        }
        Ok((state, signalled))
    }

    /// True if this process has joined the job, and has not left it.
    pub fn is_here(&self) -> bool {
        self.origin.is_here() && self.state.lock().inside().is_ok()
    }

    /// Leaves the job; false if it was left before.
    ///
    /// # Errors
    /// This process is a copy.
    pub fn finish(&self) -> Result<bool, Fault> {
        self.check_origin()?;
        let mut state = self.state.lock();
        if state.ending || state.job.is_none() {
            return Ok(false);
        }
        state.ending = true;
        while state.leader {
            // The leader sleeps on a descriptor of the job.
            if let (true, Some(job)) = (state.asleep, &mut state.job) {
                job.get().endpoint().waiting().rearm(true);
            }
            state = self.follow(state, LOOK);
        }
        if let Some(mut job) = state.job.take() {
            job.get().forget_all();
            if let Some(models) = job.get().used_models() {
                models.leave_memory();
            }
            drop(job);
        }
        self.progressed.notify_all();
        Ok(true)
    }
}
