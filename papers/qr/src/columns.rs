//! The columns of one owner, and the parts of a step.

use crate::Factors;
use weft_apps::{digest, Matrix};

/// Sums that proceed side by side. Their number decides the bits of a sum, so it is fixed.
const LANES: usize = 8;

/// A column of the matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its number in the matrix.
    pub index: usize,
    /// The step in which it became the Householder vector.
    pub taken: Option<usize>,
    /// The factor of its reflection, `H = I - tau v v'`; 0 until it is taken.
    pub tau: f64,
    /// Its values: above the row of its step those of R, from there on what is left of the matrix.
    /// Once it is taken: R's diagonal value, and below it the Householder vector without its first
    /// element, which is 1.
    pub values: Vec<f64>,
    /// Squared norm of what is left.
    norm: f64,
}

/// A column that may become the pivot of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Squared norm of what is left of it.
    pub norm: f64,
    /// Its number in the matrix.
    pub column: usize,
}

impl Candidate {
    /// Returns the better of two candidates: the one of larger norm, of equal ones the lower
    /// column. The result does not depend on the order in which many are compared.
    pub fn better(self, other: Candidate) -> Candidate {
        let wins = other.norm > self.norm || other.norm == self.norm && other.column < self.column;
        if wins {
            other
        } else {
            self
        }
    }
}

/// A Householder reflection `H = I - tau v v'`, which leaves the rows above its step alone. This is
/// what the owner of a pivot sends to all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Reflector {
    /// The step, which is also its first row.
    pub step: usize,
    /// The column that it was made of.
    pub column: usize,
    /// The factor; 0 for a column that is already zero below its first row.
    pub tau: f64,
    /// The vector from row `step` on; its first element is 1.
    pub v: Vec<f64>,
}

/// The columns of one owner.
#[derive(Clone, Debug)]
pub struct Columns {
    rows: usize,
    /// Columns of the whole matrix.
    cols: usize,
    /// Number of the first column, and distance to the next.
    rank: usize,
    size: usize,
    columns: Vec<Column>,
}

impl Columns {
    /// Takes the columns of rank `rank` of `size`: column `j` belongs to rank `j` modulo `size`, so
    /// that all ranks have work until the last steps.
    ///
    /// The values are divided by a power of two near the largest of the whole matrix, which loses
    /// no bit, so that squares do not overflow.
    pub fn new(matrix: &Matrix, rank: usize, size: usize) -> Columns {
        let scale = scale_of(matrix);
        let column = |index: usize| {
            let values: Vec<f64> = matrix.col(index).iter().map(|v| v / scale).collect();
            let norm = dot(&values, &values);
            Column { index, taken: None, tau: 0.0, values, norm }
        };
        let columns = (rank..matrix.cols).step_by(size).map(column).collect();
        Columns { rows: matrix.rows, cols: matrix.cols, rank, size, columns }
    }

    /// Returns the number of steps: the lesser number of rows and columns.
    pub fn steps(&self) -> usize {
        self.rows.min(self.cols)
    }

    /// Returns this owner's candidate for the next step; `None` when all its columns are taken.
    pub fn candidate(&self) -> Option<Candidate> {
        let left = self.columns.iter().filter(|column| column.taken.is_none());
        left.map(|c| Candidate { norm: c.norm, column: c.index }).reduce(Candidate::better)
    }

    /// Returns true if column `column` is this owner's.
    pub fn owns(&self, column: usize) -> bool {
        column % self.size == self.rank
    }

    /// Takes a column as the Householder vector of step `step`.
    ///
    /// # Panics
    /// The column is not owned, or taken.
    pub fn reflect(&mut self, column: usize, step: usize) -> Reflector {
        assert!(self.owns(column), "the column is owned");
        let column = &mut self.columns[column / self.size];
        assert!(column.taken.is_none(), "the column is left");
        column.taken = Some(step);
        let left = &mut column.values[step..];
        let (first, rest) = left.split_first_mut().expect("a step is above the last row");
        let below = dot(rest, rest);
        if below > 0.0 {
            let norm = (*first * *first + below).sqrt();
            // The sign that adds: the difference of near numbers would lose bits.
            let diagonal = if *first >= 0.0 { -norm } else { norm };
            column.tau = (diagonal - *first) / diagonal;
            let divisor = *first - diagonal;
            rest.iter_mut().for_each(|value| *value /= divisor);
            *first = diagonal;
        }
        let mut v = left.to_vec();
        v[0] = 1.0;
        Reflector { step, column: column.index, tau: column.tau, v }
    }

    /// Reflects all columns that are left, which finishes the step's row, and computes their norms.
    /// Returns the number of values reflected.
    pub fn apply(&mut self, reflector: &Reflector) -> usize {
        let mut values = 0;
        for column in self.columns.iter_mut().filter(|column| column.taken.is_none()) {
            let left = &mut column.values[reflector.step..];
            if reflector.tau != 0.0 {
                let factor = reflector.tau * dot(left, &reflector.v);
                subtract(left, factor, &reflector.v);
            }
            column.norm = dot(&left[1..], &left[1..]);
            values += left.len();
        }
        values
    }

    /// Returns the digest of these columns; those of all owners add up to the matrix's.
    pub fn digest(&self) -> u64 {
        Columns::digest_of(self.rows, &self.columns)
    }

    /// Returns the digest of some columns of so many rows.
    pub(crate) fn digest_of(rows: usize, columns: &[Column]) -> u64 {
        columns.iter().fold(0, |sum: u64, column| sum.wrapping_add(column.digest(rows)))
    }

    /// Returns the columns.
    pub fn into_columns(self) -> Vec<Column> {
        self.columns
    }

    /// Makes the factors of all columns of the matrix, which may come from several owners in any
    /// order.
    ///
    /// # Panics
    /// A column is absent.
    pub fn factors(matrix: &Matrix, mut columns: Vec<Column>) -> Factors {
        columns.sort_unstable_by_key(|column| column.index);
        // Nothing is left of any.
        columns.iter_mut().for_each(|column| column.norm = 0.0);
        let listed = columns.iter().map(|column| column.index);
        assert!(listed.eq(0..matrix.cols), "every column is there once");
        Factors::new(matrix.rows, scale_of(matrix), columns)
    }
}

fn bytes_of(words: impl Iterator<Item = u64>) -> Vec<u8> {
    words.flat_map(u64::to_le_bytes).collect()
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

impl Reflector {
    /// Returns what another owner does not know, as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        bytes_of([self.tau].iter().chain(&self.v).map(|value| value.to_bits()))
    }

    /// Makes the reflector of a step and a column from such bytes.
    pub(crate) fn from_bytes(step: usize, column: usize, bytes: &[u8]) -> Reflector {
        let mut values = words_of(bytes).map(f64::from_bits);
        let tau = values.next().unwrap_or(0.0);
        Reflector { step, column, tau, v: values.collect() }
    }
}

impl Column {
    /// Returns a column that is finished, as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let taken = self.taken.map_or(u64::MAX, |step| step as u64);
        let values = self.values.iter().map(|value| value.to_bits());
        bytes_of([taken, self.tau.to_bits()].into_iter().chain(values))
    }

    /// Makes the column of a number from such bytes.
    pub(crate) fn from_bytes(index: usize, bytes: &[u8]) -> Column {
        let mut words = words_of(bytes);
        let taken = words.next().filter(|&step| step != u64::MAX).map(|step| step as usize);
        let tau = words.next().map_or(0.0, f64::from_bits);
        Column { index, taken, tau, values: words.map(f64::from_bits).collect(), norm: 0.0 }
    }

    fn digest(&self, rows: usize) -> u64 {
        let taken = self.taken.map_or(u64::MAX, |step| step as u64);
        let words = [taken, self.tau.to_bits()].into_iter();
        let words = words.chain(self.values.iter().map(|value| value.to_bits()));
        digest((self.index * (rows + 2)) as u64, words)
    }
}

/// Returns a power of two that is at most the largest absolute value, and more than half of it
/// where that is possible; 1 for a matrix of zeros.
fn scale_of(matrix: &Matrix) -> f64 {
    const EXPONENT: u64 = 0x7ff << 52;
    let largest = matrix.values.iter().fold(0.0f64, |most, value| value.abs().max(most));
    match f64::from_bits(largest.to_bits() & EXPONENT) {
        0.0 if largest > 0.0 => f64::MIN_POSITIVE,
        0.0 => 1.0,
        power => power,
    }
}

/// Returns the scalar product of two vectors of equal length, summed in eight lanes.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (a_whole, b_whole) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a_whole.remainder().iter().zip(b_whole.remainder());
    for (a, b) in a_whole.zip(b_whole) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, (a, b))| *lane += a * b);
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// Subtracts `factor` times `v` from `values`.
pub(crate) fn subtract(values: &mut [f64], factor: f64, v: &[f64]) {
    values.iter_mut().zip(v).for_each(|(value, v)| *value -= factor * v);
}
