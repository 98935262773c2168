//! Results for people. R itself is written by [`Matrix::write_market`](weft_apps::Matrix).

use crate::Outcome;
use std::io::{self, Write};

/// Returns a summary for people, one screen, lines ended by `\n`. `error` is that of
/// [`Factors::error`](crate::Factors::error), which takes as long as the run.
pub fn report(outcome: &Outcome, error: Option<f64>) -> String {
    let o = outcome;
    let (rows, cols) = (o.factors.rows(), o.factors.cols());
    let seconds = o.elapsed.as_secs_f64();
    let (long, short) = (rows.max(cols) as f64, rows.min(cols) as f64);
    let operations = 2.0 * short * short * (long - short / 3.0);
    let diagonal = o.factors.diagonal();
    let ends = [diagonal.first(), diagonal.last()].map(|value| value.map_or(0.0, |v| v.abs()));
    let error = error.map_or(String::new(), |e| format!("|AP - QR| / |A|  {e:.3e}\n"));
    format!(
        "QR, {rows} x {cols} doubles, {} rank{}\n\
         independent      {} columns\n\
         diagonal of R    {:.6e} to {:.6e}\n\
         {error}\
         time             {seconds:.3} s, {:.1} million operations/s\n\
         checksum         {:016x}\n",
        o.ranks,
        if o.ranks == 1 { "" } else { "s" },
        o.factors.rank(),
        ends[0],
        ends[1],
        operations / seconds.max(1e-9) / 1e6,
        o.checksum,
    )
}

/// Writes a line `step,column,diagonal` for each step: the column of the matrix that it took, from
/// 1, and its value on R's diagonal.
///
/// # Errors
/// The writer failed. It is not buffered here.
pub fn write_diagonal(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    writeln!(to, "step,column,diagonal")?;
    let steps = outcome.factors.order().iter().zip(outcome.factors.diagonal());
    steps
        .zip(1..)
        .try_for_each(|((column, value), step)| writeln!(to, "{step},{},{value:e}", column + 1))
}

/// Writes the figures of the run as lines `name,value`; the names are the same in all releases.
///
/// # Errors
/// The writer failed.
pub fn write_summary(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    writeln!(to, "name,value")?;
    writeln!(to, "rows,{}", outcome.factors.rows())?;
    writeln!(to, "columns,{}", outcome.factors.cols())?;
    writeln!(to, "rank,{}", outcome.factors.rank())?;
    writeln!(to, "checksum,{:016x}", outcome.checksum)
}
