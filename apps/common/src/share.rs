//! The division of things among ranks.

use std::ops::Range;

/// Returns the things that rank `rank` of `size` owns among `count`: a contiguous, possibly empty
/// range. Lengths differ by at most one; the first ranks have the longer ranges.
pub fn owned(rank: usize, size: usize, count: usize) -> Range<usize> {
    let (each, longer) = (count / size, count % size);
    let start = rank * each + rank.min(longer);
    start..start + each + usize::from(rank < longer)
}

/// Returns the owner of thing `index`, which must be below `count`: the inverse of [`owned`].
pub fn owner_of(index: usize, size: usize, count: usize) -> usize {
    let (each, longer) = (count / size, count % size);
    let in_longer = longer * (each + 1);
    if index < in_longer {
        index / (each + 1)
    } else {
        longer + (index - in_longer) / each
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn owned__covers_all_once_and_inverts() {
        for count in 0..40 {
            for size in 1..24 {
                let ranges: Vec<_> = (0..size).map(|r| owned(r, size, count)).collect();
                let listed: Vec<usize> = ranges.iter().cloned().flatten().collect();
                assert_eq!(listed, (0..count).collect::<Vec<_>>());
                let lengths = || ranges.iter().map(Range::len);
                assert!(lengths().is_sorted_by(|a, b| a >= b));
                assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1);
                for (rank, range) in ranges.into_iter().enumerate() {
                    assert!(range.into_iter().all(|i| owner_of(i, size, count) == rank));
                }
            }
        }
    }
}
