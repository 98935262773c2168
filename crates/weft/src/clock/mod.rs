//! The source of time: the system's monotonic clock, or the simulator.

#[allow(unsafe_code)]
mod sys;

use std::cell::Cell;
use std::rc::Rc;
use weft_core::Instant;

/// Moments of about a tenth of a millisecond, by a counter that is cheaper to read than the clock.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    /// Ticks at which the current one began, and the ticks of each.
    began: u64,
    each: u64,
}

impl Default for Moments {
    fn default() -> Moments {
        Moments::new()
    }
}

impl Moments {
    /// Begins a moment.
    pub fn new() -> Moments {
        Moments { began: sys::ticks(), each: sys::ticks_of_a_moment() }
    }

    /// True if the moment is over: then another one begins.
    #[inline]
    pub fn is_over(&mut self) -> bool {
        let now = sys::ticks();
        // The counter of another processor may be behind.
        let over = now.wrapping_sub(self.began) >= self.each;
        if over {
            self.began = now;
        }
        over
    }
}

/// Returns the time since the host has started. It goes on while the host is suspended, where the
/// monotonic clock stands still.
pub fn boot_time() -> Instant {
    Instant(sys::boot_ns())
}

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
