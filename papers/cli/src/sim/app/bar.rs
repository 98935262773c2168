//! The progress of a program, shown by a bar.

use crate::app::{Convergence, Progress};
use weft_apps::Stopped;

/// A place in a program's work.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Steps done, and most steps.
    pub done: u64,
    pub of: u64,
    /// The change of the last step, for programs that end when it is small.
    pub change: f64,
}

impl Mark {
    /// The place of a program that does all steps.
    pub fn steps(done: u64, of: u64) -> Mark {
        Mark { done, of, change: 0.0 }
    }
}

/// A bar of steps, or of a change that falls.
pub enum Bar {
    Steps(Progress),
    Change(Convergence),
}

impl Bar {
    /// Returns a bar of the work named `what`, which ends when its change is below the tolerance,
    /// if it has one.
    pub fn new(what: String, tolerance: Option<f64>) -> Bar {
        match tolerance {
            None => Bar::Steps(Progress::new(0, what)),
            Some(tolerance) => Bar::Change(Convergence::new(0, what, tolerance)),
        }
    }

    /// Shows a place.
    pub fn at(&self, mark: Mark) {
        match self {
            Bar::Steps(bar) => bar.at(mark.done, mark.of),
            Bar::Change(bar) => bar.at(mark.done, mark.of, mark.change),
        }
    }

    /// Shows a place to a program that its caller could stop.
    pub fn told(&self, mark: Mark) -> Result<(), Stopped> {
        self.at(mark);
        Ok(())
    }
}
