//! The parallel program: a reduction finds each pivot, and a multicast of its owner has the
//! reflection.

use crate::{Candidate, Column, Columns, Outcome, Params, Reflector, Step};
use std::time::Duration;
use weft_apps::Casts;
use weft_models::net::{Net, RankFailure};
use weft_models::together::Together;

/// Factors on all ranks of a net; all call this with the same parameters and get the same result,
/// with the bits of [`sequential()`](crate::sequential()). Column `j` belongs to rank `j` modulo
/// their number. `ns_per_value` is the time of reflecting a value in a simulation, in nanoseconds.
///
/// `progress` is called after each step.
///
/// # Errors
/// A rank has failed.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub async fn run<N: Net>(
    net: &N,
    params: &Params,
    ns_per_value: f64,
    progress: &dyn Fn(Step),
) -> Result<Outcome, RankFailure> {
    params.check().expect("parameters were checked");
    let (rank, ranks) = (net.rank(), net.size());
    // On the simulated clusters results of reductions are broadcast, as in paper 004.
    let together = match ns_per_value > 0.0 {
        true => Together::with_multicast(net, 0),
        false => Together::with_exchange(net, 0),
    };
    let casts = Casts::open(net, 0).await?;
    let mut columns = Columns::new(&params.matrix, rank, ranks);
    let of = columns.steps();
    together.barrier().await?;
    let time = net.now();
    for step in 0..of {
        let mine = encode(columns.candidate());
        let best = together.reduce(mine, |all, other| encode(better(&all, other))).await?;
        let pivot = decode(&best).expect("a column is left in each step").column;
        let owner = pivot % ranks;
        let reflector = if owner == rank {
            let own = columns.reflect(pivot, step);
            casts.send(step as u64, &own.to_bytes()).await?;
            own
        } else {
            Reflector::from_bytes(step, pivot, &casts.receive(owner, step as u64).await?)
        };
        let values = columns.apply(&reflector);
        net.compute(Duration::from_nanos((values as f64 * ns_per_value) as u64)).await;
        progress(Step { steps: step + 1, of });
    }
    let elapsed = net.now().since(time);
    let mut mine = columns.into_columns().into_iter();
    let mut all = Vec::with_capacity(params.matrix.cols);
    for index in 0..params.matrix.cols {
        let owner = index % ranks;
        let number = (of + index) as u64;
        let own = if owner == rank { mine.next() } else { None };
        all.push(match own {
            Some(own) => {
                casts.send(number, &own.to_bytes()).await?;
                own
            }
            None => Column::from_bytes(index, &casts.receive(owner, number).await?),
        });
    }
    // A rank stays until all others have the last column.
    together.barrier().await?;
    let checksum = Columns::digest_of(params.matrix.rows, &all);
    let factors = Columns::factors(&params.matrix, all);
    Ok(Outcome { factors, ranks, checksum, elapsed })
}

/// A candidate as bytes; none for no candidate.
fn encode(candidate: Option<Candidate>) -> Vec<u8> {
    let Some(Candidate { norm, column }) = candidate else { return Vec::new() };
    [norm.to_bits(), column as u64].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Option<Candidate> {
    let [norm, column] = bytes.as_chunks::<8>().0 else { return None };
    let column = u64::from_le_bytes(*column) as usize;
    Some(Candidate { norm: f64::from_le_bytes(*norm), column })
}

fn better(a: &[u8], b: &[u8]) -> Option<Candidate> {
    match (decode(a), decode(b)) {
        (Some(a), Some(b)) => Some(a.better(b)),
        (a, b) => a.or(b),
    }
}
