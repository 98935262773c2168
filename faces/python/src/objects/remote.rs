//! Calls of objects at other ranks, and changes of objects that are on all ranks.

use super::encode::{self, Status};
use super::work::Worker;
use super::{worker_of, LONGEST};
use crate::fault::Fault;
use crate::gate::Gate;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which a call's wait goes on in Python, which warns after a time and notices silence.
const SOON: Duration = Duration::from_millis(50);
/// Time between two tries of a message of the order that has no room.
const ROOM: Duration = Duration::from_millis(1);

/// The call of an operation: object, method, arguments.
pub struct Asks<'a, 'py> {
    pub name: &'a str,
    pub method: &'a str,
    pub arguments: &'a Bound<'py, PyTuple>,
    pub names: &'a Bound<'py, PyDict>,
}

/// An answer, the failure of the rank that has the object, or the number of a call that has no
/// answer yet.
pub enum Asked<'py> {
    Answered(Status, Bound<'py, PyAny>),
    Failed(Fault),
    Waits(u64),
}

impl Asks<'_, '_> {
    /// Appends the arguments to a message.
    ///
    /// # Errors
    /// They cannot be pickled, or the message is too long.
    fn append(&self, worker: &Worker, bytes: &mut Vec<u8>) -> PyResult<()> {
        let py = self.arguments.py();
        if !self.names.is_empty() || !encode::append(self.arguments, bytes) {
            let both = (self.arguments, self.names).into_pyobject(py)?;
            encode::append_pickle(worker.pickle(both.as_any())?.as_bytes(), bytes);
        }
        if bytes.len() > LONGEST {
            let text = format!(
                "the arguments of {} of {} have {} bytes when pickled, and {LONGEST} are the most",
                self.method,
                PyString::new(py, self.name).repr()?,
                bytes.len(),
            );
            return Err(Fault::argument(text).raise(py));
        }
        Ok(())
    }

    /// Sends a change of a replicated object; with the token 0, if nobody waits for its end.
    ///
    /// # Errors
    /// As `append`; this rank's part of the order has ended; the exception of a signal handler.
    fn send(&self, py: Python<'_>, gate: &Gate, worker: &Worker, token: u64) -> PyResult<()> {
        let mut bytes = encode::change(token, self.name, self.method);
        self.append(worker, &mut bytes)?;
        loop {
            let sent = gate.with(|inside| inside.models()?.send(&bytes));
            if sent.map_err(|fault| fault.raise(py))? {
                return Ok(());
            }
            gate.wait(py, Some(Instant::now() + ROOM), |_| Ok(None::<()>))?;
        }
    }

    /// Calls an object at another rank, and waits for the answer for a short time.
    pub fn ask<'py>(&self, py: Python<'py>, gate: &Gate, owner: usize) -> PyResult<Asked<'py>> {
        // In a copy of the process a thread that executes operations is not there, but its lock.
        gate.check_origin().map_err(|fault| fault.raise(py))?;
        let worker = worker_of(py, gate)?;
        let mut bytes = encode::call(self.name, self.method);
        self.append(worker, &mut bytes)?;
        worker.rest(py)?;
        // No operation is executed from here on until the call is sent.
        encode::set_executed(&mut bytes, worker.executed());
        let sent = gate.with(|inside| Ok(inside.models()?.call(owner, &bytes)));
        let number = sent.map_err(|fault| fault.raise(py))?;
        let waited = gate.wait(py, Some(Instant::now() + SOON), |inside| {
            Ok(inside.models()?.take_answer(number, |answer| worker.is_due(answer)))
        });
        match waited {
            Ok(Some(Ok(answer))) => {
                let (status, value) = worker.read(py, &answer)?;
                Ok(Asked::Answered(status, value))
            }
            Ok(Some(Err(fault))) => Ok(Asked::Failed(fault)),
            Ok(None) => Ok(Asked::Waits(number)),
            Err(error) => {
                gate.end_of_models(|models| models.forget_call(number));
                Err(error)
            }
        }
    }
}

/// An object that does not move, for the operations of this rank.
pub struct Object {
    pub gate: Arc<Gate>,
    pub name: String,
    /// The objects of Python that know more: they go on where an operation is no plain one.
    pub runtime: Py<PyAny>,
    pub replica: Py<PyAny>,
}

impl Object {
    /// Returns the one that executes operations.
    ///
    /// # Errors
    /// This thread executes one.
    fn begin(&self, py: Python<'_>, method: &str) -> PyResult<&Worker> {
        let worker = worker_of(py, &self.gate)?;
        if worker.is_inside() {
            self.go_on(py, "refuse_inside", (&self.replica, method))?;
        }
        Ok(worker)
    }

    /// Calls a function of Python.
    fn go_on<'py>(
        &self,
        py: Python<'py>,
        function: &str,
        arguments: impl PyCallArgs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.runtime.bind(py).call_method1(function, arguments)
    }
}

/// The calls of an object that is always at another rank.
#[pyclass(frozen, module = "weft", name = "_Remote")]
pub struct PyRemote {
    pub(super) object: Object,
    pub(super) owner: usize,
}

#[pymethods]
impl PyRemote {
    /// Executes an operation; returns its result, or raises its exception.
    fn call<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = &self.object;
        let worker = object.begin(py, method)?;
        if worker.post().is_some() {
            object.go_on(py, "settle_posts", ())?;
        }
        let asks = Asks { name: &object.name, method, arguments: args, names: kwargs };
        let replica = &object.replica;
        match asks.ask(py, &object.gate, self.owner)? {
            Asked::Answered(Status::Returned, value) => Ok(value),
            Asked::Answered(Status::Raised, error) => Err(PyErr::from_value(error)),
            Asked::Answered(Status::Moved, _) => {
                object.go_on(py, "write", (replica, method, args, kwargs))
            }
            Asked::Failed(fault) => {
                let title = object.go_on(py, "title", (replica, method))?;
                Err(fault.of_operation(&title.extract::<String>()?).raise(py))
            }
            Asked::Waits(number) => object.go_on(py, "settle_answer", (replica, method, number)),
        }
    }
}

/// The changes of an object that is always on all ranks.
#[pyclass(frozen, module = "weft", name = "_Replicated")]
pub struct PyReplicated {
    pub(super) object: Object,
}

#[pymethods]
impl PyReplicated {
    /// Executes an operation in the order; returns its result, or raises its exception.
    fn call<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = &self.object;
        let worker = object.begin(py, method)?;
        let token = worker.token();
        let asks = Asks { name: &object.name, method, arguments: args, names: kwargs };
        asks.send(py, &object.gate, worker, token)?;
        let end = Some(Instant::now() + SOON);
        object.gate.wait(py, end, |_| Ok(worker.has_ended(token).then_some(())))?;
        match worker.take_end(token) {
            Some((Some(true), value)) => Ok(value.into_bound(py)),
            Some((_, error)) => Err(PyErr::from_value(error.into_bound(py))),
            None => object.go_on(py, "settle_end", (&object.replica, method, token)),
        }
    }

    /// Executes an operation in the order, and does not wait for its end.
    fn post<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<()> {
        let object = &self.object;
        let worker = object.begin(py, method)?;
        let asks = Asks { name: &object.name, method, arguments: args, names: kwargs };
        asks.send(py, &object.gate, worker, 0)?;
        worker.note_post();
        Ok(())
    }
}

/// Returns status and value as Python knows them: true, false, or `None` for a moved object.
pub fn pair<'py>(
    py: Python<'py>,
    (status, value): (Status, Bound<'py, PyAny>),
) -> PyResult<Bound<'py, PyAny>> {
    let ok = match status {
        Status::Moved => None,
        Status::Returned => Some(true),
        Status::Raised => Some(false),
    };
    Ok((ok, value).into_pyobject(py)?.into_any())
}
