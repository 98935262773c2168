//! The sequential program.

use crate::grid::{digest_edges, Block, Colour, Grid};
use crate::{Outcome, Params, Step};
use std::time::Instant;

/// Solves on one processor, without messages: the reference for [`run`](crate::run).
///
/// `progress` is called after each iteration.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub fn sequential(params: &Params, progress: &dyn Fn(Step)) -> Outcome {
    params.check().expect("parameters were checked");
    let (rows, cols, omega) = (params.rows, params.cols, params.effective_omega());
    let mut block = Block::new(1..rows - 1, cols);
    let start = Instant::now();
    let (mut iterations, mut residual, mut converged) = (0, 0.0f64, false);
    while iterations < params.max_iterations && !converged {
        let red = block.relax(Colour::Red, 1..rows - 1, omega);
        residual = red.max(block.relax(Colour::Black, 1..rows - 1, omega));
        converged = residual < params.tolerance;
        iterations += 1;
        progress(Step { iterations, max_iterations: params.max_iterations, residual });
    }
    let elapsed = start.elapsed();
    let grid = params.keep_grid.then(|| {
        let mut values = vec![0.0; rows * cols];
        for (local, row) in values.chunks_exact_mut(cols).enumerate() {
            block.copy_row(local, row);
        }
        Grid { rows, cols, values }
    });
    let checksum = block.digest().wrapping_add(digest_edges(rows, cols));
    Outcome { checksum, elapsed, grid, ..params.outcome(1, iterations, residual) }
}
