//! Process groups and their operations, as Python sees them. Tensors are lists of pieces of memory:
//! an address and a length in bytes each. Python keeps the memory until the operation has ended.

use crate::begin::{self, Begun};
use crate::fault::Fault;
use crate::inside::Inside;
use crate::kind;
use crate::progress;
use crate::shared::Shared;
use crate::store::StoreBoot;
use crate::sys::Memory;
use crate::work::PyWork;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use weft::{Group, Job, Number, Op};

/// Longest time in which queued messages leave at the end.
const FLUSH: Duration = Duration::from_secs(5);

/// The memory of tensors: address and length in bytes of each.
type Pieces = Vec<(usize, usize)>;

/// This process as a rank of a process group.
#[pyclass(frozen, module = "torch_weft._core", name = "Group")]
pub struct PyGroup {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The options of an operation: its longest time in seconds; true if the caller waits for it
/// next; and the tensors, which are kept until it has ended.
type Options = (f64, bool, Py<PyAny>);

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn join(mut boot: StoreBoot) -> Result<Inside, Fault> {
    weft_link::telling::log_to_standard_error();
    let failed = |error: weft::JobError| Fault::failed(error.to_string());
    let here = boot.ranks_here().map_err(|error| Fault::failed(error.to_string()))?;
    let job = Job::init_by(Box::new(boot), Some(here)).map_err(failed)?;
    Ok(Inside::new(job))
}

impl PyGroup {
    fn begin(
        &self,
        py: Python<'_>,
        (name, options): (&'static str, Options),
        begin: impl FnOnce(&Group) -> Begun + Send,
    ) -> PyResult<PyWork> {
        let (limit, is_sync, tensors) = options;
        let how = (name, seconds(limit), is_sync);
        let begun = py.detach(|| self.shared.begin(how, tensors, begin));
        Ok(PyWork::new(&self.shared, begun.map_err(Fault::raise)?))
    }

    fn close(&self, py: Python<'_>, why: &str, flush: Duration) {
        let why = Fault::failed(why);
        py.detach(|| {
            self.shared.close(&why, flush);
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            let is_own = |thread: &JoinHandle<()>| {
                thread.thread().id() == std::thread::current().id() || !self.shared.is_here()
            };
            // A function that the thread calls may end the process group.
            if let Some(thread) = thread.filter(|thread| !is_own(thread)) {
                let _panicked = thread.join();
            }
        });
    }
}

fn memories(pieces: Vec<Pieces>) -> Vec<Memory> {
    pieces.into_iter().map(Memory::new).collect()
}

#[pymethods]
impl PyGroup {
    /// Joins a process group by torch's store; `name` is one that no other group of these ranks
    /// has, `limit` the longest wait for other ranks in seconds.
    #[new]
    fn new(
        py: Python<'_>,
        store: Py<PyAny>,
        name: String,
        rank: usize,
        size: usize,
        limit: f64,
    ) -> PyResult<PyGroup> {
        if rank >= size {
            let text = format!("rank {rank} of a process group of {size}");
            return Err(Fault::argument(text).raise());
        }
        let boot = StoreBoot::new(store, name, (rank, size), seconds(limit));
        let shared = py.detach(|| join(boot).map(|inside| Arc::new(Shared::new(inside))));
        let shared = shared.map_err(Fault::raise)?;
        let thread = progress::start(&shared).map_err(|error| {
            Fault::failed(format!("no thread for the progress of messages: {error}")).raise()
        })?;
        Ok(PyGroup { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Combines elements on every rank.
    fn allreduce(
        &self,
        py: Python<'_>,
        memory: Pieces,
        combined: (&str, &str),
        options: Options,
    ) -> PyResult<PyWork> {
        let (of, op) = reduction(combined)?;
        let memory = Memory::new(memory);
        self.begin(py, ("allreduce", options), |group| begin::allreduce(group, memory, of, op))
    }

    /// Combines elements at the root.
    fn reduce(
        &self,
        py: Python<'_>,
        root: usize,
        memory: Pieces,
        combined: (&str, &str),
        options: Options,
    ) -> PyResult<PyWork> {
        let by = reduction(combined)?;
        let memory = Memory::new(memory);
        self.begin(py, ("reduce", options), |group| begin::reduce(group, root, memory, by))
    }

    /// Combines elements, and gives each rank its part.
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        inputs: Vec<Pieces>,
        output: Pieces,
        combined: (&str, &str),
        options: Options,
    ) -> PyResult<PyWork> {
        let by = reduction(combined)?;
        let (from, into) = (memories(inputs), Memory::new(output));
        self.begin(py, ("reduce_scatter", options), |group| {
            begin::reduce_scatter(group, &from, into, by)
        })
    }

    /// Gives all ranks the root's bytes.
    fn broadcast(
        &self,
        py: Python<'_>,
        root: usize,
        memory: Pieces,
        options: Options,
    ) -> PyResult<PyWork> {
        let memory = Memory::new(memory);
        self.begin(py, ("broadcast", options), |group| begin::broadcast(group, root, memory))
    }

    /// Gives all ranks the bytes of all.
    fn allgather(
        &self,
        py: Python<'_>,
        input: Pieces,
        outputs: Vec<Pieces>,
        options: Options,
    ) -> PyResult<PyWork> {
        let (from, into) = (Memory::new(input), memories(outputs));
        self.begin(py, ("allgather", options), |group| begin::allgather(group, &from, &into))
    }

    /// Sends each rank its part.
    fn alltoall(
        &self,
        py: Python<'_>,
        inputs: Vec<Pieces>,
        outputs: Vec<Pieces>,
        options: Options,
    ) -> PyResult<PyWork> {
        let (from, into) = (memories(inputs), memories(outputs));
        self.begin(py, ("alltoall", options), |group| begin::alltoall(group, &from, &into))
    }

    /// Gives the root the bytes of all.
    fn gather(
        &self,
        py: Python<'_>,
        root: usize,
        tensors: (Pieces, Vec<Pieces>),
        options: Options,
    ) -> PyResult<PyWork> {
        let (from, into) = (Memory::new(tensors.0), memories(tensors.1));
        self.begin(py, ("gather", options), |group| begin::gather(group, root, &from, into))
    }

    /// Gives each rank its part of the root's bytes.
    fn scatter(
        &self,
        py: Python<'_>,
        root: usize,
        tensors: (Vec<Pieces>, Pieces),
        options: Options,
    ) -> PyResult<PyWork> {
        let (from, into) = (memories(tensors.0), Memory::new(tensors.1));
        self.begin(py, ("scatter", options), |group| begin::scatter(group, root, &from, into))
    }

    /// Ends when all ranks have begun it.
    fn barrier(&self, py: Python<'_>, options: Options) -> PyResult<PyWork> {
        self.begin(py, ("barrier", options), begin::barrier)
    }

    /// Sends to a rank.
    fn send(
        &self,
        py: Python<'_>,
        to: (usize, u32),
        memory: Pieces,
        options: Options,
    ) -> PyResult<PyWork> {
        let (to, tag) = to;
        let memory = Memory::new(memory);
        self.begin(py, ("send", options), |group| begin::send(group, to, tag, &memory))
    }

    /// Receives from a rank, or from any.
    fn recv(
        &self,
        py: Python<'_>,
        from: (Option<usize>, u32),
        memory: Pieces,
        options: Options,
    ) -> PyResult<PyWork> {
        let (from, tag) = from;
        let memory = Memory::new(memory);
        self.begin(py, ("recv", options), |group| begin::recv(group, from, tag, memory))
    }

    /// Sends what is queued and leaves the process group.
    fn shutdown(&self, py: Python<'_>) {
        self.close(py, "the process group was shut down", FLUSH);
    }

    /// Leaves the process group at once: operations under way fail.
    fn abort(&self, py: Python<'_>) {
        self.close(py, "the process group was aborted on this rank", Duration::ZERO);
    }
}

fn reduction((kind, by): (&str, &str)) -> PyResult<(Number, Op)> {
    let both = || {
        let of = kind::number(kind)?;
        Ok((of, kind::op(by, of)?))
    };
    both().map_err(Fault::raise)
}
