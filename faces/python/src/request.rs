//! Operations that were started: requests, and the results of all.

use crate::fault::Fault;
use crate::gate::Gate;
use crate::inside::{Ended, Outcome};
use crate::number::optional;
use crate::objects::Worker;
use crate::senders::Senders;
use crate::sys::Export;
use crate::value::{self, Parts, Value};
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The source, tag and length of a message.
#[pyclass(frozen, get_all, module = "weft", name = "Status")]
pub struct PyStatus {
    /// The rank that sent it; `None` if it is no rank of the group.
    source: Option<usize>,
    /// Its tag.
    tag: u32,
    /// Its length in bytes.
    length: usize,
}

impl Value for PyStatus {
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (self.source, self.tag, self.length).into_pyobject(py)
    }
}

#[pymethods]
impl PyStatus {
    #[new]
    #[pyo3(signature = (source, tag, length))]
    fn new(source: Option<usize>, tag: u32, length: usize) -> PyStatus {
        PyStatus { source, tag, length }
    }

    fn __repr__(&self) -> String {
        let source = self.source.map_or("None".to_string(), |rank| rank.to_string());
        format!("Status(source={source}, tag={}, length={})", self.tag, self.length)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        value::equals(self, other)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        value::hash(self, py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Parts<'py>> {
        value::reduce(self, py)
    }
}

/// An operation under way. Dropping this takes it back: its memory is not used any more.
pub struct Pending {
    gate: Arc<Gate>,
    number: Option<u64>,
}

impl Pending {
    /// Takes over an operation; `None` if it has ended already.
    pub fn new(gate: &Arc<Gate>, number: Option<u64>) -> Pending {
        Pending { gate: Arc::clone(gate), number }
    }

    /// Waits for the end; `None` if it does not come until a time.
    fn end(&mut self, py: Python<'_>, until: Option<Instant>) -> PyResult<Option<Ended>> {
        let Some(number) = self.number else { return Ok(Some(Ok(Outcome::Nothing))) };
        let mut senders = None;
        let ended = self.gate.wait(py, until, |inside| {
            if let Some(ended) = inside.take(number) {
                return Ok(Some(ended));
            }
            if senders.is_none() {
                senders = inside.any_source(number).map(|group| Senders::new(group, None));
            }
            let failed = senders.as_mut().and_then(|senders| senders.check(inside).err());
            Ok(failed.map(|fault| {
                inside.forget(number);
                Err(fault)
            }))
        });
        self.gate.end_senders(senders);
        let ended = ended?;
        if ended.is_some() {
            self.number = None;
        }
        Ok(ended)
    }

    /// Waits for the messages of all ranks.
    pub fn parts(mut self, py: Python<'_>) -> PyResult<Vec<Vec<u8>>> {
        let ended = self.end(py, None)?;
        match ended.transpose().map_err(|fault| fault.raise(py))? {
            Some(Outcome::Parts(parts)) => Ok(parts),
            _ => Ok(Vec::new()),
        }
    }

    /// Takes over an operation of a model that has been started.
    pub fn of_model(gate: &Arc<Gate>, started: Result<Ended, u64>) -> Started {
        match started {
            Ok(ended) => Started::Ended(ended),
            Err(number) => Started::Runs(Pending::new(gate, Some(number))),
        }
    }

    /// Waits for the result, and hands it over.
    pub fn result(mut self, py: Python<'_>, deliver: &Deliver) -> PyResult<Py<PyAny>> {
        match self.end(py, None)? {
            Some(ended) => deliver.hand_over(py, ended),
            None => Ok(py.None()),
        }
    }
}

/// An operation of a model: it may have ended at once.
pub enum Started {
    Ended(Ended),
    Runs(Pending),
}

impl Started {
    /// Waits for the number that is the result; 0 if it is none.
    pub fn number(self, py: Python<'_>) -> PyResult<u64> {
        let ended = match self {
            Started::Ended(ended) => Some(ended),
            Started::Runs(mut pending) => pending.end(py, None)?,
        };
        match ended.transpose().map_err(|fault| fault.raise(py))? {
            Some(Outcome::Number(number)) => Ok(number),
            _ => Ok(0),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.gate.forget(number);
        }
    }
}

/// The form in which the program gets a result.
pub enum Deliver {
    /// None.
    Nothing,
    /// The status of a message; its bytes are in this memory.
    Status(Export),
    /// None: the memory was sent.
    Sent(Export),
    /// The object, whose memory gets the bytes: of just this length.
    Into(Export, Py<PyAny>),
    /// The object, whose memory gets a part from each rank: of just this length each.
    PartsInto(Export, Py<PyAny>),
    /// New `bytes`; a list of them for parts; `None` where this rank gets nothing.
    Bytes,
    /// A number of this type.
    Number(char),
}

impl Deliver {
    pub fn hand_over(&self, py: Python<'_>, ended: Ended) -> PyResult<Py<PyAny>> {
        let outcome = ended.map_err(|fault| fault.raise(py))?;
        match (self, outcome) {
            (Deliver::Bytes, Outcome::Bytes(bytes)) => Ok(PyBytes::new(py, &bytes).into()),
            (Deliver::Bytes, Outcome::Parts(parts)) => {
                let parts = parts.iter().map(|part| PyBytes::new(py, part));
                Ok(PyList::new(py, parts.collect::<Vec<_>>())?.into())
            }
            (Deliver::Number(kind), Outcome::Bytes(bytes)) => number(py, *kind, &bytes),
            (Deliver::Into(memory, object), Outcome::Bytes(bytes)) => {
                check_len(py, bytes.len(), memory.len())?;
                memory.fill(py, 0, &bytes);
                Ok(object.clone_ref(py))
            }
            (Deliver::PartsInto(memory, object), Outcome::Parts(parts)) => {
                let each = memory.len() / parts.len().max(1);
                for (rank, part) in parts.iter().enumerate() {
                    check_len(py, part.len(), each)?;
                    memory.fill(py, rank * each, part);
                }
                Ok(object.clone_ref(py))
            }
            (_, Outcome::Came(source, tag, length)) => {
                Ok(Py::new(py, PyStatus { source, tag, length })?.into_any())
            }
            _ => Ok(py.None()),
        }
    }
}

/// # Errors
/// A message does not have the length of its place.
fn check_len(py: Python<'_>, came: usize, room: usize) -> PyResult<()> {
    match came == room {
        true => Ok(()),
        false => {
            let text =
                format!("{came} bytes came for a place of {room}: all ranks pass the same length");
            Err(Fault::argument(text).raise(py))
        }
    }
}

fn number(py: Python<'_>, kind: char, bytes: &[u8]) -> PyResult<Py<PyAny>> {
    let raw: [u8; 8] = bytes.try_into().unwrap_or_default();
    Ok(match kind {
        'd' => f64::from_ne_bytes(raw).into_pyobject(py)?.into_any().unbind(),
        _ => i64::from_ne_bytes(raw).into_pyobject(py)?.into_any().unbind(),
    })
}

/// Returns the time of the end of a wait.
///
/// # Errors
/// The time is no number of seconds from 0 on.
pub fn until(py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| {
        Fault::argument(format!("timeout={seconds}: pass seconds from 0 on, or None")).raise(py)
    })?;
    Ok(Instant::now().checked_add(time))
}

/// The state of a request. The operation ends before its memory is given back.
enum Held {
    Running(Pending, Deliver),
    Ended(PyResult<Py<PyAny>>),
}

/// An operation that was started. Its buffer is locked until it has ended. A request that is
/// dropped is taken back: a receive is cancelled, a send goes on from a copy.
#[pyclass(frozen, module = "weft", name = "Request")]
pub struct PyRequest {
    held: Mutex<Option<Held>>,
}

impl PyRequest {
    pub fn new(pending: Pending, deliver: Deliver) -> PyRequest {
        PyRequest { held: Mutex::new(Some(Held::Running(pending, deliver))) }
    }

    fn put(&self, held: Held) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }

    /// Waits for the end, and stores it; `None` if it does not come in time.
    fn wait_until(&self, py: Python<'_>, until: Option<Instant>) -> PyResult<Option<Py<PyAny>>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        let result = match held {
            Some(Held::Ended(result)) => result,
            Some(Held::Running(mut pending, deliver)) => match pending.end(py, until) {
                Ok(Some(ended)) => deliver.hand_over(py, ended),
                Ok(None) => {
                    self.put(Held::Running(pending, deliver));
                    return Ok(None);
                }
                Err(error) => {
                    // A signal: the operation goes on. Or the job was left.
                    self.put(Held::Running(pending, deliver));
                    return Err(error);
                }
            },
            None => {
                let text = "another thread waits for this request";
                return Err(Fault::argument(text).raise(py));
            }
        };
        let copy = match &result {
            Ok(value) => Ok(value.clone_ref(py)),
            Err(error) => Err(error.clone_ref(py)),
        };
        self.put(Held::Ended(copy));
        result.map(Some)
    }
}

#[pymethods]
impl PyRequest {
    /// Waits for the end, and returns the result: a `Status` for a receive, the object or bytes of
    /// a collective operation, else `None`. Raises `TimeoutError` after `timeout` seconds; the
    /// operation goes on.
    #[pyo3(signature = (timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = optional)] timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let found = self.wait_until(py, until(py, timeout)?)?;
        found.ok_or_else(|| PyTimeoutError::new_err("the operation is still under way"))
    }

    /// True if it has ended: `wait` returns at once. Makes progress, and executes operations of
    /// shared objects.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        let (gate, number) = match &*self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Held::Running(Pending { gate, number: Some(number) }, _)) => {
                (Arc::clone(gate), *number)
            }
            Some(_) => return Ok(true),
            None => return Ok(false),
        };
        let (done, works) = gate.long(py, move |inside| {
            inside.collect();
            if !inside.is_done(number) {
                inside.endpoint().progress();
                inside.collect();
            }
            Ok((inside.is_done(number), inside.has_events()))
        })?;
        if let (true, Some(worker)) = (works, Worker::of(&gate)) {
            // Others wait for them while this rank does nothing but test.
            worker.work(py, &gate)?;
        }
        Ok(done)
    }

    /// Waits for the end while the event loop goes on.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let ended = slf.py().import("weft._await")?.call_method1("ended", (slf,))?;
        ended.call_method0("__await__")
    }

    /// Cancels a receive that has not met its message: `wait` raises `CancelledError` then. Does
    /// nothing for other operations.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let (gate, number) = match &*self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Held::Running(Pending { gate, number: Some(number) }, _)) => {
                (Arc::clone(gate), *number)
            }
            _ => return Ok(()),
        };
        gate.long(py, move |inside| {
            inside.cancel(number);
            Ok(())
        })
    }
}
