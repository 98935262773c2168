//! Shared objects: their messages, and the operations that need no more than one method.
//! `weft/_objects.py` has the rest.

mod encode;
mod remote;
mod work;

pub use remote::{PyRemote, PyReplicated};
pub use work::Worker;

use crate::fault::{Fault, Kind};
use crate::gate::Gate;
use crate::request::until;
use encode::Status;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use remote::{pair, Asked, Asks, Object};
use std::sync::{Arc, Mutex, PoisonError};
use weft_models::objects::{Better, Uses, BYTES_MAX, TELL_READS};
use work::{End, Method, Replica};

/// Most bytes of a message or of an answer.
const LONGEST: usize = BYTES_MAX;

/// Returns the one that executes operations.
///
/// # Errors
/// The messages of objects were not opened.
fn worker_of<'a>(py: Python<'_>, gate: &'a Gate) -> PyResult<&'a Worker> {
    let closed = || Fault::new(Kind::Operation, "there are no shared objects").raise(py);
    gate.worker().ok_or_else(closed)
}

/// Returns the exception of an operation whose rank has failed; `title` returns its name.
fn failure(fault: Fault, title: &Bound<'_, PyAny>) -> PyErr {
    let name = title.call0().and_then(|name| name.extract::<String>());
    name.map_or_else(|error| error, |name| fault.of_operation(&name).raise(title.py()))
}

/// The messages of the shared objects of a job.
#[pyclass(frozen, module = "weft", name = "_Messages")]
pub struct PyMessages {
    pub(crate) gate: Arc<Gate>,
}

#[pymethods]
impl PyMessages {
    /// Most bytes of a message or of an answer.
    #[classattr]
    #[pyo3(name = "LONGEST")]
    const MOST: usize = LONGEST;

    /// Opens them; waits execute what comes, with the functions of `runtime`.
    fn open(&self, py: Python<'_>, runtime: &Bound<'_, PyAny>) -> PyResult<()> {
        let opened = self.gate.with(|inside| {
            inside.models()?.open_objects();
            Ok(())
        });
        opened.map_err(|fault| fault.raise(py))?;
        self.gate.set_worker(Worker::new(runtime)?);
        Ok(())
    }

    /// Sends a message to all ranks, this one included, in the order. False: there is no room now.
    fn send(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<bool> {
        let sent = self.gate.with(|inside| inside.models()?.send(bytes));
        sent.map_err(|fault| fault.raise(py))
    }

    /// Calls the owner of an object. Returns the answer as `answer` does, or the number of a call
    /// that has none yet. `operation` has the names of object and method; `title` is as for
    /// `answer`.
    fn call<'py>(
        &self,
        py: Python<'py>,
        owner: usize,
        operation: (&str, &str),
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        title: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (name, method) = operation;
        let asks = Asks { name, method, arguments: args, names: kwargs };
        match asks.ask(py, &self.gate, owner)? {
            Asked::Answered(status, value) => pair(py, (status, value)),
            Asked::Failed(fault) => Err(failure(fault, title)),
            Asked::Waits(number) => Ok(number.into_pyobject(py)?.into_any()),
        }
    }

    /// Takes the answer of a call: true and the result, false and the exception, or `None` twice if
    /// the object has moved. `None`: it has not come, or its author has executed more than this
    /// rank. `title` returns the name of the operation, for the error of a rank that has failed.
    fn answer<'py>(
        &self,
        py: Python<'py>,
        number: u64,
        title: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let worker = worker_of(py, &self.gate)?;
        let found = self.gate.with(|inside| {
            Ok(inside.models()?.take_answer(number, |answer| worker.is_due(answer)))
        });
        let Some(answer) = found.map_err(|fault| fault.raise(py))? else { return Ok(None) };
        let answer = answer.map_err(|fault| failure(fault, title))?;
        pair(py, worker.read(py, &answer)?).map(Some)
    }

    /// Forgets a call: its answer is not wanted any more.
    fn forget(&self, number: u64) {
        self.gate.end_of_models(|models| models.forget_call(number));
    }

    /// Answers a call of another rank, as `answer` returns it there.
    fn reply(
        &self,
        py: Python<'_>,
        number: u64,
        ok: Option<bool>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let status = match ok {
            None => Status::Moved,
            Some(true) => Status::Returned,
            Some(false) => Status::Raised,
        };
        worker_of(py, &self.gate)?.answer(py, &self.gate, number, (status, value))
    }

    /// Notes an object that is always at this rank: its name, the object of Python for it, its
    /// methods (name, function, guard, true if it changes the object), and the list of its
    /// operations that wait.
    fn keep(
        &self,
        py: Python<'_>,
        name: String,
        replica: Py<PyAny>,
        methods: Vec<Method>,
        blocked: Py<PyList>,
    ) -> PyResult<()> {
        let replica = Replica::new(replica, methods, blocked);
        worker_of(py, &self.gate)?.keep(name, replica);
        Ok(())
    }

    /// Returns the changes of an object that is always on all ranks.
    fn replicated(&self, name: String, runtime: Py<PyAny>, replica: Py<PyAny>) -> PyReplicated {
        PyReplicated { object: Object { gate: Arc::clone(&self.gate), name, runtime, replica } }
    }

    /// Returns the token of another operation of the order.
    fn token(&self, py: Python<'_>) -> PyResult<u64> {
        self.gate.check_origin().map_err(|fault| fault.raise(py))?;
        Ok(worker_of(py, &self.gate)?.token())
    }

    /// Notes the end of the operation of a token, as `answer` returns it.
    fn end(&self, py: Python<'_>, token: u64, ok: Option<bool>, value: Py<PyAny>) -> PyResult<()> {
        worker_of(py, &self.gate)?.set_end(token, (ok, value));
        Ok(())
    }

    /// Takes the end of the operation of a token; `None`: it has not ended.
    fn ended(&self, py: Python<'_>, token: u64) -> PyResult<Option<End>> {
        Ok(worker_of(py, &self.gate)?.take_end(token))
    }

    /// Returns the calls of an object that is always at another rank.
    fn remote(
        &self,
        owner: usize,
        name: String,
        runtime: Py<PyAny>,
        replica: Py<PyAny>,
    ) -> PyRemote {
        let object = Object { gate: Arc::clone(&self.gate), name, runtime, replica };
        PyRemote { object, owner }
    }

    /// True in an operation that this thread executes.
    fn is_inside(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(worker_of(py, &self.gate)?.is_inside())
    }

    /// Calls a function as an operation of this rank.
    fn execute<'py>(
        &self,
        py: Python<'py>,
        operation: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        worker_of(py, &self.gate)?.holding(py, || operation.call0())
    }

    /// True in an operation that this thread executes: then the signal is raised again at its end.
    fn hold_back(&self, py: Python<'_>, signal: u32) -> PyResult<bool> {
        Ok(worker_of(py, &self.gate)?.hold_back(signal))
    }

    /// Executes what has come. False inside an operation.
    fn work(&self, py: Python<'_>) -> PyResult<bool> {
        worker_of(py, &self.gate)?.work(py, &self.gate)
    }

    /// Returns the number of this rank's last post, if it has not met it in the order.
    fn post(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(worker_of(py, &self.gate)?.post())
    }

    /// True if this rank has met so many of its posts in the order.
    fn has_met(&self, py: Python<'_>, posts: u64) -> PyResult<bool> {
        Ok(worker_of(py, &self.gate)?.has_met(posts))
    }

    /// Makes progress. True if there is something to do, or a thread does it, or a post of this
    /// rank is on its way.
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        // In a copy of the process the busy thread is not there.
        self.gate.check_origin().map_err(|fault| fault.raise(py))?;
        if self.gate.worker().is_some_and(|worker| worker.is_busy() || worker.post().is_some()) {
            return Ok(true);
        }
        let found = self.gate.with(|inside| {
            inside.endpoint().progress();
            inside.collect();
            Ok(inside.has_events())
        });
        found.map_err(|fault| fault.raise(py))
    }

    /// Waits for something to do, and does it, or for the answer of a call; at most for `timeout`
    /// seconds.
    #[pyo3(signature = (timeout, number=None))]
    fn wait(&self, py: Python<'_>, timeout: f64, number: Option<u64>) -> PyResult<()> {
        let (end, worker) = (until(py, Some(timeout))?, worker_of(py, &self.gate)?);
        self.gate.end_of_models(|models| models.expect(true));
        let found = self.gate.wait(py, end, |inside| {
            let models = inside.models()?;
            let due = |answer: &[u8]| worker.is_due(answer);
            if number.is_some_and(|number| models.is_answered(number, due)) {
                return Ok(Some(false));
            }
            let found = models.has_events();
            models.check_order()?;
            Ok(found.then_some(true))
        });
        self.gate.end_of_models(|models| models.expect(false));
        if found? == Some(true) {
            worker.work(py, &self.gate)?;
        }
        Ok(())
    }
}

/// The accesses of all ranks to an adaptive object, by the rule of [`weft_models::objects`].
#[pyclass(frozen, module = "weft", name = "_Uses")]
#[derive(Default)]
pub struct PyUses {
    uses: Mutex<Uses>,
}

#[pymethods]
impl PyUses {
    /// Reads of a rank that does not write after which it tells them.
    #[classattr]
    #[pyo3(name = "TELL_READS")]
    const TELL: u32 = TELL_READS;

    #[new]
    fn new() -> PyUses {
        PyUses::default()
    }

    /// Notes accesses of a rank. Returns the better place now and then: a rank, -1 for all; `None`:
    /// none is clearly better.
    fn note(&self, rank: usize, reads: u32, writes: u32, ranks: usize) -> Option<i64> {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.note(rank, reads, writes, ranks).map(|better| match better {
            Better::Everywhere => -1,
            Better::At(rank) => rank as i64,
        })
    }
}
