//! The sequential program.

use crate::matrix::Block;
use crate::{Outcome, Params};
use std::time::Instant;

/// Computes all distances on one processor, without messages: the reference for
/// [`run`](crate::run).
///
/// `progress` is called with the steps done and their number.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub fn sequential(params: &Params, progress: &dyn Fn(u64, u64)) -> Outcome {
    params.check(1).expect("parameters were checked");
    let (nodes, graph) = (params.graph.nodes, &params.graph);
    let mut block = Block::new(0..nodes, nodes);
    for arc in &graph.arcs {
        block.add(*arc);
    }
    let start = Instant::now();
    let mut pivot = vec![0; nodes];
    for k in 0..nodes {
        pivot.copy_from_slice(block.row(k));
        block.relax(k, &pivot, 0..nodes);
        progress(k as u64 + 1, nodes as u64);
    }
    let elapsed = start.elapsed();
    let kept = params.kept_rows().expect("parameters were checked");
    Outcome {
        nodes,
        arcs: graph.arcs.len(),
        first_id: graph.first_id,
        ranks: 1,
        summary: block.summary(),
        checksum: block.digest(),
        elapsed,
        rows: kept.into_iter().map(|row| (row, block.row(row as usize).to_vec())).collect(),
    }
}
