//! Linear equations (LEQ), solved by Jacobi's iteration.
//!
//! Each iteration computes a new vector of unknowns from all of the old one: row `i` gives
//! `x_i = (b_i - sum of a_ij x_j over j != i) / a_ii`. The run ends when the unknowns together
//! changed by less than a tolerance. In paper 004, section 7, this is the application of the
//! simultaneous broadcast: each processor owns some rows, and after each iteration all of them
//! broadcast their part of the vector at once.
//!
//! The parts of an iteration are usable alone: [`Rows`] has the rows of one owner and computes
//! their unknowns, [`change`] compares two whole vectors. Neither depends on the division of rows:
//! each row subtracts its products in the order of the columns, and the change is summed over the
//! whole vector in the order of the rows. So every division gives the bits of [`sequential()`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod output;
mod parallel;
mod params;
mod rows;
mod sequential;
mod watch;

pub use output::{report, write_solution, write_summary};
pub use parallel::run;
pub use params::{bytes_needed, Params, ParamsError, System};
pub use rows::{change, Rows, PANEL};
pub use sequential::sequential;

use std::time::Duration;

/// Progress of a run after an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Iterations done.
    pub iterations: u64,
    /// Most iterations.
    pub max_iterations: u64,
    /// Sum of the changes of all unknowns in this iteration: below the tolerance the run ends.
    pub change: f64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The unknowns.
    pub x: Vec<f64>,
    /// Ranks that took part; 1 for the sequential program.
    pub ranks: usize,
    /// Iterations done.
    pub iterations: u64,
    /// Sum of the changes of all unknowns in the last iteration.
    pub change: f64,
    /// The reason why the run ended.
    pub end: End,
    /// Largest difference between the two sides of an equation, for the unknowns found.
    pub residual: f64,
    /// Exact hash of the unknowns, independent of the order of evaluation.
    pub checksum: u64,
    /// Time between the first and the last iteration's end.
    pub elapsed: Duration,
}

/// The reasons why a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The unknowns changed by less than the tolerance.
    Converged,
    /// The iterations ran out.
    Limit,
    /// The unknowns grew beyond all bounds: the iteration does not suit these equations.
    Diverged,
}

impl End {
    /// Returns the end of a run whose unknowns changed by so much; `None`: it goes on.
    fn of(change: f64, tolerance: f64) -> Option<End> {
        match change {
            change if !change.is_finite() => Some(End::Diverged),
            change if change < tolerance => Some(End::Converged),
            _ => None,
        }
    }

    /// Returns its name in files: `converged`, `limit` or `diverged`.
    pub fn name(self) -> &'static str {
        match self {
            End::Converged => "converged",
            End::Limit => "limit",
            End::Diverged => "diverged",
        }
    }
}

impl Outcome {
    /// Returns true if both runs computed the same unknowns in the same number of iterations, bit
    /// for bit.
    pub fn agrees_with(&self, other: &Outcome) -> bool {
        let key = |o: &Outcome| (o.x.len(), o.iterations, o.change.to_bits(), o.end, o.checksum);
        key(self) == key(other)
    }
}
