//! The program over any net: rows go by multicasts, also on the simulated
//! clusters of 2004.

use crate::matrix::Block;
use crate::parallel::{decode, encode, read_number, Turns, Worker, LOOKAHEAD};
use crate::pipe::{both, Pipe};
use crate::{Outcome, Params, Summary};
use std::future::Future;
use std::time::Duration;
use weft_apps::{owned, owner_of, Casts};
use weft_models::net::{Net, RankFailure};
use weft_models::together::Together;

struct Over<'a, N>(&'a N);

impl<N: Net> Turns for Over<'_, N> {
    fn turn(&self) -> impl Future<Output = ()> {
        self.0.yield_now()
    }

    fn pass(&self, time: Duration) -> impl Future<Output = ()> {
        self.0.compute(time)
    }
}

/// Computes all distances on all ranks of a net, as [`run`](crate::run) does in a group; all call
/// this with the same parameters.
///
/// # Errors
/// A rank has failed.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub async fn run_over<N: Net>(
    net: &N,
    params: &Params,
    progress: &dyn Fn(u64, u64),
) -> Result<Outcome, RankFailure> {
    let (rank, ranks, nodes) = (net.rank(), net.size(), params.graph.nodes);
    params.check(ranks).expect("parameters were checked");
    let kept = params.kept_rows().expect("parameters were checked");
    let mut block = Block::new(owned(rank, ranks, nodes), nodes);
    params.graph.arcs.iter().for_each(|arc| _ = block.add(*arc));
    let together = Together::open(net, 0);
    let casts = Casts::open(net, 0).await?;
    together.barrier().await?;
    let time = net.now();
    let (ready, arrived) = (Pipe::new(LOOKAHEAD), Pipe::new(LOOKAHEAD));
    let turns = Over(net);
    let mut worker = Worker {
        turns: &turns,
        block: &mut block,
        nodes,
        ns_per_cell: params.ns_per_cell,
        ready: &ready,
        arrived: &arrived,
    };
    let communicate = async {
        for k in 0..nodes {
            let owner = owner_of(k, ranks, nodes);
            if owner == rank {
                casts.send(k as u64, &ready.pop().await).await?;
            } else {
                arrived.push(casts.receive(owner, k as u64).await?).await;
            }
        }
        Ok(())
    };
    both(communicate, worker.compute(progress)).await?;
    let elapsed = net.now().since(time);
    let mine = figures(block.summary(), block.digest());
    let join = |all: Vec<u8>, other: &[u8]| {
        let (a, b) = (split(&all), split(other));
        figures(a.0.merge(b.0), a.1.wrapping_add(b.1))
    };
    let (summary, checksum) = split(&together.reduce(mine, join).await?);
    let mut rows = Vec::new();
    for source in kept {
        let owner = owner_of(source as usize, ranks, nodes);
        let own = if owner == rank { encode(block.row(source as usize)) } else { Vec::new() };
        let bytes = together.broadcast(owner, own).await?;
        if rank == 0 {
            let mut row = vec![0; nodes];
            decode(&bytes, &mut row);
            rows.push((source, row));
        }
    }
    // A rank stays until all others have what it sent.
    together.barrier().await?;
    let (arcs, first_id) = (params.graph.arcs.len(), params.graph.first_id);
    Ok(Outcome { nodes, arcs, first_id, ranks, summary, checksum, elapsed, rows })
}

fn figures(summary: Summary, digest: u64) -> Vec<u8> {
    [summary.encode(), digest.to_le_bytes().to_vec()].concat()
}

fn split(bytes: &[u8]) -> (Summary, u64) {
    (Summary::decode(bytes), read_number(bytes.get(Summary::BYTES..).unwrap_or_default()))
}
