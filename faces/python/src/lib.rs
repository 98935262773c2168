//! The Python package `weft`: jobs, groups, messages of any buffer, collective operations.
//!
//! `sys` has all unsafe code; `gate` the lock of a job and its waits, `inside` what the lock
//! guards; the other modules are classes of Python. The package's own Python files are in `weft/`.
#![warn(missing_docs)]

mod collective;
mod fault;
mod gate;
mod group;
mod inside;
mod job;
mod models;
mod names;
mod number;
mod objects;
mod queue;
mod region;
mod request;
mod senders;
#[allow(unsafe_code)]
mod sys;
mod value;

use pyo3::prelude::*;

/// The module `weft._weft`.
#[pymodule]
mod _weft {
    #[pymodule_export]
    use super::group::PyGroup;
    #[pymodule_export]
    use super::job::{init, PyJob};
    #[pymodule_export]
    use super::names::{connect, PyEvent, PyNames, PyOwner, PyWatch};
    #[pymodule_export]
    use super::objects::{PyActors, PyMessages, PyThing};
    #[pymodule_export]
    use super::queue::PyQueue;
    #[pymodule_export]
    use super::region::{PyHold, PyRegion};
    #[pymodule_export]
    use super::request::{PyRequest, PyStatus};
    #[pymodule_export]
    use super::sys::View;
}
