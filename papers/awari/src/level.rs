//! One owner's share of the positions with equally many stones.

use crate::index::{positions, rank, unrank, MOST_STONES};
use std::ops::Range;

/// In place of the number of open moves: the score is known.
const KNOWN: u8 = u8::MAX;
/// The best score by captures of a position without captures.
const NO_CAPTURE: i8 = i8::MIN;

/// A message from a position whose score became known to one that has a move to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// The number of the position with the move, as of [`rank`].
    pub index: u32,
    /// The score of that move.
    pub score: i8,
}

impl Update {
    /// The length of an update in a message.
    pub const BYTES: usize = 5;

    /// Returns the update as it is in a message.
    pub fn to_bytes(self) -> [u8; Update::BYTES] {
        let [a, b, c, d] = self.index.to_le_bytes();
        [a, b, c, d, self.score as u8]
    }

    /// Reads an update of a message.
    pub fn from_bytes(bytes: [u8; Update::BYTES]) -> Update {
        let [index @ .., score] = bytes;
        Update { index: u32::from_le_bytes(index), score: score as i8 }
    }
}

/// One owner's share of the positions with equally many stones: position `i` belongs to owner `i`
/// modulo the number of owners, which spreads those of equal score.
///
/// A score above or below 0 can be forced in finitely many moves; a position where neither player
/// can force one has score 0, as repetition ends the game without gain. So scores become known in
/// rounds by falling absolute value `k`. A position has score `k` if a capture is worth `k`, or a
/// move leads to one of score `-k`. It has score `-k` if no capture is worth more and all other
/// moves lead to positions of score `k` or more. Nothing that becomes known in a round changes
/// later, and all that is not known after the last round is 0.
#[derive(Clone, Debug)]
pub struct Level {
    stones: u8,
    owner: usize,
    owners: usize,
    /// The moves to positions of this level without a known score, or [`KNOWN`].
    open: Vec<u8>,
    /// The score; until it is known, the best one by captures.
    score: Vec<i8>,
    /// The score of the round.
    round: i8,
    /// Positions that became known and did not yet update their predecessors.
    fresh: Vec<u32>,
    known: u64,
    updates: u64,
}

impl Level {
    /// Makes the share of owner `owner` of `owners`.
    ///
    /// # Panics
    /// There are more than [`MOST_STONES`] stones.
    pub fn new(stones: u8, owner: usize, owners: usize) -> Level {
        assert!(stones <= MOST_STONES, "at most {MOST_STONES} stones");
        let count = (positions(stones) as usize).saturating_sub(owner).div_ceil(owners);
        Level {
            stones,
            owner,
            owners,
            open: vec![0; count],
            score: vec![NO_CAPTURE; count],
            round: 0,
            fresh: Vec::new(),
            known: 0,
            updates: 0,
        }
    }

    /// Returns the number of positions of this share.
    pub fn len(&self) -> usize {
        self.score.len()
    }

    /// Returns true if this share has no position.
    pub fn is_empty(&self) -> bool {
        self.score.is_empty()
    }

    /// Returns the number of positions of this share whose score is known.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Returns the updates that this share has sent to predecessors.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Returns the number among all positions of the level of a position of this share.
    fn index(&self, local: usize) -> u64 {
        (self.owner + local * self.owners) as u64
    }

    /// Plays all captures of some positions of this share, by their place in it, and counts their
    /// other moves. `smaller` has the scores of the databases with fewer stones, by stones and
    /// number.
    pub fn prepare(&mut self, locals: Range<usize>, smaller: impl Fn(u8, u64) -> i8) {
        let stones = self.stones as i8;
        for local in locals {
            let moves = unrank(self.stones, self.index(local)).moves();
            let (mut open, mut best) = (0, NO_CAPTURE);
            match moves.list() {
                [] => best = -stones,
                [first, ..] if first.starves => best = stones,
                list => {
                    for played in list {
                        if played.captured == 0 {
                            open += 1;
                            continue;
                        }
                        let left = self.stones - played.captured;
                        let opponent = smaller(left, rank(&played.board));
                        best = best.max(played.captured as i8 - opponent);
                    }
                }
            }
            (self.open[local], self.score[local]) = (open, best);
        }
    }

    /// Begins the round of a score, from the number of stones down to 1, in which positions of that
    /// score or its opposite become known.
    pub fn start_round(&mut self, score: u8) {
        self.round = score as i8;
        for local in 0..self.score.len() {
            let (open, best) = (self.open[local], self.score[local]);
            if open != KNOWN && (best == self.round || open == 0 && best == -self.round) {
                self.learn(local, best);
            }
        }
    }

    /// Takes a position that became known, and puts the updates of its predecessors, for any owner,
    /// into `out`, which is emptied first. Returns false if there is none; then another one's
    /// update may still make one.
    pub fn next_updates(&mut self, out: &mut Vec<Update>) -> bool {
        out.clear();
        let Some(local) = self.fresh.pop() else { return false };
        let score = -self.score[local as usize];
        let board = unrank(self.stones, self.index(local as usize));
        board.predecessors(|before| out.push(Update { index: rank(before) as u32, score }));
        self.updates += out.len() as u64;
        true
    }

    /// Returns true if a position became known and did not yet update its predecessors: then
    /// [`next_updates`](Level::next_updates) takes one.
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Returns the owner of an update's position.
    pub fn owner_of(&self, update: Update) -> usize {
        update.index as usize % self.owners
    }

    /// Returns true if an update's position is one of this share.
    pub fn has(&self, update: Update) -> bool {
        self.owner_of(update) == self.owner && update.index as usize / self.owners < self.len()
    }

    /// Takes an update of a position of this share.
    ///
    /// # Panics
    /// The position is another owner's.
    pub fn apply(&mut self, update: Update) {
        assert_eq!(self.owner_of(update), self.owner, "the position is owned");
        let local = update.index as usize / self.owners;
        if self.open[local] == KNOWN {
            return;
        }
        if update.score > 0 {
            self.learn(local, update.score);
            return;
        }
        self.open[local] = self.open[local].saturating_sub(1);
        if self.open[local] == 0 && self.score[local] <= update.score {
            self.learn(local, update.score);
        }
    }

    fn learn(&mut self, local: usize, score: i8) {
        self.score[local] = score;
        self.open[local] = KNOWN;
        self.known += 1;
        self.fresh.push(local as u32);
    }

    /// Returns the scores of this share, after the last round.
    pub fn into_scores(mut self) -> Vec<i8> {
        for (score, open) in self.score.iter_mut().zip(&self.open) {
            if *open != KNOWN {
                *score = 0;
            }
        }
        self.score
    }
}
