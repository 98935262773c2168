//! Names of a cluster: claims, look-ups, events and messages, beside jobs.
//!
//! A connection has a lock of its own, which a call holds while it works. Waits are pieces of
//! [`LOOK`], without the interpreter's lock; between them signals are looked for and other threads
//! may have the connection.

use crate::fault::{Fault, Kind};
use crate::job::PyJob;
use crate::number::{number, optional};
use crate::request::until;
use crate::value::{self, Parts, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weft::names::{Binding, Event, Mode, Name, NameEvent, Names, NamesError, Notice, Pick};
use weft::names::{Spec, Watch, MESSAGE_MAX};

/// Longest piece of a wait.
const LOOK: Duration = Duration::from_millis(100);

fn fault(error: NamesError) -> Fault {
    let kind = match error {
        NamesError::Name(_) => Kind::Argument,
        NamesError::Absent { .. } | NamesError::Ended(_) => Kind::Agent,
        _ => Kind::Refused,
    };
    Fault::new(kind, error.to_string())
}

fn argument<T>(py: Python<'_>, text: String) -> PyResult<T> {
    Err(Fault::argument(text).raise(py))
}

fn parse(py: Python<'_>, name: &str) -> PyResult<Name> {
    name.parse().map_err(|error| fault(error).raise(py))
}

/// An owner of a name.
#[pyclass(frozen, get_all, module = "weft.names", name = "Owner")]
pub struct PyOwner {
    /// The name as it would be typed; `None` in a message, which tells its sender alone.
    name: Option<String>,
    /// The socket address that serves it; `None`: it has none.
    address: Option<String>,
    /// The number of the endpoint of weft that serves it, or 0.
    endpoint: u64,
    /// The number of its host.
    host: u64,
    /// True if that is this host.
    here: bool,
    /// The user of the process that has it.
    user: u32,
    /// The number of that process on its host.
    process: u32,
}

impl PyOwner {
    fn of(binding: &Binding, here: u64) -> PyOwner {
        let (claim, host) = (&binding.name, binding.id.host.0);
        PyOwner {
            name: Some(Name::of(binding).to_string()),
            address: claim.address.map(|address| address.to_string()),
            endpoint: claim.endpoint,
            host,
            here: host == here,
            user: claim.owner.user,
            process: claim.owner.process,
        }
    }
}

impl Value for PyOwner {
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let PyOwner { name, address, endpoint, host, here, user, process } = self;
        (name, address, endpoint, host, *here, user, process).into_pyobject(py)
    }
}

#[pymethods]
impl PyOwner {
    #[new]
    #[pyo3(signature = (name, address, endpoint, host, here, user, process))]
    fn new(
        name: Option<String>,
        address: Option<String>,
        endpoint: u64,
        host: u64,
        here: bool,
        user: u32,
        process: u32,
    ) -> PyOwner {
        PyOwner { name, address, endpoint, host, here, user, process }
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

    fn __repr__(&self) -> String {
        let name = self.name.as_deref().unwrap_or("a sender");
        let address = self.address.as_deref().unwrap_or("no address");
        format!("<weft.names.Owner {name}, {address}, process {}>", self.process)
    }
}

/// An event of a subscription or of a connection.
#[pyclass(frozen, get_all, module = "weft.names", name = "Event")]
pub struct PyEvent {
    /// `published`, `withdrawn`, `all`, `missed` or `timeout` of a subscription; `message`, `lost`
    /// or `returned` of a connection.
    kind: String,
    /// The number of the event in its subscription; of the claim that a message was sent to or that
    /// was lost; or of the message that came back.
    number: u64,
    /// The owner that has come or gone, or the sender of a message.
    owner: Option<Py<PyOwner>>,
    /// The reason why a name or a claim is gone, or why a message came back.
    cause: Option<String>,
    /// The bytes of a message.
    data: Option<Py<PyBytes>>,
}

impl Value for PyEvent {
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let (owner, cause, data) = (self.owner.as_ref(), self.cause.as_deref(), self.data.as_ref());
        (&self.kind, self.number, owner, cause, data).into_pyobject(py)
    }
}

#[pymethods]
impl PyEvent {
    #[new]
    #[pyo3(signature = (kind, number, owner, cause, data))]
    fn new(
        kind: String,
        number: u64,
        owner: Option<Py<PyOwner>>,
        cause: Option<String>,
        data: Option<Py<PyBytes>>,
    ) -> PyEvent {
        PyEvent { kind, number, owner, cause, data }
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

    fn __repr__(&self, py: Python<'_>) -> String {
        let owner = self.owner.as_ref().and_then(|owner| owner.get().name.clone());
        let data = self.data.as_ref().map(|data| format!(" {} bytes", data.as_bytes(py).len()));
        let parts = [owner, self.cause.clone(), data.map(|text| text.trim().to_string())];
        let text: Vec<String> = parts.into_iter().flatten().collect();
        format!("<weft.names.Event {} {}: {}>", self.number, self.kind, text.join(", "))
    }
}

impl PyEvent {
    fn of_watch(py: Python<'_>, event: &NameEvent, here: u64) -> PyResult<PyEvent> {
        let (kind, binding, cause) = match &event.notice {
            Notice::Published(binding) => ("published", Some(binding), None),
            Notice::Withdrawn(binding, gone) => {
                ("withdrawn", Some(binding), Some(gone.to_string()))
            }
            Notice::SnapshotEnd => ("all", None, None),
            Notice::Missed { events } => ("missed", None, Some(format!("{events} events"))),
            Notice::Timeout => ("timeout", None, None),
        };
        let owner = binding.map(|binding| Py::new(py, PyOwner::of(binding, here))).transpose()?;
        Ok(PyEvent { kind: kind.into(), number: event.seq, owner, cause, data: None })
    }

    /// Makes the event of a connection; `None` for a kind that this package does not know.
    fn of_names(py: Python<'_>, event: Event, here: u64) -> PyResult<Option<PyEvent>> {
        let lost = |kind: &str, number, cause| PyEvent {
            kind: kind.into(),
            number,
            owner: None,
            cause,
            data: None,
        };
        Ok(Some(match event {
            Event::Lost { claim, gone } => lost("lost", claim, Some(gone.to_string())),
            Event::Returned { message, why } => lost("returned", message, Some(why)),
            Event::Mail { claim, host, from, payload } => {
                let owner = PyOwner {
                    name: None,
                    address: None,
                    endpoint: 0,
                    host: host.0,
                    here: host.0 == here,
                    user: from.user,
                    process: from.process,
                };
                let data = Some(PyBytes::new(py, &payload).unbind());
                let owner = Some(Py::new(py, owner)?);
                PyEvent { kind: "message".into(), number: claim, owner, cause: None, data }
            }
            _ => return Ok(None),
        }))
    }
}

/// Calls `look` with the time that it may wait until it finds something, or the end has come.
fn wait<T: Send>(
    py: Python<'_>,
    end: Option<Instant>,
    mut look: impl FnMut(Duration) -> Result<Option<T>, NamesError> + Send,
) -> PyResult<Option<T>> {
    loop {
        let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
        let found = py.detach(|| look(left.min(LOOK)));
        if let Some(found) = found.map_err(|error| fault(error).raise(py))? {
            return Ok(Some(found));
        }
        if left < LOOK {
            return Ok(None);
        }
        py.check_signals()?;
    }
}

/// A connection to the agent of this host. Its claims end with it.
#[pyclass(frozen, module = "weft.names", name = "Names")]
pub struct PyNames {
    /// `None` when it was closed.
    names: Mutex<Option<Names>>,
    here: u64,
    /// The name of the cluster.
    #[pyo3(get)]
    cluster: String,
}

fn closed() -> NamesError {
    NamesError::Ended(std::io::Error::other("it was closed by this program"))
}

impl PyNames {
    fn lock(&self) -> MutexGuard<'_, Option<Names>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        f: impl FnOnce(&mut Names) -> Result<T, NamesError>,
    ) -> Result<T, NamesError> {
        self.lock().as_mut().map_or_else(|| Err(closed()), f)
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Names) -> Result<T, NamesError> + Send,
    ) -> PyResult<T> {
        py.detach(|| self.with(f)).map_err(|error| fault(error).raise(py))
    }
}

/// Connects to the agent of this host: the one at `place`, or at the place that `WEFT_AGENT` names,
/// or a usual one.
#[pyfunction]
#[pyo3(signature = (place=None))]
pub fn connect(py: Python<'_>, place: Option<String>) -> PyResult<PyNames> {
    let opened = py.detach(|| place.map_or_else(Names::connect, |place| Names::at(&place)));
    let names = opened.map_err(|error| fault(error).raise(py))?;
    let (here, cluster) = (names.host().0, names.cluster().to_string());
    Ok(PyNames { names: Mutex::new(Some(names)), here, cluster })
}

/// Makes a claim that leads to an address or to a rank, or is a mark.
fn spec(py: Python<'_>, name: &Name, target: Option<&Bound<'_, PyAny>>) -> PyResult<Spec> {
    let Some(target) = target else { return Ok(Spec::new(name)) };
    if let Ok(job) = target.cast::<PyJob>() {
        let named = job.get().gate().with(|inside| {
            let spec = weft::names::claim_of(inside.endpoint(), name);
            spec.map_err(|why| Fault::new(Kind::Refused, why.to_string()))
        });
        return named.map_err(|fault| fault.raise(py));
    }
    let Ok(text) = target.extract::<String>() else {
        return argument(py, "a name leads to an address, a text, or to a rank, a Job".into());
    };
    match text.parse::<SocketAddr>() {
        Ok(address) => Ok(Spec::new(name).address(address)),
        Err(_) => argument(py, format!("{text:?} is no address: pass ADDRESS:PORT")),
    }
}

#[pymethods]
impl PyNames {
    /// Claims a name until it is withdrawn, or until this connection or the process ends; returns
    /// the number of the claim. `target` is a socket address, or a `Job`: then the name leads to
    /// this rank. Without one it is a mark. `unique` excludes other owners, `on_host` hides it from
    /// other hosts, with `messages` its owner takes messages (`next`).
    #[pyo3(signature = (name, target=None, *, unique=false, on_host=false, messages=false))]
    fn publish(
        &self,
        py: Python<'_>,
        name: &str,
        target: Option<&Bound<'_, PyAny>>,
        unique: bool,
        on_host: bool,
        messages: bool,
    ) -> PyResult<u64> {
        let mut claim = spec(py, &parse(py, name)?, target)?;
        for (wanted, change) in
            [(unique, Spec::unique as fn(Spec) -> Spec), (on_host, Spec::on_host)]
        {
            claim = if wanted { change(claim) } else { claim };
        }
        claim = if messages { claim.messages() } else { claim };
        self.call(py, |names| names.claim(&claim))
    }

    /// Withdraws a claim.
    fn withdraw(&self, py: Python<'_>, #[pyo3(from_py_with = number)] claim: u64) -> PyResult<()> {
        self.call(py, |names| names.withdraw(claim))
    }

    /// Returns an owner of a name, or `None`: with `pick` "nearest" one of this host if there is
    /// one, with "turn" one of all, by turns.
    #[pyo3(signature = (name, *, pick="nearest"))]
    fn find(&self, py: Python<'_>, name: &str, pick: &str) -> PyResult<Option<PyOwner>> {
        let name = parse(py, name)?;
        let pick = match pick {
            "nearest" => Pick::Nearest,
            "turn" => Pick::Turn,
            other => return argument(py, format!("pick={other:?}: pass \"nearest\" or \"turn\"")),
        };
        let here = self.here;
        self.call(py, |names| {
            Ok(names.resolve(&name, pick)?.map(|binding| PyOwner::of(binding, here)))
        })
    }

    /// Returns all owners of a name.
    fn find_all(&self, py: Python<'_>, name: &str) -> PyResult<Vec<PyOwner>> {
        let (name, here) = (parse(py, name)?, self.here);
        let all = self.call(py, |names| names.resolve_all(&name))?;
        Ok(all.iter().map(|binding| PyOwner::of(binding, here)).collect())
    }

    /// Waits until a name has `count` owners, and returns them all. Raises `TimeoutError` after
    /// `timeout` seconds.
    #[pyo3(signature = (name, count=1, timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        name: &str,
        #[pyo3(from_py_with = number)] count: usize,
        #[pyo3(from_py_with = optional)] timeout: Option<f64>,
    ) -> PyResult<Vec<PyOwner>> {
        let (name, here) = (parse(py, name)?, self.here);
        let found = wait(py, until(py, timeout)?, |piece| {
            match self.with(|names| names.wait(&name, count, piece)) {
                Err(NamesError::Timeout { .. }) => Ok(None),
                found => found.map(Some),
            }
        })?;
        let Some(all) = found else {
            let found = self.call(py, |names| names.resolve_all(&name))?.len();
            let text = NamesError::Timeout { name, found, wanted: count }.to_string();
            return Err(pyo3::exceptions::PyTimeoutError::new_err(text));
        };
        Ok(all.iter().map(|binding| PyOwner::of(binding, here)).collect())
    }

    /// Sends a message to an owner of a name that takes messages, by turns, or to all of them;
    /// returns its number. It comes back as an event if its owner ends before it takes it.
    #[pyo3(signature = (name, data, *, all=false))]
    fn send(&self, py: Python<'_>, name: &str, data: &[u8], all: bool) -> PyResult<u64> {
        let name = parse(py, name)?;
        if data.len() > MESSAGE_MAX {
            return argument(py, format!("a message to a name has at most {MESSAGE_MAX} bytes"));
        }
        let data = data.to_vec();
        self.call(py, move |names| names.send(&name, all, &data))
    }

    /// Returns the next event of this connection: a message, or the end of a claim. `None` if none
    /// comes within `timeout` seconds (`None` waits).
    #[pyo3(signature = (timeout=None))]
    fn next(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = optional)] timeout: Option<f64>,
    ) -> PyResult<Option<PyEvent>> {
        let end = until(py, timeout)?;
        loop {
            let found = wait(py, end, |piece| self.with(|names| names.event(piece)))?;
            let Some(found) = found else { return Ok(None) };
            if let Some(event) = PyEvent::of_names(py, found, self.here)? {
                return Ok(Some(event));
            }
        }
    }

    /// Watches a name: its owners that are there, a mark, then each change. With `first_last` only
    /// the first owner that comes and the last one that goes are told. The subscription ends after
    /// `timeout` seconds.
    #[pyo3(signature = (name, *, first_last=false, timeout=None))]
    fn watch(
        &self,
        py: Python<'_>,
        name: &str,
        first_last: bool,
        #[pyo3(from_py_with = optional)] timeout: Option<f64>,
    ) -> PyResult<PyWatch> {
        let name = parse(py, name)?;
        let limit = until(py, timeout)?.map(|end| end.saturating_duration_since(Instant::now()));
        let mode = if first_last { Mode::FirstLast } else { Mode::Each };
        let watch = self.call(py, |names| names.watch(&name, mode, limit))?;
        Ok(PyWatch { watch: Mutex::new(Some(watch)), here: self.here })
    }

    /// Ends the connection, and with it its claims.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.lock().take()));
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<weft.names.Names of cluster {}>", self.cluster)
    }
}

/// A subscription to a name: an iterator over its events.
#[pyclass(frozen, module = "weft.names", name = "Watch")]
pub struct PyWatch {
    /// `None` when it was closed.
    watch: Mutex<Option<Watch>>,
    here: u64,
}

impl PyWatch {
    fn lock(&self) -> MutexGuard<'_, Option<Watch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyWatch {
    /// Returns the next event; `None` if none comes within `timeout` seconds (`None` waits).
    #[pyo3(signature = (timeout=None))]
    fn next(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = optional)] timeout: Option<f64>,
    ) -> PyResult<Option<PyEvent>> {
        let found = wait(py, until(py, timeout)?, |piece| {
            self.lock().as_mut().map_or_else(|| Err(closed()), |watch| watch.next(piece))
        })?;
        found.map(|event| PyEvent::of_watch(py, &event, self.here)).transpose()
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Waits for the next event. The event `timeout` is the last one.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyEvent>> {
        if self.lock().is_none() {
            return Ok(None);
        }
        let event = self.next(py, None)?;
        if event.as_ref().is_some_and(|event| event.kind == "timeout") {
            self.close();
        }
        Ok(event)
    }

    /// Ends the subscription.
    fn close(&self) {
        drop(self.lock().take());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        self.close();
    }
}
