//! The memory of a region as an object of Python.

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void, CString};
use std::sync::Arc;

/// The keeper of memory that is shown.
pub trait Shows: Send + Sync {
    /// Notes that the memory under this key is not shown any more.
    fn hide(&self, key: u64);
}

/// The memory of a region during an operation, by the buffer protocol (PEP 3118).
#[pyclass(frozen, module = "weft", name = "_View")]
pub struct View {
    keeper: Arc<dyn Shows>,
    /// The key of the region, whose memory the job keeps until this is dropped.
    key: u64,
    address: usize,
    /// Length in bytes.
    len: usize,
    /// Number of elements, their type as the module `struct` writes it, and their length.
    shape: [ffi::Py_ssize_t; 1],
    strides: [ffi::Py_ssize_t; 1],
    format: CString,
    may_write: bool,
}

impl View {
    /// Shows the memory at `memory`, which `keeper` keeps under `key`: see `Models::show`.
    pub fn new(
        keeper: Arc<dyn Shows>,
        (key, memory, len): (u64, usize, usize),
        (format, size): (&str, usize),
        may_write: bool,
    ) -> View {
        View {
            keeper,
            key,
            address: memory,
            len,
            shape: [(len / size.max(1)) as ffi::Py_ssize_t],
            strides: [size as ffi::Py_ssize_t],
            format: CString::new(format).unwrap_or_default(),
            may_write,
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.keeper.hide(self.key);
    }
}

#[pymethods]
impl View {
    /// # Safety
    /// The interpreter calls this with memory for a description.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && !this.may_write {
            // SAFETY: the interpreter gives a description, which has no object after an error.
            unsafe { (*view).obj = std::ptr::null_mut() };
            return Err(PyBufferError::new_err("the operation reads the region"));
        }
        let wants = |flag: c_int| flags & flag == flag;
        // SAFETY: the interpreter gives a description to fill. The memory stays while this object
        // lives, even beyond the job (`Models::show`), and the description owns a reference to this
        // object, whose shape, strides and format it points to: none of them is written through it.
        unsafe {
            (*view).buf = this.address as *mut c_void;
            (*view).len = this.len as ffi::Py_ssize_t;
            (*view).itemsize = this.strides[0];
            (*view).readonly = c_int::from(!this.may_write);
            (*view).ndim = 1;
            (*view).format = match wants(ffi::PyBUF_FORMAT) {
                true => this.format.as_ptr().cast_mut(),
                false => std::ptr::null_mut(),
            };
            (*view).shape = match wants(ffi::PyBUF_ND) {
                true => this.shape.as_ptr().cast_mut(),
                false => std::ptr::null_mut(),
            };
            (*view).strides = match wants(ffi::PyBUF_STRIDES) {
                true => this.strides.as_ptr().cast_mut(),
                false => std::ptr::null_mut(),
            };
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
            (*view).obj = slf.into_ptr();
        }
        Ok(())
    }
}
