//! Memory of Python objects, by the buffer protocol (PEP 3118).

use crate::fault::Fault;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// Memory of a Python object. Until this is dropped the object lives, and neither moves nor resizes
/// its memory: a `bytearray` that is asked to raises `BufferError`.
pub struct Export {
    buffer: PyUntypedBuffer,
    len: usize,
    /// The type of the element of memory that has no dimension: `buffer` has its bytes.
    single: Option<String>,
}

/// True for a type of elements, as the module `struct` and PEP 3118 write it, that has neither
/// objects of Python (`O`) nor pointers: `P`, `&` before a type, `X` to functions; `z` and, where
/// no complex number follows, `Z` to strings (`ctypes`).
fn is_plain(format: &str) -> bool {
    let mut rest = format;
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        match letter {
            // The name of a field.
            ':' => rest = rest.split_once(':').map_or("", |(_, after)| after),
            'O' | 'P' | '&' | 'X' | 'z' => return false,
            'Z' if !rest.starts_with(['f', 'd', 'g']) => return false,
            _ => {}
        }
    }
    true
}

impl Export {
    /// Exports memory to be read.
    ///
    /// # Errors
    /// The object has no buffer, or one with gaps, or with references to other objects.
    pub fn read(object: &Bound<'_, PyAny>) -> PyResult<Export> {
        let (buffer, single) = match PyUntypedBuffer::get(object) {
            Ok(buffer) => (buffer, None),
            Err(_) => Export::of_view(object)?,
        };
        if !buffer.is_c_contiguous() && !buffer.is_fortran_contiguous() {
            let why = "the buffer has gaps: pass a contiguous copy of it \
                       (numpy.ascontiguousarray)";
            return Err(Fault::argument(why).raise(object.py()));
        }
        let export = Export { len: buffer.len_bytes(), buffer, single };
        if !is_plain(export.format()) {
            let why = format!(
                "elements of type {:?} are addresses of this process, of no use to others: pass \
                 numbers or bytes, or pickle the objects",
                export.format()
            );
            return Err(Fault::argument(why).raise(object.py()));
        }
        Ok(export)
    }

    /// Exports memory by a view of it.
    fn of_view(object: &Bound<'_, PyAny>) -> PyResult<(PyUntypedBuffer, Option<String>)> {
        let Ok(view) = PyMemoryView::from(object) else {
            let kind = object.get_type().fully_qualified_name()?;
            return Err(PyTypeError::new_err(format!(
                "a {kind} has no buffer: pass bytes (text.encode(), pickle.dumps(object)), a \
                 bytearray, an array, or an array of numpy"
            )));
        };
        let view = view.as_any();
        if view.getattr("ndim")?.extract::<usize>()? == 0 {
            // A number of numpy, or an array of one without a dimension.
            let bytes = view.call_method1("cast", ("B",))?;
            return Ok((PyUntypedBuffer::get(&bytes)?, Some(view.getattr("format")?.extract()?)));
        }
        // Memory of `ctypes` does not say how far apart its elements are; a view of it does.
        Ok((PyUntypedBuffer::get(view)?, None))
    }

    /// Exports memory to be written.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read); or the object is read-only.
    pub fn write(object: &Bound<'_, PyAny>) -> PyResult<Export> {
        let export = Export::read(object)?;
        if export.buffer.readonly() {
            let why = "the buffer is read-only: receive into a bytearray, an array, or a \
                       writable view";
            return Err(Fault::argument(why).raise(object.py()));
        }
        Ok(export)
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the type of its elements, as the module `struct` writes it.
    pub fn format(&self) -> &str {
        let of_buffer = || self.buffer.format().to_str().unwrap_or_default();
        self.single.as_deref().unwrap_or_else(of_buffer)
    }

    /// True for memory of one number that cannot be changed: a number of numpy.
    pub fn is_number(&self) -> bool {
        self.single.is_some() && self.buffer.readonly()
    }

    /// Returns the address.
    pub(super) fn address(&self) -> *mut u8 {
        self.buffer.buf_ptr().cast()
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self, _py: Python<'_>) -> Vec<u8> {
        if self.len == 0 {
            return Vec::new();
        }
        let mut copy = vec![0; self.len];
        // SAFETY: the object keeps as many bytes there while this lives. Another thread that writes
        // to them at this moment may mix old bytes and new, as in any copy by Python.
        unsafe { std::ptr::copy_nonoverlapping(self.address(), copy.as_mut_ptr(), self.len) };
        copy
    }

    /// Copies bytes to the memory, as many as fit.
    pub fn fill(&self, _py: Python<'_>, from: usize, bytes: &[u8]) {
        let len = bytes.len().min(self.len.saturating_sub(from));
        if len > 0 && !self.buffer.readonly() {
            // SAFETY: the object keeps `self.len` bytes there while this lives, and it gave them
            // for writing; `bytes` is memory of this library.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address().add(from), len) };
        }
    }
}
