//! Errors as exceptions of Python. Their classes are in `weft/_errors.py`.

use pyo3::prelude::*;
use weft::{Group, GroupError, OpError, PeerFailure, Refused};
use weft_models::rpc::{CallError, Cause};

/// The class of an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Actor,
    Agent,
    Argument,
    Busy,
    Cancelled,
    Finished,
    Forked,
    Job,
    Mismatch,
    Operation,
    Peer,
    Refused,
    Truncated,
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Kind::Actor => "ActorError",
            Kind::Agent => "AgentError",
            Kind::Argument => "ArgumentError",
            Kind::Busy => "BusyError",
            Kind::Cancelled => "CancelledError",
            Kind::Finished => "FinishedError",
            Kind::Forked => "ForkedError",
            Kind::Job => "JobError",
            Kind::Mismatch => "MismatchError",
            Kind::Operation => "OperationError",
            Kind::Peer => "PeerError",
            Kind::Refused => "RefusedError",
            Kind::Truncated => "TruncatedError",
        }
    }

    fn of(error: OpError) -> Kind {
        match error {
            OpError::Truncated { .. } => Kind::Truncated,
            OpError::Cancelled => Kind::Cancelled,
            OpError::Peer { failure: PeerFailure::Copied, .. } => Kind::Forked,
            OpError::Peer { .. } => Kind::Peer,
            OpError::Uneven { .. } | OpError::Mismatch { .. } => Kind::Mismatch,
            OpError::NoRank { .. } | OpError::Count { .. } | OpError::NoSuchOp => Kind::Argument,
            OpError::Busy => Kind::Busy,
            _ => Kind::Refused,
        }
    }
}

/// The reason why a call failed, before it is an exception: it needs no interpreter.
#[derive(Clone, Debug)]
pub struct Fault {
    kind: Kind,
    text: String,
    rank: Option<usize>,
    host: Option<String>,
}

impl Fault {
    pub fn new(kind: Kind, text: impl Into<String>) -> Fault {
        Fault { kind, text: text.into(), rank: None, host: None }
    }

    pub fn argument(text: impl Into<String>) -> Fault {
        Fault::new(Kind::Argument, text)
    }

    /// Makes the fault of a rank that has failed.
    pub fn of_rank(rank: usize, text: String) -> Fault {
        Fault { kind: Kind::Peer, text, rank: Some(rank), host: None }
    }

    /// Makes the fault of a call of the rank that has an object.
    pub fn of_call(error: &CallError) -> Fault {
        let kind = match error.cause {
            Cause::Failed(_) => Kind::Peer,
            Cause::Busy => Kind::Busy,
            _ => Kind::Operation,
        };
        Fault { kind, text: error.cause.to_string(), rank: Some(error.rank), host: None }
    }

    /// Has the text begin with the operation of an object that failed, and its rank.
    #[must_use]
    pub fn of_operation(self, operation: &str) -> Fault {
        let at = self.rank.map_or(String::new(), |rank| format!(" at rank {rank}"));
        Fault { text: format!("{operation}{at}: {}", self.text), ..self }
    }

    /// Makes the fault of an operation of a group with a rank, or with all.
    pub fn of_op(group: &Group, error: OpError, named: Option<usize>) -> Fault {
        let rank = match error {
            OpError::Peer { peer, .. } => group.rank_of(peer).or(named),
            _ => named,
        };
        let host = rank.and_then(|rank| group.host_of(rank));
        Fault { kind: Kind::of(error), text: group.explain(error), rank, host }
    }

    /// Makes the fault of a group's operation.
    pub fn of_group(group: &Group, error: &GroupError) -> Fault {
        let rank = error.rank();
        let host = rank.and_then(|rank| group.host_of(rank));
        Fault { kind: Kind::of(error.cause()), text: error.to_string(), rank, host }
    }

    /// Makes the fault of an operation that was refused; `None` if it may be tried again.
    pub fn of_refusal(group: &Group, refused: Refused, rank: usize) -> Option<Fault> {
        match refused {
            Refused::Busy => None,
            Refused::Peer(peer, failure) => {
                Some(Fault::of_op(group, OpError::Peer { peer, failure }, Some(rank)))
            }
            other => Some(Fault::argument(other.to_string())),
        }
    }

    /// Makes the exception.
    pub fn raise(self, py: Python<'_>) -> PyErr {
        let make = || {
            let class = py.import("weft._errors")?.getattr(self.kind.class())?;
            class.call1((self.text, self.rank, self.host))
        };
        make().map_or_else(|error| error, PyErr::from_value)
    }
}
