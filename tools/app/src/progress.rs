//! A progress bar for rank 0, shown only on a terminal.

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use weft_run::bars;
use weft_run::run::WATCHED;

/// A progress bar; nothing, or lines, where no person would see it.
pub struct Progress {
    bar: ProgressBar,
    /// The time of the last line, for work that says its progress without a terminal as well.
    told: Option<Cell<Instant>>,
}

/// A progress bar of iterations that end when the change of one falls below a tolerance. Its scale
/// is logarithmic, because the logarithm of the change falls evenly.
pub struct Convergence {
    bar: ProgressBar,
    what: Cow<'static, str>,
    tolerance: f64,
    /// The largest change so far, which is the left end of the bar.
    first: Cell<f64>,
}

/// A progress bar of work of which shares are known, with the time that the rest takes at the mean
/// speed so far.
pub struct Whole {
    bar: ProgressBar,
    start: Instant,
}

/// A progress bar of searches of which each takes a multiple of the one before.
pub struct Deepening {
    whole: Whole,
    what: &'static str,
    /// Time of each search.
    spans: RefCell<Vec<f64>>,
}

/// Number of steps of such bars.
const WAY: u64 = 1000;

/// Least time between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(5);

/// Returns a time in words.
fn in_words(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{:.0} s", s.max(1.0)),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}

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
    pub fn new(rank: usize, what: impl Into<Cow<'static, str>>) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), target(rank));
        bars::form(&bar, "{msg} {bar:32} {pos}/{len} {elapsed}, {left}");
        Progress { bar: bar.with_message(what), told: None }
    }

    /// Returns a bar of this process for the work named `what`; without a terminal, lines say how
    /// far it is.
    pub fn told(what: &'static str) -> Progress {
        let mut bar = Progress::new(0, what);
        bar.bar.enable_steady_tick(Duration::from_millis(500));
        bar.told = Some(Cell::new(Instant::now()));
        bar
    }

    /// Shows that `done` of at most `total` steps are done.
    pub fn at(&self, done: u64, total: u64) {
        if self.bar.length() != Some(total) {
            self.bar.set_length(total);
        }
        self.bar.set_position(done);
        let Some(told) = self.told.as_ref().filter(|_| self.bar.is_hidden()) else { return };
        if done == 0 || told.get().elapsed() >= LINES {
            told.set(Instant::now());
            eprintln!("{}: {done} of {total}", self.bar.message());
        }
    }
}

impl Whole {
    /// Returns a bar of rank `rank`.
    pub fn new(rank: usize) -> Whole {
        let bar = ProgressBar::with_draw_target(Some(WAY), target(rank));
        bars::form(&bar, "{prefix} {bar:12} {percent:>3}% {elapsed}, {wide_msg}");
        Whole { bar, start: Instant::now() }
    }

    /// Shows that this share of the work `what` is done.
    pub fn at(&self, what: String, share: f64) {
        let took = self.start.elapsed().as_secs_f64();
        let left = if share * (WAY as f64) < 1.0 {
            String::new() // Too little is done to say how long the rest takes.
        } else {
            format!("about {} left", in_words(rest(took, share)))
        };
        self.show(what, share, left);
    }

    fn show(&self, what: String, share: f64, message: String) {
        self.bar.set_prefix(what);
        self.bar.set_position((share.clamp(0.0, 1.0) * WAY as f64) as u64);
        self.bar.set_message(message);
    }
}

/// Returns the time of the rest, at the mean speed so far.
fn rest(took: f64, share: f64) -> f64 {
    took * (1.0 - share).max(0.0) / share.max(1e-9)
}

impl Deepening {
    /// Returns a bar of rank `rank` for the work named `what`.
    pub fn new(rank: usize, what: &'static str) -> Deepening {
        Deepening { whole: Whole::new(rank), what, spans: RefCell::default() }
    }

    /// Shows that a search has ended in vain, and that so many follow, if that is known.
    pub fn at(&self, depth: u64, left: Option<usize>) {
        let mut spans = self.spans.borrow_mut();
        let took = self.whole.start.elapsed().as_secs_f64();
        let before: f64 = spans.iter().sum();
        spans.push((took - before).max(0.0));
        let (next, all) = expected(&spans, left.unwrap_or(1));
        let what = format!("{}: more than {depth} moves", self.what);
        let message = match left {
            Some(_) => format!("at most about {} left", in_words(all)),
            None => format!("the next search takes about {}", in_words(next)),
        };
        self.whole.show(what, took / (took + all).max(1e-9), message);
    }
}

/// Returns the time of the next search, and of `left` searches from that one on, after searches of
/// these times. The growth is that of the last two which can be measured.
fn expected(spans: &[f64], left: usize) -> (f64, f64) {
    /// Growth of searches of the 15-puzzle, on average.
    const USUAL: f64 = 6.0;
    /// Shorter searches say nothing about growth.
    const SHORTEST: f64 = 0.01;
    let last = spans.last().copied().unwrap_or(0.0);
    let growth = match spans {
        [.., before, last] if *before >= SHORTEST => (last / before).clamp(1.5, 20.0),
        _ => USUAL,
    };
    let steps = (1..=left.min(40)).map(|step| last * growth.powi(step as i32));
    (last * growth, steps.sum())
}

impl Convergence {
    /// Returns a bar of rank `rank` for the work named `what`.
    pub fn new(rank: usize, what: impl Into<Cow<'static, str>>, tolerance: f64) -> Convergence {
        let what = what.into();
        let bar = ProgressBar::with_draw_target(Some(WAY), target(rank));
        bars::form(&bar, "{bar:16} {percent:>3}% {elapsed}, {left}  {wide_msg}");
        Convergence { bar: bar.with_message(what.clone()), what, tolerance, first: Cell::new(0.0) }
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
        self.bar.finish_and_clear();
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
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
    fn rest__is_the_time_at_the_mean_speed() {
        assert_eq!(rest(10.0, 0.5), 10.0);
        assert_eq!(rest(10.0, 1.0), 0.0);
        assert!(rest(1.0, 0.0) > 1e6, "nobody knows yet");
    }

    #[test]
    fn expected__grows_as_the_last_searches_did() {
        assert_eq!(expected(&[0.1, 0.5], 1), (2.5, 2.5));
        assert_eq!(expected(&[0.1, 0.5], 2), (2.5, 15.0));
        assert_eq!(expected(&[1e-6, 0.5], 1), (3.0, 3.0), "too short to go by");
        assert_eq!(expected(&[0.5, 0.5], 0), (0.75, 0.0));
        assert_eq!(expected(&[], 3), (0.0, 0.0));
    }

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
