//! Coherent regions.

use crate::fault::Fault;
use crate::gate::Gate;
use crate::inside::{Inside, Outcome};
use crate::models::{Advice, Models};
use crate::request::Pending;
use crate::sys::View;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyMemoryView, PyTuple};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weft_models::regions::{Access, RegionId, SIZE_MAX};

/// The types of elements, as the module `struct` writes them, and their lengths.
const TYPES: [(&str, usize); 10] = [
    ("B", 1),
    ("b", 1),
    ("H", 2),
    ("h", 2),
    ("I", 4),
    ("i", 4),
    ("Q", 8),
    ("q", 8),
    ("f", 4),
    ("d", 8),
];

/// An array that all ranks read and write in turn.
#[pyclass(frozen, module = "weft", name = "Region")]
pub struct PyRegion {
    gate: Arc<Gate>,
    key: u64,
    id: RegionId,
    of: (&'static str, usize),
    /// Number of elements.
    len: usize,
}

/// Returns a type of elements.
fn type_of(py: Python<'_>, name: &str) -> PyResult<(&'static str, usize)> {
    let found = TYPES.into_iter().find(|(letter, _)| *letter == name);
    found.ok_or_else(|| {
        let letters = TYPES.map(|(letter, _)| letter).join(" ");
        Fault::argument(format!("no elements of type {name:?}: the types are {letters}")).raise(py)
    })
}

/// Makes a region of zeroes.
pub fn create(py: Python<'_>, gate: &Arc<Gate>, length: usize, name: &str) -> PyResult<PyRegion> {
    let of = type_of(py, name)?;
    if length == 0 {
        return Err(Fault::argument("a region has elements").raise(py));
    }
    let bytes = length.checked_mul(of.1).filter(|bytes| *bytes <= SIZE_MAX);
    let bytes = bytes.ok_or_else(|| {
        let most = SIZE_MAX / of.1;
        let text = format!(
            "a region of {length} elements of {} bytes: it has at most {SIZE_MAX} bytes, which are \
             {most} of them",
            of.1
        );
        Fault::argument(text).raise(py)
    })?;
    let made = gate.with(|inside| {
        let models = inside.models()?;
        let key = models.create(bytes)?;
        Ok((key, models.shape(key)?.0))
    });
    let (key, id) = made.map_err(|fault| fault.raise(py))?;
    Ok(PyRegion { gate: Arc::clone(gate), key, id, of, len: length })
}

/// Maps the region of a name.
pub fn map(py: Python<'_>, gate: &Arc<Gate>, name: &str) -> PyResult<PyRegion> {
    let wrong = || Fault::argument(format!("{name:?} is no name of a region")).raise(py);
    let mut parts = name.split(':');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (home, count) = (number().ok_or_else(wrong)?, number().ok_or_else(wrong)?);
    let of = type_of(py, parts.next().ok_or_else(wrong)?)?;
    let id = RegionId::new(u32::try_from(home).map_err(|_| wrong())? as usize, count);
    gate.check_outside().map_err(|fault| fault.raise(py))?;
    let started = gate.with(|inside| {
        if id.home() >= inside.world().size() {
            return Err(Fault::argument(format!("there is no rank {}", id.home())));
        }
        let work = inside.models()?.map(id);
        Ok(inside.start(work, Outcome::Number))
    });
    let started = started.map_err(|fault| fault.raise(py))?;
    let key = Pending::of_model(gate, started).number(py)?;
    let shape = gate.with(|inside| inside.models()?.shape(key));
    let (_, bytes) = shape.map_err(|fault| fault.raise(py))?;
    Ok(PyRegion { gate: Arc::clone(gate), key, id, of, len: bytes / of.1 })
}

impl PyRegion {
    fn hold(slf: &Bound<'_, Self>, access: Access) -> PyHold {
        let region = slf.clone().unbind();
        PyHold { region, access, number: AtomicU64::new(0), shown: Mutex::new(None) }
    }

    fn use_models<T>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Models) -> Result<T, Fault>,
    ) -> PyResult<T> {
        let done = self.gate.with(|inside| f(inside.models()?));
        done.map_err(|fault| fault.raise(py))
    }
}

impl Drop for PyRegion {
    fn drop(&mut self) {
        let key = self.key;
        self.gate.end_of_models(|models| models.unmap(key));
    }
}

#[pymethods]
impl PyRegion {
    /// The name, for `Job.map` on other ranks.
    #[getter]
    fn name(&self) -> String {
        format!("{}:{}", self.id, self.of.0)
    }

    /// The rank that made it.
    #[getter]
    fn home(&self) -> usize {
        self.id.home()
    }

    /// The type of the elements, as the module `struct` writes it.
    #[getter]
    fn format(&self) -> &'static str {
        self.of.0
    }

    /// Returns a context manager that reads: `with region.read() as array`.
    fn read(slf: &Bound<'_, Self>) -> PyHold {
        PyRegion::hold(slf, Access::Read)
    }

    /// Returns a context manager that writes: `with region.write() as array`.
    fn write(slf: &Bound<'_, Self>) -> PyHold {
        PyRegion::hold(slf, Access::Write)
    }

    /// Asks for a copy to read, or with `write` for the only copy, which may be here when it is
    /// used.
    #[pyo3(signature = (*, write=false))]
    fn prefetch(&self, py: Python<'_>, write: bool) -> PyResult<()> {
        let access = if write { Access::Write } else { Access::Read };
        self.use_models(py, |models| models.advise(self.key, Advice::Prefetch(access)))
    }

    /// Gives this rank's copy back to the home, if no operation uses it.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.use_models(py, |models| models.advise(self.key, Advice::Flush))
    }

    /// Deletes the region: waits until no operation uses it; later ones are refused.
    fn delete(&self, py: Python<'_>) -> PyResult<()> {
        self.gate.check_outside().map_err(|fault| fault.raise(py))?;
        let started = self.gate.with(|inside| {
            let work = inside.models()?.delete(self.key)?;
            Ok(inside.start(work, |()| Outcome::Nothing))
        });
        let started = started.map_err(|fault| fault.raise(py))?;
        Pending::of_model(&self.gate, started).number(py).map(drop)
    }

    fn __len__(&self) -> usize {
        self.len
    }

    fn __repr__(&self) -> String {
        format!("<weft.Region {} of {} elements>", self.name(), self.len)
    }
}

/// An operation on a region, between `with` and its end.
#[pyclass(frozen, module = "weft", name = "_Hold")]
pub struct PyHold {
    region: Py<PyRegion>,
    access: Access,
    /// The number of the operation, while it is under way.
    number: AtomicU64,
    /// The array or view that the program has.
    shown: Mutex<Option<Py<PyAny>>>,
}

/// Returns numpy's function `asarray`, if numpy is installed.
fn asarray(py: Python<'_>) -> Option<&Bound<'_, PyAny>> {
    static FOUND: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let find = || Some(py.import("numpy").ok()?.getattr("asarray").ok()?.unbind());
    FOUND.get_or_init(py, find).as_ref().map(|found| found.bind(py))
}

impl PyHold {
    fn begin(&self, inside: &mut Inside) -> Result<Result<crate::inside::Ended, u64>, Fault> {
        let key = self.region.get().key;
        let work = inside.models()?.begin(key, self.access)?;
        Ok(inside.start(work, Outcome::Number))
    }

    fn end(&self) {
        let number = self.number.swap(0, Ordering::Relaxed);
        self.region.get().gate.end_of_models(|models| models.end(number));
    }

    /// Makes the array or view of an operation.
    fn show(&self, py: Python<'_>, number: u64) -> PyResult<Py<PyAny>> {
        let region = self.region.get();
        let may_write = self.access == Access::Write;
        let shown = region.gate.with(|inside| {
            let (key, address, len) = inside.models()?.show(number)?;
            Ok((key, address.addr(), len))
        });
        let shown = shown.map_err(|fault| fault.raise(py))?;
        let view = View::new(region.gate.clone(), shown, region.of, may_write);
        let view = Py::new(py, view)?;
        let view = PyMemoryView::from(view.bind(py).as_any())?;
        match asarray(py) {
            Some(asarray) => Ok(asarray.call1((view,))?.unbind()),
            None => Ok(view.into_any().unbind()),
        }
    }
}

impl Drop for PyHold {
    fn drop(&mut self) {
        self.end();
    }
}

#[pymethods]
impl PyHold {
    /// Begins the operation; returns an array of numpy, or a `memoryview` without numpy.
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let region = self.region.get();
        if self.number.load(Ordering::Relaxed) > 0 {
            return Err(Fault::argument("this operation is under way").raise(py));
        }
        let started = region.gate.check_outside();
        let started = started.and_then(|()| region.gate.with(|inside| self.begin(inside)));
        let started = started.map_err(|fault| fault.raise(py))?;
        let number = Pending::of_model(&region.gate, started).number(py)?;
        self.number.store(number, Ordering::Relaxed);
        let shown = self.show(py, number).inspect_err(|_| self.end())?;
        let mut kept = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(shown.clone_ref(py));
        Ok(shown)
    }

    /// Ends the operation. The array can be written no more.
    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(shown) = shown {
            let shown = shown.bind(py);
            // Views of this one that the program has made stay, and so does their memory.
            let _has_views = match shown.getattr("flags") {
                Ok(flags) => flags.setattr("writeable", false),
                Err(_) => shown.call_method0("release").map(drop),
            };
        }
        self.end();
        Ok(())
    }
}
