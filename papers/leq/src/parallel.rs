//! The parallel program: the vector is a replicated object.

use crate::rows::{change, Rows, PANEL};
use crate::watch::Watch;
use crate::{End, Outcome, Params, Step};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weft_apps::{digest, owned, Failure};
use weft_models::net::Net;
use weft_models::objects::{Object, Objects, Placement, Read};
use weft_models::order::Options;
use weft_models::together::Together;

/// The vectors of this iteration and the next, which ranks write in parts.
///
/// A rank writes its part of vector `t + 1`, which may be empty, when it has read vector `t` whole,
/// so two are enough.
#[derive(Serialize, Deserialize)]
struct Vectors {
    values: [Vec<f64>; 2],
    /// The vectors that are here, and the parts of each that are written.
    iterations: [u64; 2],
    written: [usize; 2],
    /// Parts of a vector: one of each rank.
    parts: usize,
    /// Ranks that have read each vector and go on, in a simulation.
    agreed: [usize; 2],
}

#[derive(Serialize, Deserialize)]
enum Op {
    /// Writes values of an iteration's vector, from an index on.
    Set { iteration: u64, first: u32, values: Vec<f64> },
    /// Reads the vector of an iteration when it is whole.
    Whole { iteration: u64 },
    /// Says that a rank has read the vector of an iteration.
    Agree { iteration: u64 },
    /// Waits until all ranks have said so.
    Agreed { iteration: u64 },
}

impl Object for Vectors {
    type Op = Op;
    type Reply = Vec<f64>;

    fn read(&self, op: &Op) -> Read<Vec<f64>> {
        let (iteration, whole) = match op {
            Op::Whole { iteration } => (iteration, &self.written),
            Op::Agreed { iteration } => (iteration, &self.agreed),
            Op::Set { .. } | Op::Agree { .. } => return Read::Write,
        };
        let at = (*iteration % 2) as usize;
        let whole = whole[at] == self.parts;
        match self.iterations[at] == *iteration && whole {
            true if matches!(op, Op::Agreed { .. }) => Read::Value(Vec::new()),
            true => Read::Value(self.values[at].clone()),
            false => Read::Wait,
        }
    }

    fn apply(&mut self, op: Op) -> Vec<f64> {
        if let Op::Agree { iteration } = op {
            self.agreed[(iteration % 2) as usize] += 1;
        }
        if let Op::Set { iteration, first, values } = op {
            let at = (iteration % 2) as usize;
            if self.iterations[at] != iteration {
                (self.iterations[at], self.written[at], self.agreed[at]) = (iteration, 0, 0);
            }
            let first = first as usize;
            if let Some(place) = self.values[at].get_mut(first..first + values.len()) {
                place.copy_from_slice(&values);
                self.written[at] += 1;
            }
        }
        Vec::new()
    }
}

/// Solves on all ranks of a net; all call this with the same parameters and get the same result,
/// with the bits of [`sequential()`](crate::sequential()). `ns_per_product` is the time of a
/// product in a simulation, in nanoseconds; there ranks also wait for each other after each vector,
/// as in paper 004.
///
/// `progress` is called after each iteration.
///
/// # Errors
/// A rank has failed.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub async fn run<N: Net>(
    net: &N,
    params: &Params,
    ns_per_product: f64,
    progress: &dyn Fn(Step),
) -> Result<Outcome, Failure> {
    params.check().expect("parameters were checked");
    let n = params.system.len();
    // Whole panels for each rank, which compute fastest.
    let panels = owned(net.rank(), net.size(), n.div_ceil(PANEL));
    let mine = (panels.start * PANEL).min(n)..(panels.end * PANEL).min(n);
    let rows = Rows::new(&params.system, mine.clone());
    let objects = Objects::with_options(net, Options::at_once());
    let empty = || Vectors {
        values: [vec![0.0; n], vec![0.0; n]],
        iterations: [0, u64::MAX],
        written: [net.size(), 0],
        parts: net.size(),
        agreed: [0; 2],
    };
    let watch = Watch::new(net);
    let class = objects.class::<Vectors>(1);
    let vectors = watch.until(class.open(0, Placement::Replicated, empty)).await?;
    let time = net.now();
    let mut part = vec![0.0; mine.len()];
    let mut x = watch.until(vectors.call(Op::Whole { iteration: 0 })).await?;
    let (mut iterations, mut changed, mut end) = (0, f64::INFINITY, End::Limit);
    while iterations < params.max_iterations {
        rows.sweep(&x, 0, &mut part);
        let products = (mine.len() * n) as f64;
        net.compute(Duration::from_nanos((products * ns_per_product) as u64)).await;
        iterations += 1;
        let values = part.clone();
        vectors.post(&Op::Set { iteration: iterations, first: mine.start as u32, values })?;
        let new = watch.until(vectors.call(Op::Whole { iteration: iterations })).await?;
        if ns_per_product > 0.0 {
            // Section 7 of the paper: then all "synchronize to decide on convergence".
            vectors.post(&Op::Agree { iteration: iterations })?;
            watch.until(vectors.call(Op::Agreed { iteration: iterations })).await?;
        }
        let old = std::mem::replace(&mut x, new);
        changed = change(&old, &x);
        progress(Step { iterations, max_iterations: params.max_iterations, change: changed });
        if let Some(now) = End::of(changed, params.tolerance) {
            end = now;
            break;
        }
    }
    let elapsed = net.now().since(time);
    // A member of the group stays until all others have the last vector. It has all it needs, even
    // if one of them fails now.
    _ = Together::open(net, 2).barrier().await;
    let residual = params.system.residual(&x);
    let checksum = digest(0, x.iter().map(|x| x.to_bits()));
    let ranks = net.size();
    Ok(Outcome { x, ranks, iterations, change: changed, end, residual, checksum, elapsed })
}
