//! The source of time: the system's monotonic clock, or the simulator.

#[allow(unsafe_code)]
mod sys;

use std::cell::Cell;
use std::rc::Rc;
use weft_core::Instant;

/// A source of time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// Monotonic time since the clock was made; the value is the time of making, in nanoseconds.
    System(u64),
    /// Virtual time in nanoseconds, advanced by a simulator.
    Virtual(Rc<Cell<u64>>),
}

impl Clock {
    /// Returns the system's monotonic clock, which starts at zero now.
    pub fn system() -> Clock {
        Clock::System(sys::monotonic_ns())
    }

    /// Returns the time now.
    #[inline]
    pub fn now(&self) -> Instant {
        match self {
            Clock::System(origin) => Instant(sys::monotonic_ns().saturating_sub(*origin)),
            Clock::Virtual(ns) => Instant(ns.get()),
        }
    }

    /// True if time passes only when a simulator advances it.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Clock::Virtual(_))
    }
}
