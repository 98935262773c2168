//! Numbers that calls take: one that is out of range raises `ArgumentError`, not `OverflowError`.

use crate::fault::Fault;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

/// A type of numbers, with its range as text.
pub trait Number: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr> {
    fn range() -> String;
}

macro_rules! whole {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn range() -> String {
                format!("a whole number from {} to {}", <$type>::MIN, <$type>::MAX)
            }
        }
    )*};
}

whole!(i64 u16 u32 u64 usize);

impl Number for f64 {
    fn range() -> String {
        "a number that a float holds".to_string()
    }
}

/// Takes a number; the form of `from_py_with`.
pub fn number<T: Number>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    let py = object.py();
    object.extract().map_err(|error: PyErr| match error.is_instance_of::<PyOverflowError>(py) {
        true => {
            // Python writes no numbers of more than some thousand digits.
            let given = object.str().map_or("the number".to_string(), |text| text.to_string());
            Fault::argument(format!("{given} is out of range: pass {}", T::range())).raise(py)
        }
        false => error,
    })
}

/// Takes a number or `None`.
pub fn optional<T: Number>(object: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
    if object.is_none() {
        return Ok(None);
    }
    number(object).map(Some)
}

/// Takes a list of numbers.
pub fn list<T: Number>(object: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    object.try_iter()?.map(|each| number(&each?)).collect()
}
