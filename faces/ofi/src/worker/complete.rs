//! Ends of operations.

use super::report::{fields, Direction};
use super::state::{Rec, State};
use super::Worker;
use crate::abi::{cap, err, ADDR_NONE};
use crate::call::Answer;
use crate::queue::{Entry, Failure};
use libc::c_int;
use weft_core::engine::types::{Completion, Refused};
use weft_core::event::Status;
use weft_core::{OpError, PeerFailure};

impl Worker {
    /// Handles an operation that could not be started: tried again, or reported as failed.
    #[cold]
    pub(super) fn refused(&self, state: &mut State, at: u32, refused: Refused) -> Answer {
        let Some(rec) = state.records.take(at) else { return Err(err::EOTHER) };
        if refused == Refused::Busy {
            self.endpoint.progress();
            return Err(err::EAGAIN);
        }
        let way = if rec.flags & cap::RECV != 0 { Direction::Recv } else { Direction::Send };
        let text = match refused {
            Refused::Peer(peer, why) => format!("{}: {why}", self.endpoint.peer(peer).describe()),
            other => other.to_string(),
        };
        let fields = fields(rec.context, rec.flags, 0, rec.buf, 0, 0);
        state.failed(way, Failure::new(fields, error_of(refused), text));
        Ok(0)
    }

    /// Ends an operation that the engine has completed.
    pub(super) fn complete(&self, state: &mut State, c: &Completion) {
        let Some(mut rec) = state.records.take(c.context as u32) else { return };
        if let Some(multi) = rec.multi {
            if state.part_ended(multi) {
                rec.flags |= cap::MULTI_RECV;
            }
        }
        self.ended(state, rec, &c.status, c.error);
    }

    /// Reports the result of an operation.
    #[inline]
    pub(super) fn ended(
        &self,
        state: &mut State,
        mut rec: Rec,
        status: &Status,
        error: Option<OpError>,
    ) {
        let way = if rec.flags & cap::RECV != 0 { Direction::Recv } else { Direction::Send };
        let len = status.len as usize;
        if let Some(bounce) = &rec.bounce {
            bounce.scatter(len);
        }
        if rec.silent {
            return;
        }
        if let (Some(_), Direction::Recv) = (status.data, way) {
            rec.flags |= cap::REMOTE_CQ_DATA;
        }
        let data = status.data.unwrap_or(0);
        let fields = fields(rec.context, rec.flags, len, rec.buf, data, status.tag);
        let source = if matches!(way, Direction::Recv) {
            self.source(state, status.source)
        } else {
            ADDR_NONE
        };
        let Some(error) = error else {
            state.count(way, true);
            if rec.report || rec.flags & cap::MULTI_RECV != 0 {
                state.add(way, Entry { fields, source });
            }
            return;
        };
        let (number, olen) = match error {
            OpError::Truncated { sent } => (err::ETRUNC, sent as usize - len),
            OpError::Cancelled => (err::ECANCELED, 0),
            other => (number_of(other), 0),
        };
        let text = self.text_of(error);
        state.failed(way, Failure { fields, source, olen, error: number, text });
    }

    /// Describes an error, for people.
    pub(super) fn text_of(&self, error: OpError) -> String {
        self.endpoint.explain(error)
    }
}

/// Returns the number of the error of an operation that was not started.
pub fn error_of(refused: Refused) -> c_int {
    match refused {
        Refused::Busy => err::EAGAIN,
        Refused::Peer(_, failure) => failure_of(failure),
        Refused::TooLong => err::EMSGSIZE,
        _ => err::EINVAL,
    }
}

/// Returns the number of a peer's failure.
pub fn failure_of(failure: PeerFailure) -> c_int {
    match failure {
        PeerFailure::Silent { .. } | PeerFailure::Stopped { .. } | PeerFailure::Stuck { .. } => {
            err::ETIMEDOUT
        }
        PeerFailure::Unreachable { .. } | PeerFailure::NoLink => err::EHOSTUNREACH,
        PeerFailure::Refused | PeerFailure::Version { .. } => err::ECONNREFUSED,
        _ => err::ECONNRESET,
    }
}

/// Returns the number of an operation's error.
pub fn number_of(error: OpError) -> c_int {
    match error {
        OpError::Peer { failure, .. } => failure_of(failure),
        OpError::Refused | OpError::Unmapped => err::EACCES,
        OpError::Busy => err::EAGAIN,
        _ => err::EOTHER,
    }
}
