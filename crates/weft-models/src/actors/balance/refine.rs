//! Objects move from ranks with too much load to those with less than the mean.
//!
//! The rule is that of RefineCommLB of Charm++ 6, which paper 000 uses. A rank's load is that of
//! its objects and of the messages that they send to other ranks. A rank is heavy if its load is
//! above `t` times the mean, and light if it is below the mean. The heaviest rank gives an object
//! to a light one, again and again: of all pairs of its objects and light ranks that stay below `t`
//! times the mean, the one that brings the greatest load. The least `t` with which no heavy rank is
//! left is found by bisection.

use super::{Costs, Loads};
use std::rc::Rc;

/// The least `t`, and the steps in which it is found.
const LEAST: f64 = 1.003;
const STEP: f64 = 0.01;

/// Returns the rank of each object.
pub(super) fn plan(loads: &Loads, costs: Costs) -> Vec<usize> {
    let begin = Placement::new(loads, costs);
    let mean = begin.sums.iter().sum::<f64>() / loads.ranks.max(1) as f64;
    let greatest = begin.sums.iter().copied().fold(0.0, f64::max);
    if mean <= 0.0 || greatest <= LEAST * mean {
        return begin.ranks;
    }
    // With the greatest load by the mean nothing is heavy, and nothing moves.
    let (mut low, mut high) = (0, ((greatest / mean - LEAST) / STEP).ceil() as u64);
    let mut best = begin.ranks.clone();
    while low < high {
        let middle = low.midpoint(high);
        match begin.clone().refine(mean, LEAST + STEP * middle as f64) {
            Some(ranks) => (best, high) = (ranks, middle),
            None => low = middle + 1,
        }
    }
    best
}

/// Objects at ranks, and the loads of ranks.
#[derive(Clone)]
struct Placement<'a> {
    loads: &'a Loads,
    ranks: Vec<usize>,
    sums: Vec<f64>,
    /// Sender, receiver and cost of messages.
    edges: Rc<[(usize, usize, f64)]>,
    /// The receivers of each object's messages, with their cost.
    sends: Rc<[Vec<(usize, f64)>]>,
}

impl<'a> Placement<'a> {
    fn new(loads: &'a Loads, costs: Costs) -> Placement<'a> {
        let mut sends = vec![Vec::new(); loads.objects.len()];
        let mut edges = Vec::new();
        for edge in &loads.edges {
            let cost = edge.messages as f64 * costs.message + edge.bytes as f64 * costs.byte;
            if cost > 0.0 {
                sends[edge.from].push((edge.to, cost));
                edges.push((edge.from, edge.to, cost));
            }
        }
        let ranks: Vec<usize> = loads.objects.iter().map(|load| load.rank).collect();
        let (edges, sends) = (edges.into(), sends.into());
        let mut placement = Placement { loads, ranks, sums: Vec::new(), edges, sends };
        placement.sum();
        placement
    }

    /// Sums the loads of ranks anew: sums that were kept would gather rounding, and decide between
    /// equals by it.
    fn sum(&mut self) {
        self.sums = vec![0.0; self.loads.ranks];
        for (load, rank) in self.loads.objects.iter().zip(&self.ranks) {
            self.sums[*rank] += load.seconds;
        }
        for &(from, to, cost) in self.edges.iter() {
            if self.ranks[from] != self.ranks[to] {
                self.sums[self.ranks[from]] += cost;
            }
        }
    }

    /// Moves objects until no rank is above `t` times the mean. `None` if one stays so.
    fn refine(mut self, mean: f64, t: f64) -> Option<Vec<usize>> {
        let most = t * mean;
        // Each step moves an object to a rank below the mean; a rule that goes round ends here.
        for _ in 0..=self.loads.objects.len() * 2 {
            let ranks = 0..self.sums.len();
            let heaviest = ranks.reduce(|one, other| match self.sums[other] > self.sums[one] {
                true => other,
                false => one,
            })?;
            if self.sums[heaviest] <= most {
                return Some(self.ranks);
            }
            let (object, to) = self.best(heaviest, mean, most)?;
            self.ranks[object] = to;
            self.sum();
        }
        None
    }

    /// Returns the object of a rank and the light rank that gets the greatest load by it and stays
    /// below the bound; of equal ones the first object, and the lowest rank.
    fn best(&self, heaviest: usize, mean: f64, most: f64) -> Option<(usize, usize)> {
        let light: Vec<usize> =
            (0..self.sums.len()).filter(|rank| self.sums[*rank] < mean).collect();
        let mut best: Option<(f64, usize, usize)> = None;
        let mut affinity = vec![0.0; self.sums.len()];
        for object in (0..self.ranks.len()).filter(|at| self.ranks[*at] == heaviest) {
            affinity.fill(0.0);
            let mut here = 0.0;
            for (to, cost) in &self.sends[object] {
                let rank = self.ranks[*to];
                affinity[rank] += cost;
                if rank != heaviest {
                    here += cost;
                }
            }
            for &rank in &light {
                let brings = self.loads.objects[object].seconds + here - affinity[rank];
                let fits = self.sums[rank] + brings < most;
                if fits && best.is_none_or(|(greatest, ..)| brings > greatest) {
                    best = Some((brings, object, rank));
                }
            }
        }
        best.map(|(_, object, rank)| (object, rank))
    }
}
