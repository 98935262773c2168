//! Calls of objects at other ranks.

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
    /// Returns the message; its number of executed messages is not set.
    fn encode(&self, worker: &Worker) -> PyResult<Vec<u8>> {
        let py = self.arguments.py();
        let mut bytes = encode::call(self.name, self.method);
        if !self.names.is_empty() || !encode::append(self.arguments, &mut bytes) {
            let pickle = worker.pickle((self.arguments, self.names).into_pyobject(py)?.as_any())?;
            encode::append_pickle(pickle.as_bytes(), &mut bytes);
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
        Ok(bytes)
    }

    /// Calls an object at another rank, and waits for the answer for a short time.
    pub fn ask<'py>(&self, py: Python<'py>, gate: &Gate, owner: usize) -> PyResult<Asked<'py>> {
        let worker = worker_of(py, gate)?;
        let mut bytes = self.encode(worker)?;
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
        if worker_of(py, &self.gate)?.is_inside() {
            return runtime.call_method1("refuse_inside", (replica, method));
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
