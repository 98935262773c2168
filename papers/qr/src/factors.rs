//! The factors and their use.

use crate::columns::{dot, subtract, Column};
use weft_apps::Matrix;

/// The factors of `A P = Q R`. Q is kept as Householder vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Factors {
    rows: usize,
    /// The power of two by which the values of the columns are divided.
    scale: f64,
    columns: Vec<Column>,
    /// The columns in the order in which P takes them.
    order: Vec<usize>,
}

impl Factors {
    pub(crate) fn new(rows: usize, scale: f64, columns: Vec<Column>) -> Factors {
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|column| columns[*column].taken.unwrap_or(usize::MAX));
        Factors { rows, scale, columns, order }
    }

    /// Returns the number of rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns of the matrix.
    pub fn cols(&self) -> usize {
        self.columns.len()
    }

    /// Returns the columns of the matrix in the order of `A P`: its column `k` is column `order[k]`
    /// of A.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// Returns R's diagonal. The absolute values do not increase.
    pub fn diagonal(&self) -> Vec<f64> {
        let steps = self.rows.min(self.cols());
        self.order[..steps].iter().zip(0..).map(|(c, k)| self.scaled(*c, k)).collect()
    }

    /// Returns R: the lesser number of rows and columns many rows.
    pub fn r(&self) -> Matrix {
        let mut r = Matrix::zero(self.rows.min(self.cols()), self.cols());
        for (k, column) in self.order.iter().enumerate() {
            for i in 0..r.rows.min(k + 1) {
                r.set(i, k, self.scaled(*column, i));
            }
        }
        r
    }

    /// Multiplies a vector of as many elements as rows by Q.
    pub fn multiply_q(&self, x: &mut [f64]) {
        let steps = self.rows.min(self.cols());
        (0..steps).rev().for_each(|step| self.reflect(step, x));
    }

    /// Multiplies a vector of as many elements as rows by the transpose of Q, its inverse.
    pub fn multiply_transposed_q(&self, x: &mut [f64]) {
        (0..self.rows.min(self.cols())).for_each(|step| self.reflect(step, x));
    }

    /// Returns the number of independent columns: of diagonal values above the rounding error of
    /// the first.
    pub fn rank(&self) -> usize {
        let diagonal = self.diagonal();
        let first = diagonal.first().map_or(0.0, |first| first.abs());
        let least = first * f64::EPSILON * self.rows.max(self.cols()) as f64;
        diagonal.iter().take_while(|value| value.abs() > least).count()
    }

    /// Returns `|A P - Q R| / |A|` in the norm of Frobenius: some units of rounding for right
    /// factors. 0 for a matrix of zeros.
    pub fn error(&self, a: &Matrix) -> f64 {
        let norm = a.frobenius();
        if norm == 0.0 {
            return 0.0;
        }
        let r = self.r();
        let mut difference = Matrix::zero(self.rows, self.cols());
        for (k, column) in self.order.iter().enumerate() {
            let x = difference.col_mut(k);
            x[..r.rows].copy_from_slice(r.col(k));
            self.multiply_q(x);
            x.iter_mut().zip(a.col(*column)).for_each(|(x, a)| *x = a - *x);
        }
        difference.frobenius() / norm
    }

    fn scaled(&self, column: usize, row: usize) -> f64 {
        self.columns[column].values[row] * self.scale
    }

    /// Applies the reflection of a step.
    fn reflect(&self, step: usize, x: &mut [f64]) {
        let column = &self.columns[self.order[step]];
        let (first, rest) = x[step..].split_first_mut().expect("a step is above the last row");
        let v = &column.values[step + 1..];
        let factor = column.tau * (*first + dot(v, rest));
        *first -= factor;
        subtract(rest, factor, v);
    }
}
