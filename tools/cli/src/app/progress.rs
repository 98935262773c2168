//! A progress bar for rank 0, shown only on a terminal.

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::fs::File;
use std::io::IsTerminal;
use weft_run::run::WATCHED;

/// A progress bar, or nothing where no person would see it.
pub struct Progress(ProgressBar);

/// A progress bar of iterations that end when the change of one falls below a tolerance. Its scale
/// is logarithmic, because the logarithm of the change falls evenly.
pub struct Convergence {
    bar: ProgressBar,
    what: &'static str,
    tolerance: f64,
    /// The largest change so far, which is the left end of the bar.
    first: Cell<f64>,
}

/// Number of steps of such a bar.
const WAY: u64 = 1000;

fn target(rank: usize) -> ProgressDrawTarget {
    if rank != 0 {
        return ProgressDrawTarget::hidden();
    }
    if std::io::stderr().is_terminal() {
        return ProgressDrawTarget::stderr();
    }
    let open = || File::options().read(true).write(true).open("/dev/tty");
    match (std::env::var_os(WATCHED), open(), open()) {
        (Some(_), Ok(input), Ok(output)) => {
            ProgressDrawTarget::term(Term::read_write_pair(input, output), 10)
        }
        _ => ProgressDrawTarget::hidden(),
    }
}

impl Progress {
    /// Returns a bar of rank `rank` for the work named `what`.
    pub fn new(rank: usize, what: &'static str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), target(rank));
        let template = "{msg} {bar:32} {pos}/{len} {elapsed}, {eta} left at most";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress(bar.with_message(what))
    }

    /// Shows that `done` of at most `total` steps are done.
    pub fn at(&self, done: u64, total: u64) {
        if self.0.length() != Some(total) {
            self.0.set_length(total);
        }
        self.0.set_position(done);
    }
}

impl Convergence {
    /// Returns a bar of rank `rank` for the work named `what`.
    pub fn new(rank: usize, what: &'static str, tolerance: f64) -> Convergence {
        let bar = ProgressBar::with_draw_target(Some(WAY), target(rank));
        let template = "{msg} {bar:32} {percent:>3}% {elapsed}, about {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Convergence { bar: bar.with_message(what), what, tolerance, first: Cell::new(0.0) }
    }

    /// Shows that iteration `done` of at most `most` changed something by `change`.
    pub fn at(&self, done: u64, most: u64, change: f64) {
        if self.bar.is_hidden() {
            return;
        }
        self.first.set(self.first.get().max(change));
        let share = share(done, most, change, (self.first.get(), self.tolerance));
        self.bar.set_position((share * WAY as f64) as u64);
        let Convergence { what, tolerance, .. } = self;
        let goal = if *tolerance > 0.0 { format!(", ends at {tolerance}") } else { String::new() };
        self.bar.set_message(format!("{what}: iteration {done}, change {change:.2e}{goal}"));
    }
}

/// Returns the share of the work that is done: the larger of two shares, `log(first / change) /
/// log(first / tolerance)` and `done / most`.
fn share(done: u64, most: u64, change: f64, (first, tolerance): (f64, f64)) -> f64 {
    let counted = done as f64 / most.max(1) as f64;
    let whole = (first / tolerance).ln();
    let fallen = (first / change.max(tolerance)).ln();
    let converged = if whole > 0.0 && whole.is_finite() { fallen / whole } else { 0.0 };
    counted.max(converged).clamp(0.0, 1.0)
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Convergence {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn share__is_that_of_the_logarithm_or_of_the_iterations() {
        let at = |done, change| share(done, 10_000, change, (10.0, 1e-3));
        assert_eq!(at(1, 10.0), 1e-4);
        assert!((at(100, 0.1) - 0.5).abs() < 1e-9, "half of four decades");
        assert_eq!(at(2400, 1e-3), 1.0);
        assert_eq!(at(9000, 10.0), 0.9, "the iterations run out first");
        for (first, tolerance) in [(10.0, 0.0), (0.0, 0.0), (0.0, 1e-3), (1e-4, 1e-3)] {
            let share = share(1, 4, first, (first, tolerance));
            assert_eq!(share, 0.25, "no way to go by: {first} to {tolerance}");
        }
    }
}
