//! The rows of one owner, and one iteration over them.

use crate::System;
use std::ops::Range;

/// Rows that are computed together: as many sums proceed at once as a processor's vector units
/// hold, and one column of a panel is two cache lines.
pub const PANEL: usize = 16;

/// Some consecutive equations, laid out for the sweep.
///
/// A row subtracts its products one after the other, in the order of the columns, which is slow
/// for one row and free for sixteen. So sixteen rows stand in a panel, their coefficients of one
/// column side by side. The sums have the same bits as those of single rows.
#[derive(Clone, Debug)]
pub struct Rows {
    rows: Range<usize>,
    cols: usize,
    /// Panel after panel, in each column after column; zero on the diagonal and below the last
    /// row.
    panels: Vec<[f64; PANEL]>,
    sides: Vec<f64>,
    diagonal: Vec<f64>,
}

impl Rows {
    /// Takes the given rows out of the equations.
    ///
    /// # Panics
    /// The range ends behind the last row.
    pub fn new(system: &System, rows: Range<usize>) -> Rows {
        let cols = system.len();
        let mut panels = vec![[0.0; PANEL]; rows.len().div_ceil(PANEL) * cols];
        for (at, first) in rows.clone().step_by(PANEL).enumerate() {
            let inside = first..(first + PANEL).min(rows.end);
            for (j, column) in panels[at * cols..][..cols].iter_mut().enumerate() {
                column[..inside.len()].copy_from_slice(&system.a.col(j)[inside.clone()]);
                if inside.contains(&j) {
                    column[j - first] = 0.0;
                }
            }
        }
        let sides = system.b[rows.clone()].to_vec();
        let diagonal = rows.clone().map(|i| system.a.at(i, i)).collect();
        Rows { rows, cols, panels, sides, diagonal }
    }

    /// Returns the rows.
    pub fn range(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Computes the unknowns of these rows from the whole old vector `x`. The pieces of
    /// [`PANEL`] unknowns are independent: `out` may be any whole number of pieces from the one
    /// with local row `from` on.
    ///
    /// # Panics
    /// `x` is not as long as there are equations, or `from` is not the start of a panel.
    pub fn sweep(&self, x: &[f64], from: usize, out: &mut [f64]) {
        assert_eq!(x.len(), self.cols, "the vector has an element for each equation");
        assert_eq!(from % PANEL, 0, "a sweep begins at a panel");
        for (at, out) in out.chunks_mut(PANEL).enumerate() {
            let first = from + at * PANEL;
            let panel = &self.panels[first / PANEL * self.cols..][..self.cols];
            let mut sums = [0.0; PANEL];
            sums[..out.len()].copy_from_slice(&self.sides[first..][..out.len()]);
            for (column, unknown) in panel.iter().zip(x) {
                for (sum, a) in sums.iter_mut().zip(column) {
                    *sum -= a * unknown;
                }
            }
            let diagonal = &self.diagonal[first..];
            for ((out, sum), d) in out.iter_mut().zip(sums).zip(diagonal) {
                *out = sum / d;
            }
        }
    }
}

/// Returns the sum of the absolute changes between two whole vectors, in the order of the rows: the
/// same bits however the rows are divided.
pub fn change(old: &[f64], new: &[f64]) -> f64 {
    old.iter().zip(new).map(|(old, new)| (new - old).abs()).sum()
}
