//! Errors of runs of objects.

use super::Index;
use crate::net::{InUpcall, RankFailure};
use std::fmt;

/// The end of a run of objects, the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorError {
    /// The rank at which it happened.
    pub rank: usize,
    /// The name of the array's type and the index of the object that it happened to.
    pub object: Option<(String, Index)>,
    /// The cause.
    pub cause: ActorCause,
}

/// The reason why a run of objects ended, or did not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActorCause {
    /// A rank failed, and its objects with it.
    Failed(RankFailure),
    /// The object panicked, with this text.
    Panicked(String),
    /// The object, or the program, did something that cannot be, with this text: it sent to an
    /// index or a rank that does not exist, or a message that is too long or has another type.
    Fault(String),
    /// A checkpoint cannot be written or read, with this text.
    Checkpoint(String),
    /// The call waits, and was made inside an upcall or a service.
    Inside(InUpcall),
}

impl ActorError {
    pub(super) fn failed(failure: RankFailure) -> ActorError {
        ActorError { rank: failure.rank, object: None, cause: ActorCause::Failed(failure) }
    }
}

impl fmt::Display for ActorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.cause, &self.object) {
            (ActorCause::Failed(_) | ActorCause::Inside(_), _) => self.cause.fmt(f),
            (_, Some((name, index))) => {
                write!(f, "object {index} of {name} at rank {}: {}", self.rank, self.cause)
            }
            (_, None) => write!(f, "rank {}: {}", self.rank, self.cause),
        }
    }
}

impl std::error::Error for ActorError {}

impl fmt::Display for ActorCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ActorCause::Failed(failure) => write!(f, "{failure}; its objects are lost"),
            ActorCause::Panicked(text) => write!(f, "it panicked: {text}"),
            ActorCause::Fault(text) => f.write_str(text),
            ActorCause::Checkpoint(text) => write!(f, "checkpoint: {text}"),
            ActorCause::Inside(why) => why.fmt(f),
        }
    }
}
