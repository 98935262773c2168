//! Operations of shared objects, executed by whatever thread is in a call of weft.
//!
//! An operation without a guard on an object that is always at this rank is executed from here: its
//! method is the one function of Python that runs. All else is handed to the functions of
//! `weft/_objects.py`.

use super::encode::{self, Status, Value};
use crate::fault::{Fault, Kind};
use crate::gate::Gate;
use crate::models::{Asked, Event};
use crate::sys::{hold, thread};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A method without a guard.
struct Method {
    function: Py<PyAny>,
    writes: bool,
}

/// An object that is always at this rank.
pub struct Placed {
    state: Py<PyAny>,
    methods: HashMap<String, Method>,
    /// Operations that wait for their guards: those that change the object try them again.
    blocked: Py<PyList>,
}

impl Placed {
    /// Makes one of its state, the names and functions of its methods without guards (and true for
    /// those that change it), and the list of its operations that wait.
    pub fn new(
        state: Py<PyAny>,
        methods: Vec<(String, Py<PyAny>, bool)>,
        blocked: Py<PyList>,
    ) -> Placed {
        let named = |(name, function, writes)| (name, Method { function, writes });
        Placed { state, methods: methods.into_iter().map(named).collect(), blocked }
    }

    /// Calls a method with the object and the arguments, a tuple or a pickle of them. `None`: it is
    /// to be called otherwise.
    fn call<'py>(
        &self,
        py: Python<'py>,
        worker: &Worker,
        asked: &encode::Asked<'_>,
    ) -> Option<PyResult<Bound<'py, PyAny>>> {
        let method = self.methods.get(asked.method)?;
        if method.writes && !self.blocked.bind(py).is_empty() {
            return None;
        }
        let (arguments, names) = match encode::value(py, asked.arguments)? {
            Value::Made(made) => (made.cast_into::<PyTuple>().ok()?, None),
            Value::Pickled(pickle) => {
                // The other way says why they cannot be read.
                let made = worker.loads.bind(py).call1((PyBytes::new(py, pickle),)).ok()?;
                let (made, names) =
                    made.extract::<(Bound<'_, PyTuple>, Bound<'_, PyDict>)>().ok()?;
                (made, Some(names).filter(|names| !names.is_empty()))
            }
        };
        let (function, state) = (method.function.bind(py), self.state.bind(py));
        if arguments.is_empty() && names.is_none() {
            return Some(function.call1((state,)));
        }
        let all = std::iter::once(state.clone()).chain(arguments.iter());
        let all = PyTuple::new(py, all.collect::<Vec<_>>()).ok()?;
        Some(function.call(all, names.as_ref()))
    }
}

/// The state of the shared objects of a job, and the functions of Python for them.
pub struct Worker {
    /// The lock of all objects: a thread that has it may take it again.
    acquire: Py<PyAny>,
    release: Py<PyAny>,
    /// Executes a message of the order: author, bytes.
    order: Py<PyAny>,
    /// Executes a call: its number, the rank that calls, the names of object and method, the
    /// arguments or `None`, or else their pickle.
    serve: Py<PyAny>,
    /// Answers a call by an exception: its number, the name of the object, the exception.
    fail: Py<PyAny>,
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
    /// The thread that executes operations now; 0: none.
    thread: AtomicU64,
    /// Number of messages of the order that have been executed here.
    executed: AtomicU64,
    /// Calls of ranks that have executed more.
    late: Mutex<Vec<Asked>>,
    placed: Mutex<HashMap<String, Arc<Placed>>>,
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
            serve: part("serve")?,
            fail: part("fail")?,
            flush: part("flush")?,
            outbox: part("outbox")?,
            dump: part("dump")?,
            dump_result: part("dump_result")?,
            loads: py.import("pickle")?.getattr("loads")?.unbind(),
            main: main.extract()?,
            thread: AtomicU64::new(0),
            executed: AtomicU64::new(0),
            late: Mutex::default(),
            placed: Mutex::default(),
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

    /// Notes an object that is always at this rank.
    pub fn place(&self, name: String, placed: Placed) {
        let before = open(&self.placed).insert(name, Arc::new(placed));
        drop(before);
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

    /// Calls `f` as the thread that executes operations. An interrupt in the middle of one would
    /// leave this rank's state unlike that of others: it is held back.
    pub fn execute<T>(&self, py: Python<'_>, f: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
        let _locked = self.lock(py)?;
        let this = thread();
        let held = (this == self.main).then(hold);
        // One that came before; Python runs its handler at any later time.
        py.check_signals()?;
        let executing = Executing(&self.thread);
        self.thread.store(this, Ordering::Relaxed);
        let result = f();
        drop((executing, held));
        let result = result?;
        py.check_signals()?;
        Ok(result)
    }

    /// Executes what has come. False inside an operation.
    ///
    /// # Errors
    /// The job was left; the exception of a signal handler.
    pub fn work(&self, py: Python<'_>, gate: &Gate) -> PyResult<bool> {
        if self.is_inside() {
            return Ok(false);
        }
        self.execute(py, || self.execute_all(py, gate))?;
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
        Ok(())
    }

    fn execute_one(&self, py: Python<'_>, gate: &Gate, event: Event) -> PyResult<()> {
        match event {
            Event::Message(from, bytes) => {
                self.executed.fetch_add(1, Ordering::Relaxed);
                self.order.bind(py).call1((from, PyBytes::new(py, &bytes)))?;
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
        let placed = open(&self.placed).get(call.name).cloned();
        match placed.and_then(|placed| placed.call(py, self, &call)) {
            Some(Ok(value)) => self.answer(py, gate, asked.number, (Status::Returned, &value)),
            Some(Err(error)) => {
                let error = error.into_value(py);
                self.fail.bind(py).call1((asked.number, call.name, error)).map(|_| ())
            }
            None => {
                let (made, pickle) = match encode::value(py, call.arguments) {
                    Some(Value::Made(made)) => (Some(made), &[][..]),
                    Some(Value::Pickled(pickle)) => (None, pickle),
                    None => (None, &[][..]),
                };
                let pickle = PyBytes::new(py, pickle);
                let names = (call.name, call.method);
                let all = (asked.number, asked.from, names.0, names.1, made, pickle);
                self.serve.bind(py).call1(all).map(|_| ())
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
