//! Calls of objects at other ranks, and changes of objects that are on all ranks.

use super::encode::{self, Status};
use super::work::Worker;
use super::{worker_of, LONGEST};
use crate::fault::Fault;
use crate::gate::Gate;
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

/// An answer, or the number of a call that has none yet.
pub enum Asked<'py> {
    Answered(Status, Bound<'py, PyAny>),
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
            Ok(Some(answer)) => {
                let answer = answer.map_err(|fault| fault.raise(py))?;
                let (status, value) = worker.read(py, &answer)?;
                Ok(Asked::Answered(status, value))
            }
            Ok(None) => Ok(Asked::Waits(number)),
            Err(error) => {
                gate.end_of_models(|models| models.forget_call(number));
                Err(error)
            }
        }
    }
}

/// An object that is always at another rank.
#[pyclass(frozen, module = "weft", name = "_Remote")]
pub struct PyRemote {
    pub(super) gate: Arc<Gate>,
    pub(super) owner: usize,
    pub(super) name: String,
    /// The objects of Python that know more: they go on where a call is no plain one.
    pub(super) runtime: Py<PyAny>,
    pub(super) replica: Py<PyAny>,
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
        let (runtime, replica) = (self.runtime.bind(py), self.replica.bind(py));
        let worker = worker_of(py, &self.gate)?;
        if worker.is_inside() {
            return runtime.call_method1("refuse_inside", (replica, method));
        }
        if worker.post().is_some() {
            runtime.call_method0("settle_posts")?;
        }
        let asks = Asks { name: &self.name, method, arguments: args, names: kwargs };
        match asks.ask(py, &self.gate, self.owner)? {
            Asked::Answered(Status::Returned, value) => Ok(value),
            Asked::Answered(Status::Raised, error) => Err(PyErr::from_value(error)),
            Asked::Answered(Status::Moved, _) => {
                runtime.call_method1("write", (replica, method, args, kwargs))
            }
            Asked::Waits(number) => {
                runtime.call_method1("settle_answer", (replica, method, number))
            }
        }
    }
}

/// The changes of an object that is always on all ranks.
#[pyclass(frozen, module = "weft", name = "_Replicated")]
pub struct PyReplicated {
    pub(super) gate: Arc<Gate>,
    pub(super) name: String,
    pub(super) runtime: Py<PyAny>,
    pub(super) replica: Py<PyAny>,
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
        let worker = worker_of(py, &self.gate)?;
        let token = worker.token();
        self.send(py, (worker, token), method, (args, kwargs))?;
        let end = Some(Instant::now() + SOON);
        self.gate.wait(py, end, |_| Ok(worker.has_ended(token).then_some(())))?;
        match worker.take_end(token) {
            Some((Some(true), value)) => Ok(value.into_bound(py)),
            Some((_, error)) => Err(PyErr::from_value(error.into_bound(py))),
            None => {
                let (runtime, replica) = (self.runtime.bind(py), self.replica.bind(py));
                runtime.call_method1("settle_end", (replica, method, token))
            }
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
        let worker = worker_of(py, &self.gate)?;
        self.send(py, (worker, 0), method, (args, kwargs))?;
        worker.note_post();
        Ok(())
    }
}

impl PyReplicated {
    fn send(
        &self,
        py: Python<'_>,
        (worker, token): (&Worker, u64),
        method: &str,
        (arguments, names): (&Bound<'_, PyTuple>, &Bound<'_, PyDict>),
    ) -> PyResult<()> {
        if worker.is_inside() {
            let (runtime, replica) = (self.runtime.bind(py), self.replica.bind(py));
            runtime.call_method1("refuse_inside", (replica, method))?;
        }
        Asks { name: &self.name, method, arguments, names }.send(py, &self.gate, worker, token)
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
