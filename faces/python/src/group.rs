//! Groups: messages between ranks.

use crate::fault::Fault;
use crate::gate::Gate;
use crate::inside::{Inside, Outcome, Wanted};
use crate::request::{until, Deliver, Pending, PyRequest};
use crate::sys::Export;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use std::sync::Arc;

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
            let found = self.gate.wait(py, None, |inside| inside.probe(number, wanted))?;
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

    fn look(&self, inside: &mut Inside, wanted: Wanted) -> Result<Option<Outcome>, Fault> {
        if let Some(found) = inside.probe(self.number, wanted)? {
            return Ok(Some(found));
        }
        inside.endpoint().progress();
        inside.probe(self.number, wanted)
    }
}

#[pymethods]
impl PyGroup {
    /// Sends the bytes of a buffer to a rank; returns when the buffer may change again.
    #[pyo3(signature = (to, data, tag=0))]
    fn send(&self, py: Python<'_>, to: usize, data: &Bound<'_, PyAny>, tag: u32) -> PyResult<()> {
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
        to: usize,
        data: &Bound<'_, PyAny>,
        tag: u32,
        sync: bool,
    ) -> PyResult<PyRequest> {
        let data = Export::read(data)?;
        let sent = self.start_send(py, to, &data, (tag, sync))?;
        Ok(PyRequest::new(Pending::new(&self.gate, sent), Deliver::Sent(data)))
    }

    /// Receives a message from a rank, or from any if `source` is `None`. With `into` its bytes go
    /// to that buffer, and its `Status` is returned; otherwise the bytes are.
    #[pyo3(signature = (source, into=None, tag=Some(0)))]
    fn recv(
        &self,
        py: Python<'_>,
        source: Option<usize>,
        into: Option<&Bound<'_, PyAny>>,
        tag: Option<u32>,
    ) -> PyResult<Py<PyAny>> {
        let wanted = Wanted { rank: source, tag };
        let Some(into) = into else {
            return self.recv_bytes(py, wanted);
        };
        let into = Export::write(into)?;
        let begun = self.start_recv(py, wanted, &into)?;
        Pending::new(&self.gate, begun).result(py, &Deliver::Nothing)
    }

    /// Starts a receive into a buffer, and returns its request.
    #[pyo3(signature = (source, into, tag=Some(0)))]
    fn irecv(
        &self,
        py: Python<'_>,
        source: Option<usize>,
        into: &Bound<'_, PyAny>,
        tag: Option<u32>,
    ) -> PyResult<PyRequest> {
        let into = Export::write(into)?;
        let begun = self.start_recv(py, Wanted { rank: source, tag }, &into)?;
        Ok(PyRequest::new(Pending::new(&self.gate, begun), Deliver::Status(into)))
    }

    /// Looks for a message, without receiving it, for at most `timeout` seconds (`None`: until it
    /// is there). Returns its `Status`, or `None`.
    #[pyo3(signature = (source=None, tag=Some(0), timeout=Some(0.0)))]
    fn probe(
        &self,
        py: Python<'_>,
        source: Option<usize>,
        tag: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let wanted = Wanted { rank: source, tag };
        let until = until(py, timeout)?;
        let found = self.gate.wait(py, until, |inside| self.look(inside, wanted))?;
        match found {
            Some(found) => Deliver::Nothing.hand_over(py, Ok(found)),
            None => Ok(py.None()),
        }
    }

    /// Returns when every rank has called it.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        let number = self.number;
        let begun = self
            .gate
            .with(|inside| inside.collective(number, weft::Group::barrier, |()| Outcome::Nothing));
        let begun = begun.map_err(|fault| fault.raise(py))?;
        Pending::new(&self.gate, Some(begun)).result(py, &Deliver::Nothing)?;
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<weft.Group rank {} of {}>", self.rank, self.size)
    }
}
