//! The error of programs over models.

use std::fmt;
use weft_models::net::RankFailure;
use weft_models::objects::ObjectError;
use weft_models::regions::RegionError;
use weft_models::rpc::CallError;

/// The reason why a run over models ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A rank has failed.
    Rank(RankFailure),
    /// A region cannot be used.
    Region(RegionError),
    /// A shared object cannot be used.
    Object(ObjectError),
    /// A rank did not answer a call.
    Call(CallError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Rank(failure) => failure.fmt(f),
            Failure::Region(error) => error.fmt(f),
            Failure::Object(error) => error.fmt(f),
            Failure::Call(error) => error.fmt(f),
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

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Failure {
        Failure::Object(error)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure::Call(error)
    }
}
