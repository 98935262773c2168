//! Small objects of values: they are equal if their values are, and may be copied and pickled. Each
//! class has `__eq__`, `__hash__` and `__reduce__` by the functions of this module.

use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

/// A class of values.
pub trait Value: pyo3::PyClass {
    /// Returns the values, in the order in which its class takes them.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>>;
}

/// True if another object is of the same class, with equal values.
pub fn equals<T: Value>(value: &T, other: &Bound<'_, PyAny>) -> PyResult<bool> {
    match other.cast::<T>() {
        Ok(other) => {
            let py = other.py();
            value.values(py)?.eq(other.borrow().values(py)?)
        }
        Err(_) => Ok(false),
    }
}

/// Returns a number that is the same for equal objects.
pub fn hash<T: Value>(value: &T, py: Python<'_>) -> PyResult<isize> {
    value.values(py)?.hash()
}

/// The class of an object, and its values.
pub type Parts<'py> = (Bound<'py, PyType>, Bound<'py, PyTuple>);

/// Returns the parts from which copies and pickles are made.
pub fn reduce<'py, T: Value>(value: &T, py: Python<'py>) -> PyResult<Parts<'py>> {
    Ok((py.get_type::<T>(), value.values(py)?))
}
