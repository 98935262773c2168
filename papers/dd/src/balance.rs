//! The division of rows among ranks by their cost.

use std::ops::Range;

/// The rows of each rank, in their order; every rank has at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// The first row of each rank, and the number of rows behind the last.
    starts: Vec<usize>,
}

impl Division {
    /// Divides rows evenly among so many ranks; as many rows as ranks are needed.
    pub fn even(rows: usize, ranks: usize) -> Division {
        Division { starts: (0..=ranks).map(|rank| rank * rows / ranks.max(1)).collect() }
    }

    /// Divides rows so that the largest sum of costs of a rank is the least.
    pub fn by_cost(costs: &[f64], ranks: usize) -> Division {
        let before: Vec<f64> = std::iter::once(0.0)
            .chain(costs.iter().scan(0.0, |sum, cost| {
                *sum += cost.max(0.0);
                Some(*sum)
            }))
            .collect();
        let whole = before[costs.len()];
        // The bound lies between the mean and the whole; each step halves the interval.
        let (mut low, mut high) = (whole / ranks.max(1) as f64, whole);
        for _ in 0..50 {
            let middle = (low + high) / 2.0;
            match fits(&before, ranks, middle) {
                Some(_) => high = middle,
                None => low = middle,
            }
        }
        let starts = fits(&before, ranks, high);
        starts.map_or_else(|| Division::even(costs.len(), ranks), |starts| Division { starts })
    }

    /// Returns the division with these first rows, and the number of rows behind the last.
    pub(crate) fn of(starts: &[u32]) -> Division {
        Division { starts: starts.iter().map(|start| *start as usize).collect() }
    }

    /// Returns the first row of each rank, and the number of rows behind the last.
    pub(crate) fn starts(&self) -> Vec<u32> {
        self.starts.iter().map(|start| *start as u32).collect()
    }

    /// Returns the rows of a rank.
    pub fn rows(&self, rank: usize) -> Range<usize> {
        self.starts[rank]..self.starts[rank + 1]
    }

    /// Returns the rank that has a row.
    pub fn owner(&self, row: usize) -> usize {
        self.starts.partition_point(|start| *start <= row).saturating_sub(1)
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the largest cost of a rank by the mean.
    pub fn imbalance(&self, costs: &[f64]) -> f64 {
        let of = |rank: usize| costs[self.rows(rank)].iter().sum::<f64>();
        let largest = (0..self.ranks()).map(of).fold(0.0, f64::max);
        let mean = costs.iter().sum::<f64>() / self.ranks() as f64;
        if mean > 0.0 {
            largest / mean
        } else {
            1.0
        }
    }
}

/// Fills one rank after the other up to a bound, from the first row on. `before` has the sum of the
/// costs before each row. `None` if rows are left.
fn fits(before: &[f64], ranks: usize, bound: f64) -> Option<Vec<usize>> {
    let rows = before.len() - 1;
    let mut starts = vec![0];
    for rank in 0..ranks {
        let start = starts[rank];
        // The ranks behind need a row each.
        let most = rows.checked_sub(ranks - 1 - rank)?;
        let slack = 1e-12 * before[rows];
        let full = before.partition_point(|sum| *sum <= before[start] + bound + slack) - 1;
        let end = full.min(most);
        if end <= start {
            return None;
        }
        starts.push(end);
    }
    (starts[ranks] == rows).then_some(starts)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn rows(division: &Division) -> Vec<Range<usize>> {
        (0..division.ranks()).map(|rank| division.rows(rank)).collect()
    }

    #[test]
    fn by_cost__the_costly_third_is_shared() {
        let costs: Vec<f64> = (0..30).map(|row| if row < 10 { 10.0 } else { 1.0 }).collect();
        assert_eq!(rows(&Division::by_cost(&costs, 2)), [0..6, 6..30]);
        assert_eq!(Division::even(30, 2).imbalance(&costs), 105.0 / 60.0);
        assert!(Division::by_cost(&costs, 4).imbalance(&costs) < 1.1);
    }

    #[test]
    fn by_cost__every_rank_has_a_row() {
        for (costs, ranks) in [
            (vec![1.0, 0.0, 0.0], 3),
            (vec![0.0, 0.0, 5.0, 0.0], 3),
            (vec![0.0; 4], 4),
            (vec![2.0; 5], 1),
        ] {
            let division = Division::by_cost(&costs, ranks);
            let all = rows(&division);
            assert!(all.iter().all(|rows| !rows.is_empty()), "{costs:?}: {all:?}");
            assert_eq!((all[0].start, all[ranks - 1].end), (0, costs.len()));
            for row in 0..costs.len() {
                assert!(division.rows(division.owner(row)).contains(&row));
            }
        }
    }

    #[test]
    fn even__rows_differ_by_at_most_one() {
        assert_eq!(rows(&Division::even(7, 3)), [0..2, 2..4, 4..7]);
    }
}
