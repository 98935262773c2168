//! The traffic of paper 004's program: nodes of the tree and bodies are small regions, which a rank
//! reads one by one as its walk meets them.
//!
//! A body's walk meets the regions that it would meet in the real tree, but their contents are not
//! real, so there is no result but the time. Most communication takes place in the force
//! computation of a step, as in the paper.

use crate::{Gravity, Params, Tree};
use std::cell::RefCell;
use std::ops::Range;
use std::time::Duration;
use weft_apps::Failure;
use weft_models::net::Net;
use weft_models::regions::{Region, RegionId, Regions};

/// Words of the region of a node and of a body: 88 and 108 bytes, as in the paper.
const NODE_WORDS: usize = 22;
const BODY_WORDS: usize = 27;

/// The tree of a step, the owners of its bodies and nodes, and the cost of each body. Ranks of a
/// simulation share it.
#[derive(Clone, Debug)]
pub struct Walk {
    tree: Tree,
    gravity: Gravity,
    /// Interactions of each body, in the order of leaves.
    costs: Vec<u32>,
    /// The first place of each rank's bodies, and the end.
    starts: Vec<usize>,
}

impl Walk {
    /// Prepares the first step of a run, for so many ranks: each has bodies that follow each other
    /// in the tree and cost as much as those of the others.
    ///
    /// # Panics
    /// There are no ranks.
    pub fn new(params: &Params, ranks: usize) -> Walk {
        let (tree, gravity) = (Tree::new(&params.bodies, params.gravity.leaf), params.gravity);
        let count = tree.places().len();
        let cost = |place| walk(&tree, place, &gravity, &mut |_| ());
        let costs: Vec<u32> = (0..count).map(cost).collect();
        let whole: u64 = costs.iter().map(|cost| u64::from(*cost)).sum();
        let mut starts = vec![0];
        let mut sum = 0;
        for (place, cost) in costs.iter().enumerate() {
            sum += u64::from(*cost);
            while starts.len() < ranks && sum * ranks as u64 >= whole * starts.len() as u64 {
                starts.push(place + 1);
            }
        }
        starts.resize(ranks, count);
        starts.push(count);
        Walk { tree, gravity, costs, starts }
    }

    /// Returns the interactions of all bodies in a step.
    pub fn interactions(&self) -> u64 {
        self.costs.iter().map(|cost| u64::from(*cost)).sum()
    }

    fn nodes(&self) -> usize {
        self.tree.nodes().len()
    }

    fn regions(&self) -> usize {
        self.nodes() + self.costs.len()
    }

    fn words(&self, region: usize) -> usize {
        if region < self.nodes() {
            NODE_WORDS
        } else {
            BODY_WORDS
        }
    }

    fn owner_of_place(&self, place: usize) -> usize {
        self.starts[1..].partition_point(|end| *end <= place).min(self.starts.len() - 2)
    }

    /// Returns the home of a region: nodes come first, then bodies. A node is at home where its
    /// first body is.
    fn home(&self, region: usize) -> usize {
        let place = match self.tree.nodes().get(region) {
            Some(node) => node.first as usize,
            None => region - self.nodes(),
        };
        self.owner_of_place(place)
    }

    fn bodies_of(&self, rank: usize) -> Range<usize> {
        self.starts[rank]..self.starts[rank + 1]
    }
}

/// Walks the tree for the body at a place, as [`Tree::pull`] does; calls `meet` with each region
/// that is read; returns the interactions.
fn walk(tree: &Tree, place: usize, gravity: &Gravity, meet: &mut impl FnMut(usize)) -> u32 {
    let [_, x, y, z] = tree.places()[place];
    let opening = gravity.opening * gravity.opening;
    let nodes = tree.nodes();
    let (mut at, mut interactions) = (0, 0);
    while let Some(node) = nodes.get(at) {
        meet(at);
        let [cx, cy, cz] = node.centre;
        let from = [cx - x, cy - y, cz - z];
        let squared = from[0] * from[0] + from[1] * from[1] + from[2] * from[2];
        let contains = (place as u32).wrapping_sub(node.first) < node.count;
        if !contains && opening * squared >= node.side_squared {
            interactions += 1;
            at = node.skip as usize;
            continue;
        }
        at += 1;
        if at == node.skip as usize {
            let first = node.first as usize;
            for other in (first..first + node.count as usize).filter(|other| *other != place) {
                meet(nodes.len() + other);
                interactions += 1;
            }
        }
    }
    interactions
}

/// The regions of a rank.
struct Known<'a, N: Net> {
    walk: &'a Walk,
    regions: &'a Regions<N>,
    names: Vec<RegionId>,
    mapped: RefCell<Vec<Option<Region<N, u32>>>>,
}

impl<N: Net> Known<'_, N> {
    async fn make<'a>(
        walk: &'a Walk,
        regions: &'a Regions<N>,
        rank: usize,
    ) -> Result<Known<'a, N>, Failure> {
        let homes: Vec<usize> = (0..walk.regions()).map(|region| walk.home(region)).collect();
        let mut mapped = vec![None; homes.len()];
        let mut mine = Vec::new();
        for region in (0..homes.len()).filter(|region| homes[*region] == rank) {
            let made = regions.create(vec![0u32; walk.words(region)])?;
            mine.push(made.id());
            mapped[region] = Some(made);
        }
        // The names come by home, those of a home in the order in which it made them.
        let all = regions.gather(&mine).await?;
        let mut order: Vec<usize> = (0..homes.len()).collect();
        order.sort_by_key(|region| homes[*region]);
        let mut named: Vec<(usize, RegionId)> = order.into_iter().zip(all).collect();
        named.sort_by_key(|(region, _)| *region);
        let names = named.into_iter().map(|(_, name)| name).collect();
        Ok(Known { walk, regions, names, mapped: RefCell::new(mapped) })
    }

    fn region(&self, region: usize) -> Result<Region<N, u32>, Failure> {
        let mut mapped = self.mapped.borrow_mut();
        if let Some(known) = &mapped[region] {
            return Ok(known.clone());
        }
        let known = self.regions.map_known(self.names[region], self.walk.words(region))?;
        mapped[region] = Some(known.clone());
        Ok(known)
    }

    /// Writes all regions that are at home here: other ranks lose their copies.
    async fn write(&self, rank: usize) -> Result<(), Failure> {
        let mine = (0..self.names.len()).filter(|region| self.names[*region].home() == rank);
        for region in mine {
            self.region(region)?.write().await?[0] += 1;
        }
        Ok(())
    }

    /// Computes the pulls on this rank's bodies, and reads what their walks meet.
    async fn pull(&self, net: &N, rank: usize, ns_per_pull: f64) -> Result<(), Failure> {
        let mut here = vec![false; self.names.len()];
        let mut met = Vec::new();
        for place in self.walk.bodies_of(rank) {
            let mut meet = |region: usize| {
                if !std::mem::replace(&mut here[region], true) {
                    met.push(region);
                }
            };
            let interactions = walk(&self.walk.tree, place, &self.walk.gravity, &mut meet);
            for region in met.drain(..) {
                drop(self.region(region)?.read().await?);
            }
            let time = f64::from(interactions) * ns_per_pull;
            net.compute(Duration::from_nanos(time as u64)).await;
        }
        Ok(())
    }
}

/// Does two steps on all ranks of a simulated net; returns the time of the second: in the first one
/// nobody has copies that have to be given up. `ns_per_pull` is the time of an interaction.
///
/// `progress` is called after each step.
///
/// # Errors
/// A rank has failed, or a region is lost with it.
///
/// # Panics
/// The walk is one for another number of ranks.
pub async fn run_walk<N: Net>(
    net: &N,
    walk: &Walk,
    ns_per_pull: f64,
    progress: &dyn Fn(u64),
) -> Result<Duration, Failure> {
    let rank = net.rank();
    assert_eq!(walk.starts.len(), net.size() + 1, "a walk is for a number of ranks");
    let regions = Regions::open(net);
    let known = Known::make(walk, &regions, rank).await?;
    regions.barrier().await?;
    let mut elapsed = Duration::ZERO;
    for step in 1..=2 {
        let time = net.now();
        known.write(rank).await?;
        regions.barrier().await?;
        known.pull(net, rank, ns_per_pull).await?;
        regions.barrier().await?;
        elapsed = net.now().since(time);
        progress(step);
    }
    Ok(elapsed)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use crate::two_clusters;

    #[test]
    fn walk__meets_what_pulls_use_and_divides_the_cost() {
        let params = Params { bodies: two_clusters(1000, 1), ..Params::default() };
        let walk = Walk::new(&params, 7);
        let pulls = (0..1000).map(|place| walk.tree.pull(place, &params.gravity).interactions);
        assert_eq!(pulls.collect::<Vec<_>>(), walk.costs);
        let parts: Vec<Range<usize>> = (0..7).map(|rank| walk.bodies_of(rank)).collect();
        assert_eq!(parts.iter().map(Range::len).sum::<usize>(), 1000);
        let cost = |part: &Range<usize>| walk.costs[part.clone()].iter().sum::<u32>();
        let fair = walk.interactions() as f64 / 7.0;
        assert!(parts.iter().all(|part| (f64::from(cost(part)) / fair - 1.0).abs() < 0.05));
        for (rank, part) in parts.iter().enumerate() {
            assert!(part.clone().all(|place| walk.home(walk.nodes() + place) == rank));
        }
    }
}
