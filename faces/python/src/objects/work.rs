//! Operations of shared objects, executed by whatever thread is in a call of weft.
//!
//! An operation on an object that is always at this rank, alone or on all ranks, is executed from
//! here where its guard is true and none waits for what it changes: its method is the one function
//! of Python that runs. All else is handed to the functions of `weft/_objects.py`.

use super::encode::{self, Status, Value};
use crate::fault::{Fault, Kind};
use crate::gate::Gate;
use crate::models::{Asked, Event};
use crate::sys::{raise_signal, thread};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySet, PyTuple};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A marked method: its name, its function, its guard, and true if it changes the object.
pub type Method = (String, Py<PyAny>, Option<Py<PyAny>>, bool);

/// The end of an operation of this rank: true and the result, false and the exception, or no truth
/// value if it is to be tried again elsewhere.
pub type End = (Option<bool>, Py<PyAny>);

/// A function of a method, with the number of its executions.
struct Counted {
    function: Py<PyAny>,
    executions: AtomicU64,
}

/// A marked method.
struct Known {
    function: Counted,
    guard: Option<Counted>,
    writes: bool,
}

/// An object that is always at this rank: there alone, or on all ranks.
pub struct Replica {
    /// The object of Python that has more of it, its state among that.
    replica: Py<PyAny>,
    methods: HashMap<String, Known>,
    /// Operations that wait for their guards: those that change the object try them again.
    blocked: Py<PyList>,
}

impl Replica {
    pub fn new(replica: Py<PyAny>, methods: Vec<Method>, blocked: Py<PyList>) -> Replica {
        let counted = |function| Counted { function, executions: AtomicU64::new(0) };
        let known = |(name, function, guard, writes): Method| {
            (name, Known { function: counted(function), guard: guard.map(counted), writes })
        };
        Replica { replica, methods: methods.into_iter().map(known).collect(), blocked }
    }

    /// Calls a method with the object and the arguments, a tuple or a pickle of them. `None`: its
    /// guard is not true, or other operations wait for what it changes, or it cannot be called: the
    /// functions of Python do the rest.
    fn call<'py>(
        &self,
        py: Python<'py>,
        worker: &Worker,
        asked: &encode::Asked<'_>,
    ) -> Option<PyResult<Bound<'py, PyAny>>> {
        let Known { function, guard, writes } = self.methods.get(asked.method)?;
        let is_plain = !writes || self.blocked.bind(py).is_empty();
        if !is_plain || !self.replica.bind(py).getattr(intern!(py, "broken")).ok()?.is_none() {
            return None;
        }
        let (arguments, names) = match encode::value(py, asked.arguments)? {
            Value::Made(made) => (made.cast_into::<PyTuple>().ok()?, None),
            Value::Pickled(pickle) => {
                // The functions of Python say why they cannot be read.
                let made = worker.loads.bind(py).call1((PyBytes::new(py, pickle),)).ok()?;
                let (made, names) =
                    made.extract::<(Bound<'_, PyTuple>, Bound<'_, PyDict>)>().ok()?;
                (made, Some(names).filter(|names| !names.is_empty()))
            }
        };
        let state = self.replica.bind(py).getattr(intern!(py, "state")).ok()?;
        let all = match arguments.is_empty() {
            true => PyTuple::new(py, [&state]),
            false => {
                let all = std::iter::once(state.clone()).chain(arguments.iter());
                PyTuple::new(py, all.collect::<Vec<_>>())
            }
        };
        let (all, names) = (all.ok()?, names.as_ref());
        let unchanging = |function: &Counted, is_guard| {
            self.unchanging(worker, (function, asked.method, is_guard), &all, names)
        };
        let holds = |guard: &Counted| unchanging(guard, true)?.is_truthy();
        let result = match guard.as_ref().map(holds) {
            Some(Ok(false)) => return None,
            Some(Err(error)) => Err(error),
            _ if *writes => worker.thawed(&state, || function.function.bind(py).call(&all, names)),
            _ => unchanging(function, false),
        };
        if let (true, Err(error)) = (writes, &result) {
            let all = (&self.replica, asked.method, error.value(py));
            if let Err(error) = worker.doubt.bind(py).call1(all) {
                return Some(Err(error));
            }
        }
        Some(result)
    }

    /// Calls a read or a guard, and has the 1st, 2nd, 4th, 8th, ... execution checked: all ranks
    /// check the same ones of the guard of a write. `all` has the state first.
    fn unchanging<'py>(
        &self,
        worker: &Worker,
        (function, method, is_guard): (&Counted, &str, bool),
        all: &Bound<'py, PyTuple>,
        names: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = all.py();
        let execution = function.executions.fetch_add(1, Ordering::Relaxed) + 1;
        if !execution.is_power_of_two() {
            return function.function.bind(py).call(all, names);
        }
        let names = names.map_or_else(|| PyDict::new(py), Bound::clone);
        worker.checked.bind(py).call1((&self.replica, method, is_guard, all, names))
    }
}

/// The state of the shared objects of a job, and the functions of Python for them.
pub struct Worker {
    /// The lock of all objects: a thread that has it may take it again.
    acquire: Py<PyAny>,
    release: Py<PyAny>,
    /// Executes a message of the order: author, bytes.
    order: Py<PyAny>,
    /// Executes a change of the order: its token if it is this rank's, its author, and the rest as
    /// `serve` has it.
    execute: Py<PyAny>,
    /// Ends an operation of this rank: token, the names of object and method, true if it returned,
    /// the result or the exception.
    end: Py<PyAny>,
    /// Executes a call: its number, the rank that calls, the names of object and method, the
    /// arguments or `None`, or else their pickle.
    serve: Py<PyAny>,
    /// Answers a call by an exception: its number, the name of the object, the exception.
    fail: Py<PyAny>,
    /// Has a replica be of no use if its operation has failed at this rank alone: the object of
    /// Python for it, the method, the exception.
    doubt: Py<PyAny>,
    /// Calls a read or a guard, and undoes what it changes: the object of Python for it, the
    /// method, true for its guard, the arguments with the state first, and those with names.
    checked: Py<PyAny>,
    /// The numbers of the states that must not change now.
    frozen: Py<PySet>,
    /// Sends the messages of the order that had no room, which wait in this.
    flush: Py<PyAny>,
    outbox: Py<PyAny>,
    /// Pickles arguments.
    dump: Py<PyAny>,
    /// Pickles the result of an operation: true if it returned, the result; returns the two, since
    /// what cannot be sent becomes an error.
    dump_result: Py<PyAny>,
    loads: Py<PyAny>,
    /// The thread that handles signals.
    main: u64,
    /// Has handlers of the program ask `hold_back`: called once, in that thread.
    follow: Py<PyAny>,
    follows: AtomicBool,
    /// Signals that came inside operations, the lowest bit for signal 1.
    held: AtomicU64,
    /// The thread that executes operations now; 0: none.
    thread: AtomicU64,
    /// Number of messages of the order that have been executed here.
    executed: AtomicU64,
    /// Calls of ranks that have executed more.
    late: Mutex<Vec<Asked>>,
    replicas: Mutex<HashMap<String, Arc<Replica>>>,
    rank: usize,
    /// The last token, by which a rank knows its operations in the order.
    token: AtomicU64,
    /// Ends of this rank's operations by their tokens.
    ends: Mutex<HashMap<u64, End>>,
    /// Number of this rank's operations that nobody waits for: sent, and met in the order.
    posted: AtomicU64,
    posts_met: AtomicU64,
}

/// The lock of all objects, until dropped.
struct Locked<'a, 'py> {
    worker: &'a Worker,
    py: Python<'py>,
}

impl Drop for Locked<'_, '_> {
    fn drop(&mut self) {
        // It fails for those that do not have it.
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

fn open<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    /// Makes that of `runtime`, the object of Python that has the functions.
    ///
    /// # Errors
    /// It does not have them.
    pub fn new(runtime: &Bound<'_, PyAny>) -> PyResult<Worker> {
        let py = runtime.py();
        let part = |name: &str| runtime.getattr(name).map(Bound::unbind);
        let lock = runtime.getattr("lock")?;
        let main = py.import("threading")?.call_method0("main_thread")?.getattr("ident")?;
        Ok(Worker {
            acquire: lock.getattr("acquire")?.unbind(),
            release: lock.getattr("release")?.unbind(),
            order: part("order")?,
            execute: part("execute")?,
            end: part("end")?,
            serve: part("serve")?,
            fail: part("fail")?,
            doubt: part("doubt")?,
            checked: part("checked")?,
            frozen: runtime.getattr("frozen")?.cast_into::<PySet>()?.unbind(),
            flush: part("flush")?,
            outbox: part("outbox")?,
            dump: part("dump")?,
            dump_result: part("dump_result")?,
            loads: py.import("pickle")?.getattr("loads")?.unbind(),
            main: main.extract()?,
            follow: part("follow_signals")?,
            follows: AtomicBool::new(false),
            held: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            executed: AtomicU64::new(0),
            late: Mutex::default(),
            replicas: Mutex::default(),
            rank: runtime.getattr("rank")?.extract()?,
            token: AtomicU64::new(0),
            ends: Mutex::default(),
            posted: AtomicU64::new(0),
            posts_met: AtomicU64::new(0),
        })
    }

    /// True in an operation that this thread executes.
    pub fn is_inside(&self) -> bool {
        let worker = self.thread.load(Ordering::Relaxed);
        worker != 0 && worker == thread()
    }

    /// True while a thread executes operations.
    pub fn is_busy(&self) -> bool {
        self.thread.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of messages of the order that have been executed here.
    pub fn executed(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }

    /// True if this rank has executed what the author of an answer had.
    pub fn is_due(&self, answer: &[u8]) -> bool {
        encode::executed(answer) <= self.executed()
    }

    /// Notes an operation that this rank has sent and does not wait for.
    pub fn note_post(&self) {
        self.posted.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of the last operation that this rank has sent without a wait, if it has
    /// not met it in the order: later ones of this rank come behind it. `None` in an operation.
    pub fn post(&self) -> Option<u64> {
        let posted = self.posted.load(Ordering::Relaxed);
        (!self.has_met(posted) && !self.is_inside()).then_some(posted)
    }

    /// True if this rank has met so many of its posts in the order.
    pub fn has_met(&self, posts: u64) -> bool {
        self.posts_met.load(Ordering::Relaxed) >= posts
    }

    /// Notes an object that is always at this rank.
    pub fn keep(&self, name: String, replica: Replica) {
        let before = open(&self.replicas).insert(name, Arc::new(replica));
        drop(before);
    }

    /// Returns the token of another operation.
    pub fn token(&self) -> u64 {
        self.token.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes the end of an operation of this rank.
    pub fn set_end(&self, token: u64, end: End) {
        let before = open(&self.ends).insert(token, end);
        drop(before);
    }

    /// True if an operation of this rank has ended.
    pub fn has_ended(&self, token: u64) -> bool {
        open(&self.ends).contains_key(&token)
    }

    /// Takes the end of an operation of this rank.
    pub fn take_end(&self, token: u64) -> Option<End> {
        open(&self.ends).remove(&token)
    }

    /// Calls a write of a state, which may change meanwhile.
    fn thawed<'py>(
        &self,
        state: &Bound<'py, PyAny>,
        write: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // As the function `id` has it.
        let (frozen, number) = (self.frozen.bind(state.py()), state.as_ptr() as usize);
        frozen.discard(number)?;
        let result = write();
        frozen.add(number)?;
        result
    }

    fn lock<'a, 'py>(&'a self, py: Python<'py>) -> PyResult<Locked<'a, 'py>> {
        self.acquire.bind(py).call0()?;
        Ok(Locked { worker: self, py })
    }

    /// Waits until no other thread executes operations. None begins before the caller enters the
    /// interpreter.
    pub fn rest(&self, py: Python<'_>) -> PyResult<()> {
        while self.is_busy() && !self.is_inside() {
            drop(self.lock(py)?);
        }
        Ok(())
    }

    /// Calls `f` as the thread that executes operations. An exception of a signal's handler in the
    /// middle of one would leave this rank's state unlike that of others: handlers are called
    /// afterwards (`weft/_signals.py`).
    pub fn holding<T>(&self, py: Python<'_>, f: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
        let _locked = self.lock(py)?;
        let this = thread();
        if this == self.main && !self.follows.load(Ordering::Relaxed) {
            self.follow.bind(py).call0()?;
            self.follows.store(true, Ordering::Relaxed);
        }
        // One that came before; Python runs its handler at any later time.
        py.check_signals()?;
        let executing = Executing(&self.thread);
        self.thread.store(this, Ordering::Relaxed);
        let result = f();
        drop(executing);
        let held = self.held.swap(0, Ordering::Relaxed);
        (1..=u64::BITS).filter(|signal| held >> (signal - 1) & 1 == 1).for_each(raise_signal);
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

    /// Executes what has come. False inside an operation.
    ///
    /// # Errors
    /// The job was left; the exception of a signal handler.
    pub fn work(&self, py: Python<'_>, gate: &Gate) -> PyResult<bool> {
        if self.is_inside() {
            return Ok(false);
        }
        self.holding(py, || self.execute_all(py, gate))?;
        Ok(true)
    }

    fn execute_all(&self, py: Python<'_>, gate: &Gate) -> PyResult<()> {
        let taken = gate.with(|inside| Ok(inside.models()?.events()));
        let mut events: VecDeque<Event> = taken.map_err(|fault| fault.raise(py))?;
        while let Some(event) = events.pop_front() {
            if let Err(error) = self.execute_one(py, gate, event) {
                gate.end_of_models(|models| models.put_back(events));
                return Err(error);
            }
        }
        if self.outbox.bind(py).is_truthy()? {
            self.flush.bind(py).call0()?;
        }
        // Threads may wait for the ends of their operations.
        gate.tell();
        Ok(())
    }

    fn execute_one(&self, py: Python<'_>, gate: &Gate, event: Event) -> PyResult<()> {
        match event {
            Event::Message(from, bytes) => {
                self.executed.fetch_add(1, Ordering::Relaxed);
                match encode::read_change(&bytes) {
                    Some((token, call)) => self.change(py, from, token, &call)?,
                    None => {
                        self.order.bind(py).call1((from, PyBytes::new(py, &bytes)))?;
                    }
                }
                let executed = self.executed();
                let due = |asked: &mut Asked| encode::executed(&asked.bytes) <= executed;
                let ready: Vec<Asked> = open(&self.late).extract_if(.., due).collect();
                ready.iter().try_for_each(|asked| self.serve(py, gate, asked))
            }
            Event::Asked(asked) if encode::executed(&asked.bytes) > self.executed() => {
                open(&self.late).push(asked);
                Ok(())
            }
            Event::Asked(asked) => self.serve(py, gate, &asked),
        }
    }

    /// Executes a call of another rank.
    fn serve(&self, py: Python<'_>, gate: &Gate, asked: &Asked) -> PyResult<()> {
        let Some(call) = encode::read_call(&asked.bytes) else {
            let error = Fault::new(Kind::Operation, "a call that cannot be read").raise(py);
            let error = error.into_value(py).into_bound(py).into_any();
            return self.answer(py, gate, asked.number, (Status::Raised, &error));
        };
        match self.replica(call.name).and_then(|replica| replica.call(py, self, &call)) {
            Some(Ok(value)) => self.answer(py, gate, asked.number, (Status::Returned, &value)),
            Some(Err(error)) => {
                let error = error.into_value(py);
                self.fail.bind(py).call1((asked.number, call.name, error)).map(|_| ())
            }
            None => {
                let (made, pickle) = Worker::arguments(py, &call);
                let (name, method) = (call.name, call.method);
                let all = (asked.number, asked.from, name, method, made, pickle);
                self.serve.bind(py).call1(all).map(|_| ())
            }
        }
    }

    fn replica(&self, name: &str) -> Option<Arc<Replica>> {
        open(&self.replicas).get(name).cloned()
    }

    /// Returns the arguments of a call, or `None` and their pickle.
    fn arguments<'py>(
        py: Python<'py>,
        call: &encode::Asked<'_>,
    ) -> (Option<Bound<'py, PyAny>>, Bound<'py, PyBytes>) {
        let (made, pickle) = match encode::value(py, call.arguments) {
            Some(Value::Made(made)) => (Some(made), &[][..]),
            Some(Value::Pickled(pickle)) => (None, pickle),
            None => (None, &[][..]),
        };
        (made, PyBytes::new(py, pickle))
    }

    /// Executes a change of a replicated object.
    fn change(
        &self,
        py: Python<'_>,
        from: usize,
        token: u64,
        call: &encode::Asked<'_>,
    ) -> PyResult<()> {
        let token = (from == self.rank).then_some(token);
        if token == Some(0) {
            self.posts_met.fetch_add(1, Ordering::Relaxed);
        }
        let result = match self.replica(call.name).and_then(|it| it.call(py, self, call)) {
            Some(result) => result,
            None => {
                let (made, pickle) = Worker::arguments(py, call);
                let all = (token, from, call.name, call.method, made, pickle);
                return self.execute.bind(py).call1(all).map(|_| ());
            }
        };
        match (token, result) {
            // Another rank's.
            (None, _) | (Some(0), Ok(_)) => Ok(()),
            (Some(0), Err(error)) => {
                let error = error.into_value(py);
                self.end.bind(py).call1((0, call.name, call.method, false, error)).map(|_| ())
            }
            (Some(token), result) => {
                let ok = Some(result.is_ok());
                let value = match result {
                    Ok(value) => value.unbind(),
                    Err(error) => error.into_value(py).into_any(),
                };
                self.set_end(token, (ok, value));
                Ok(())
            }
        }
    }

    /// Pickles arguments.
    ///
    /// # Errors
    /// They cannot be pickled.
    pub fn pickle<'py>(&self, arguments: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let pickle = self.dump.bind(arguments.py()).call1((arguments,))?;
        Ok(pickle.cast_into::<PyBytes>()?)
    }

    /// Answers a call.
    ///
    /// # Errors
    /// The job was left.
    pub fn answer(
        &self,
        py: Python<'_>,
        gate: &Gate,
        number: u64,
        (status, value): (Status, &Bound<'_, PyAny>),
    ) -> PyResult<()> {
        let mut bytes = encode::answer(self.executed(), status);
        if !encode::append(value, &mut bytes) {
            let dumped = self.dump_result.bind(py).call1((status == Status::Returned, value))?;
            let (returned, pickle) = dumped.extract::<(bool, Bound<'_, PyBytes>)>()?;
            let status = if returned { Status::Returned } else { Status::Raised };
            bytes = encode::answer(self.executed(), status);
            encode::append_pickle(pickle.as_bytes(), &mut bytes);
        }
        let answered = gate.with(|inside| {
            inside.models()?.answer(number, &bytes);
            Ok(())
        });
        answered.map_err(|fault| fault.raise(py))
    }

    /// Reads an answer: its status, and the result or the exception.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read<'py>(
        &self,
        py: Python<'py>,
        bytes: &[u8],
    ) -> PyResult<(Status, Bound<'py, PyAny>)> {
        let read = encode::read_answer(bytes)
            .and_then(|(status, value)| Some((status, encode::value(py, value)?)));
        match read {
            Some((status, Value::Made(value))) => Ok((status, value)),
            Some((status, Value::Pickled(pickle))) => {
                Ok((status, self.loads.bind(py).call1((PyBytes::new(py, pickle),))?))
            }
            None => Err(Fault::new(Kind::Operation, "an answer that cannot be read").raise(py)),
        }
    }
}
