//! Graphs as lists of arcs.

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
    /// Makes a random graph: `degree` arcs leave each node to others chosen uniformly, with weights
    /// chosen uniformly from 1 to `max_weight`. The same arguments give the same graph everywhere.
    pub fn random(nodes: u32, degree: u32, max_weight: u32, seed: u64) -> Graph {
        let mut random = SplitMix(seed);
        let mut arcs = Vec::new();
        if nodes > 1 {
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

/// The generator SplitMix64 (Steele, Lea and Flood, 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `bound`; 32 of 64 random bits make the bias negligible.
    fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

/// Applies the finaliser of SplitMix64, a bijection that changes half of all bits for each input
/// bit.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
