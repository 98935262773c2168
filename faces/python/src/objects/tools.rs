//! The functions of `weft/_objects.py` that operations use.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PySet, PyTuple};

/// Functions and objects of Python.
pub struct Tools {
    /// Pickles arguments.
    dump: Py<PyAny>,
    /// Pickles the result of an operation: true if it returned, the result; returns the two, since
    /// what cannot be sent becomes an error.
    dump_result: Py<PyAny>,
    loads: Py<PyAny>,
    /// Makes the state of an object from bytes; returns the object of Python for it.
    load_state: Py<PyAny>,
    /// Returns the state of an object as bytes.
    save_state: Py<PyAny>,
    /// Has a replica be of no use if its operation has failed at this rank alone.
    doubt: Py<PyAny>,
    /// Logs the exception of a post.
    log_post: Py<PyAny>,
    /// Notes the rank at an exception that goes to another one.
    note: Py<PyAny>,
    /// Calls a read or a guard, and undoes what it changes: the object of Python for it, the
    /// method, true for its guard, the arguments with the state first, and those with names.
    checked: Py<PyAny>,
    /// The numbers of the states that must not change now.
    frozen: Py<PySet>,
}

impl Tools {
    /// # Errors
    /// The files of the package are others.
    pub fn get(py: Python<'_>) -> PyResult<&Tools> {
        static TOOLS: PyOnceLock<Tools> = PyOnceLock::new();
        TOOLS.get_or_try_init(py, || {
            let (objects, frozen) = (py.import("weft._objects")?, py.import("weft._frozen")?);
            let part = |name: &str| objects.getattr(name).map(Bound::unbind);
            Ok(Tools {
                dump: part("_dump")?,
                dump_result: part("_dump_result")?,
                loads: py.import("pickle")?.getattr("loads")?.unbind(),
                load_state: part("_load_state")?,
                save_state: part("_save_state")?,
                doubt: part("_doubt")?,
                log_post: part("_log_post")?,
                note: part("_note")?,
                checked: frozen.getattr("checked")?.unbind(),
                frozen: frozen.getattr("FROZEN")?.cast_into::<PySet>()?.unbind(),
            })
        })
    }

    /// Pickles arguments.
    pub fn pickle<'py>(&self, arguments: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let pickle = self.dump.bind(arguments.py()).call1((arguments,))?;
        Ok(pickle.cast_into::<PyBytes>()?)
    }

    /// Pickles the result of an operation.
    pub fn pickle_result<'py>(
        &self,
        ok: bool,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<(bool, Bound<'py, PyBytes>)> {
        self.dump_result.bind(value.py()).call1((ok, value))?.extract()
    }

    /// Reads a pickle.
    pub fn unpickle<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        self.loads.bind(py).call1((PyBytes::new(py, bytes),))
    }

    pub fn load_state<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        self.load_state.bind(py).call1((PyBytes::new(py, bytes),))
    }

    pub fn save_state<'py>(&self, replica: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(self.save_state.bind(replica.py()).call1((replica,))?.cast_into::<PyBytes>()?)
    }

    pub fn doubt(&self, replica: &Bound<'_, PyAny>, method: &str, error: &PyErr) -> PyResult<()> {
        let py = replica.py();
        self.doubt.bind(py).call1((replica, method, error.value(py))).map(|_| ())
    }

    pub fn log_post(
        &self,
        replica: &Bound<'_, PyAny>,
        method: &str,
        error: &PyErr,
    ) -> PyResult<()> {
        let py = replica.py();
        self.log_post.bind(py).call1((replica, method, error.value(py))).map(|_| ())
    }

    pub fn note(&self, error: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
        self.note.bind(error.py()).call1((error, name)).map(|_| ())
    }

    /// Calls a read or a guard of a replica, and undoes what it changes.
    pub fn checked<'py>(
        &self,
        replica: &Bound<'py, PyAny>,
        (method, is_guard): (&str, bool),
        all: &Bound<'py, PyTuple>,
        names: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.checked.bind(replica.py()).call1((replica, method, is_guard, all, names))
    }

    /// Calls a write of a state, which may change meanwhile.
    pub fn thawed<'py>(
        &self,
        state: &Bound<'py, PyAny>,
        write: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The number is that of the function `id`.
        let (frozen, number) = (self.frozen.bind(state.py()), state.as_ptr() as usize);
        frozen.discard(number)?;
        let result = write();
        frozen.add(number)?;
        result
    }
}
