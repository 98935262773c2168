//! Queues of jobs at their owners.

use crate::fault::{Fault, Kind};
use crate::gate::Gate;
use crate::inside::{Outcome, WORLD};
use crate::number::number;
use crate::request::Pending;
use crate::sys::Export;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// True once all ranks have the same number and size: the first run compares them.
    is_same: AtomicBool,
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
        Ok(PyQueue { gate: Arc::clone(gate), number, size, is_same: AtomicBool::new(false) })
    }

    /// # Errors
    /// Another rank has another queue, or records of another size.
    fn compare(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_same.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mine = [u64::from(self.number), self.size as u64];
        let bytes = mine.map(u64::to_le_bytes).concat();
        let begun = self.gate.with(|inside| {
            inside.collective(WORLD, |group| group.allgather(bytes.clone()), Outcome::Parts)
        });
        let begun = begun.map_err(|fault| fault.raise(py))?;
        let all = Pending::new(&self.gate, Some(begun)).parts(py)?;
        if let Some((rank, other)) = all.iter().enumerate().find(|(_, other)| **other != bytes) {
            let word = |at: usize| other.get(at..).and_then(<[u8]>::first_chunk);
            let [number, size] =
                [word(0), word(8)].map(|word| word.map_or(0, |w| u64::from_le_bytes(*w)));
            let text = format!(
                "rank {rank} runs queue {number} of records of {size} bytes, this rank queue {} of \
                 records of {}: all ranks pass the same number and size",
                self.number, self.size
            );
            return Err(Fault::new(Kind::Mismatch, text).raise(py));
        }
        self.is_same.store(true, Ordering::Relaxed);
        Ok(())
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
        self.gate.check_outside().map_err(|fault| fault.raise(py))?;
        self.compare(py)?;
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

    fn __repr__(&self) -> String {
        format!("<weft.Queue {} of records of {} bytes>", self.number, self.size)
    }
}
