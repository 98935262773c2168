//! Packet sequence numbers with serial-number arithmetic (RFC 1982).

use core::fmt;

/// A 32-bit sequence number that wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Returns the number `n` later.
    pub fn plus(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }

    /// Returns the number after this one.
    pub fn next(self) -> Seq {
        self.plus(1)
    }

    /// Returns the distance from `base` to `self`, modulo 2^32.
    pub fn distance_from(self, base: Seq) -> u32 {
        self.0.wrapping_sub(base.0)
    }

    /// Returns true if `self` comes before `other`, for numbers less than 2^31 apart.
    pub fn before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}
