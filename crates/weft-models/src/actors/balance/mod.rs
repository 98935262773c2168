//! Balancing: objects move to other ranks by the measured times of their turns and the messages
//! between them.

mod greedy;
mod refine;

pub use super::loads::{Balanced, Costs, Edge, Load, Loads};

/// A rule by which objects get their ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// The object with the greatest load goes to the rank with the least, and so on: the best
    /// balance, and nearly all objects move.
    Greedy,
    /// Objects move from ranks with too much load to those with less than the mean, as few as that
    /// takes.
    Refine,
    /// Each object moves to the next rank: a test of programs.
    Rotate,
    /// The rule of [`Refine`](Strategy::Refine), in which messages between ranks are a load too.
    RefineComm(Costs),
}

impl Strategy {
    /// Returns the rank of each object.
    pub fn plan(&self, loads: &Loads) -> Vec<usize> {
        match self {
            Strategy::Greedy => greedy::plan(loads),
            Strategy::Refine => refine::plan(loads, Costs { message: 0.0, byte: 0.0 }),
            Strategy::Rotate => {
                loads.objects.iter().map(|load| (load.rank + 1) % loads.ranks.max(1)).collect()
            }
            Strategy::RefineComm(costs) => refine::plan(loads, *costs),
        }
    }

    /// Returns its name: `greedy`, `refine`, `rotate` or `refine-comm`.
    pub fn name(&self) -> &'static str {
        match self {
            Strategy::Greedy => "greedy",
            Strategy::Refine => "refine",
            Strategy::Rotate => "rotate",
            Strategy::RefineComm(_) => "refine-comm",
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn loads(ranks: usize, objects: &[(usize, f64)]) -> Loads {
        let load = |&(rank, seconds): &(usize, f64)| Load { rank, seconds };
        Loads { ranks, objects: objects.iter().map(load).collect(), edges: Vec::new() }
    }

    #[test]
    fn plan__greedy_gives_the_greatest_to_the_least() {
        let loads = loads(2, &[(0, 5.0), (0, 4.0), (0, 3.0), (0, 3.0), (0, 1.0)]);
        let plan = Strategy::Greedy.plan(&loads);
        assert_eq!(plan, [0, 1, 1, 0, 1]);
        assert_eq!((loads.imbalance([0; 5]), loads.imbalance(plan)), (2.0, 1.0));
    }

    #[test]
    fn plan__rotate_moves_each_to_the_next_rank() {
        let loads = loads(3, &[(0, 0.0), (1, 0.0), (2, 0.0)]);
        assert_eq!(Strategy::Rotate.plan(&loads), [1, 2, 0]);
        assert_eq!(loads.imbalance([0, 1, 2]), 1.0);
    }

    #[test]
    fn plan__refine_moves_few_and_leaves_a_balanced_placement_alone() {
        let even = loads(2, &[(0, 1.0), (0, 1.0), (1, 1.0), (1, 1.0)]);
        assert_eq!(Strategy::Refine.plan(&even), [0, 0, 1, 1]);
        let uneven = loads(2, &[(0, 1.0), (0, 1.0), (0, 1.0), (0, 1.0), (0, 1.0), (1, 1.0)]);
        let plan = Strategy::Refine.plan(&uneven);
        assert_eq!(plan.iter().filter(|rank| **rank == 1).count(), 3, "{plan:?}");
        assert_eq!(plan[5], 1);
    }

    #[test]
    fn plan__of_no_object_and_of_one_rank() {
        for strategy in [
            Strategy::Greedy,
            Strategy::Refine,
            Strategy::Rotate,
            Strategy::RefineComm(Costs::default()),
        ] {
            assert!(strategy.plan(&loads(3, &[])).is_empty(), "{}", strategy.name());
            assert_eq!(strategy.plan(&loads(1, &[(0, 1.0), (0, 2.0)])), [0, 0]);
        }
    }
}
