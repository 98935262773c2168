//! Jobs: joining and leaving.

use crate::fault::{Fault, Kind};
use crate::gate::Gate;
use crate::group::PyGroup;
use crate::inside::{Inside, WORLD};
use crate::number::number;
use crate::objects::{PyActors, PyMessages, Worker};
use crate::queue::PyQueue;
use crate::region::{self, PyRegion};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// This process as a rank of its job.
#[pyclass(frozen, module = "weft", name = "Job")]
pub struct PyJob {
    gate: Arc<Gate>,
    /// The group of all ranks.
    #[pyo3(get)]
    world: Py<PyGroup>,
    /// The number of this process.
    #[pyo3(get)]
    rank: usize,
    /// The number of ranks.
    #[pyo3(get)]
    size: usize,
    /// The name of the launcher of this process.
    #[pyo3(get)]
    launcher: &'static str,
}

/// A job that was joined, before Python has it.
struct Joined {
    gate: Arc<Gate>,
    rank: usize,
    size: usize,
    launcher: &'static str,
}

fn join() -> Result<Joined, Fault> {
    let failed = |error: weft::JobError| Fault::new(Kind::Job, error.to_string());
    weft_link::telling::log_to_standard_error();
    let config = weft::job::config_from_env().map_err(failed)?;
    let spin = u64::from(config.spin_us) + u64::from(config.yield_us);
    let inside = Inside::new(weft::Job::init().map_err(failed)?);
    let (rank, size) = (inside.world().rank(), inside.world().size());
    let launcher = inside.launcher();
    let warn_after = Duration::from_millis(u64::from(config.warn_after_ms));
    let gate = Arc::new(Gate::new(inside, Duration::from_micros(spin), warn_after));
    Ok(Joined { gate, rank, size, launcher })
}

/// The job that this process has joined last.
static JOB: Mutex<Option<Py<PyJob>>> = Mutex::new(None);

/// Returns the job that this process has joined and not left.
fn joined(py: Python<'_>) -> Option<Py<PyJob>> {
    let job = JOB.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
    job.as_ref().filter(|job| job.get().gate.is_here()).map(|job| job.clone_ref(py))
}

/// Joins the job of this process, started by `weft run`, or by an `mpiexec`, `srun` or `prterun`
/// that speaks PMI-1 or PMIx; without a launcher, makes a job of one rank.
///
/// At the end of the program the job is left (`Job.finish`), unless the program did so. Until then
/// another call returns the same job.
#[pyfunction]
pub fn init(py: Python<'_>) -> PyResult<Py<PyJob>> {
    if let Some(job) = joined(py) {
        return Ok(job);
    }
    let order = py.import("weft._mpi")?;
    order.call_method0("check")?;
    let joined = py.detach(join);
    let Joined { gate, rank, size, launcher } = joined.map_err(|fault| fault.raise(py))?;
    let world = PyGroup { gate: Arc::clone(&gate), number: WORLD, rank, size };
    let job = Py::new(py, PyJob { gate, world: Py::new(py, world)?, rank, size, launcher })?;
    order.call_method1("watch", (launcher,))?;
    py.import("atexit")?.call_method1("register", (job.getattr(py, "_end")?,))?;
    let before =
        JOB.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).replace(job.clone_ref(py));
    drop(before);
    Ok(job)
}

impl PyJob {
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Ends the shared objects of this rank, unless this process is a copy of it.
    fn close_objects(&self, py: Python<'_>) -> PyResult<()> {
        match (self.gate.check_origin(), Worker::of(&self.gate)) {
            (Ok(()), Some(worker)) => worker.close(py),
            _ => Ok(()),
        }
    }
}

#[pymethods]
impl PyJob {
    /// Sends what is queued and leaves the job. Later calls raise `FinishedError`, but for this.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.gate.check_outside().map_err(|fault| fault.raise(py))?;
        self.close_objects(py)?;
        let left = py.detach(|| self.gate.finish());
        left.map(|_| ()).map_err(|fault| fault.raise(py))
    }

    /// Makes a region of `length` elements, which are 0; this rank is its home. `format` is their
    /// type, a letter of the module `struct`: B b H h I i Q q f d.
    #[pyo3(signature = (length, format="d"))]
    fn region(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] length: usize,
        format: &str,
    ) -> PyResult<PyRegion> {
        region::create(py, &self.gate, length, format)
    }

    /// Maps the region of a name (`Region.name`) that some rank has made.
    fn map(&self, py: Python<'_>, name: &str) -> PyResult<PyRegion> {
        region::map(py, &self.gate, name)
    }

    /// Opens a queue of jobs: records of `size` bytes, of which a message has `batch` at most. All
    /// ranks call this with the same arguments; `number` (0 to 255) tells queues apart.
    #[pyo3(signature = (size, *, number=0, batch=64))]
    fn queue(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] size: usize,
        #[pyo3(from_py_with = number)] number: u16,
        #[pyo3(from_py_with = number)] batch: usize,
    ) -> PyResult<PyQueue> {
        PyQueue::open(py, &self.gate, (number, size, batch))
    }

    /// Returns the shared object of this class and name: made by the first rank that asks, with
    /// these arguments of its class. `at` is its place, if it is not that of the decorator of its
    /// class: a rank, "replicated" on all ranks, or "adaptive".
    #[pyo3(signature = (kind, name, /, *args, at=None, **kwargs))]
    fn share(
        slf: &Bound<'_, Self>,
        kind: &Bound<'_, PyAny>,
        name: &str,
        args: &Bound<'_, PyTuple>,
        at: Option<&Bound<'_, PyAny>>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let kwargs = kwargs.cloned().unwrap_or_else(|| PyDict::new(py));
        let share = py.import("weft._objects")?.getattr("share")?;
        Ok(share.call1((slf, kind, name, args, kwargs, at))?.unbind())
    }

    /// Deletes a shared object on all ranks. Later operations on it raise `OperationError`, as do
    /// those that wait for its guards; its name is free.
    fn delete(slf: &Bound<'_, Self>, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let delete = slf.py().import("weft._objects")?.getattr("delete")?;
        delete.call1((slf, object)).map(|_| ())
    }

    /// Returns the actors of the job: arrays of objects that messages drive. All ranks call this.
    fn actors(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let open = slf.py().import("weft._actors")?.getattr("open_actors")?;
        Ok(open.call1((slf,))?.unbind())
    }

    /// The longest time of a call that waits for other ranks, in seconds; `None`: there is no
    /// limit. A call that takes longer raises `TimeoutError`.
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.gate.limit().map(|limit| limit.as_secs_f64())
    }

    #[setter]
    fn set_timeout(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<()> {
        let wrong = || Fault::argument("a timeout is a number of seconds, or None").raise(py);
        let limit = match seconds {
            Some(seconds) => Some(Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?),
            None => None,
        };
        self.gate.set_limit(limit);
        Ok(())
    }

    /// Returns the messages of shared objects.
    fn _messages(&self) -> PyMessages {
        PyMessages { gate: Arc::clone(&self.gate) }
    }

    /// Returns the arrays of actors.
    fn _driven(&self) -> PyActors {
        PyActors { gate: Arc::clone(&self.gate) }
    }

    /// Leaves the job at the end of the program, unless this is a copy of its process.
    fn _end(&self, py: Python<'_>) {
        if let Err(error) = self.close_objects(py) {
            error.write_unraisable(py, None);
        }
        let _copied = py.detach(|| self.gate.finish());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        match self.gate.check_origin() {
            Ok(()) => self.finish(py),
            // A copy of the process has nothing to leave; its program may be ending.
            Err(_) => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        format!("<weft.Job rank {} of {} under {}>", self.rank, self.size, self.launcher)
    }
}
