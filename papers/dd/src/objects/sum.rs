//! Messages between blocks of rows, and the values that all of them combine.

use crate::part::Change;
use serde::{Deserialize, Serialize};

/// A message to a block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Begins an iteration: at other voltages of the contacts if there are any.
    Iterate { voltages: Option<Vec<f64>>, is_last: bool },
    /// The row of the block above, or of that below, in the exchange of this number.
    Border { number: u64, is_above: bool, row: Vec<f64> },
    /// The first row of each block, and the number of rows behind the last.
    Divide(Vec<u32>),
    /// The potentials of a row, one field after the other.
    Row { row: u32, values: Vec<f64> },
    /// Reports costs and fields of all rows.
    Report,
}

/// The end of an iteration, the same at all blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stop {
    /// Another iteration is needed.
    Goes,
    Converged,
    Limit,
    Diverged,
}

/// An iteration, as all blocks know it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Iterated {
    pub sweeps: [u64; 3],
    /// The largest changes of the equations, in units of the thermal voltage.
    pub changes: [f64; 3],
    pub stop: Stop,
    /// The equation with the largest change.
    pub worst: u8,
}

/// A row at the end of an iteration, or of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RowSum {
    pub row: u32,
    /// Recent time, in s, or that of the whole run.
    pub seconds: f64,
    pub work: u64,
    /// The power of its currents, and its current into each contact.
    pub power: f64,
    pub outflows: Vec<f64>,
    /// Its potentials, one field after the other.
    pub values: Vec<f64>,
}

/// The value of a reduction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sum {
    /// The largest change of the last sweep, and by all of them.
    pub largest: [f64; 2],
    /// The largest change of the worst equation, and its node.
    pub worst: (f64, u64),
    pub iterated: Option<Iterated>,
    pub rows: Vec<RowSum>,
}

impl Sum {
    /// Adds the value of another block.
    pub fn add(&mut self, other: Sum) {
        for (mine, theirs) in self.largest.iter_mut().zip(other.largest) {
            *mine = mine.max(theirs);
        }
        let (size, node) = other.worst;
        if size > self.worst.0 || size == self.worst.0 && node < self.worst.1 {
            self.worst = other.worst;
        }
        self.iterated = self.iterated.or(other.iterated);
        self.rows.extend(other.rows);
    }

    /// Returns the rows in order.
    pub fn sorted(mut self) -> Sum {
        self.rows.sort_unstable_by_key(|row| row.row);
        self
    }

    pub fn worst(&self) -> Change {
        Change { size: self.worst.0, node: self.worst.1 as usize }
    }
}
