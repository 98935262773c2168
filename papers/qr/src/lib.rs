//! QR factorisation of a matrix by Householder reflections, with pivoted columns: `A P = Q R`.
//!
//! In each step the column of largest norm, among those not taken yet and below the rows that are
//! finished, becomes the Householder vector. All other columns are reflected with it, and the
//! step's row is finished. In paper 004, section 7, this is the application of broadcast and
//! reduction: each processor owns columns, a reduction to all finds the column of largest norm, and
//! its owner broadcasts the vector.
//!
//! The parts of a step are usable alone: [`Columns`] has the columns of one owner, gives its
//! [`Candidate`] for the pivot, makes a [`Reflector`] of a column, and applies one. A column is
//! computed by itself, with sums of a fixed order, and a comparison is exact; so every division of
//! the columns gives the bits of [`sequential()`].
//!
//! The paper does not say which two integers and two doubles its reduction has, nor if norms are
//! computed anew or corrected from step to step. The choices here: a candidate is a squared norm
//! and a column, equal norms go to the lowest column, and norms are computed anew while columns are
//! reflected, which costs one more addition and multiplication for each value and never cancels.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod columns;
mod factors;
mod output;
mod parallel;
mod params;
mod sequential;

pub use columns::{Candidate, Column, Columns, Reflector};
pub use factors::Factors;
pub use output::{report, write_diagonal, write_summary};
pub use parallel::run;
pub use params::{bytes_needed, Params, ParamsError};
pub use sequential::sequential;

use std::time::Duration;

/// Progress of a run after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Steps done.
    pub steps: usize,
    /// All steps: the lesser number of rows and columns.
    pub of: usize,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The factors.
    pub factors: Factors,
    /// Ranks that took part; 1 for the sequential program.
    pub ranks: usize,
    /// Exact hash of the factors, independent of the order of evaluation.
    pub checksum: u64,
    /// Time of the steps.
    pub elapsed: Duration,
}

impl Outcome {
    /// Returns true if both runs computed the same factors, bit for bit.
    pub fn agrees_with(&self, other: &Outcome) -> bool {
        let key = |o: &Outcome| (o.factors.rows(), o.factors.cols(), o.checksum);
        key(self) == key(other)
    }
}
