//! The equations, the parameters of a run, and their checks.

use std::fmt;
use std::io::BufRead;
use weft_apps::{Matrix, ReadError, SplitMix};

/// A square system of linear equations `A x = b`.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// The coefficients `A`.
    pub a: Matrix,
    /// The right-hand side `b`.
    pub b: Vec<f64>,
}

impl System {
    /// Makes the equations of Orca's program `lin_solver`: ones everywhere, but `n` on the
    /// diagonal. Paper 004 does not print its equations; its run times fit these, so they are our
    /// choice for its 1,000 equations. The changes have a closed form, which tests use.
    pub fn ones(n: usize) -> System {
        let mut a = Matrix { rows: n, cols: n, values: vec![1.0; n * n] };
        (0..n).for_each(|i| a.set(i, i, n as f64));
        System { a, b: vec![1.0; n] }
    }

    /// Makes random equations for which the iteration converges: values between -1 and 1, and on
    /// the diagonal 1.25 times the sum of the absolute values of the others in the row, plus 1.
    pub fn random(n: usize, seed: u64) -> System {
        let mut a = Matrix::random(n, n, seed);
        for i in 0..n {
            let others = (0..n).filter(|j| *j != i).map(|j| a.at(i, j).abs()).sum::<f64>();
            a.set(i, i, 1.25 * others + 1.0);
        }
        let mut random = SplitMix::stream(seed, n as u64);
        System { a, b: (0..n).map(|_| 2.0 * random.unit() - 1.0).collect() }
    }

    /// Reads the coefficients from a Matrix Market file. The right-hand side is ones, as in Orca's
    /// program. `accept` gets the number of equations before they are read, and gives the reason to
    /// refuse them.
    ///
    /// # Errors
    /// The first line that is invalid: the one with the size if the matrix is not square.
    pub fn read(
        a: &mut dyn BufRead,
        accept: &dyn Fn(usize) -> Result<(), String>,
    ) -> Result<System, ReadError> {
        let a = Matrix::read_market_if(a, &|rows, cols| match rows == cols {
            true => accept(rows),
            false => Err(format!("{rows} x {cols} equations are not square")),
        })?;
        let b = vec![1.0; a.rows];
        Ok(System { a, b })
    }

    /// Reads another right-hand side from a Matrix Market file: a matrix of one column.
    ///
    /// # Errors
    /// The first line that is invalid: the one with the size if the length is another one.
    pub fn read_sides(&mut self, b: &mut dyn BufRead) -> Result<(), ReadError> {
        let n = self.len();
        let b = Matrix::read_market_if(b, &|rows, cols| match (rows, cols) == (n, 1) {
            true => Ok(()),
            false => Err(format!("a right-hand side of {rows} x {cols} for {n} equations")),
        })?;
        self.b = b.values;
        Ok(())
    }

    /// Returns the number of equations.
    pub fn len(&self) -> usize {
        self.a.rows
    }

    /// Returns true if there is no equation.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the largest ratio of a row's other coefficients, summed absolutely, to its diagonal
    /// one. Below 1 the iteration converges from any start; from 1 up it may not.
    pub fn dominance(&self) -> f64 {
        let n = self.len();
        let mut sums = vec![0.0f64; n];
        for j in 0..n {
            for (i, value) in self.a.col(j).iter().enumerate().filter(|(i, _)| *i != j) {
                sums[i] += value.abs();
            }
        }
        let ratios = sums.iter().enumerate().map(|(i, sum)| sum / self.a.at(i, i).abs());
        ratios.fold(0.0, f64::max)
    }

    /// Returns the largest absolute difference between the sides of an equation.
    pub fn residual(&self, x: &[f64]) -> f64 {
        let mut sides = self.b.clone();
        for (j, unknown) in x.iter().enumerate() {
            sides.iter_mut().zip(self.a.col(j)).for_each(|(side, a)| *side -= a * unknown);
        }
        sides
            .iter()
            .fold(0.0f64, |most, side| if side.is_nan() { *side } else { most.max(side.abs()) })
    }
}

/// Parameters of a run. All ranks must pass equal ones.
#[derive(Clone, Debug)]
pub struct Params {
    /// The equations. Default: the 1,000 of [`System::ones`], as many as in paper 004.
    pub system: System,
    /// Stop when the unknowns together changed by less than this; Orca's program has 0.001. 0:
    /// always do `max_iterations`.
    pub tolerance: f64,
    /// Most iterations.
    pub max_iterations: u64,
}

impl Default for Params {
    fn default() -> Params {
        Params { system: System::ones(1000), tolerance: 1e-3, max_iterations: 1_000_000 }
    }
}

/// Returns the bytes that a run with `n` equations takes on one of so many ranks: the coefficients,
/// the panels of its rows, and some vectors.
pub fn bytes_needed(n: usize, ranks: usize) -> u128 {
    let (n, rows) = (n as u128, n.div_ceil(ranks.max(1)) as u128);
    let columns = n.saturating_add(rows).saturating_add(2 * crate::PANEL as u128);
    n.saturating_mul(columns).saturating_mul(size_of::<f64>() as u128)
}

/// The reason why parameters were refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ParamsError {
    /// No equation.
    Empty,
    /// The matrix is not square, or the right-hand side has another length.
    Shape {
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        cols: usize,
        /// Length of the right-hand side.
        sides: usize,
    },
    /// A zero on the diagonal of this row, from 0: the iteration divides by it.
    Diagonal(usize),
    /// A coefficient or a side that is not a finite number, in this row, from 0.
    NotFinite(usize),
    /// The tolerance is negative or not a number.
    Tolerance(f64),
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamsError::Empty => write!(f, "there is no equation"),
            ParamsError::Shape { rows, cols, sides } => write!(
                f,
                "a {rows} x {cols} matrix with {sides} right-hand sides is not a square system"
            ),
            ParamsError::Diagonal(i) => write!(
                f,
                "equation {} has a zero on the diagonal: exchange it with another one",
                i + 1
            ),
            ParamsError::NotFinite(i) => {
                write!(f, "equation {} has a value that is not a finite number", i + 1)
            }
            ParamsError::Tolerance(t) => write!(f, "tolerance {t} is not a number from 0 up"),
        }
    }
}

impl std::error::Error for ParamsError {}

impl Params {
    /// Refuses parameters that are invalid. [`sequential`](crate::sequential()) calls it.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), ParamsError> {
        let System { a, b } = &self.system;
        let (rows, cols, sides) = (a.rows, a.cols, b.len());
        if rows != cols || rows != sides || a.values.len() != rows * cols {
            return Err(ParamsError::Shape { rows, cols, sides });
        }
        if rows == 0 {
            return Err(ParamsError::Empty);
        }
        if let Some(at) = a.values.iter().position(|value| !value.is_finite()) {
            return Err(ParamsError::NotFinite(at % rows));
        }
        if let Some(row) = b.iter().position(|value| !value.is_finite()) {
            return Err(ParamsError::NotFinite(row));
        }
        if let Some(row) = (0..rows).find(|i| a.at(*i, *i) == 0.0) {
            return Err(ParamsError::Diagonal(row));
        }
        if !(self.tolerance >= 0.0 && self.tolerance.is_finite()) {
            return Err(ParamsError::Tolerance(self.tolerance));
        }
        Ok(())
    }
}
