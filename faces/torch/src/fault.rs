//! Errors as exceptions of Python.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(
    torch_weft,
    WeftError,
    PyRuntimeError,
    "An operation that failed: its text names the rank, its host, the path, the cause and a remedy."
);
pyo3::create_exception!(
    torch_weft,
    LateError,
    WeftError,
    "An operation that took longer than the timeout."
);

/// The class of an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The caller's argument is wrong, and nothing was sent.
    Argument,
    /// The operation failed.
    Failed,
    /// The timeout has passed.
    Late,
}

/// The reason why a call failed, before it is an exception: it needs no interpreter.
#[derive(Clone, Debug)]
pub struct Fault {
    kind: Kind,
    text: String,
}

impl Fault {
    pub fn argument(text: impl Into<String>) -> Fault {
        Fault { kind: Kind::Argument, text: text.into() }
    }

    pub fn failed(text: impl Into<String>) -> Fault {
        Fault { kind: Kind::Failed, text: text.into() }
    }

    pub fn late(text: impl Into<String>) -> Fault {
        Fault { kind: Kind::Late, text: text.into() }
    }

    /// Has the text begin with the name of the operation.
    #[must_use]
    pub fn of(self, operation: &str) -> Fault {
        Fault { text: format!("{operation}: {}", self.text), ..self }
    }

    /// Makes the exception.
    pub fn raise(self) -> PyErr {
        match self.kind {
            Kind::Argument => PyValueError::new_err(self.text),
            Kind::Failed => WeftError::new_err(self.text),
            Kind::Late => LateError::new_err(self.text),
        }
    }
}

impl From<weft::GroupError> for Fault {
    fn from(error: weft::GroupError) -> Fault {
        Fault::failed(error.to_string())
    }
}
