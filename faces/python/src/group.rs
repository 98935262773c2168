//! Groups: messages between ranks.

use crate::collective::{each, parts, whole, Numbers};
use crate::fault::Fault;
use crate::gate::Gate;
use crate::inside::{Inside, Outcome, Wanted};
use crate::number::{list, number, optional};
use crate::request::{until, Deliver, Pending, PyRequest};
use crate::senders::Senders;
use crate::sys::Export;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use std::sync::Arc;
use std::time::Instant;

/// An ordered set of ranks with tags of its own: messages, and collective operations, which all
/// ranks of the group call in the same order.
#[pyclass(frozen, module = "weft", name = "Group")]
pub struct PyGroup {
    pub(crate) gate: Arc<Gate>,
    pub(crate) number: u32,
    /// The number of this process in the group.
    #[pyo3(get)]
    pub(crate) rank: usize,
    /// The number of ranks.
    #[pyo3(get)]
    pub(crate) size: usize,
}

impl PyGroup {
    /// # Errors
    /// This thread executes an operation of a shared object.
    fn check_outside(&self, py: Python<'_>) -> PyResult<()> {
        self.gate.check_outside().map_err(|fault| fault.raise(py))
    }

    /// Starts a send.
    fn start_send(
        &self,
        py: Python<'_>,
        to: usize,
        data: &Export,
        (tag, sync): (u32, bool),
    ) -> PyResult<Option<u64>> {
        let at = (self.number, to, tag);
        let now = self.gate.with(|inside| inside.send(at, data, sync));
        if let Some(sent) = now.map_err(|fault| fault.raise(py))? {
            return Ok(sent);
        }
        // Too much is queued: earlier messages have to leave first.
        let sent = self.gate.wait(py, None, |inside| inside.send(at, data, sync))?;
        Ok(sent.flatten())
    }

    fn start_recv(&self, py: Python<'_>, wanted: Wanted, into: &Export) -> PyResult<Option<u64>> {
        let number = self.number;
        let now = self.gate.with(|inside| inside.recv(number, wanted, into));
        match now.map_err(|fault| fault.raise(py))? {
            Some(begun) => Ok(Some(begun)),
            None => self.gate.wait(py, None, |inside| inside.recv(number, wanted, into)),
        }
    }

    /// Receives a message of any length.
    fn recv_bytes(&self, py: Python<'_>, wanted: Wanted) -> PyResult<Py<PyAny>> {
        let number = self.number;
        loop {
            let found = self.await_message(py, wanted, None)?;
            let Some(Outcome::Came(_, _, length)) = found else { return Ok(py.None()) };
            let memory = PyByteArray::new(py, &[]);
            memory.resize(length)?;
            let export = Export::write(&memory)?;
            let begun = self.gate.long(py, |inside| inside.recv_found(number, wanted, &export))?;
            if begun.is_some() {
                Pending::new(&self.gate, begun).result(py, &Deliver::Nothing)?;
                return Ok(PyBytes::new(py, &export.to_vec(py)).into());
            }
        }
    }

    /// Waits for a message without receiving it, at most until a time.
    fn await_message(
        &self,
        py: Python<'_>,
        wanted: Wanted,
        until: Option<Instant>,
    ) -> PyResult<Option<Outcome>> {
        let mut senders = Senders::new(self.number, wanted.rank);
        let found = self.gate.wait(py, until, |inside| {
            if let Some(found) = self.probe_now(inside, wanted)? {
                return Ok(Some(found));
            }
            senders.check(inside).map(|()| None)
        });
        self.gate.end_senders(Some(senders));
        found
    }

    fn probe_now(&self, inside: &mut Inside, wanted: Wanted) -> Result<Option<Outcome>, Fault> {
        if let Some(found) = inside.probe(self.number, wanted)? {
            return Ok(Some(found));
        }
        inside.endpoint().progress();
        inside.probe(self.number, wanted)
    }

    /// Starts a collective operation.
    pub(crate) fn begin<T: 'static>(
        &self,
        py: Python<'_>,
        begin: impl FnOnce(&weft::Group) -> weft::Started<T>,
        outcome: impl Fn(T) -> Outcome + 'static,
    ) -> PyResult<Pending> {
        self.check_outside(py)?;
        let begun = self.gate.with(|inside| inside.collective(self.number, begin, outcome));
        let begun = begun.map_err(|fault| fault.raise(py))?;
        Ok(Pending::new(&self.gate, Some(begun)))
    }
}

#[pymethods]
impl PyGroup {
    /// Sends the bytes of a buffer to a rank; returns when the buffer may change again.
    #[pyo3(signature = (to, data, tag=0))]
    fn send(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] to: usize,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] tag: u32,
    ) -> PyResult<()> {
        self.check_outside(py)?;
        let data = Export::read(data)?;
        let sent = self.start_send(py, to, &data, (tag, false))?;
        if sent.is_some() {
            Pending::new(&self.gate, sent).result(py, &Deliver::Nothing)?;
        }
        Ok(())
    }

    /// Starts a send, and returns its request. With `sync` it ends when the message has met its
    /// receive.
    #[pyo3(signature = (to, data, tag=0, *, sync=false))]
    fn isend(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] to: usize,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] tag: u32,
        sync: bool,
    ) -> PyResult<PyRequest> {
        let data = Export::read(data)?;
        let sent = self.start_send(py, to, &data, (tag, sync))?;
        Ok(PyRequest::new(Pending::new(&self.gate, sent), Deliver::Sent(data)))
    }

    /// Receives a message from a rank, or from any if `source` is `None`. With `into` its bytes go
    /// to that buffer, and its `Status` is returned; otherwise the bytes are.
    #[pyo3(
        signature = (source, into=None, tag=Some(0)),
        text_signature = "($self, source, into=None, tag=0)"
    )]
    fn recv(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = optional)] source: Option<usize>,
        into: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional)] tag: Option<u32>,
    ) -> PyResult<Py<PyAny>> {
        self.check_outside(py)?;
        let wanted = Wanted { rank: source, tag };
        let Some(into) = into else {
            return self.recv_bytes(py, wanted);
        };
        let into = Export::write(into)?;
        let begun = self.start_recv(py, wanted, &into)?;
        Pending::new(&self.gate, begun).result(py, &Deliver::Nothing)
    }

    /// Starts a receive into a buffer, and returns its request.
    #[pyo3(
        signature = (source, into, tag=Some(0)),
        text_signature = "($self, source, into, tag=0)"
    )]
    fn irecv(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = optional)] source: Option<usize>,
        into: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = optional)] tag: Option<u32>,
    ) -> PyResult<PyRequest> {
        let into = Export::write(into)?;
        let begun = self.start_recv(py, Wanted { rank: source, tag }, &into)?;
        Ok(PyRequest::new(Pending::new(&self.gate, begun), Deliver::Status(into)))
    }

    /// Looks for a message, without receiving it, for at most `timeout` seconds (`None`: until it
    /// is there). Returns its `Status`, or `None`.
    #[pyo3(
        signature = (source=None, tag=Some(0), timeout=Some(0.0)),
        text_signature = "($self, source=None, tag=0, timeout=0)"
    )]
    fn probe(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = optional)] source: Option<usize>,
        #[pyo3(from_py_with = optional)] tag: Option<u32>,
        #[pyo3(from_py_with = optional)] timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let wanted = Wanted { rank: source, tag };
        let until = until(py, timeout)?;
        match self.await_message(py, wanted, until)? {
            Some(found) => Deliver::Nothing.hand_over(py, Ok(found)),
            None => Ok(py.None()),
        }
    }

    /// Makes a group of some of this one's ranks, in this order, with tags of its own. All of them
    /// call this, with the same `id` from 1 on, which no other group has that shares a rank with
    /// it. Returns `None` on a rank that is not among them.
    fn subset(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = list)] ranks: Vec<usize>,
        #[pyo3(from_py_with = number)] id: u16,
    ) -> PyResult<Option<PyGroup>> {
        if id == 0 {
            return Err(Fault::argument("id=0 is the group of all ranks").raise(py));
        }
        let made = self.gate.with(|inside| inside.subset(self.number, &ranks, id));
        let made = made.map_err(|fault| fault.raise(py))?;
        let (gate, number) = (&self.gate, id.into());
        Ok(made.map(|(rank, size)| PyGroup { gate: Arc::clone(gate), number, rank, size }))
    }

    /// Returns when every rank has called it.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.start_barrier(py)?.result(py, &Deliver::Nothing).map(drop)
    }

    /// Starts a barrier, and returns its request.
    fn ibarrier(&self, py: Python<'_>) -> PyResult<PyRequest> {
        Ok(PyRequest::new(self.start_barrier(py)?, Deliver::Nothing))
    }

    /// Gives all ranks the root's bytes: returns them. With `into`, which is of just their length,
    /// they are written there. Other ranks than the root need no `data`.
    #[pyo3(signature = (data=None, root=0, *, into=None))]
    fn broadcast(
        &self,
        py: Python<'_>,
        data: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = number)] root: usize,
        into: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let bytes = self.given(py, data, root)?.unwrap_or_default();
        let pending = self.begin(py, |group| group.broadcast(root, bytes), Outcome::Bytes)?;
        pending.result(py, &whole(into)?)
    }

    /// Gives the root the bytes of each rank: a list of `bytes`, or `into` with one after the
    /// other, each of the same length. Returns `None` on other ranks.
    #[pyo3(signature = (data, root=0, *, into=None))]
    fn gather(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] root: usize,
        into: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let bytes = Export::read(data)?.to_vec(py);
        let outcome = |parts: Option<_>| parts.map_or(Outcome::Nothing, Outcome::Parts);
        let pending = self.begin(py, |group| group.gather(root, bytes), outcome)?;
        pending.result(py, &parts(into)?)
    }

    /// Gives each rank its part of the root's list of buffers: as `bytes`, or in `into`. Other
    /// ranks than the root need no `data`.
    #[pyo3(signature = (data=None, root=0, *, into=None))]
    fn scatter(
        &self,
        py: Python<'_>,
        data: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = number)] root: usize,
        into: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let of_root = self.rank == root;
        let parts = data.filter(|_| of_root).map(|data| each(py, data)).transpose()?;
        if of_root && parts.is_none() {
            return Err(Fault::argument("the root passes a buffer for each rank").raise(py));
        }
        let parts = parts.unwrap_or_default();
        let pending = self.begin(py, |group| group.scatter(root, parts), Outcome::Bytes)?;
        pending.result(py, &whole(into)?)
    }

    /// Gives all ranks the bytes of each rank, as `gather` gives them to the root.
    #[pyo3(signature = (data, *, into=None))]
    fn allgather(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        into: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let bytes = Export::read(data)?.to_vec(py);
        let pending = self.begin(py, |group| group.allgather(bytes), Outcome::Parts)?;
        pending.result(py, &parts(into)?)
    }

    /// Gives each rank `r` the buffer `data[r]` of each rank: a list of `bytes`, or `into`.
    #[pyo3(signature = (data, *, into=None))]
    fn alltoall(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        into: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let out = each(py, data)?;
        let pending = self.begin(py, |group| group.alltoall(out), Outcome::Parts)?;
        pending.result(py, &parts(into)?)
    }

    /// Combines the numbers of all ranks, position by position, at the root; returns `None` on
    /// other ranks. `values` is an `int` (64 bits), a `float`, or a buffer of numbers; the result
    /// of a buffer is written to `into`, by default to the buffer itself. `op` is sum, product,
    /// min, max, and for integers and, or, xor.
    #[pyo3(signature = (values, op="sum", root=0, *, into=None))]
    fn reduce(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        op: &str,
        #[pyo3(from_py_with = number)] root: usize,
        into: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let numbers = Numbers::of(values, into, self.rank == root)?;
        self.combine(py, numbers, op, Some(root))
    }

    /// Combines the numbers of all ranks, position by position, as `reduce` does; all ranks get the
    /// result.
    #[pyo3(signature = (values, op="sum", *, into=None))]
    fn allreduce(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        op: &str,
        into: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let numbers = Numbers::of(values, into, true)?;
        self.combine(py, numbers, op, None)
    }

    fn __repr__(&self) -> String {
        format!("<weft.Group rank {} of {}>", self.rank, self.size)
    }
}
