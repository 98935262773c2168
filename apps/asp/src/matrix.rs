//! The distance matrix: its distribution over ranks and one step of the algorithm.

use crate::{Arc, Summary};
use std::ops::Range;
use weft_apps::mix;

/// The distance of nodes without a path. A path of this length or more counts as none.
pub const UNREACHABLE: u32 = u32::MAX;

/// Consecutive rows of the distance matrix.
pub(crate) struct Block {
    rows: Range<usize>,
    nodes: usize,
    distances: Vec<u32>,
}

impl Block {
    /// Makes the given rows of the matrix of a graph without arcs.
    pub(crate) fn new(rows: Range<usize>, nodes: usize) -> Block {
        let mut distances = vec![UNREACHABLE; rows.len() * nodes];
        for (local, row) in rows.clone().enumerate() {
            distances[local * nodes + row] = 0;
        }
        Block { rows, nodes, distances }
    }

    /// Returns the owned rows.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Returns row `row`, counted in the whole matrix; it must be owned.
    pub(crate) fn row(&self, row: usize) -> &[u32] {
        &self.distances[(row - self.rows.start) * self.nodes..][..self.nodes]
    }

    /// Adds an arc. Returns `false` and ignores it when it leaves no owned row.
    pub(crate) fn add(&mut self, arc: Arc) -> bool {
        let (from, to) = (arc.from as usize, arc.to as usize);
        if !self.rows.contains(&from) || to >= self.nodes {
            return false;
        }
        let cell = &mut self.distances[(from - self.rows.start) * self.nodes + to];
        *cell = arc.weight.min(*cell);
        true
    }

    /// Does step `k` of the algorithm for the given owned rows: improves them with the paths
    /// through node `k`, whose row is `pivot`.
    pub(crate) fn relax(&mut self, k: usize, pivot: &[u32], rows: Range<usize>) {
        let locals = rows.start - self.rows.start..rows.end - self.rows.start;
        let cells = &mut self.distances[locals.start * self.nodes..locals.end * self.nodes];
        for row in cells.chunks_exact_mut(self.nodes) {
            relax_row(row, pivot, row[k]);
        }
    }

    /// Returns the figures of the owned rows.
    pub(crate) fn summary(&self) -> Summary {
        let rows = self.rows().map(|row| Summary::of_row(row as u32, self.row(row)));
        rows.fold(Summary::default(), Summary::merge)
    }

    /// Returns the wrapping sum of a hash of each owned cell's place and value. Digests of blocks
    /// add up, in any order, to the digest of the matrix.
    pub(crate) fn digest(&self) -> u64 {
        let first = (self.rows.start * self.nodes) as u64;
        let cells = self.distances.iter().zip(first..);
        cells.fold(0, |sum, (distance, place)| {
            sum.wrapping_add(mix(mix(place + 1) ^ u64::from(*distance)))
        })
    }
}

/// Replaces each distance in `row` by the one over the pivot where that is shorter; `via` is the
/// distance to the pivot.
fn relax_row(row: &mut [u32], pivot: &[u32], via: u32) {
    // Adding at most this much cannot overflow, and adding it gives UNREACHABLE.
    let room = UNREACHABLE - via;
    if room == 0 {
        return;
    }
    for (distance, beyond) in row.iter_mut().zip(pivot) {
        *distance = (*distance).min(via + (*beyond).min(room));
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn relax_row__saturates_at_unreachable() {
        const FAR: u32 = UNREACHABLE;
        let cases = [
            (5, 2, 2, 4),
            (3, 2, 2, 3),
            (FAR, 2, FAR, FAR),
            (FAR, FAR, 2, FAR),
            (FAR, FAR - 1, 0, FAR - 1),
            (FAR, FAR - 1, 1, FAR),
            (FAR, FAR - 2, FAR - 2, FAR),
            (FAR, 0, FAR - 1, FAR - 1),
        ];
        for (distance, via, beyond, expected) in cases {
            let mut row = vec![distance; 9];
            relax_row(&mut row, &[beyond; 9], via);
            assert_eq!(row, [expected; 9], "{distance} {via} {beyond}");
        }
    }

    #[test]
    fn add__keeps_the_shortest_and_ignores_loops_and_strangers() {
        let mut block = Block::new(2..4, 5);
        for weight in [7, 3, 9] {
            assert!(block.add(Arc { from: 2, to: 4, weight }));
        }
        assert!(block.add(Arc { from: 3, to: 3, weight: 8 }));
        assert!(!block.add(Arc { from: 1, to: 2, weight: 1 }));
        assert!(!block.add(Arc { from: 2, to: 5, weight: 1 }));
        assert_eq!(block.row(2), [UNREACHABLE, UNREACHABLE, 0, UNREACHABLE, 3]);
        assert_eq!(block.row(3)[3], 0);
    }

    #[test]
    fn digest__adds_up_over_any_split() {
        let whole = Block::new(0..7, 7).digest();
        for cut in 0..=7 {
            let parts = Block::new(0..cut, 7).digest();
            assert_eq!(parts.wrapping_add(Block::new(cut..7, 7).digest()), whole);
        }
        let mut other = Block::new(0..7, 7);
        other.add(Arc { from: 0, to: 1, weight: 1 });
        assert_ne!(other.digest(), whole);
    }
}
