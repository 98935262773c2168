//! Databases of up to some number of stones, and questions to them.

use crate::index::{positions, rank};
use crate::Board;
use weft_apps::digest;

/// The scores of all positions of at most some number of stones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Database {
    /// The scores by stones, and by number of the position.
    levels: Vec<Vec<i8>>,
}

/// The score of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveScore {
    /// The pit, from 0 to 5.
    pub pit: u8,
    /// The stones it captures.
    pub captured: u8,
    /// The score of the position if it is played.
    pub score: i8,
}

/// The answer to a question about a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The position.
    pub board: Board,
    /// Its score: the stones that the player to move takes with best play, less those of the
    /// opponent.
    pub score: i8,
    /// The moves that the rules allow.
    pub moves: Vec<MoveScore>,
}

impl Database {
    /// Makes a database without any position.
    pub fn new() -> Database {
        Database::default()
    }

    /// Adds the scores of the next number of stones, 0 first.
    ///
    /// # Panics
    /// There are more or fewer scores than positions.
    pub fn push(&mut self, scores: Vec<i8>) {
        assert_eq!(scores.len() as u64, positions(self.levels.len() as u8), "a score for each");
        self.levels.push(scores);
    }

    /// Returns the most stones of its positions; `None` if it has none.
    pub fn stones(&self) -> Option<u8> {
        self.levels.len().checked_sub(1).map(|stones| stones as u8)
    }

    /// Returns the number of its positions.
    pub fn len(&self) -> u64 {
        self.levels.iter().map(|scores| scores.len() as u64).sum()
    }

    /// Returns true if it has no position.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Returns the scores of a number of stones, by number of the position.
    pub fn scores(&self, stones: u8) -> Option<&[i8]> {
        self.levels.get(usize::from(stones)).map(|scores| &scores[..])
    }

    /// Returns the score of a position's number among those of so many stones.
    ///
    /// # Panics
    /// There is no such position.
    pub fn at(&self, stones: u8, number: u64) -> i8 {
        self.levels[usize::from(stones)][number as usize]
    }

    /// Returns the score of a position; `None` if it has too many stones.
    pub fn score(&self, board: &Board) -> Option<i8> {
        self.scores(board.stones()).map(|scores| scores[rank(board) as usize])
    }

    /// Returns the scores of a position and of its moves; `None` if it has too many stones.
    pub fn answer(&self, board: &Board) -> Option<Answer> {
        let score = self.score(board)?;
        let stones = board.stones() as i8;
        let score_of = |played: &crate::Played| match played.starves {
            true => stones,
            false => played.captured as i8 - self.score(&played.board).unwrap_or(0),
        };
        let moves = board.moves();
        let moves = moves.list().iter().map(|played| MoveScore {
            pit: played.pit,
            captured: played.captured,
            score: score_of(played),
        });
        Some(Answer { board: *board, score, moves: moves.collect() })
    }

    /// Returns how many positions of a number of stones have each score, from `-stones` to
    /// `stones`.
    pub fn histogram(&self, stones: u8) -> Option<Vec<u64>> {
        let mut counts = vec![0; 2 * usize::from(stones) + 1];
        for score in self.scores(stones)? {
            counts[(i16::from(*score) + i16::from(stones)) as usize] += 1;
        }
        Some(counts)
    }

    /// Returns an exact hash of all scores; the hashes of owners' shares add up to it.
    pub fn digest(&self) -> u64 {
        let scores = self.levels.iter().flatten();
        digest(0, scores.map(|score| *score as u8 as u64))
    }
}
