//! The parts that the applications share: input lines with faults that name line and reason, dense
//! matrices and their files, generators of random input, hashes of results, the division of work
//! among ranks, broadcasts, the error of runs over models, and the memory that a rank may use.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod casts;
mod digest;
mod failure;
mod lines;
mod matrix;
mod memory;
mod random;
mod share;

pub use casts::Casts;
pub use digest::{digest, mix};
pub use failure::Failure;
pub use lines::{Lines, ReadError, MAX_LINE};
pub use matrix::Matrix;
pub use memory::{Memory, TooLarge};
pub use random::SplitMix;
pub use share::{owned, owner_of};

use std::fmt;

/// The error of a run that its caller stopped: a progress callback returned it.
///
/// Each application calls its progress callback between pieces of work of some milliseconds. The
/// callback returns `Ok(())` to go on, or `Err(Stopped)` to end the run, which then returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run was stopped")
    }
}

impl std::error::Error for Stopped {}
