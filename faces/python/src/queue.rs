//! Queues of jobs at their owners.

use crate::gate::Gate;
use crate::number::number;
use crate::sys::Export;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// Records that are done between two rounds of progress.
const BATCH: usize = 32;

/// A queue of jobs: records of one length, each done by the rank that owns it.
#[pyclass(frozen, module = "weft", name = "Queue")]
pub struct PyQueue {
    gate: Arc<Gate>,
    number: u16,
    /// Length of a record in bytes.
    #[pyo3(get)]
    size: usize,
}

impl PyQueue {
    /// Opens a queue.
    pub fn open(
        py: Python<'_>,
        gate: &Arc<Gate>,
        (number, size, batch): (u16, usize, usize),
    ) -> PyResult<PyQueue> {
        let opened = gate.with(|inside| inside.models()?.open_queue(number, size, batch));
        opened.map_err(|fault| fault.raise(py))?;
        Ok(PyQueue { gate: Arc::clone(gate), number, size })
    }
}

#[pymethods]
impl PyQueue {
    /// Pushes a record, of `size` bytes, to its owner: before a run, or by the work of a run.
    fn push(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] owner: usize,
        record: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.gate.check_outside().map_err(|fault| fault.raise(py))?;
        let (number, bytes) = (self.number, Export::read(record)?.to_vec(py));
        let pushed = self.gate.with(|inside| inside.models()?.push(number, owner, &bytes));
        if !pushed.map_err(|fault| fault.raise(py))? {
            self.gate.wait(py, None, |inside| {
                inside.endpoint().progress();
                Ok(inside.models()?.has_room(number, owner)?.then_some(()))
            })?;
        }
        Ok(())
    }

    /// Calls `work` with each record that this rank owns, until no rank has one left and none is on
    /// its way. All ranks call this. Returns the number of records done here. An exception of
    /// `work` ends this call alone: the run goes on when this rank calls it again.
    fn run(&self, py: Python<'_>, work: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (number, mut done) = (self.number, 0);
        loop {
            let records = self.gate.wait(py, None, |inside| {
                inside.endpoint().progress();
                inside.models()?.next(number, BATCH)
            })?;
            let records = records.unwrap_or_default();
            if records.is_empty() {
                return Ok(done);
            }
            let mut records = records.into_iter();
            while let Some(record) = records.next() {
                if let Err(error) = work.call1((PyBytes::new(py, &record),)) {
                    // The others wait for the next call.
                    let left = records.rev();
                    self.gate.end_of_models(|models| models.put_back_records(number, left));
                    return Err(error);
                }
                done += 1;
            }
        }
    }
}
