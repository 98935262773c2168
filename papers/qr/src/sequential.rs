//! The sequential program.

use crate::{Columns, Outcome, Params, Step};
use std::time::Instant;
use weft_apps::Stopped;

/// Factors on one processor, without messages.
///
/// `progress` is called after each step.
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
    let start = Instant::now();
    let mut columns = Columns::new(&params.matrix, 0, 1);
    let of = columns.steps();
    for step in 0..of {
        let pivot = columns.candidate().expect("a column is left in each step");
        let reflector = columns.reflect(pivot.column, step);
        columns.apply(&reflector);
        progress(Step { steps: step + 1, of })?;
    }
    let elapsed = start.elapsed();
    let checksum = columns.digest();
    let factors = Columns::factors(&params.matrix, columns.into_columns());
    Ok(Outcome { factors, ranks: 1, checksum, elapsed })
}
