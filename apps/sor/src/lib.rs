//! Red-black successive over-relaxation (SOR) of Laplace's equation on a plate with one heated
//! edge.
//!
//! The matrix is distributed in blocks of rows. After each half sweep neighbours exchange the
//! border rows of the colour just computed, and each iteration ends with a one-element maximum over
//! all ranks that decides convergence: the communication pattern of SOR in section 7 of paper 004.
//! The border rows are computed and sent first, so that they travel while the rest of the block is
//! computed.
//!
//! Cells of one colour depend only on cells of the other, so the result does not depend on the
//! number of ranks: [`run`] and [`sequential()`] agree to the last bit.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod grid;
mod over;
mod parallel;
mod params;
mod sequential;

pub use grid::{owned_rows, Grid};
pub use over::{run_over, Exchange};
pub use parallel::run;
pub use params::{bytes_needed, parse_size, Params, ParamsError};
pub use sequential::sequential;

use std::time::Duration;

/// Progress of a run after an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Iterations done.
    pub iterations: u64,
    /// Most iterations.
    pub max_iterations: u64,
    /// Largest change of any cell in this iteration, in degrees: below the tolerance the run ends.
    pub residual: f64,
}

/// The result of a run. Equal on every rank, except for [`Outcome::grid`].
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Rows of the matrix, boundary included.
    pub rows: usize,
    /// Columns of the matrix, boundary included.
    pub cols: usize,
    /// Relaxation factor used.
    pub omega: f64,
    /// Ranks that took part; 1 for the sequential program.
    pub ranks: usize,
    /// Iterations done; one iteration is a red and a black half sweep.
    pub iterations: u64,
    /// Largest change of any cell in the last iteration, in degrees.
    pub residual: f64,
    /// True if the residual fell below the tolerance before the iterations ran out.
    pub converged: bool,
    /// Exact hash of every cell of the matrix, independent of the order of evaluation.
    pub checksum: u64,
    /// Time between the first and the last iteration's end; virtual time in the simulator.
    pub elapsed: Duration,
    /// The matrix: on rank 0, when [`Params::keep_grid`] asks for it.
    pub grid: Option<Grid>,
}

impl Outcome {
    /// Returns true if both runs computed the same matrix in the same number of iterations, bit for
    /// bit.
    pub fn agrees_with(&self, other: &Outcome) -> bool {
        let key = |o: &Outcome| (o.rows, o.cols, o.iterations, o.residual.to_bits(), o.checksum);
        key(self) == key(other)
    }
}

/// Returns a summary for people, one screen, lines ended by `\n`.
pub fn report(outcome: &Outcome) -> String {
    let o = outcome;
    let seconds = o.elapsed.as_secs_f64();
    let cells = (o.rows.saturating_sub(2) * o.cols.saturating_sub(2)) as f64;
    let rate = cells * o.iterations as f64 / seconds.max(1e-9) / 1e6;
    let end = if o.converged { "converged" } else { "iteration limit reached" };
    format!(
        "SOR, {} x {} doubles, omega {:.6}, {} rank{}\n\
         iterations       {} ({end})\n\
         largest change   {:.3e} degrees in the last iteration\n\
         time             {seconds:.3} s, {rate:.1} million cells/s\n\
         checksum         {:016x}\n",
        o.rows,
        o.cols,
        o.omega,
        o.ranks,
        if o.ranks == 1 { "" } else { "s" },
        o.iterations,
        o.residual,
        o.checksum,
    )
}
