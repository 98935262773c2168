//! The messages of shared objects, whose operations `weft/_objects.py` executes.

use crate::gate::Gate;
use crate::models::Event;
use crate::request::until;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::sync::{Arc, Mutex, PoisonError};
use weft_models::objects::{Better, Uses, BYTES_MAX, TELL_READS};

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
    const LONGEST: usize = BYTES_MAX;

    /// Opens them; `worker` is called by waits when there is something to do.
    fn open(&self, py: Python<'_>, worker: Py<PyAny>) -> PyResult<()> {
        let opened = self.gate.with(|inside| {
            inside.models()?.open_objects();
            Ok(())
        });
        opened.map_err(|fault| fault.raise(py))?;
        self.gate.set_worker(worker);
        Ok(())
    }

    /// Sends a message to all ranks, this one included, in the order. False: there is no room now.
    fn send(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<bool> {
        let sent = self.gate.with(|inside| inside.models()?.send(bytes));
        sent.map_err(|fault| fault.raise(py))
    }

    /// Calls the owner of an object; returns the number of the call.
    fn call(&self, py: Python<'_>, owner: usize, bytes: &[u8]) -> PyResult<u64> {
        let called = self.gate.with(|inside| Ok(inside.models()?.call(owner, bytes)));
        called.map_err(|fault| fault.raise(py))
    }

    /// Answers a call of another rank.
    fn answer(&self, py: Python<'_>, number: u64, bytes: &[u8]) -> PyResult<()> {
        let answered = self.gate.with(|inside| {
            inside.models()?.answer(number, bytes);
            Ok(())
        });
        answered.map_err(|fault| fault.raise(py))
    }

    /// Makes progress. True if there is something to do.
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        let found = self.gate.with(|inside| {
            inside.endpoint().progress();
            inside.collect();
            Ok(inside.has_events())
        });
        found.map_err(|fault| fault.raise(py))
    }

    /// Waits for something to do, at most for `timeout` seconds. True if there is something.
    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let end = until(py, Some(timeout))?;
        self.gate.end_of_models(|models| models.expect(true));
        let found = self.gate.wait(py, end, |inside| {
            let found = inside.models()?.has_events();
            inside.models()?.check_order()?;
            Ok(found.then_some(()))
        });
        self.gate.end_of_models(|models| models.expect(false));
        Ok(found?.is_some())
    }

    /// Takes what is to do: a list of tuples of kind (message 0, request 1, answer 2, failed call
    /// 3), number (its sender, or the number of the call), and bytes or an exception.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let found = self.gate.with(|inside| Ok(inside.models()?.events()));
        let found = found.map_err(|fault| fault.raise(py))?;
        let list = PyList::empty(py);
        for event in found {
            let (kind, number, bytes) = match event {
                Event::Message(from, bytes) => (0, from as u64, bytes),
                Event::Request(number, bytes) => (1, number, bytes),
                Event::Answer(number, Ok(bytes)) => (2, number, bytes),
                Event::Answer(number, Err(fault)) => {
                    list.append((3, number, fault.raise(py).into_value(py)))?;
                    continue;
                }
            };
            list.append((kind, number, PyBytes::new(py, &bytes)))?;
        }
        Ok(list.into_any().unbind())
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
