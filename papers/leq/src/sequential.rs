//! The sequential program.

use crate::rows::{change, Rows};
use crate::{End, Outcome, Params, Step};
use std::time::Instant;
use weft_apps::{digest, Stopped};

/// Solves on one processor, without messages.
///
/// `progress` is called after each iteration.
///
/// # Errors
/// `progress` stopped the run.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub fn sequential(
    params: &Params,
    progress: &dyn Fn(Step) -> Result<(), Stopped>,
) -> Result<Outcome, Stopped> {
    params.check().expect("parameters were checked");
    let n = params.system.len();
    let rows = Rows::new(&params.system, 0..n);
    let start = Instant::now();
    let (mut old, mut x) = (vec![0.0; n], vec![0.0; n]);
    let (mut iterations, mut changed, mut end) = (0, f64::INFINITY, End::Limit);
    while iterations < params.max_iterations {
        std::mem::swap(&mut old, &mut x);
        rows.sweep(&old, 0, &mut x);
        changed = change(&old, &x);
        iterations += 1;
        progress(Step { iterations, max_iterations: params.max_iterations, change: changed })?;
        if let Some(now) = End::of(changed, params.tolerance) {
            end = now;
            break;
        }
    }
    let elapsed = start.elapsed();
    let residual = params.system.residual(&x);
    let checksum = digest(0, x.iter().map(|x| x.to_bits()));
    Ok(Outcome { x, ranks: 1, iterations, change: changed, end, residual, checksum, elapsed })
}
