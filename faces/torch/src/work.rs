//! An operation that has begun, as Python sees it.

use crate::fault::Fault;
use crate::outcome::{Ended, Outcome};
use crate::shared::{Round, Shared};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An operation that has begun.
#[pyclass(frozen, module = "torch_weft._core", name = "Work")]
pub struct PyWork {
    shared: Arc<Shared>,
    outcome: Arc<Outcome>,
}

impl PyWork {
    pub fn new(shared: &Arc<Shared>, outcome: Arc<Outcome>) -> PyWork {
        PyWork { shared: Arc::clone(shared), outcome }
    }

    fn result(ended: Option<Ended>) -> PyResult<Option<usize>> {
        let none = || Err(Fault::failed("the operation has not ended"));
        ended.unwrap_or_else(none).map_err(Fault::raise)
    }
}

#[pymethods]
impl PyWork {
    /// True if the operation has ended.
    fn is_done(&self) -> bool {
        self.outcome.is_done()
    }

    /// Returns the rank that the message came from, if it is a receive.
    ///
    /// Raises the error of the operation, or an error if it has not ended.
    fn result_now(&self) -> PyResult<Option<usize>> {
        PyWork::result(self.outcome.result())
    }

    /// Waits until the operation has ended, at most for some seconds, and returns its result.
    #[pyo3(signature = (seconds=None))]
    fn wait(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<usize>> {
        let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let span = (limit.unwrap_or_default(), until);
        loop {
            match py.detach(|| self.shared.wait(&self.outcome, span)).map_err(Fault::raise)? {
                Round::Done => return PyWork::result(self.outcome.result()),
                Round::Late(fault) => return Err(fault.raise()),
                Round::Look => py.check_signals()?,
            }
        }
    }

    /// Has a function called without arguments after the end, at once if that was before.
    fn on_end(&self, py: Python<'_>, call: Py<PyAny>) -> PyResult<()> {
        match self.outcome.on_end(call) {
            Some(call) => call.call0(py).map(drop),
            None => Ok(()),
        }
    }
}
