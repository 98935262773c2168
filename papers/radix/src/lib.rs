//! Radix sort of whole numbers.
//!
//! A pass for each digit, the lowest first, puts the keys in the order of that digit and leaves
//! keys with equal digits in the order they had. In paper 004, section 7, this is an application of
//! arbitrary remote writes: each processor owns a contiguous part of the array, and the permutation
//! of a pass moves its keys into the parts of all others.
//!
//! The parts of a pass are usable alone. Each owner counts its digits with [`histogram`];
//! [`starts`] makes of all histograms the places where an owner's keys go; [`permute`] names the
//! place of each key in turn. Places are those of [`sequential()`] however the array is divided.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod keys;
mod output;
mod parallel;
mod params;
mod pass;
mod sequential;

pub use keys::{read_binary, read_text, Generator, SEED};
pub use output::{key_ranges, report, write_binary, write_histogram, write_summary, write_text};
pub use parallel::{run, Division};
pub use params::{bytes_needed, Params, ParamsError};
pub use pass::{histogram, passes, permute, starts, Digit};
pub use sequential::{sequential, PIECE};
pub use weft_apps::Failure;

use std::time::Duration;

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Passes done.
    pub passes: u32,
    /// All passes.
    pub of: u32,
    /// Keys moved in this pass.
    pub keys: usize,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The keys, ascending; in a parallel run only rank 0 has them.
    pub keys: Vec<u32>,
    /// Their number.
    pub count: usize,
    /// Values of a digit.
    pub radix: u32,
    /// Ranks that took part; 1 for the sequential program.
    pub ranks: usize,
    /// Passes done.
    pub passes: u32,
    /// Exact hash of the sorted keys, independent of the order of evaluation.
    pub checksum: u64,
    /// Time of the passes.
    pub elapsed: Duration,
}

impl Outcome {
    /// Returns true if both runs sorted the same keys.
    pub fn agrees_with(&self, other: &Outcome) -> bool {
        let key = |o: &Outcome| (o.count, o.passes, o.checksum);
        key(self) == key(other)
    }

    /// Returns true if no key is below the one before it.
    pub fn is_sorted(&self) -> bool {
        self.keys.is_sorted()
    }
}
