//! Endgame databases of Awari, by retrograde analysis.
//!
//! Awari has twelve pits and up to 48 stones. The database of `n` stones has, for each position
//! with `n` stones left, the score of best play: the stones that the player to move takes, less
//! those of the opponent. All databases below are computed first, as captures lead there.
//!
//! In paper 004, section 7, this is an application of arbitrary remote calls: positions are spread
//! over all processors, and one whose score becomes known updates its predecessors, wherever they
//! are. Updates are gathered into messages.
//!
//! The parts are usable alone. A [`Level`] is one owner's share of the positions of `n` stones:
//! [`Level::prepare`] plays all captures; rounds by falling score follow; in each,
//! [`Level::start_round`] finds the positions known by their captures, [`Level::next_updates`]
//! plays backwards from a known position, and [`Level::apply`] takes an [`Update`] of five bytes. A
//! round ends when no owner has a position left to play back from. Scores do not depend on the
//! number of owners, or on the order of updates.
//!
//! The rules, of which the paper names none, are those of the published databases. Stones are sown
//! one by one to the following pits, over the emptied one. A last stone that makes two or three in
//! a pit of the opponent captures them, and those of the pits before as long as they have two or
//! three as well. A move that leaves the opponent without stones is not allowed, except when all
//! moves do; the player then takes all. A player without stones loses the rest. A repeated position
//! ends the game, and nobody gets the rest.
//!
//! Orca's program, which fits the paper's numbers, holds all positions of at most 13 stones at
//! once, and starts from positions whose game is over. Here each number of stones is a level, which
//! needs less memory and has the same positions, and a level starts from captures as well, as the
//! scores behind them are known.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod board;
mod calls;
mod database;
mod file;
mod game;
mod index;
mod level;
mod output;
mod parallel;
mod params;
mod sequential;

pub use board::{read_positions, Board, Moves, Played};
pub use calls::{run_by_calls, run_level_by_calls, PER_CALL};
pub use database::{Answer, Database, MoveScore};
pub use index::{after_a_move, positions, positions_to, rank, unrank, MOST_STONES};
pub use level::{Level, Update};
pub use output::{report, write_answer, write_histogram};
pub use parallel::run;
pub use params::{Params, ParamsError};
pub use sequential::sequential;

use std::time::Duration;

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Stones of the database being computed.
    pub stones: u8,
    /// The most stones asked for.
    pub of: u8,
    /// The score whose round runs; `None` while captures are played.
    pub round: Option<u8>,
    /// Positions whose captures were played, or whose score is known.
    pub done: u64,
    /// Positions of this database.
    pub positions: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The databases.
    pub database: Database,
    /// Ranks that took part; 1 for the sequential program.
    pub ranks: usize,
    /// Updates of predecessors, in all databases.
    pub updates: u64,
    /// Exact hash of all scores, independent of the order of evaluation.
    pub checksum: u64,
    /// Time of the run.
    pub elapsed: Duration,
}

impl Outcome {
    /// Returns true if both runs computed the same databases.
    pub fn agrees_with(&self, other: &Outcome) -> bool {
        let key = |o: &Outcome| (o.database.stones(), o.updates, o.checksum);
        key(self) == key(other)
    }
}
