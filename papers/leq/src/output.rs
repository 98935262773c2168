//! Results for people.

use crate::{End, Outcome};
use std::io::{self, Write};

/// Returns a summary for people, one screen, lines ended by `\n`.
pub fn report(outcome: &Outcome) -> String {
    let o = outcome;
    let n = o.x.len();
    let seconds = o.elapsed.as_secs_f64();
    let rate = (n as f64).powi(2) * o.iterations as f64 / seconds.max(1e-9) / 1e6;
    let end = match o.end {
        End::Converged => "converged",
        End::Limit => "iteration limit reached",
        End::Diverged => "diverged: the diagonal is too small for this method",
    };
    format!(
        "LEQ, {n} equations, {} rank{}\n\
         iterations       {} ({end})\n\
         last change      {:.3e}, summed over all unknowns\n\
         residual         {:.3e}, the worst equation's\n\
         last unknown     {:.9e}\n\
         time             {seconds:.3} s, {rate:.1} million coefficients/s\n\
         checksum         {:016x}\n",
        o.ranks,
        if o.ranks == 1 { "" } else { "s" },
        o.iterations,
        o.change,
        o.residual,
        o.x.last().copied().unwrap_or_default(),
        o.checksum,
    )
}

/// Writes the unknowns as lines `index,x`, indices from 1; reading the numbers gives the same bits.
///
/// # Errors
/// The writer failed. It is not buffered here.
pub fn write_solution(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    writeln!(to, "index,x")?;
    outcome.x.iter().zip(1..).try_for_each(|(x, index)| writeln!(to, "{index},{x:e}"))
}

/// Writes the figures of the run as lines `name,value`; the names are the same in all releases.
///
/// # Errors
/// The writer failed.
pub fn write_summary(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let end = outcome.end.name();
    writeln!(to, "name,value")?;
    writeln!(to, "equations,{}", outcome.x.len())?;
    writeln!(to, "iterations,{}", outcome.iterations)?;
    writeln!(to, "end,{end}")?;
    writeln!(to, "change,{:e}", outcome.change)?;
    writeln!(to, "residual,{:e}", outcome.residual)?;
    writeln!(to, "checksum,{:016x}", outcome.checksum)
}
