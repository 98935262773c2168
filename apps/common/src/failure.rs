//! The error of programs over regions.

use std::fmt;
use weft_models::net::RankFailure;
use weft_models::regions::RegionError;

/// The reason why a run over regions ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A rank has failed.
    Rank(RankFailure),
    /// A region cannot be used.
    Region(RegionError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Rank(failure) => failure.fmt(f),
            Failure::Region(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<RankFailure> for Failure {
    fn from(failure: RankFailure) -> Failure {
        Failure::Rank(failure)
    }
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Failure {
        Failure::Region(error)
    }
}
