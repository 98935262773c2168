//! The matrix, its distribution over ranks, and the relaxation of one colour.
//!
//! A block stores its cells by colour: the cells of one colour in a row are contiguous, so the
//! inner loop runs over plain slices without strides. In row `i` the cells of colour `c` are the
//! columns `2k + p` with `p = (i + c) mod 2`, stored at `k`.

use std::f64::consts::PI;
use std::ops::Range;

/// Temperature at the middle of the heated edge, in degrees.
const HEAT: f64 = 100.0;

/// Independent accumulators of the inner loop: enough for two 256-bit registers of doubles.
const LANES: usize = 8;

/// A whole matrix in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Rows, boundary included.
    pub rows: usize,
    /// Columns, boundary included.
    pub cols: usize,
    /// `rows * cols` temperatures in degrees.
    pub values: Vec<f64>,
}

/// The colour of a half sweep; the red cells are those with `row + column` even.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Red = 0,
    Black = 1,
}

impl Colour {
    pub(crate) fn other(self) -> Colour {
        match self {
            Colour::Red => Colour::Black,
            Colour::Black => Colour::Red,
        }
    }
}

/// A side of a block that has a neighbour's block beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Above,
    Below,
}

/// Returns the rows that rank `rank` of `size` owns in a matrix of `rows` rows: a contiguous,
/// possibly empty range of the rows inside the boundary. Counts differ by at most one; the first
/// ranks have the longer ones, so ranks without rows are the last ones.
pub fn owned_rows(rank: usize, size: usize, rows: usize) -> Range<usize> {
    let inside = rows.saturating_sub(2);
    let (each, longer) = (inside / size, inside % size);
    let start = 1 + rank * each + rank.min(longer);
    start..start + each + usize::from(rank < longer)
}

/// Returns the temperature of the boundary cell in row 0, column `col`: half a sine wave, so that
/// the discrete solution is known in closed form. The other three edges are kept at 0 degrees.
pub(crate) fn heated_edge(col: usize, cols: usize) -> f64 {
    // Folded in the middle, to be exactly symmetric.
    let folded = col.min(cols - 1 - col);
    HEAT * (PI * folded as f64 / (cols - 1) as f64).sin()
}

/// A block of rows with one halo row above and one below.
pub(crate) struct Block {
    /// First owned row, counted in the whole matrix; at least 1.
    first: usize,
    /// Owned rows; they have the local numbers `1..=owned`.
    owned: usize,
    cols: usize,
    /// Cells of each colour stored for a row.
    half: usize,
    /// By colour, `(owned + 2) * half` cells.
    cells: [Vec<f64>; 2],
}

impl Block {
    /// Makes the initial block of the given rows: the heated edge, everything else at 0 degrees.
    pub(crate) fn new(rows: Range<usize>, cols: usize) -> Block {
        let half = cols.div_ceil(2);
        let empty = vec![0.0; (rows.len() + 2) * half];
        let mut block = Block {
            first: rows.start,
            owned: rows.len(),
            cols,
            half,
            cells: [empty.clone(), empty],
        };
        if block.first == 1 {
            for col in 0..cols {
                block.cells[col % 2][col / 2] = heated_edge(col, cols);
            }
        }
        block
    }

    /// Returns the number of owned rows.
    pub(crate) fn owned(&self) -> usize {
        self.owned
    }

    /// Returns the bytes of a border row of one colour in a message.
    pub(crate) fn border_bytes(&self) -> usize {
        self.half * 8
    }

    /// Encodes the cells of one colour in owned row `local` as a message.
    pub(crate) fn border(&self, colour: Colour, local: usize) -> Vec<u8> {
        assert!((1..=self.owned).contains(&local), "only owned rows are sent");
        let row = &self.cells[colour as usize][local * self.half..][..self.half];
        row.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    /// Stores a neighbour's border row in the halo row on that side.
    pub(crate) fn set_halo(&mut self, colour: Colour, side: Side, message: &[u8]) {
        let local = match side {
            Side::Above => 0,
            Side::Below => self.owned + 1,
        };
        let row = &mut self.cells[colour as usize][local * self.half..][..self.half];
        for (cell, bytes) in row.iter_mut().zip(message.chunks_exact(8)) {
            *cell = f64::from_le_bytes(bytes.try_into().expect("chunks of 8 bytes"));
        }
    }

    fn parity(&self, colour: Colour, local: usize) -> usize {
        (self.first + local + 1 + colour as usize) % 2
    }

    /// Relaxes the cells of one colour in the owned rows `locals` (numbered from 1) and returns the
    /// largest change, 0 when there is no cell.
    pub(crate) fn relax(&mut self, colour: Colour, locals: Range<usize>, omega: f64) -> f64 {
        let half = self.half;
        let mut change: f64 = 0.0;
        for local in locals {
            let odd = self.parity(colour, local);
            // Column 0 and the last one are boundary.
            let (start, count) =
                if odd == 1 { (0, (self.cols - 1) / 2) } else { (1, (self.cols - 2) / 2) };
            let [red, black] = &mut self.cells;
            let (mine, other) = match colour {
                Colour::Red => (red, &*black),
                Colour::Black => (black, &*red),
            };
            let at = local * half + start;
            let slice = |from: usize| &other[from..from + count];
            let left = slice(at + odd - 1);
            let right = slice(at + odd);
            let row = &mut mine[at..at + count];
            change = change.max(relax_row(
                row,
                [slice(at - half), slice(at + half), left, right],
                omega,
            ));
        }
        change
    }

    /// Copies row `local` (0 and `owned + 1` are the halo rows) into `out`, `cols` values.
    pub(crate) fn copy_row(&self, local: usize, out: &mut [f64]) {
        for colour in [Colour::Red, Colour::Black] {
            let row = &self.cells[colour as usize][local * self.half..][..self.half];
            let columns = out.iter_mut().skip(self.parity(colour, local)).step_by(2);
            for (value, cell) in columns.zip(row) {
                *value = *cell;
            }
        }
    }

    /// Returns the digest of the owned rows; see [`digest_row`].
    pub(crate) fn digest(&self) -> u64 {
        let mut row = vec![0.0; self.cols];
        let mut sum = 0u64;
        for local in 1..=self.owned {
            self.copy_row(local, &mut row);
            sum = sum.wrapping_add(digest_row(self.first + local - 1, &row));
        }
        sum
    }
}

/// Relaxes one row in place; `around` has the cells above, below, left and right of each.
fn relax_row(row: &mut [f64], around: [&[f64]; 4], omega: f64) -> f64 {
    let n = row.len();
    let [up, down, left, right] = around.map(|side| &side[..n]);
    // One maximum per lane: with a single one each cell would wait for the one before.
    let mut most = [0.0f64; LANES];
    let whole = n - n % LANES;
    for at in (0..whole).step_by(LANES) {
        let old = lanes(row, at);
        let sides = [lanes(up, at), lanes(down, at), lanes(left, at), lanes(right, at)];
        let new: [f64; LANES] =
            std::array::from_fn(|i| relaxed(old[i], sides.map(|side| side[i]), omega));
        row[at..at + LANES].copy_from_slice(&new);
        for i in 0..LANES {
            let change = (new[i] - old[i]).abs();
            most[i] = if change > most[i] { change } else { most[i] };
        }
    }
    let mut most = most.into_iter().fold(0.0, f64::max);
    for i in whole..n {
        let new = relaxed(row[i], [up[i], down[i], left[i], right[i]], omega);
        most = most.max((new - row[i]).abs());
        row[i] = new;
    }
    most
}

/// Copies `LANES` values, few enough to stay in registers.
#[inline(always)]
fn lanes(row: &[f64], at: usize) -> [f64; LANES] {
    row[at..at + LANES].try_into().expect("a slice of LANES values")
}

/// Returns the new value of a cell from its four neighbours. The order of the operations determines
/// the result: every variant of the program must keep it.
#[inline(always)]
pub(crate) fn relaxed(old: f64, [up, down, left, right]: [f64; 4], omega: f64) -> f64 {
    old + omega * (((up + down) + (left + right)) * 0.25 - old)
}

/// Returns the digest of matrix row `row`: the wrapping sum of a hash of each cell's place and
/// bits. Digests of rows add up, in any order, to the digest of the matrix.
pub(crate) fn digest_row(row: usize, values: &[f64]) -> u64 {
    let place = (row as u64) << 32;
    let cells = values.iter().zip(place..);
    cells.fold(0, |sum, (value, at)| sum.wrapping_add(mix(value.to_bits() ^ mix(at))))
}

/// Returns the digest of the two boundary rows, which no block owns.
pub(crate) fn digest_edges(rows: usize, cols: usize) -> u64 {
    let edge: Vec<f64> = (0..cols).map(|col| heated_edge(col, cols)).collect();
    digest_row(0, &edge).wrapping_add(digest_row(rows - 1, &vec![0.0; cols]))
}

/// Applies the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
#[path = "grid_tests.rs"]
mod tests;
