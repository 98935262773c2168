//! Shared objects as Python uses them.

use super::operation::{Arguments, Failure, Operation, Place, DELETE, MADE};
use super::registry::{Entry, Key};
use super::work::{Saying, Worker};
use super::world::{self, Failed, Thing, Wish, Work, World};
use crate::fault::{Fault, Kind};
use crate::gate::{Executes, Gate};
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_models::objects::{ObjectCause, ObjectError, Placement, BYTES_MAX};

/// Time between two tries of a post that has no room.
const ROOM: Duration = Duration::from_millis(1);
/// Rounds of progress that look at all links, and see ranks that have ended.
const ABSENT_ROUNDS: usize = 16;
/// The token of an operation whose result is not kept.
const READ: u64 = u64::MAX;

/// Numbers of places besides those of ranks, as Python has them.
const REPLICATED: i64 = -1;
const ADAPTIVE: i64 = -2;

/// An object as Python has it: the rank that has made it and its number there, the pickle of its
/// class, its place.
type Shown<'py> = (usize, u64, Bound<'py, PyBytes>, i64);

/// Returns the one that executes operations.
///
/// # Errors
/// The objects were not opened.
pub(super) fn worker_of<'a>(py: Python<'_>, gate: &'a Gate) -> PyResult<&'a Worker> {
    let closed = || Fault::new(Kind::Operation, "there are no shared objects").raise(py);
    Worker::of(gate).ok_or_else(closed)
}

fn show(py: Python<'_>, entry: Entry) -> Shown<'_> {
    let place = match entry.placement {
        Placement::Replicated => REPLICATED,
        Placement::Adaptive => ADAPTIVE,
        Placement::At(rank) => rank as i64,
    };
    (entry.key.rank, entry.key.number, PyBytes::new(py, &entry.kind), place)
}

/// Returns the exception of a wait that has ended at the limit of the job.
fn late(what: String, limit: Duration, who: &str) -> PyErr {
    let limit = limit.as_secs_f64();
    PyTimeoutError::new_err(format!("{what} within {limit} s (Job.timeout): {who}"))
}

/// Handles what has come, so that an operation comes behind it.
fn catch_up(py: Python<'_>, gate: &Gate, worker: &Worker) -> PyResult<()> {
    // In a copy of the process a thread that executes operations is not there, but its lock.
    gate.check_origin().map_err(|fault| fault.raise(py))?;
    let rounds = if worker.was_absent() { ABSENT_ROUNDS } else { 1 };
    let found = gate.with(|inside| {
        for _ in 0..rounds {
            inside.endpoint().progress();
        }
        inside.collect();
        Ok(inside.has_events())
    });
    if found.map_err(|fault| fault.raise(py))? {
        worker.work(py, gate)?;
    }
    Ok(())
}

/// The shared objects of a job.
#[pyclass(frozen, module = "weft", name = "_Messages")]
pub struct PyMessages {
    pub(crate) gate: Arc<Gate>,
}

#[pymethods]
impl PyMessages {
    /// Most bytes of a message or of an answer.
    #[classattr]
    #[pyo3(name = "LONGEST")]
    const MOST: usize = BYTES_MAX;

    /// Opens them; waits execute what comes. `runtime` has the lock, and the function that has
    /// handlers of signals wait.
    fn open(&self, runtime: &Bound<'_, PyAny>) -> PyResult<()> {
        let worker = Worker::new(&self.gate, runtime)?;
        self.gate.set_worker(worker);
        Ok(())
    }

    /// Returns the object of a name. If there is none, it has the class that `kind` is a pickle of,
    /// and this place, and `make` makes its state, with the two numbers that tell it from others.
    /// `warn` is called with the seconds of a wait that is long.
    fn share<'py>(
        &self,
        py: Python<'py>,
        wish: (String, Vec<u8>, i64),
        make: Py<PyAny>,
        warn: &Bound<'py, PyAny>,
    ) -> PyResult<Shown<'py>> {
        let worker = worker_of(py, &self.gate)?;
        let (name, kind, place) = wish;
        let placement = match place {
            REPLICATED => Placement::Replicated,
            ADAPTIVE => Placement::Adaptive,
            rank => Placement::At(rank as usize),
        };
        let late = |world: &World, limit: Duration| {
            let who = match world.members() {
                None => "not all ranks have shared an object".to_string(),
                Some(_) => format!("ranks that hold it up: {:?}", world.slow()),
            };
            self::late(format!("no object '{name}'"), limit, &who)
        };
        let saying = Saying {
            warn_after: self.gate.warn_after(),
            warn: &|waited| warn.call1((waited.as_secs_f64(),)).map(|_| ()),
            late: &late,
        };
        let make = Box::new(move |key: Key| {
            Python::attach(|py| make.bind(py).call1((key.rank, key.number))?.extract())
        });
        let wish = Wish { name: name.clone(), kind, placement };
        let limit = self.gate.limit();
        let done = worker.block_on(py, &self.gate, (limit, &saying), move |world| {
            Box::pin(Rc::clone(world).share(wish, make))
        })?;
        match done {
            Ok(entry) => Ok(show(py, entry)),
            Err(Failed::Raised(error)) => Err(error),
            Err(Failed::Object(ObjectError { cause: ObjectCause::TooLong { len }, .. })) => {
                let text = format!(
                    "the state of '{name}' has {len} bytes when pickled, and {BYTES_MAX} are the \
                     most"
                );
                Err(Fault::argument(text).raise(py))
            }
            Err(Failed::Object(error)) => {
                Err(world::fault_of(error.cause, &format!("Job.share of '{name}'")).raise(py))
            }
        }
    }

    /// Returns the object of a name that is there.
    fn find<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Shown<'py>>> {
        let worker = worker_of(py, &self.gate)?;
        let found = worker.with(py, &self.gate, |world| world.look_up(name))?;
        Ok(found.map(|entry| show(py, entry)))
    }

    /// Returns the operations of an object: `replica` is the object of Python for it.
    fn thing(&self, key: (usize, u64), replica: Py<PyAny>) -> PyThing {
        let key = Key { rank: key.0, number: key.1 };
        PyThing { gate: Arc::clone(&self.gate), key, replica }
    }

    /// True in an operation that this thread executes.
    fn is_inside(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(worker_of(py, &self.gate)?.is_inside())
    }

    /// True in an operation that this thread executes: then the signal is raised again at its end.
    fn hold_back(&self, signal: u32) -> bool {
        Worker::of(&self.gate).is_some_and(|worker| worker.hold_back(signal))
    }

    /// Makes progress. True if there is something to do, or a thread does it, or a post of this
    /// rank is on its way.
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        // In a copy of the process the busy thread is not there.
        self.gate.check_origin().map_err(|fault| fault.raise(py))?;
        if Worker::of(&self.gate).is_some_and(Worker::is_busy) {
            return Ok(true);
        }
        let found = self.gate.with(|inside| {
            inside.endpoint().progress();
            inside.collect();
            Ok(inside.has_events())
        });
        found.map_err(|fault| fault.raise(py))
    }
}

/// The operations of a shared object.
#[pyclass(frozen, module = "weft", name = "_Thing")]
pub struct PyThing {
    gate: Arc<Gate>,
    key: Key,
    /// The object of Python that has the state, if it is here.
    replica: Py<PyAny>,
}

impl PyThing {
    /// Returns the one that executes operations, if this thread does not do so now.
    fn begin(&self, py: Python<'_>) -> PyResult<Option<&Worker>> {
        self.gate.check_origin().map_err(|fault| fault.raise(py))?;
        let worker = worker_of(py, &self.gate)?;
        Ok((!worker.is_inside()).then_some(worker))
    }

    fn text(&self, py: Python<'_>, function: &str, method: &str) -> PyResult<String> {
        self.replica.bind(py).call_method1(function, (method,))?.extract()
    }

    /// Returns the exception of a wait that has ended at its limit.
    fn late(&self, py: Python<'_>, world: &World, (method, limit): (&str, Duration)) -> PyErr {
        let title = match self.text(py, "title", method) {
            Ok(title) => title,
            Err(error) => return error,
        };
        let who = match world.thing(self.key).and_then(|thing| thing.at()) {
            Some(rank) => format!("it waited for rank {rank}, which has the object"),
            None => match world.slow() {
                slow if slow.is_empty() => "it waited for its turn".to_string(),
                slow => format!("it waited for ranks {slow:?}"),
            },
        };
        match self.text(py, "guarded", method) {
            Ok(why) => late(format!("no end of {title}"), limit, &(who + &why)),
            Err(error) => error,
        }
    }

    /// Waits for the end of an operation of a method.
    fn wait_for<T: 'static>(
        &self,
        py: Python<'_>,
        worker: &Worker,
        method: &str,
        begin: impl FnOnce(Thing) -> Work<T>,
    ) -> PyResult<Result<T, Failed>> {
        let warn = |waited: Duration| {
            let told = (method, waited.as_secs_f64());
            self.replica.bind(py).call_method1("warn", told).map(|_| ())
        };
        let late = |world: &World, limit: Duration| self.late(py, world, (method, limit));
        let warn_after = self.gate.warn_after();
        let saying = Saying { warn_after, warn: &warn, late: &late };
        let limit = self.gate.limit();
        worker.block_on(py, &self.gate, (limit, &saying), |world| match world.thing(self.key) {
            Some(thing) => begin(thing),
            None => Box::pin(std::future::ready(Err(self.no_thing()))),
        })
    }

    fn no_thing(&self) -> Failed {
        let cause = ObjectCause::NoObject;
        Failed::Object(ObjectError { object: self.key.number, class: "", cause })
    }

    /// Returns the exception of an operation that has no result.
    fn error(&self, py: Python<'_>, method: &str, failed: Failed) -> PyErr {
        let cause = match failed {
            Failed::Raised(error) => return error,
            Failed::Object(error) => error.cause,
        };
        let title = self.text(py, "title", method);
        let name = self.text(py, "of_name", method);
        let (Ok(title), Ok(name)) = (&title, &name) else {
            return title.and(name).err().unwrap_or_else(|| crate::gate::finished().raise(py));
        };
        match cause {
            ObjectCause::TooLong { len } => {
                let text = format!(
                    "the arguments of {name} have {len} bytes when pickled, and {BYTES_MAX} are \
                     the most"
                );
                Fault::argument(text).raise(py)
            }
            cause => world::fault_of(cause, title).raise(py),
        }
    }

    /// Executes an operation; returns its result, or raises its exception.
    fn execute(
        &self,
        py: Python<'_>,
        worker: &Worker,
        (method, token): (&str, u64),
        (args, names): (&Bound<'_, PyTuple>, &Bound<'_, PyDict>),
    ) -> PyResult<Py<PyAny>> {
        let failure = Failure::default();
        let arguments = Arguments::Given {
            args: args.clone().unbind(),
            names: names.clone().unbind(),
            failure: Rc::clone(&failure),
        };
        let author = self.replica.bind(py).getattr("rank")?.extract()?;
        let op = Operation { method: method.to_string(), arguments, author, token };
        let done = self.wait_for(py, worker, method, |thing| world::begin(thing, op))?;
        match (failure.take(), done) {
            (Some(error), _) => Err(error),
            (None, Ok(reply)) => reply.result(py),
            (None, Err(failed)) => Err(self.error(py, method, failed)),
        }
    }
}

#[pymethods]
impl PyThing {
    /// Executes a read.
    fn read(
        &self,
        py: Python<'_>,
        method: &str,
        args: &Bound<'_, PyTuple>,
        names: &Bound<'_, PyDict>,
    ) -> PyResult<Py<PyAny>> {
        let Some(worker) = self.begin(py)? else {
            let all = (method, args, names);
            return Ok(self.replica.bind(py).call_method1("read_inside", all)?.unbind());
        };
        catch_up(py, &self.gate, worker)?;
        self.execute(py, worker, (method, READ), (args, names))
    }

    /// Executes a write.
    fn write(
        &self,
        py: Python<'_>,
        method: &str,
        args: &Bound<'_, PyTuple>,
        names: &Bound<'_, PyDict>,
    ) -> PyResult<Py<PyAny>> {
        let Some(worker) = self.begin(py)? else {
            return Ok(self.replica.bind(py).call_method1("refuse_inside", (method,))?.unbind());
        };
        // Operations of ranks that have failed meanwhile must not be done by this one's.
        catch_up(py, &self.gate, worker)?;
        let place = Place::new();
        self.execute(py, worker, (method, place.0), (args, names))
    }

    /// Executes a write of an object that is always on all ranks, and does not wait for its end.
    fn post(
        &self,
        py: Python<'_>,
        method: &str,
        args: &Bound<'_, PyTuple>,
        names: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let Some(worker) = self.begin(py)? else {
            self.replica.bind(py).call_method1("refuse_inside", (method,))?;
            return Ok(());
        };
        let bytes = super::operation::encode_arguments(py, args, names)?;
        let author = self.replica.bind(py).getattr("rank")?.extract()?;
        let (method, arguments) = (method.to_string(), Arguments::Came(bytes));
        let op = Operation { method, arguments, author, token: 0 };
        loop {
            let posted = worker.posting(py, &self.gate, |world| match world.thing(self.key) {
                Some(thing) => thing.post(&op).map_err(Failed::Object),
                None => Err(self.no_thing()),
            })?;
            match posted {
                Ok(()) => return Ok(()),
                Err(Failed::Object(error)) if world::is_busy(&error) => {
                    self.gate.wait(py, Some(Instant::now() + ROOM), |_| Ok(None::<()>))?;
                }
                Err(failed) => return Err(self.error(py, &op.method, failed)),
            }
        }
    }

    /// Returns the rank that has the object; `None` if all ranks have it.
    fn place(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        let worker = worker_of(py, &self.gate)?;
        worker.with(py, &self.gate, |world| world.thing(self.key)?.at())
    }

    /// Returns the exception with which an object at a rank could not be made there, or `None`.
    fn failure(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let none = (PyTuple::empty(py), PyDict::new(py));
        self.read(py, MADE, &none.0, &none.1)
    }

    /// Deletes the object of this name. False if it was deleted before.
    fn delete(&self, py: Python<'_>, name: String) -> PyResult<bool> {
        let Some(worker) = self.begin(py)? else {
            self.replica.bind(py).call_method1("refuse_inside", ("Job.delete",))?;
            return Ok(false);
        };
        let freed = self.free(py, worker, name)?;
        if freed {
            let none = (PyTuple::empty(py), PyDict::new(py));
            // Its operations end with a text of their own; then the rest of it is freed.
            self.write(py, DELETE, &none.0, &none.1)?;
            let deleted = self.wait_for(py, worker, DELETE, world::delete)?;
            deleted.map_err(|failed| self.error(py, DELETE, failed))?;
        }
        Ok(freed)
    }
}

impl PyThing {
    /// Frees the name of the object. False if it was free.
    fn free(&self, py: Python<'_>, worker: &Worker, name: String) -> PyResult<bool> {
        let warn = |_| Ok(());
        let late = |world: &World, limit: Duration| self.late(py, world, ("Job.delete", limit));
        let saying = Saying { warn_after: Duration::ZERO, warn: &warn, late: &late };
        let (key, limit) = (self.key, self.gate.limit());
        let freed = worker.block_on(py, &self.gate, (limit, &saying), move |world| {
            Box::pin(Rc::clone(world).free(name, key))
        })?;
        match freed {
            Ok(entry) => Ok(entry.is_some()),
            Err(failed) => Err(self.error(py, "Job.delete", failed)),
        }
    }
}
