//! Broadcasts: rank 0 numbers them, and a tree of ranks passes them on, so that all ranks have
//! those of an array in one order. An object that moves gets each of them once: its new rank gives
//! it those that come later there, and its old rank owes it those that the new one had passed on
//! before the object came.

use super::wire::Content;
use std::rc::Rc;

/// Ranks to which a rank passes a broadcast on.
const BRANCHES: usize = 8;

/// Returns the rank that passes broadcasts on to a rank, and gets its part of a reduction.
pub(super) fn parent(rank: usize) -> usize {
    rank.saturating_sub(1) / BRANCHES
}

/// Returns the ranks to which a rank passes broadcasts on.
pub(super) fn children(rank: usize, ranks: usize) -> std::ops::Range<usize> {
    let first = rank * BRANCHES + 1;
    first.min(ranks)..(first + BRANCHES).min(ranks)
}

/// A broadcast that objects on their way may need.
pub(super) struct Kept {
    pub number: u32,
    pub section: u16,
    pub priority: i32,
    pub content: Content,
    pub bytes: Rc<[u8]>,
}

/// An object that has left, and the broadcasts that this rank owes it: those after `from`, up to
/// `until` as soon as the new rank has told it.
pub(super) struct Debt {
    pub element: u32,
    pub moves: u32,
    from: u32,
    pub until: Option<u32>,
}

/// The broadcasts of an array at this rank. They have numbers from 1.
#[derive(Default)]
pub(super) struct Casts {
    /// The last number that rank 0 has given.
    pub last: u32,
    /// The last number that this rank has passed on.
    pub heard: u32,
    pub kept: Vec<Kept>,
    pub debts: Vec<Debt>,
}

impl Casts {
    /// Notes that an object leaves.
    pub fn owe(&mut self, element: u32, moves: u32, from: u32) {
        self.debts.push(Debt { element, moves, from, until: None });
    }

    /// Takes what is to be sent to objects now: the object, and the place of the broadcast.
    pub fn due(&mut self) -> Vec<(u32, usize)> {
        let mut due = Vec::new();
        let Casts { heard, kept, debts, .. } = self;
        debts.retain_mut(|debt| {
            let Some(until) = debt.until else { return true };
            let places = kept.iter().enumerate();
            let owed = places.filter(|(_, k)| k.number > debt.from && k.number <= until);
            due.extend(owed.map(|(at, _)| (debt.element, at)));
            debt.from = debt.from.max(*heard);
            until > *heard
        });
        due
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn children__are_those_whose_parent_a_rank_is() {
        for ranks in [1, 2, 9, 10, 111] {
            for rank in 1..ranks {
                assert!(children(parent(rank), ranks).contains(&rank));
            }
            let all: usize = (0..ranks).map(|rank| children(rank, ranks).len()).sum();
            assert_eq!(all, ranks - 1);
        }
    }
}
