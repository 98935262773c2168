//! Shortest solutions of the 15-puzzle, by iterative-deepening A* (IDA*).
//!
//! An iteration searches all positions whose moves so far, with a lower bound of those left, do not
//! exceed a threshold; the next threshold is the least value that did. The bound is the sum of the
//! tiles' distances to their places. In paper 004, section 7, this is the application of one-way
//! messages: a processor pushes positions as jobs to others, four at a time (Puzzle-4) or 64
//! (Puzzle-64).
//!
//! The parts are usable alone. A [`Job`] is a position with the moves that led to it, 32 bytes as
//! in the paper. [`Job::expand`] makes the jobs of its successors; [`search()`] searches all below
//! a job in place, some nanoseconds a position; [`Tally`] sums up over jobs in any order.
//!
//! The paper does not say which position it solves, nor in what order moves are tried, nor if the
//! last iteration ends at the first solution. The choices here: moves of the blank up, left, right,
//! down, never back; Korf's position 80, as its nodes fit the run times; and either end. Only with
//! [`Params::whole`] are the nodes of the last iteration, and the solution that is named, those of
//! every division of the work: the length always is.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod board;
mod job;
mod korf;
mod output;
mod parallel;
mod params;
mod search;
mod sequential;

pub use board::{read_positions, Board, Move};
pub use job::{Expansion, Job, MOST_MOVES};
pub use korf::{korf, korf_count, Known};
pub use output::{report, write_iterations, write_solution};
pub use parallel::{run, Division, RunError};
pub use params::Params;
pub use search::{search, Limits, Tally};
pub use sequential::sequential;

use std::time::Duration;

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The threshold of the iteration.
    pub threshold: u8,
    /// Positions made so far, in all iterations.
    pub nodes: u64,
}

/// One iteration of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// Most moves of the solutions it looks for.
    pub threshold: u8,
    /// Positions made, those above the threshold included.
    pub nodes: u64,
    /// Solutions found: 0 in all but the last.
    pub solutions: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The position that was solved.
    pub start: Board,
    /// A shortest solution: the moves of the blank. With [`Params::whole`] the first one in the
    /// order of moves.
    pub moves: Vec<Move>,
    /// The iterations, by threshold.
    pub iterations: Vec<Iteration>,
    /// True if the last iteration was searched whole.
    pub whole: bool,
    /// Ranks that took part; 1 for the sequential program.
    pub ranks: usize,
    /// Time of the search.
    pub elapsed: Duration,
}

impl Outcome {
    /// Returns the length of a shortest solution.
    pub fn length(&self) -> usize {
        self.moves.len()
    }

    /// Returns the positions made in all iterations, and the start once, as Korf counts them.
    pub fn nodes(&self) -> u64 {
        1 + self.iterations.iter().map(|iteration| iteration.nodes).sum::<u64>()
    }

    /// Returns true if both runs agree where they must: in the length, in all iterations before the
    /// last, and in everything if both searched the last one whole.
    pub fn agrees_with(&self, other: &Outcome) -> bool {
        let before = |o: &Outcome| o.iterations.split_last().map(|(_, before)| before.to_vec());
        let same = self.start == other.start
            && self.length() == other.length()
            && before(self) == before(other);
        let both_whole = self.whole && other.whole;
        same && (!both_whole || self.moves == other.moves && self.iterations == other.iterations)
    }
}
