//! The progress of a benchmark, on the standard error: a bar on a terminal, else a line for each
//! part; and a line for each measurement of long ones.

use console::Term;
use indicatif::ProgressBar;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weft_run::bars;

/// Least time between two lines, so that short parts do not fill a log.
const LINES: Duration = Duration::from_secs(2);
/// The time of the last line of this process.
static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Returns a bar of `steps` steps, with the current step and the time left.
pub fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    bars::form(&bar, "{bar:20} {pos}/{len} ({left}) {wide_msg}");
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// True if so much time has passed since the last line that another one may follow now.
fn is_due(last: &Mutex<Option<Instant>>, now: Instant) -> bool {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let due = last.is_none_or(|last| now.saturating_duration_since(last) >= LINES);
    if due {
        *last = Some(now);
    }
    due
}

/// Returns the part of the measurement that a step belongs to: its text up to the first colon.
fn part_of(step: &str) -> &str {
    step.split_once(": ").map_or(step, |(part, _)| part)
}

/// Columns of a bar that are no message.
const FRAME: usize = 48;

/// Returns the first words of a message that fit beside the bar in a terminal of this width.
pub fn fit(message: &str, width: usize) -> String {
    let room = width.saturating_sub(FRAME);
    let mut text = String::new();
    for word in message.split(' ') {
        let gap = usize::from(!text.is_empty());
        if text.chars().count() + gap + word.chars().count() > room {
            break;
        }
        text += &" "[..gap];
        text += word;
    }
    text
}

/// A bar over several measurements; it appears with the first step and disappears with the last.
/// Without a terminal, each part has a line.
#[derive(Default)]
pub struct Plan {
    bar: Option<ProgressBar>,
    /// The part that the last line named.
    part: String,
    steps: usize,
    done: usize,
}

impl Plan {
    /// Returns a plan of `steps` steps.
    pub fn of(steps: usize) -> Plan {
        Plan { bar: None, part: String::new(), steps, done: 0 }
    }

    /// Raises the number of remaining steps to at least `steps`.
    pub fn expect(&mut self, steps: usize) {
        self.steps = self.steps.max(self.done + steps);
    }

    /// Shows the name of the next step.
    pub fn show(&mut self, what: String) {
        self.expect(1);
        let steps = self.steps as u64;
        let bar = self.bar.get_or_insert_with(|| bar(self.steps));
        if bar.length() != Some(steps) {
            bar.set_length(steps);
        }
        if bar.is_hidden() {
            self.say(&what);
        } else {
            bar.set_message(fit(&what, usize::from(Term::stderr().size().1)));
        }
    }

    /// Writes a line if a step belongs to another part than the last line.
    fn say(&mut self, what: &str) {
        let part = part_of(what);
        if self.part != part && is_due(&LAST, Instant::now()) {
            self.part = part.into();
            eprintln!("weft bench: {part}: step {} of {}", self.done + 1, self.steps);
        }
    }

    /// Says on the standard error what was measured: tables of long benchmarks come at the end.
    pub fn tell(&self, measured: &str) {
        let say = || eprintln!("weft bench: {measured}");
        match &self.bar {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    /// Returns the number of steps done.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Sets the number of steps done.
    pub fn at(&mut self, done: usize) {
        self.done = done;
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
        }
        if self.done >= self.steps {
            *self = Plan::default();
        }
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn plan__grows_where_it_was_too_short_and_starts_anew_after_the_last_step() {
        let mut plan = Plan::of(2);
        for step in 0..2 {
            plan.show(format!("step {step}"));
            assert_eq!((plan.done(), plan.steps), (step, 2));
            plan.at(step + 1);
        }
        assert_eq!((plan.done(), plan.steps), (0, 0));
        plan.expect(3);
        plan.at(1);
        plan.expect(5);
        assert_eq!((plan.done(), plan.steps), (1, 6));
    }

    #[test]
    fn fit__no_word_is_cut() {
        assert_eq!(
            fit("mx over auto, MX, one way, 4K B: tcp", 80),
            "mx over auto, MX, one way, 4K B:"
        );
        assert_eq!(fit("mx over auto", 200), "mx over auto");
        assert_eq!(fit("mx over auto", 10), "");
    }

    #[test]
    fn part_of__the_steps_of_a_part_have_its_name() {
        for (step, part) in
            [("mx, 16 B: tcp", "mx, 16 B"), ("idle connections", "idle connections")]
        {
            assert_eq!(part_of(step), part);
        }
    }

    #[test]
    fn is_due__again_after_a_while() {
        let (last, begin) = (Mutex::new(None), Instant::now());
        let at = |ms| is_due(&last, begin + Duration::from_millis(ms));
        assert_eq!([at(0), at(1999), at(2000), at(3999)], [true, false, true, false]);
    }
}
