//! The progress of a benchmark: a bar on a terminal, and a line for each measurement of long ones.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Returns a bar of `steps` steps, with the current step and the time left.
pub fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (about {eta} left)");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// A bar over several measurements; it appears with the first step and disappears with the last.
#[derive(Default)]
pub struct Plan {
    bar: Option<ProgressBar>,
    steps: usize,
    done: usize,
}

impl Plan {
    /// Returns a plan of `steps` steps.
    pub fn of(steps: usize) -> Plan {
        Plan { bar: None, steps, done: 0 }
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
        bar.set_message(what);
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
}
