//! The state that the ranks of a run by calls share: a replicated object.

use crate::positions;
use serde::{Deserialize, Serialize};
use weft_models::objects::{Object, Read};

/// The ranks that are idle, and the scores of the last number of stones.
///
/// # The end of a round
///
/// A rank is idle if it has no position to play back from, no update for another rank, and no call
/// without an answer. All ranks may be counted as idle though one works: a rank that was counted is
/// woken by the updates of another one. So a rank numbers its wakings. The answer of a call that
/// wakes it has that number, and the caller *claims* it when it is idle itself. The round is over
/// when all ranks are counted, and each with as many wakings as others claim of it.
///
/// This is the end indeed. Suppose that ranks worked after they were last counted, and take the
/// first of them. A call woke it, and the caller made that call before it was itself last counted:
/// otherwise it would have worked before the first. The caller was idle when it was counted, so it
/// had the answer, and has claimed a waking with which the first one was not counted: the round is
/// not over. The proof needs no order of reports; the order makes all ranks see the end in the same
/// state.
///
/// A rank is counted once, and again only if all have been counted and others claim a waking of it
/// that is not: most rounds end with at most two operations of a rank, however often it is woken.
#[derive(Debug, Serialize, Deserialize)]
pub struct Game {
    seats: Vec<Seat>,
    /// Rounds that are over.
    round: u32,
    stones: u8,
    scores: Vec<i8>,
    /// The scores that have come, and the updates of the ranks that they come from.
    filled: u64,
    updates: u64,
}

/// A rank in the current round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Seat {
    is_counted: bool,
    /// Its wakings when it was last counted, and those that others claim.
    wakings: u64,
    claimed: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Op {
    /// Says that a rank is idle.
    Idle { round: u32, rank: u32, wakings: u64, claims: Vec<(u32, u64)> },
    /// Waits until the round is over, or the rank has to be counted again.
    News { round: u32, rank: u32 },
    /// Writes scores of a rank's share, from a place in it on.
    Scores { stones: u8, rank: u32, first: u32, scores: Vec<i8>, updates: u64 },
    /// Waits for all scores.
    All { stones: u8 },
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Done,
    /// The round is over.
    Over,
    /// The rank has to be counted again.
    Again,
    /// All scores, and the updates of all ranks.
    Scores(Vec<i8>, u64),
}

impl Game {
    pub fn new(ranks: usize) -> Game {
        Game {
            seats: vec![Seat::default(); ranks],
            round: 0,
            stones: 0,
            scores: Vec::new(),
            filled: 0,
            updates: 0,
        }
    }

    fn count(&mut self, (round, rank): (u32, u32), wakings: u64, claims: Vec<(u32, u64)>) {
        for (rank, waking) in claims {
            if let Some(seat) = self.seats.get_mut(rank as usize) {
                seat.claimed = seat.claimed.max(waking);
            }
        }
        if let Some(seat) = self.seats.get_mut(rank as usize) {
            seat.wakings = seat.wakings.max(wakings);
            seat.is_counted |= round == self.round;
        }
        if self.seats.iter().all(|seat| seat.is_counted && seat.wakings >= seat.claimed) {
            self.round += 1;
            self.seats.iter_mut().for_each(|seat| seat.is_counted = false);
        }
    }

    fn write(&mut self, stones: u8, (rank, first): (u32, u32), scores: &[i8], updates: u64) {
        if self.stones != stones || self.scores.is_empty() {
            // All ranks have read the scores before: they have played a round since.
            (self.stones, self.filled, self.updates) = (stones, 0, 0);
            self.scores = vec![0; positions(stones) as usize];
        }
        let ranks = self.seats.len();
        let places = self.scores.iter_mut().skip(rank as usize + first as usize * ranks);
        places.step_by(ranks).zip(scores).for_each(|(place, score)| *place = *score);
        self.filled += scores.len() as u64;
        self.updates += updates;
    }
}

impl Object for Game {
    type Op = Op;
    type Reply = Reply;

    fn read(&self, op: &Op) -> Read<Reply> {
        match *op {
            Op::News { round, .. } if self.round > round => Read::Value(Reply::Over),
            Op::News { rank, .. } => {
                let seat = self.seats.get(rank as usize);
                let is_behind = seat.is_some_and(|seat| seat.wakings < seat.claimed);
                match is_behind && self.seats.iter().all(|seat| seat.is_counted) {
                    true => Read::Value(Reply::Again),
                    false => Read::Wait,
                }
            }
            Op::All { stones } => match self.stones == stones && self.filled == positions(stones) {
                true => Read::Value(Reply::Scores(self.scores.clone(), self.updates)),
                false => Read::Wait,
            },
            Op::Idle { .. } | Op::Scores { .. } => Read::Write,
        }
    }

    fn apply(&mut self, op: Op) -> Reply {
        match op {
            Op::Idle { round, rank, wakings, claims } => self.count((round, rank), wakings, claims),
            Op::Scores { stones, rank, first, scores, updates } => {
                self.write(stones, (rank, first), &scores, updates);
            }
            Op::News { .. } | Op::All { .. } => {}
        }
        Reply::Done
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn idle(game: &mut Game, rank: u32, wakings: u64, claims: &[(u32, u64)]) {
        let round = game.round;
        game.apply(Op::Idle { round, rank, wakings, claims: claims.to_vec() });
    }

    fn news(game: &Game, rank: u32) -> Read<Reply> {
        game.read(&Op::News { round: 0, rank })
    }

    #[test]
    fn news__over_when_all_are_counted_and_nobody_was_woken() {
        let mut game = Game::new(3);
        for rank in [2, 0] {
            idle(&mut game, rank, 0, &[]);
            assert_eq!(news(&game, rank), Read::Wait);
        }
        idle(&mut game, 1, 0, &[]);
        assert_eq!(news(&game, 0), Read::Value(Reply::Over));
    }

    #[test]
    fn news__a_rank_that_was_woken_is_counted_again_when_all_are() {
        let mut game = Game::new(3);
        idle(&mut game, 0, 0, &[]);
        // Rank 1 has woken rank 0, and that one has woken rank 2 and is idle again.
        idle(&mut game, 1, 0, &[(0, 1)]);
        assert_eq!(news(&game, 0), Read::Wait, "rank 2 has never been counted");
        idle(&mut game, 2, 0, &[]);
        assert_eq!(news(&game, 0), Read::Value(Reply::Again));
        assert_eq!(news(&game, 2), Read::Wait, "nobody has claimed its waking yet");
        idle(&mut game, 0, 1, &[(2, 1)]);
        assert_eq!(news(&game, 2), Read::Value(Reply::Again));
        idle(&mut game, 2, 1, &[]);
        assert_eq!(news(&game, 1), Read::Value(Reply::Over));
    }

    #[test]
    fn scores__all_when_each_share_is_there() {
        let mut game = Game::new(2);
        let all = Op::All { stones: 1 };
        // Rank 0 has positions 0, 2 and so on of the twelve with one stone.
        let write = |rank, first, scores: &[i8]| Op::Scores {
            stones: 1,
            rank,
            first,
            scores: scores.to_vec(),
            updates: 2,
        };
        game.apply(write(0, 0, &[0, 2, 4, 6]));
        game.apply(write(1, 0, &[1, 3, 5, 7, 9, 11]));
        assert_eq!(game.read(&all), Read::Wait);
        game.apply(write(0, 4, &[8, 10]));
        let scores = (0..12).collect::<Vec<i8>>();
        assert_eq!(game.read(&all), Read::Value(Reply::Scores(scores, 6)));
    }
}
