//! Errors of calls.

use crate::channel::MESSAGE_MAX;
use crate::net::{InUpcall, RankFailure};
use std::fmt;
use std::time::Duration;

/// A call that has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The rank that was called.
    pub rank: usize,
    /// The method.
    pub method: u16,
    /// The cause.
    pub cause: Cause,
}

/// The reason why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The rank failed. The method may have run.
    Failed(RankFailure),
    /// No answer came in time. The method may have run, or may still run.
    Deadline {
        /// The time that the caller gave.
        after: Duration,
    },
    /// The rank does not serve this method.
    NoService,
    /// The service refused, with this text.
    Refused(String),
    /// The service panicked, with this text.
    Panicked(String),
    /// The service dropped the request without an answer.
    Unanswered,
    /// The arguments are too long.
    TooLong {
        /// Their length in bytes.
        len: usize,
    },
    /// The method has run, and its answer is too long.
    AnswerTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The thread that has the endpoint handles no calls any more ([`threads`](super::threads)).
    Closed,
    /// The call waits, and was made inside an upcall or a service.
    Inside(InUpcall),
    /// Too many calls are under way, or too many bytes are queued for the rank.
    Busy,
    /// The answer, or the arguments at the service, are not of the type that the method has.
    Unreadable(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallError { rank, method, cause } = self;
        write!(f, "method {method} of rank {rank}: {cause}")
    }
}

impl std::error::Error for CallError {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Failed(failure) => write!(f, "{failure}; the method may have run"),
            Cause::Deadline { after } => {
                write!(f, "no answer within {after:?}; the method may have run, or still run")
            }
            Cause::NoService => f.write_str("the rank does not serve this method"),
            Cause::Refused(text) => write!(f, "refused: {text}"),
            Cause::Panicked(text) => write!(f, "the service panicked: {text}"),
            Cause::Unanswered => f.write_str("the service dropped the request without an answer"),
            Cause::TooLong { len } => {
                write!(f, "arguments of {len} bytes are longer than {MESSAGE_MAX}")
            }
            Cause::AnswerTooLong { len } => {
                write!(f, "it has run, but its answer of {len} bytes is longer than {MESSAGE_MAX}")
            }
            Cause::Closed => {
                f.write_str("the thread that has the endpoint handles no calls any more")
            }
            Cause::Inside(why) => why.fmt(f),
            Cause::Busy => f.write_str("too many calls are under way: wait for some of them"),
            Cause::Unreadable(why) => write!(f, "the bytes are not of the method's type: {why}"),
        }
    }
}
