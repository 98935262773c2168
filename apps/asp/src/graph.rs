//! Graphs as lists of arcs.

use weft_apps::SplitMix;

/// A directed arc between two nodes, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arc {
    /// The node it leaves.
    pub from: u32,
    /// The node it enters.
    pub to: u32,
    /// Its length; below [`UNREACHABLE`](crate::UNREACHABLE).
    pub weight: u32,
}

/// A weighted directed graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Number of nodes; the ends of all arcs are below it.
    pub nodes: usize,
    /// The arcs. Of parallel ones the shortest counts; loops do not count.
    pub arcs: Vec<Arc>,
    /// The number of node 0 in input and output: 0 or 1.
    pub first_id: u32,
}

impl Graph {
    /// Returns the bytes of a random graph of so many nodes and arcs of each.
    pub fn bytes_needed(nodes: u32, degree: u32) -> u128 {
        u128::from(nodes) * u128::from(degree) * size_of::<Arc>() as u128
    }

    /// Makes a random graph: `degree` arcs leave each node to others chosen uniformly, with weights
    /// chosen uniformly from 1 to `max_weight`. The same arguments give the same graph everywhere.
    pub fn random(nodes: u32, degree: u32, max_weight: u32, seed: u64) -> Graph {
        let mut random = SplitMix::new(seed);
        let mut arcs = Vec::new();
        if nodes > 1 {
            arcs.reserve_exact(nodes as usize * degree as usize);
            for (from, _) in (0..nodes).flat_map(|from| (0..degree).map(move |d| (from, d))) {
                let other = random.below(nodes - 1);
                let to = other + u32::from(other >= from);
                let weight = 1 + random.below(max_weight.clamp(1, u32::MAX - 1));
                arcs.push(Arc { from, to, weight });
            }
        }
        Graph { nodes: nodes as usize, arcs, first_id: 0 }
    }
}
