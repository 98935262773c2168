//! Parameters of a run and their checks.

use crate::index::{positions, positions_to, MOST_STONES};
use std::fmt;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The most stones; all databases from 0 up to it are computed. Default 13, as in paper 004.
    pub stones: u8,
    /// The most memory that scores may need, in bytes.
    pub memory_limit: u64,
}

impl Default for Params {
    fn default() -> Params {
        Params { stones: 13, memory_limit: 4 << 30 }
    }
}

/// The reason why parameters were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamsError {
    /// More stones than positions have numbers for.
    Stones(u8),
    /// The databases do not fit.
    TooLarge {
        /// Stones asked for.
        stones: u8,
        /// Bytes needed.
        bytes: u64,
        /// Bytes that may be used.
        limit: u64,
    },
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamsError::Stones(stones) => {
                write!(f, "{stones} stones are more than {MOST_STONES}, the most here")
            }
            ParamsError::TooLarge { stones, bytes, limit } => write!(
                f,
                "databases of {stones} stones need {} MiB, above the limit of {} MiB",
                bytes.div_ceil(1 << 20),
                limit >> 20
            ),
        }
    }
}

impl std::error::Error for ParamsError {}

impl Params {
    /// Refuses parameters that are invalid. [`sequential`](crate::sequential()) calls it.
    ///
    /// # Errors
    /// Too many stones, or too much memory.
    pub fn check(&self) -> Result<(), ParamsError> {
        let Params { stones, memory_limit: limit } = *self;
        if stones > MOST_STONES {
            return Err(ParamsError::Stones(stones));
        }
        // A byte for each score, and for the last level one for moves and four in the worst case
        // for a position that became known.
        let bytes = positions_to(stones) + 5 * positions(stones);
        match bytes > limit {
            true => Err(ParamsError::TooLarge { stones, bytes, limit }),
            false => Ok(()),
        }
    }
}
