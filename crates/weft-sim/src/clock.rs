//! Virtual time.

use std::cell::Cell;
use std::rc::Rc;
use weft_core::Instant;

/// The clock of one simulated host: nanoseconds since the simulation began.
///
/// Each host has its own, because a host that computes runs ahead of the network: each frame
/// advances its clock by the frame's cost, and the host's next event is not earlier.
#[derive(Clone, Debug, Default)]
pub struct SimClock(Rc<Cell<u64>>);

impl SimClock {
    /// Creates a clock that reads zero.
    pub fn new() -> SimClock {
        SimClock::default()
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        Instant(self.0.get())
    }

    /// Moves it forward to `ns`; it never goes back.
    pub fn reach(&self, ns: u64) {
        self.0.set(self.0.get().max(ns));
    }

    /// Moves it forward by `ns`: the host spent that much processor time.
    pub fn spend(&self, ns: u64) {
        self.0.set(self.0.get().saturating_add(ns));
    }

    /// Returns the cell that contains the time, for an endpoint.
    pub fn cell(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.0)
    }
}
