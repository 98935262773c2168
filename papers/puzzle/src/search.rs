//! The search of all that is below a job.

use crate::board::{Board, Move};
use crate::job::{delta, moves_from, Expansion, Job, MOST_MOVES};
use weft_apps::Stopped;

/// Positions made between two calls of a tick: some milliseconds.
const TICK: u64 = 1 << 20;

/// The bounds of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most moves of a solution.
    pub threshold: u8,
    /// True to search on after the first solution.
    pub whole: bool,
}

/// The sums of a search. Those of several jobs, merged in any order, are those of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Positions made, those above the threshold included.
    pub nodes: u64,
    /// The least value above the threshold, if there was one: the next threshold.
    pub beyond: Option<u8>,
    /// Solutions found.
    pub solutions: u64,
    /// The first of them in the order of moves.
    pub first: Option<Vec<Move>>,
}

impl Tally {
    /// Adds another tally.
    pub fn merge(&mut self, other: Tally) {
        self.nodes += other.nodes;
        self.beyond = least(self.beyond, other.beyond);
        self.solutions += other.solutions;
        self.first = match (self.first.take(), other.first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    /// Adds the expansion of a job.
    pub fn add(&mut self, expansion: Expansion) {
        self.nodes += expansion.nodes;
        self.beyond = least(self.beyond, expansion.beyond);
    }

    /// Adds a solution.
    pub fn solve(&mut self, moves: Vec<Move>) {
        self.merge(Tally { solutions: 1, first: Some(moves), ..Tally::default() });
    }
}

fn least(a: Option<u8>, b: Option<u8>) -> Option<u8> {
    a.into_iter().chain(b).min()
}

/// The reasons why a search ends before it has seen everything.
enum End {
    Solved,
    Stopped,
}

struct Walk<'a> {
    limits: Limits,
    tally: Tally,
    /// Positions at which to call `tick`.
    due: u64,
    /// The least value above the threshold; 255 for none.
    beyond: u8,
    path: [Move; MOST_MOVES],
    tick: &'a mut dyn FnMut(u64) -> Result<(), Stopped>,
}

/// Searches all positions below a job, depth first in the order of moves, and returns the sums.
/// Without [`Limits::whole`] the search ends at the first solution.
///
/// `tick` is called every million positions with their number so far.
///
/// # Errors
/// `tick` stopped the search.
///
/// # Panics
/// The threshold is above [`MOST_MOVES`].
pub fn search(
    job: &Job,
    limits: Limits,
    tick: &mut dyn FnMut(u64) -> Result<(), Stopped>,
) -> Result<Tally, Stopped> {
    assert!(usize::from(limits.threshold) <= MOST_MOVES, "no position needs more moves");
    let path = [Move::Up; MOST_MOVES];
    let tally = Tally::default();
    let mut walk = Walk { limits, tally, due: TICK, beyond: u8::MAX, path, tick };
    if job.bound() > limits.threshold {
        return Ok(Tally { beyond: Some(job.bound()), ..walk.tally });
    }
    let before = job.path();
    walk.path[..before.len()].copy_from_slice(&before);
    let (blank, last) = job.place();
    let end = match job.is_solved() {
        true => walk.solved(before.len()),
        false => walk.descend(job.board, blank, last, job.distance, before.len()),
    };
    if let Err(End::Stopped) = end {
        return Err(Stopped);
    }
    walk.tally.beyond = Some(walk.beyond).filter(|beyond| *beyond < u8::MAX);
    Ok(walk.tally)
}

impl Walk<'_> {
    fn solved(&mut self, moves: usize) -> Result<(), End> {
        self.tally.solve(self.path[..moves].to_vec());
        match self.limits.whole {
            true => Ok(()),
            false => Err(End::Solved),
        }
    }

    /// Makes the successors of a position, of which `moves` are known to be below the threshold,
    /// and all behind them.
    fn descend(
        &mut self,
        board: Board,
        blank: usize,
        last: usize,
        distance: u8,
        moves: usize,
    ) -> Result<(), End> {
        if self.tally.nodes >= self.due {
            self.due = self.tally.nodes + TICK;
            (self.tick)(self.tally.nodes).map_err(|Stopped| End::Stopped)?;
        }
        for (to, step) in moves_from(blank, last) {
            let cell = usize::from(*to);
            let change = delta(board.tile(cell), cell, *step);
            let distance = distance.wrapping_add_signed(change);
            let bound = moves as u8 + 1 + distance;
            self.tally.nodes += 1;
            if bound > self.limits.threshold {
                self.beyond = self.beyond.min(bound);
                continue;
            }
            self.path[moves] = *step;
            if distance == 0 {
                self.solved(moves + 1)?;
            } else {
                let board = board.slid(cell, blank);
                self.descend(board, cell, *step as usize, distance, moves + 1)?;
            }
        }
        Ok(())
    }
}
