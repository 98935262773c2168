//! Figures over all pairs of nodes.

use crate::UNREACHABLE;

/// Figures of a distance matrix, or of some of its rows. Pairs are ordered pairs of different
/// nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Pairs with a path.
    pub reachable: u64,
    /// The sum of their distances.
    pub total: u128,
    /// The longest of their distances; 0 when there are none.
    pub diameter: u32,
    /// The node with the smallest eccentricity.
    pub centre: Option<Centre>,
}

/// A node with its eccentricity: the distance to the farthest node it reaches.
///
/// Only nodes that reach the most others are candidates for the centre, so that the figure is
/// useful for a graph that is not strongly connected too. Among equal ones the first node is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Centre {
    /// The node, numbered from 0.
    pub node: u32,
    /// The distance to the farthest node it reaches.
    pub eccentricity: u32,
    /// Number of other nodes it reaches.
    pub reaches: u32,
}

impl Summary {
    /// Bytes of an encoded summary.
    pub(crate) const BYTES: usize = 48;

    /// Returns the figures of one row of the matrix: the distances from `node`.
    pub(crate) fn of_row(node: u32, row: &[u32]) -> Summary {
        let mut summary = Summary::default();
        for (to, distance) in (0u32..).zip(row) {
            if *distance != UNREACHABLE && to != node {
                summary.reachable += 1;
                summary.total += u128::from(*distance);
                summary.diameter = summary.diameter.max(*distance);
            }
        }
        let (eccentricity, reaches) = (summary.diameter, summary.reachable as u32);
        summary.centre = Some(Centre { node, eccentricity, reaches });
        summary
    }

    /// Returns the figures of both sets of rows. The order of merging does not matter.
    pub(crate) fn merge(self, other: Summary) -> Summary {
        let rank = |c: &Centre| (u32::MAX - c.reaches, c.eccentricity, c.node);
        Summary {
            reachable: self.reachable + other.reachable,
            total: self.total + other.total,
            diameter: self.diameter.max(other.diameter),
            centre: self.centre.into_iter().chain(other.centre).min_by_key(rank),
        }
    }

    /// Returns the mean distance of the pairs with a path; 0 if there are none.
    pub fn mean(&self) -> f64 {
        if self.reachable == 0 {
            0.0
        } else {
            self.total as f64 / self.reachable as f64
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let none = Centre { node: UNREACHABLE, eccentricity: 0, reaches: 0 };
        let centre = self.centre.unwrap_or(none);
        let mut bytes = self.total.to_le_bytes().to_vec();
        bytes.extend(self.reachable.to_le_bytes());
        for word in [self.diameter, centre.node, centre.eccentricity, centre.reaches] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.resize(Summary::BYTES, 0);
        bytes
    }

    /// Decodes the bytes of `encode`; missing bytes count as 0.
    pub(crate) fn decode(bytes: &[u8]) -> Summary {
        let mut whole = [0; Summary::BYTES];
        let len = bytes.len().min(Summary::BYTES);
        whole[..len].copy_from_slice(&bytes[..len]);
        let number = |at: usize, len: usize| {
            whole[at..at + len].iter().rev().fold(0u128, |n, b| n << 8 | u128::from(*b))
        };
        let word = |at: usize| number(at, 4) as u32;
        let centre = Centre { node: word(28), eccentricity: word(32), reaches: word(36) };
        Summary {
            total: number(0, 16),
            reachable: number(16, 8) as u64,
            diameter: word(24),
            centre: (centre.node != UNREACHABLE).then_some(centre),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const X: u32 = UNREACHABLE;

    fn rows() -> Vec<Summary> {
        let matrix = [[0, 3, X, 9], [2, 0, 1, 7], [X, X, 0, X], [5, 7, 3, 0]];
        matrix.iter().enumerate().map(|(i, row)| Summary::of_row(i as u32, row)).collect()
    }

    #[test]
    fn merge__figures_of_a_small_matrix_in_any_order() {
        let expected = Summary {
            reachable: 8,
            total: 37,
            diameter: 9,
            centre: Some(Centre { node: 1, eccentricity: 7, reaches: 3 }),
        };
        let mut rows = rows();
        for _ in 0..4 {
            rows.rotate_left(1);
            assert_eq!(rows.iter().copied().fold(Summary::default(), Summary::merge), expected);
            let reversed = rows.iter().rev().copied();
            assert_eq!(reversed.fold(Summary::default(), Summary::merge), expected);
        }
        assert_eq!(expected.mean(), 37.0 / 8.0);
        assert_eq!(Summary::default().mean(), 0.0);
    }

    #[test]
    fn encode__round_trip_of_extremes() {
        let full = Summary {
            reachable: u64::MAX,
            total: u128::MAX,
            diameter: X - 1,
            centre: Some(Centre { node: X - 1, eccentricity: X - 1, reaches: X }),
        };
        for summary in rows().into_iter().chain([Summary::default(), full]) {
            assert_eq!(summary.encode().len(), Summary::BYTES);
            assert_eq!(Summary::decode(&summary.encode()), summary);
        }
        assert_eq!(Summary::decode(&[]).reachable, 0);
    }
}
