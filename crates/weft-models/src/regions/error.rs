//! Errors of regions.

use super::RegionId;
use crate::net::{InUpcall, RankFailure};
use std::fmt;

/// An operation on a region that cannot be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionError {
    /// The region.
    pub region: RegionId,
    /// The cause.
    pub cause: RegionCause,
}

/// The reason why an operation on a region cannot be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegionCause {
    /// The home of the region has failed, and the region is lost.
    Home(RankFailure),
    /// The rank that had the only copy of the region has failed; what it wrote is lost.
    Holder(RankFailure),
    /// There is no such region: it has been deleted, or never was.
    NoRegion,
    /// The region has items of another type, or another number of them.
    Type {
        /// The items that were asked for.
        wanted: String,
        /// The items of the region.
        found: String,
    },
    /// The call waits, and was made inside an upcall or a service.
    Inside(InUpcall),
    /// The region is larger than regions may be.
    TooLarge {
        /// Most bytes.
        most: usize,
    },
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.region.number {
            // One that was not made has no name.
            u64::MAX => f.write_str("a new region: ")?,
            _ => write!(f, "region {}: ", self.region)?,
        }
        self.cause.fmt(f)
    }
}

impl fmt::Display for RegionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionCause::Home(failure) => write!(f, "its home is lost: {failure}"),
            RegionCause::Holder(failure) => {
                write!(f, "it is lost with the rank that had the only copy: {failure}")
            }
            RegionCause::Inside(why) => why.fmt(f),
            RegionCause::NoRegion => f.write_str("it has been deleted, or never was"),
            RegionCause::Type { wanted, found } => {
                write!(f, "it has {found}, not {wanted}")
            }
            RegionCause::TooLarge { most } => write!(f, "regions have at most {most} bytes"),
        }
    }
}

impl std::error::Error for RegionError {}
