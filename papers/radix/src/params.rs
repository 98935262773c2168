//! Parameters of a run and their checks.

use crate::keys::{Generator, SEED};
use std::fmt;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Params {
    /// The keys. Default: 3,000,000 as in paper 004, of Splash's generator, below 2^26 (its
    /// program's default; the paper does not say the range).
    pub keys: Vec<u32>,
    /// Values of a digit: a power of two from 2 to 65536. Default 128, as in paper 004.
    pub radix: u32,
}

impl Default for Params {
    fn default() -> Params {
        Params { keys: Generator::new(0, 1 << 26, SEED).take(3_000_000).collect(), radix: 128 }
    }
}

/// Bytes of a region beside its keys on a rank that has it mapped: a little more than the 571 that
/// were measured.
const REGION: u128 = 600;

/// Returns the bytes that a run with so many keys, of which a region has `region`, takes on a rank:
/// all keys before and after, those of both arrays, and the regions of both.
pub fn bytes_needed(keys: usize, region: usize) -> u128 {
    let (keys, regions) = (keys as u128, keys.div_ceil(region.max(1)) as u128);
    keys * 5 * size_of::<u32>() as u128 + 2 * regions * REGION
}

/// The reason why parameters were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamsError {
    /// The radix is not a power of two from 2 to 65536.
    Radix(u32),
    /// More keys than places have numbers.
    TooMany(usize),
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamsError::Radix(r) => {
                write!(f, "radix {r} is not a power of two from 2 to 65536")
            }
            ParamsError::TooMany(n) => write!(f, "{n} keys are more than {}", u32::MAX),
        }
    }
}

impl std::error::Error for ParamsError {}

impl Params {
    /// Refuses parameters that are invalid. [`sequential`](crate::sequential()) calls it.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), ParamsError> {
        if !self.radix.is_power_of_two() || !(2..=1 << 16).contains(&self.radix) {
            return Err(ParamsError::Radix(self.radix));
        }
        if self.keys.len() > u32::MAX as usize {
            return Err(ParamsError::TooMany(self.keys.len()));
        }
        Ok(())
    }
}
