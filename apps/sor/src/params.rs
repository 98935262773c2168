//! Parameters of a run and their checks.

use crate::Outcome;
use std::f64::consts::PI;
use std::fmt;
use std::time::Duration;

/// Largest number of cells accepted: 2^32, 32 GiB of doubles over all ranks.
const MAX_CELLS: usize = 1 << 32;

/// Parameters of a run. All ranks must pass equal ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Rows of the matrix, boundary included; at least 3. Default 1536, as in paper 004.
    pub rows: usize,
    /// Columns of the matrix, boundary included; at least 3. Default 1536.
    pub cols: usize,
    /// Most iterations.
    pub max_iterations: u64,
    /// Stop when no cell changed by this much, in degrees. 0: always do `max_iterations`.
    pub tolerance: f64,
    /// Relaxation factor, above 0 and below 2; `None` takes [`Params::optimal_omega`].
    pub omega: Option<f64>,
    /// True to gather the matrix at rank 0 into the outcome.
    pub keep_grid: bool,
    /// True to send border rows when all rows are computed, as paper 004's program does without
    /// asynchronous transfers (section 7.2, Figure 14); else they leave first, and their way
    /// overlaps with the computing of the others. Has no effect in [`run_over`](crate::run_over).
    pub late: bool,
    /// Nanoseconds to wait for each computed cell. For the simulator, whose clock does not advance
    /// while the host computes; `None` in real runs.
    pub ns_per_cell: Option<f64>,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            rows: 1536,
            cols: 1536,
            max_iterations: 10_000,
            tolerance: 1e-3,
            omega: None,
            keep_grid: false,
            late: false,
            ns_per_cell: None,
        }
    }
}

/// Returns the bytes that a run of this size takes on one of so many ranks: its block of rows with
/// those of its neighbours, and the whole matrix if it is kept.
pub fn bytes_needed(rows: usize, cols: usize, ranks: usize, keep_grid: bool) -> u128 {
    let block = rows.div_ceil(ranks.max(1)).saturating_add(4);
    let kept = if keep_grid { 2 * rows as u128 } else { 0 };
    (block as u128).saturating_add(kept).saturating_mul(cols as u128).saturating_mul(8)
}

/// The reason why parameters were refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ParamsError {
    /// Fewer than 3 rows or columns: nothing inside the boundary.
    TooSmall {
        /// Rows asked for.
        rows: usize,
        /// Columns asked for.
        cols: usize,
    },
    /// More cells than the program accepts.
    TooLarge {
        /// Rows asked for.
        rows: usize,
        /// Columns asked for.
        cols: usize,
    },
    /// The relaxation factor is not between 0 and 2: the iteration would not converge.
    Omega(f64),
    /// The tolerance is negative or not a number.
    Tolerance(f64),
    /// The computing time of a cell is negative or not a number.
    Cost(f64),
    /// Not of the form `ROWSxCOLS` or `N`.
    Size(String),
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamsError::TooSmall { rows, cols } => {
                write!(f, "a {rows} x {cols} matrix has no inside: at least 3 x 3 is needed")
            }
            ParamsError::TooLarge { rows, cols } => {
                write!(f, "a {rows} x {cols} matrix is above the limit of {MAX_CELLS} cells")
            }
            ParamsError::Omega(w) => write!(f, "omega {w} is not above 0 and below 2"),
            ParamsError::Tolerance(t) => write!(f, "tolerance {t} is not a number from 0 up"),
            ParamsError::Cost(c) => write!(f, "{c} ns per cell is not a number from 0 up"),
            ParamsError::Size(s) => write!(f, "`{s}` is not a size such as 1536 or 1536x1024"),
        }
    }
}

impl std::error::Error for ParamsError {}

impl Params {
    /// Returns the outcome of a run that ends after so many iterations, without its checksum, time
    /// and matrix.
    pub(crate) fn outcome(&self, ranks: usize, iterations: u64, residual: f64) -> Outcome {
        Outcome {
            rows: self.rows,
            cols: self.cols,
            omega: self.effective_omega(),
            ranks,
            iterations,
            residual,
            converged: iterations > 0 && residual < self.tolerance,
            checksum: 0,
            elapsed: Duration::ZERO,
            grid: None,
        }
    }

    /// Refuses parameters that are invalid. [`run`](crate::run) and
    /// [`sequential`](crate::sequential()) call it.
    pub fn check(&self) -> Result<(), ParamsError> {
        let (rows, cols) = (self.rows, self.cols);
        if rows < 3 || cols < 3 {
            return Err(ParamsError::TooSmall { rows, cols });
        }
        if rows.checked_mul(cols).is_none_or(|cells| cells > MAX_CELLS) {
            return Err(ParamsError::TooLarge { rows, cols });
        }
        if let Some(omega) = self.omega.filter(|w| !(*w > 0.0 && *w < 2.0)) {
            return Err(ParamsError::Omega(omega));
        }
        if !(self.tolerance >= 0.0 && self.tolerance.is_finite()) {
            return Err(ParamsError::Tolerance(self.tolerance));
        }
        match self.ns_per_cell {
            Some(ns) if !(ns >= 0.0 && ns.is_finite()) => Err(ParamsError::Cost(ns)),
            _ => Ok(()),
        }
    }

    /// Returns the relaxation factor that a run uses.
    pub fn effective_omega(&self) -> f64 {
        self.omega.unwrap_or_else(|| Params::optimal_omega(self.rows, self.cols))
    }

    /// Returns the factor with the best asymptotic rate for Laplace's equation on a rectangle:
    /// Young's `2 / (1 + sqrt(1 - rho^2))`, with `rho` the spectral radius of the Jacobi iteration.
    pub fn optimal_omega(rows: usize, cols: usize) -> f64 {
        let side = |n: usize| (PI / n.saturating_sub(1).max(2) as f64).cos();
        let rho = (side(rows) + side(cols)) / 2.0;
        2.0 / (1.0 + (1.0 - rho * rho).max(0.0).sqrt())
    }
}

/// Reads `ROWSxCOLS`, or `N` for a square.
pub fn parse_size(text: &str) -> Result<(usize, usize), ParamsError> {
    let parse = |s: &str| s.trim().parse::<usize>();
    let parsed = match text.split_once(['x', 'X']) {
        Some((rows, cols)) => parse(rows).and_then(|r| Ok((r, parse(cols)?))),
        None => parse(text).map(|n| (n, n)),
    };
    parsed.map_err(|_| ParamsError::Size(text.to_string()))
}
