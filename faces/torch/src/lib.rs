//! The backend `weft` of `torch.distributed`, for tensors in the memory of CPUs: process groups,
//! their operations, and a thread that makes progress while the program computes.
//!
//! `sys` has all unsafe code. `inside` is what the lock of a process group guards, `shared` that
//! lock with its waits, `progress` the thread, `begin` the operations. Nothing here knows of torch:
//! the package's Python files, in `torch_weft/`, turn tensors into addresses.
#![warn(missing_docs)]

mod begin;
mod fault;
mod group;
mod inside;
mod kind;
mod outcome;
mod progress;
mod shared;
mod store;
#[allow(unsafe_code)]
mod sys;
mod work;

use pyo3::prelude::*;

/// The module `torch_weft._core`.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::fault::{LateError, WeftError};
    #[pymodule_export]
    use super::group::PyGroup;
    #[pymodule_export]
    use super::work::PyWork;
}
