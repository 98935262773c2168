//! Atomic operations: requests to peers, execution of peers' requests, and answers.

use super::complete::failure_of;
use super::report::{Direction, Report};
use super::requests::{Pending, QUEUED_MAX, REQUEST, REQUESTS_MAX};
use super::state::State;
use super::Worker;
use crate::abi::{cap, err, RmaIoc};
use crate::atomic::{self, is_valid, Datatype, Form, Operator, Piece, Refusal, Request, LONGEST};
use crate::call::Answer;
use crate::memory::{Borrowed, Elements};
use libc::{c_int, c_void};
use weft::{OpError, PeerId};

/// An atomic operation as a caller describes it.
pub struct AtomicCall<'a> {
    pub form: Form,
    /// libfabric's numbers of the type and the operator.
    pub numbers: (c_int, c_int),
    pub to: u64,
    pub operands: &'a [Elements],
    pub compares: &'a [Elements],
    pub results: &'a [Elements],
    pub remote: &'a [RmaIoc],
    pub context: *mut c_void,
    /// `None`: it has no completion unless it fails.
    pub flags: Option<u64>,
}

/// Returns the type and operator with these numbers, if an operation of this form exists.
fn kind(form: Form, (datatype, op): (c_int, c_int)) -> Result<(Datatype, Operator), c_int> {
    let datatype = Datatype::from_number(i64::from(datatype)).ok_or(err::EOPNOTSUPP)?;
    let operator = Operator::from_number(i64::from(op)).ok_or(err::EOPNOTSUPP)?;
    match is_valid(form, datatype, operator) {
        true => Ok((datatype, operator)),
        false => Err(err::EOPNOTSUPP),
    }
}

/// Returns the most elements of an operation, and their size.
pub fn most(form: Form, numbers: (c_int, c_int)) -> Result<(usize, usize), c_int> {
    let size = kind(form, numbers)?.0.size();
    Ok((LONGEST / size, size))
}

/// Copies the elements of all pieces.
///
/// # Errors
/// `FI_EMSGSIZE`: a piece is longer than an operation can be. `FI_EINVAL`: one has no memory.
fn gather(pieces: &[Elements], size: usize) -> Result<Vec<u8>, c_int> {
    let mut out = Vec::new();
    for piece in pieces {
        let memory = piece.memory(size).filter(|memory| memory.len() <= LONGEST);
        let memory = memory.ok_or(err::EMSGSIZE)?;
        if memory.len() > 0 && memory.is_null() {
            return Err(err::EINVAL);
        }
        out.extend_from_slice(memory.bytes());
    }
    Ok(out)
}

impl Worker {
    /// Starts an atomic operation.
    pub fn atomic(&self, call: &AtomicCall<'_>) -> Answer {
        let (datatype, operator) = kind(call.form, call.numbers)?;
        let size = datatype.size();
        let piece = |r: &RmaIoc| {
            let count =
                u32::try_from(r.count).ok().filter(|count| *count as usize <= LONGEST / size);
            Ok(Piece { key: r.key, offset: r.addr, count: count.ok_or(err::EMSGSIZE)? })
        };
        let pieces = call.remote.iter().map(piece).collect::<Result<Vec<Piece>, c_int>>()?;
        let operands = match operator {
            Operator::Read => Vec::new(),
            _ => gather(call.operands, size)?,
        };
        let compares = gather(call.compares, size)?;
        let results = call.results.iter().map(|piece| piece.memory(size).ok_or(err::EINVAL));
        let results = results.collect::<Result<Vec<Borrowed>, c_int>>()?;
        if results.iter().any(|piece| piece.is_null() && piece.len() > 0) {
            return Err(err::EINVAL);
        }
        let (operands, compares) = (&operands[..], &compares[..]);
        let form = call.form;
        let request = Request { form, datatype, operator, pieces, operands, compares };
        self.ask(call, &request, results)
    }

    /// Sends the request for an atomic operation.
    fn ask(&self, call: &AtomicCall<'_>, r: &Request<'_>, results: Vec<Borrowed>) -> Answer {
        let op_flags = call.flags.unwrap_or(0);
        if op_flags & (cap::REMOTE_CQ_DATA | cap::TAGGED) != 0 {
            return Err(err::EOPNOTSUPP);
        }
        let len = r.len();
        if len > LONGEST {
            return Err(err::EMSGSIZE);
        }
        let read = if r.form == Form::Write { 0 } else { len };
        let compare = if r.form == Form::Compare { len } else { 0 };
        let operands = if r.operator == Operator::Read { 0 } else { len };
        let room: usize = results.iter().map(|piece| piece.len()).sum();
        if len == 0 || room != read || (r.operands.len(), r.compares.len()) != (operands, compare) {
            return Err(err::EINVAL);
        }
        self.fence(op_flags)?;
        let state = &mut *self.state.borrow_mut();
        let peer = self.peer(state, call.to)?;
        let asked = state.remote.asked.count.of(peer);
        if asked >= REQUESTS_MAX || self.endpoint.peer(peer).queued() > QUEUED_MAX {
            return Err(self.busy());
        }
        let (way, kind) = match read {
            0 => (Direction::Write, cap::WRITE),
            _ => (Direction::Read, cap::READ),
        };
        let wanted = call.flags.is_some_and(|flags| state.reports(way, flags));
        let first = call.results.first().or(call.operands.first());
        let buf = first.map_or(std::ptr::null_mut(), |first| first.start());
        let flags = cap::ATOMIC | kind;
        let report = Report { context: call.context, flags, way, wanted, buf, len };
        let number = state.remote.asked.keep(Pending { peer, report, results });
        let number = number.ok_or(err::EAGAIN)?;
        match self.endpoint.active().send(peer, REQUEST, number, &r.encode()) {
            Ok(()) => {
                if state.remote.asked.count.add(peer) {
                    self.endpoint.peer(peer).expect();
                }
                Ok(0)
            }
            Err(why) => {
                let pending = state.remote.asked.take(number, peer);
                if why == OpError::Busy {
                    return Err(self.busy());
                }
                if let Some(pending) = pending {
                    self.tell(state, pending.report, Some(why));
                }
                Ok(0)
            }
        }
    }

    /// Handles received answers, and sends waiting ones.
    pub(super) fn handle_answers(&self, state: &mut State) {
        for (peer, number, answer) in state.remote.answers.take() {
            let Some(pending) = state.remote.asked.take(number, peer) else {
                log::warn!("{}: an answer to nothing", self.endpoint.peer(peer).describe());
                continue;
            };
            if state.remote.asked.count.take(peer) {
                self.endpoint.peer(peer).unexpect();
            }
            self.answered(state, pending, &answer);
        }
        state.remote.answers.pay(&self.endpoint);
    }

    fn answered(&self, state: &State, pending: Pending, answer: &[u8]) {
        let len = pending.results.iter().map(|piece| piece.len()).sum();
        let why = match atomic::answer(answer, len) {
            Ok(mut before) => {
                for piece in &pending.results {
                    before = piece.write(before);
                }
                return self.tell(state, pending.report, None);
            }
            Err(why) => why,
        };
        let (error, text) = match why {
            Refusal::Key => (err::ENOKEY, "no memory is registered there under this key"),
            Refusal::Access => (err::EACCES, "beyond the memory, or not registered for this"),
            Refusal::Malformed => (err::EIO, "not understood: all ranks need the same weft"),
        };
        let what = format!("{}: {text}", self.endpoint.peer(pending.peer).describe());
        self.report_failure(state, &pending.report, error, what);
    }

    /// Fails the operations on peers that failed.
    #[cold]
    pub(super) fn give_up(&self, state: &mut State) {
        let peers: Vec<PeerId> = state.remote.asked.count.peers().collect();
        for peer in peers {
            let Some(failure) = self.endpoint.peer(peer).failure() else { continue };
            log::debug!("atomic operations given up: error {}", failure_of(failure));
            for number in state.remote.asked.of(peer) {
                let Some(pending) = state.remote.asked.take(number, peer) else { continue };
                if state.remote.asked.count.take(peer) {
                    self.endpoint.peer(peer).unexpect();
                }
                self.tell(state, pending.report, Some(OpError::Peer { peer, failure }));
            }
        }
    }
}
