//! The parallel program: pulls are in regions, each written by one rank and read by all.

use crate::bodies::digest_of;
use crate::{advance, correct, energy, Body, Outcome, Params, Pull, Step, Tree};
use std::ops::Range;
use std::time::Duration;
use weft_apps::{owned, Failure};
use weft_models::net::Net;
use weft_models::regions::{Region, Regions};

/// Bodies whose pulls are in one region: neighbours in the tree.
const EACH: usize = 64;

/// A body's velocity, its acceleration and potential, and the interactions of its pull.
type Record = [f64; 8];

/// The state of all bodies, which every rank has.
struct All {
    bodies: Vec<Body>,
    pulls: Vec<Pull>,
    time_step: f64,
}

/// Computes all steps on all ranks of a net; all call this with the same parameters and get the
/// same result, with the bits of [`sequential()`](crate::sequential()). Every rank builds the tree
/// of all bodies, and computes the pulls on a part of them, which took as long as the other parts
/// in the step before. `ns_per_pull` is the time of an interaction in a simulation, in nanoseconds.
///
/// `progress` is called before the first step and after each.
///
/// # Errors
/// A rank has failed, or a region is lost with it.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub async fn run<N: Net>(
    net: &N,
    params: &Params,
    ns_per_pull: f64,
    progress: &dyn Fn(Step<'_>),
) -> Result<Outcome, Failure> {
    params.check().expect("parameters were checked");
    let Params { gravity, time_step, steps: of, .. } = *params;
    let (bodies, count) = (params.bodies.clone(), params.bodies.len());
    let mut all = All { bodies, pulls: vec![Pull::default(); count], time_step };
    let regions = Regions::open(net);
    // Ranks that are a step ahead write the regions of the other parity.
    let sets = [make(&regions, net, count).await?, make(&regions, net, count).await?];
    let (mut energies, mut interactions) = (Vec::new(), 0);
    regions.barrier().await?;
    let time = net.now();
    progress(Step { steps: 0, of, pulled: 0, bodies: Some(&all.bodies) });
    for steps in 0..of {
        let (tree, set) = (Tree::new(&all.bodies, gravity.leaf), &sets[steps as usize % 2]);
        let mine = all.share(tree.order(), (net.rank(), net.size()));
        for block in mine.clone() {
            set[block].prefetch_to_write();
        }
        for block in mine {
            let places = block * EACH..count.min((block + 1) * EACH);
            let pulls: Vec<Pull> = places.clone().map(|at| tree.pull(at, &gravity)).collect();
            let done: u64 = pulls.iter().map(|pull| u64::from(pull.interactions)).sum();
            net.compute(Duration::from_nanos((done as f64 * ns_per_pull) as u64)).await;
            let mut records = set[block].write().await?;
            for ((record, pull), number) in
                records.iter_mut().zip(&pulls).zip(&tree.order()[places])
            {
                *record = all.record(*number as usize, pull, steps);
            }
            drop(records);
            net.yield_now().await;
        }
        regions.barrier().await?;
        set.iter().for_each(Region::prefetch);
        for (region, numbers) in set.iter().zip(tree.order().chunks(EACH)) {
            let records = region.read().await?;
            for (record, number) in records.iter().zip(numbers) {
                all.take(*number as usize, record);
            }
        }
        interactions += all.pulls.iter().map(|pull| u64::from(pull.interactions)).sum::<u64>();
        energies.push(energy(&all.bodies, &all.pulls, steps as f64 * time_step));
        let moving = all.bodies.iter_mut().zip(&all.pulls);
        moving.for_each(|(body, pull)| advance(body, pull, time_step));
        progress(Step { steps: steps + 1, of, pulled: 0, bodies: Some(&all.bodies) });
    }
    let elapsed = net.now().since(time);
    // The homes stay until all others have read.
    regions.barrier().await?;
    let (bodies, ranks) = (all.bodies, net.size());
    let checksum = digest_of(0, &bodies);
    Ok(Outcome { bodies, energies, time_step, ranks, interactions, checksum, elapsed })
}

/// Makes the regions of all bodies; each rank is the home of some.
async fn make<N: Net>(
    regions: &Regions<N>,
    net: &N,
    count: usize,
) -> Result<Vec<Region<N, Record>>, Failure> {
    let part = owned(net.rank(), net.size(), count.div_ceil(EACH));
    let length = |block: usize| EACH.min(count - block * EACH);
    let mine = part.map(|block| regions.create(vec![[0.0; 8]; length(block)]));
    let mine = mine.collect::<Result<Vec<_>, _>>()?;
    let names: Vec<_> = mine.iter().map(Region::id).collect();
    let all = (0..).zip(regions.gather(&names).await?);
    Ok(all.map(|(block, name)| regions.map_known(name, length(block))).collect::<Result<_, _>>()?)
}

impl All {
    /// Returns the blocks of a rank: parts of the order that took as long in the step before.
    fn share(&self, order: &[u32], (rank, ranks): (usize, usize)) -> Range<usize> {
        let cost = |number: &u32| u64::from(self.pulls[*number as usize].interactions.max(1));
        let costs: Vec<u64> =
            order.chunks(EACH).map(|block| block.iter().map(cost).sum()).collect();
        let whole: u64 = costs.iter().sum();
        let mut before = 0;
        // The block whose middle is in a rank's part is its.
        let owners = costs.iter().map(|cost| {
            let middle = before + cost / 2;
            before += cost;
            (u128::from(middle) * ranks as u128 / u128::from(whole)) as usize
        });
        let owners: Vec<usize> = owners.collect();
        let end = |rank: usize| owners.partition_point(|owner| *owner < rank);
        end(rank)..end(rank + 1)
    }

    /// Returns what a new pull makes of a body, as others need it.
    fn record(&self, number: usize, pull: &Pull, steps: u64) -> Record {
        let mut body = self.bodies[number];
        if steps > 0 {
            correct(&mut body, &self.pulls[number], pull, self.time_step);
        }
        let ([u, v, w], [x, y, z]) = (body.velocity, pull.acceleration);
        [u, v, w, x, y, z, pull.potential, f64::from(pull.interactions)]
    }

    fn take(&mut self, number: usize, record: &Record) {
        let [u, v, w, x, y, z, potential, interactions] = *record;
        self.bodies[number].velocity = [u, v, w];
        let interactions = interactions as u32;
        self.pulls[number] = Pull { acceleration: [x, y, z], potential, interactions };
    }
}
