//! The lock of shared objects, and their operations, executed by whatever thread is in a call of
//! weft.

use super::world::{Failed, World};
use crate::fault::{Fault, Kind};
use crate::gate::{Executes, Gate};
use crate::sys::{raise_signal, thread, Guarded, Holds};
use pyo3::prelude::*;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Time for which a call waits before it notices the silence of other ranks.
const SOON: Duration = Duration::from_millis(1);
/// Time without a call after which other ranks may have failed unseen.
const ABSENT: Duration = Duration::from_millis(10);
/// Time between two looks of a wait.
const LOOK: Duration = Duration::from_millis(200);

/// The lock of the shared objects of a job, and what is under it.
pub struct Worker {
    /// The lock of all objects: a thread that has it may take it again.
    acquire: Py<PyAny>,
    release: Py<PyAny>,
    world: Guarded<Rc<World>>,
    /// The thread that handles signals.
    main: u64,
    /// Has handlers of the program ask `hold_back`: called once, in that thread.
    follow: Py<PyAny>,
    follows: AtomicBool,
    /// Signals that came inside operations, the lowest bit for signal 1.
    held: AtomicU64,
    /// The thread that executes operations now; 0: none.
    thread: AtomicU64,
    /// Number of times that something was handled.
    turns: AtomicU64,
    /// True while posts of this rank are under way.
    posts: AtomicBool,
    /// The time of the last operation of this rank, in microseconds from `opened` on.
    last: AtomicU64,
    opened: Instant,
}

/// The lock of all objects, until dropped.
pub struct Locked<'a, 'py> {
    worker: &'a Worker,
    py: Python<'py>,
}

impl Holds for Locked<'_, '_> {}

impl Drop for Locked<'_, '_> {
    fn drop(&mut self) {
        // The release fails for threads that do not have the lock.
        let _released = self.worker.release.bind(self.py).call0();
    }
}

/// A thread that executes operations, until dropped: also if a panic unwinds.
struct Executing<'a>(&'a AtomicU64);

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A waker of a wait that looks again after each turn.
struct Looks;

impl Wake for Looks {
    fn wake(self: Arc<Self>) {}
}

/// An operation under way, which is dropped under the lock.
struct Running<'a, 'py, F> {
    worker: &'a Worker,
    gate: &'a Gate,
    py: Python<'py>,
    work: Option<F>,
}

impl<F> Drop for Running<'_, '_, F> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        if self.gate.check_origin().is_err() {
            // The lock of a copy of the process may have a holder that is not there.
            return std::mem::forget(work);
        }
        let locked = self.worker.lock(self.py);
        match locked.or_else(|_| self.worker.lock(self.py)) {
            Ok(locked) => {
                drop(work);
                self.worker.after(&locked);
            }
            Err(_) => std::mem::forget(work),
        }
    }
}

/// The things that a wait says about itself.
pub struct Saying<'a> {
    /// Time after which a wait is worth a line in the log; zero: it never is.
    pub warn_after: Duration,
    /// Says it.
    pub warn: &'a dyn Fn(Duration) -> PyResult<()>,
    /// Returns the exception of a wait that has ended at its limit.
    pub late: &'a dyn Fn(&World, Duration) -> PyErr,
}

impl Executes for Worker {
    fn is_inside(&self) -> bool {
        let worker = self.thread.load(Ordering::Relaxed);
        worker != 0 && worker == thread()
    }

    fn execute(&self, py: Python<'_>, gate: &Gate) -> PyResult<bool> {
        self.work(py, gate)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Worker {
    /// Returns the one of a job, if its objects were opened.
    pub fn of(gate: &Gate) -> Option<&Worker> {
        gate.worker()
    }

    /// Opens the objects of a job; `runtime` is the object of Python that has the functions.
    ///
    /// # Errors
    /// The runtime does not have the functions; the job was left.
    pub fn new(gate: &Arc<Gate>, runtime: &Bound<'_, PyAny>) -> PyResult<Worker> {
        let py = runtime.py();
        let lock = runtime.getattr("lock")?;
        let main = py.import("threading")?.call_method0("main_thread")?.getattr("ident")?;
        let worker = Worker {
            acquire: lock.getattr("acquire")?.unbind(),
            release: lock.getattr("release")?.unbind(),
            world: Guarded::new(),
            main: main.extract()?,
            follow: runtime.getattr("follow_signals")?.unbind(),
            follows: AtomicBool::new(false),
            held: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            posts: AtomicBool::new(false),
            last: AtomicU64::new(0),
            opened: Instant::now(),
        };
        let locked = worker.lock(py)?;
        let left = || Fault::new(Kind::Finished, "the job has been left").raise(py);
        let world = World::open(gate).ok_or_else(left)?;
        worker.world.set(&locked, world);
        drop(locked);
        Ok(worker)
    }

    /// True while a thread executes operations, or posts of this rank are under way.
    pub fn is_busy(&self) -> bool {
        self.thread.load(Ordering::Relaxed) != 0 || self.posts.load(Ordering::Relaxed)
    }

    /// True if this rank has begun no operation for some time, before this one.
    pub fn was_absent(&self) -> bool {
        let now = u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX);
        let before = self.last.swap(now, Ordering::Relaxed);
        u128::from(now.saturating_sub(before)) >= ABSENT.as_micros()
    }

    pub fn lock<'a, 'py>(&'a self, py: Python<'py>) -> PyResult<Locked<'a, 'py>> {
        self.acquire.bind(py).call0()?;
        Ok(Locked { worker: self, py })
    }

    /// Calls `f` with the objects, which executes no operation of the program by itself.
    ///
    /// # Errors
    /// The job was left, or this process is a copy; the exception of a signal's handler.
    pub fn with<T>(
        &self,
        py: Python<'_>,
        gate: &Gate,
        f: impl FnOnce(&Rc<World>) -> T,
    ) -> PyResult<T> {
        gate.check_origin().map_err(|fault| fault.raise(py))?;
        let locked = self.lock(py)?;
        let world = self.open(py, &locked)?;
        Ok(f(&world))
    }

    fn open(&self, py: Python<'_>, locked: &Locked<'_, '_>) -> PyResult<Rc<World>> {
        let world = self.world.open(locked).map(|world| Rc::clone(&world));
        world.ok_or_else(|| crate::gate::finished().raise(py))
    }

    /// Goes on with what the holder of the lock has begun.
    fn after(&self, locked: &Locked<'_, '_>) {
        if let Some(world) = self.world.open(locked).map(|world| Rc::clone(&world)) {
            world.net().run_tasks();
            self.posts.store(!world.is_settled(), Ordering::Relaxed);
        }
    }

    /// Calls `f` as the thread that executes operations. An exception of a signal's handler in the
    /// middle of one would leave this rank's state unlike that of others: handlers are called
    /// afterwards (`weft/_signals.py`).
    ///
    /// # Errors
    /// The job was left; the exception of a signal's handler; the error of `f`.
    fn holding<T>(&self, py: Python<'_>, f: impl FnOnce(&Rc<World>) -> PyResult<T>) -> PyResult<T> {
        let locked = self.lock(py)?;
        let world = self.open(py, &locked)?;
        let this = thread();
        if this == self.main && !self.follows.load(Ordering::Relaxed) {
            self.follow.bind(py).call0()?;
            self.follows.store(true, Ordering::Relaxed);
        }
        // One that came before; Python runs its handler at any later time.
        py.check_signals()?;
        let executing = Executing(&self.thread);
        self.thread.store(this, Ordering::Relaxed);
        let result = f(&world);
        self.after(&locked);
        drop(executing);
        let held = self.held.swap(0, Ordering::Relaxed);
        if held != 0 {
            (1..=u64::BITS).filter(|signal| held >> (signal - 1) & 1 == 1).for_each(raise_signal);
        }
        let result = result?;
        py.check_signals()?;
        Ok(result)
    }

    /// True in an operation that this thread executes: then the signal is raised again at its end.
    pub fn hold_back(&self, signal: u32) -> bool {
        let holds = self.is_inside() && (1..=u64::BITS).contains(&signal);
        if holds {
            self.held.fetch_or(1 << (signal - 1), Ordering::Relaxed);
        }
        holds
    }

    /// Handles what has come. False inside an operation.
    ///
    /// # Errors
    /// The job was left; the exception of a signal handler.
    pub fn work(&self, py: Python<'_>, gate: &Gate) -> PyResult<bool> {
        if self.is_inside() {
            return Ok(false);
        }
        let done = self.holding(py, |world| loop {
            let events = gate.with(|inside| Ok(inside.models()?.events()));
            let events = events.map_err(|fault| fault.raise(py))?;
            if events.is_empty() {
                return Ok(());
            }
            for event in events {
                world.net().handle_event(event);
                world.net().run_tasks();
            }
        });
        self.turns.fetch_add(1, Ordering::Relaxed);
        // Threads may wait for the ends of their operations.
        gate.tell();
        done.map(|()| true)
    }

    /// Runs an operation to its end, for at most `limit`. Dropped before, it is given up.
    ///
    /// # Errors
    /// The job was left; the exception of a signal's handler; the limit has passed.
    pub fn block_on<T>(
        &self,
        py: Python<'_>,
        gate: &Gate,
        (limit, saying): (Option<Duration>, &Saying<'_>),
        begin: impl FnOnce(&Rc<World>) -> Pin<Box<dyn Future<Output = Result<T, Failed>>>>,
    ) -> PyResult<Result<T, Failed>> {
        gate.check_outside().and_then(|()| gate.check_origin()).map_err(|f| f.raise(py))?;
        let begun = Instant::now();
        let (mut running, mut begin) =
            (Running { worker: self, gate, py, work: None }, Some(begin));
        let (mut is_quick, mut told) = (true, saying.warn_after.is_zero());
        let (looks, mut has_waited) = (Waker::from(Arc::new(Looks)), false);
        loop {
            let seen = self.turns.load(Ordering::Relaxed);
            let waker = if is_quick { Waker::noop() } else { &looks };
            let polled = self.holding(py, |world| {
                if let Some(begin) = begin.take() {
                    running.work = Some(begin(world));
                }
                // This side of the wait says what takes long.
                world.net().set_quiet(true);
                let work = running.work.as_mut().map(|work| work.as_mut());
                let polled = work.map(|work| work.poll(&mut Context::from_waker(waker)));
                world.net().set_quiet(false);
                if let Some(Poll::Ready(_)) = polled {
                    running.work = None;
                }
                Ok(polled)
            })?;
            if let Some(Poll::Ready(done)) = polled {
                if !has_waited {
                    Worker::look_after(py, gate)?;
                }
                return Ok(done);
            }
            let waited = begun.elapsed();
            if let Some(limit) = limit.filter(|limit| waited >= *limit) {
                let late = self.with(py, gate, |world| (saying.late)(world, limit))?;
                return Err(late);
            }
            if !told && waited >= saying.warn_after {
                told = true;
                (saying.warn)(waited)?;
            }
            let mut until = begun + waited + if is_quick { SOON } else { LOOK };
            for time in [limit, (!told).then_some(saying.warn_after)].into_iter().flatten() {
                until = until.min(begun + time);
            }
            let turned = gate.wait(py, Some(until), |_| {
                Ok((self.turns.load(Ordering::Relaxed) != seen).then_some(()))
            })?;
            has_waited = true;
            is_quick = is_quick && turned.is_some() && waited < SOON;
        }
    }

    /// Calls `f` with the objects, which may execute operations and does not wait.
    ///
    /// # Errors
    /// The job was left, or this process is a copy; the exception of a signal's handler.
    pub fn posting<T>(
        &self,
        py: Python<'_>,
        gate: &Gate,
        f: impl FnOnce(&Rc<World>) -> T,
    ) -> PyResult<T> {
        gate.check_outside().and_then(|()| gate.check_origin()).map_err(|f| f.raise(py))?;
        self.holding(py, |world| Ok(f(world)))
    }

    /// Makes progress once for an operation that has not waited: others may need this rank.
    fn look_after(py: Python<'_>, gate: &Gate) -> PyResult<()> {
        let looked = gate.with(|inside| {
            inside.endpoint().progress();
            inside.collect();
            Ok(())
        });
        looked.map_err(|fault| fault.raise(py))
    }

    /// Ends the objects of this rank, before it leaves the job.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        let locked = self.lock(py)?;
        if let Some(world) = self.world.take(&locked) {
            world.close();
            drop(world);
        }
        drop(locked);
        Ok(())
    }
}
