//! Parameters of a run and their checks.

use std::fmt;
use weft_apps::Matrix;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Params {
    /// The matrix. Default: 1024 x 1024 random values, the size of paper 004.
    pub matrix: Matrix,
}

impl Default for Params {
    fn default() -> Params {
        Params { matrix: Matrix::random(1024, 1024, 1) }
    }
}

/// Returns the bytes that a run with a matrix of this size takes on one of so many ranks: the
/// matrix, its own columns, and at the end those of all, with messages that are not yet read.
pub fn bytes_needed(rows: usize, cols: usize, ranks: usize) -> u128 {
    let (rows, all) = (rows as u128, cols as u128);
    let copies = all.saturating_mul(3).saturating_add(cols.div_ceil(ranks.max(1)) as u128);
    let values = rows.saturating_mul(copies).saturating_mul(size_of::<f64>() as u128);
    values.saturating_add(all.saturating_mul(2 * size_of::<crate::Column>() as u128))
}

/// The reason why parameters were refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ParamsError {
    /// No row or no column.
    Empty,
    /// There are not as many values as rows and columns.
    Shape {
        /// Rows said.
        rows: usize,
        /// Columns said.
        cols: usize,
        /// Values found.
        values: usize,
    },
    /// A value that is not a finite number.
    NotFinite {
        /// Its row, from 0.
        row: usize,
        /// Its column, from 0.
        col: usize,
    },
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamsError::Empty => write!(f, "the matrix has no rows or no columns"),
            ParamsError::Shape { rows, cols, values } => {
                write!(f, "{values} values do not make a {rows} x {cols} matrix")
            }
            ParamsError::NotFinite { row, col } => {
                write!(f, "the value in row {}, column {} is not a finite number", row + 1, col + 1)
            }
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
        let Matrix { rows, cols, ref values } = self.matrix;
        if rows == 0 || cols == 0 {
            return Err(ParamsError::Empty);
        }
        if rows.checked_mul(cols) != Some(values.len()) {
            return Err(ParamsError::Shape { rows, cols, values: values.len() });
        }
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(ParamsError::NotFinite { row: at % rows, col: at / rows }),
            None => Ok(()),
        }
    }
}
