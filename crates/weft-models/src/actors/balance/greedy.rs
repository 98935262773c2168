//! The greatest load to the rank with the least.

use super::Loads;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A rank with a sum of loads; the least comes out of a heap first, of equals the lowest rank.
struct Rank(f64, usize);

impl PartialEq for Rank {
    fn eq(&self, other: &Rank) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Rank {}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Rank) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
}

/// Returns the rank of each object.
pub(super) fn plan(loads: &Loads) -> Vec<usize> {
    let mut order: Vec<usize> = (0..loads.objects.len()).collect();
    let seconds = |at: usize| loads.objects[at].seconds;
    order.sort_by(|one, other| seconds(*other).total_cmp(&seconds(*one)).then(one.cmp(other)));
    let mut ranks: BinaryHeap<Rank> = (0..loads.ranks).map(|rank| Rank(0.0, rank)).collect();
    let mut plan = vec![0; loads.objects.len()];
    for at in order {
        let Some(Rank(sum, rank)) = ranks.pop() else { break };
        plan[at] = rank;
        ranks.push(Rank(sum + seconds(at), rank));
    }
    plan
}
