//! Receives and probes.

use super::buffer::{Bounce, Pieces};
use super::state::{fields, Direction, Rec, State, What};
use super::{clock, looking, RecvOp, Worker};
use crate::sys::abi::{cap, err, ADDR_NONE};
use crate::sys::cq::{Entry, Failure};
use crate::sys::Answer;
use libc::{c_int, c_void};
use weft_core::engine::types::{Claimed, Probed, RecvArgs};

impl Worker {
    /// Posts a receive, or does as its flags say: peeks at a message, takes or discards it.
    ///
    /// # Safety
    /// The pieces can be written until the completion.
    pub unsafe fn recv(&self, pieces: Pieces<'_>, op: &RecvOp) -> Answer {
        let _inside = self.domain.lock.enter()?;
        if op.flags & cap::PEEK != 0 {
            return looking(|looks| looks.between(clock, || self.peek(op)));
        }
        pieces.check(isize::MAX as usize)?;
        let state = &mut *self.state.borrow_mut();
        self.finish_expected(state);
        let report = state.reports(Direction::Recv, op.flags);
        if op.flags & cap::CLAIM != 0 {
            if !self.endpoint.posted().has_room() {
                // The message stays claimed.
                return Err(self.busy());
            }
            let (claimed, _) =
                state.receives.claims.remove(&(op.context as usize)).ok_or(err::EINVAL)?;
            return self.take_claimed(state, claimed, pieces, op, report);
        }
        let directed = self.directed && op.source != ADDR_NONE;
        let source = if directed { Some(self.peer(state, op.source)?) } else { None };
        if op.untagged && op.flags & cap::MULTI_RECV != 0 {
            let Pieces::One(start, len) = pieces else { return Err(err::EINVAL) };
            self.offer_many(state, (start, len), source, op.context, report);
            return Ok(0);
        }
        // SAFETY: promised by the caller.
        if unsafe { self.expect(state, &pieces, op, source, report) } {
            return Ok(0);
        }
        let (rec, start, len) = received(&pieces, op, report)?;
        let at = state.records.keep(rec).ok_or(err::EAGAIN)?;
        if op.untagged && !state.receives.waiting.is_empty() {
            self.queue(state, What::Plain { rec: at, start, len }, source);
            return Ok(0);
        }
        let args = RecvArgs {
            source,
            tag: op.tag,
            ignore: op.ignore,
            len: len as u64,
            addr: 0,
            context: u64::from(at),
            untagged: op.untagged,
        };
        // SAFETY: promised by the caller; the record's memory lives as long.
        match unsafe { self.endpoint.posted().recv(start, args) } {
            Ok(id) => state.records.started(at, id),
            Err(refused) => return self.refused(state, at, refused),
        }
        Ok(0)
    }

    pub fn take_claimed(
        &self,
        state: &mut State,
        claimed: Claimed,
        pieces: Pieces<'_>,
        op: &RecvOp,
        report: bool,
    ) -> Answer {
        let discard = op.flags & cap::DISCARD != 0;
        let pieces = if discard { Pieces::One(std::ptr::null_mut(), 0) } else { pieces };
        let (mut rec, start, len) = received(&pieces, op, report)?;
        rec.silent = discard;
        let context = op.context;
        let flags = rec.flags;
        let at = state.records.keep(rec).ok_or(err::EAGAIN)?;
        self.receive_claimed(state, at, claimed, start, len)?;
        if discard && report {
            state.add(
                Direction::Recv,
                Entry {
                    fields: fields(context, flags, 0, std::ptr::null_mut(), 0, op.tag),
                    source: ADDR_NONE,
                },
            );
        }
        Ok(0)
    }

    /// Receives a claimed message into memory that lives until the record is given back.
    pub fn receive_claimed(
        &self,
        state: &mut State,
        at: u32,
        claimed: Claimed,
        start: *mut u8,
        len: usize,
    ) -> Result<(), c_int> {
        let args = RecvArgs {
            source: None,
            tag: 0,
            ignore: 0,
            len: len as u64,
            addr: 0,
            context: u64::from(at),
            untagged: false,
        };
        // SAFETY: the memory is a caller's, given until the completion, or the record's.
        match unsafe { self.endpoint.posted().recv_claimed(claimed, start, args) } {
            Ok(id) => state.records.started(at, id),
            Err(refused) => {
                self.refused(state, at, refused)?;
            }
        }
        Ok(())
    }

    pub fn peek(&self, op: &RecvOp) -> Answer {
        let look = |state: &mut State| -> Result<Option<(Option<Claimed>, Probed)>, c_int> {
            let directed = self.directed && op.source != ADDR_NONE;
            let source = if directed { Some(self.peer(state, op.source)?) } else { None };
            let take = op.flags & (cap::CLAIM | cap::DISCARD) != 0;
            if op.flags & cap::DISCARD != 0 && !self.endpoint.posted().has_room() {
                return Err(self.busy());
            }
            Ok(match (op.untagged, take) {
                (false, false) => self.endpoint.probe(source, op.tag, op.ignore).map(|p| (None, p)),
                (true, false) => self.endpoint.posted().probe_untagged(source).map(|p| (None, p)),
                (false, true) => self
                    .endpoint
                    .posted()
                    .claim(source, op.tag, op.ignore)
                    .map(|(c, p)| (Some(c), p)),
                (true, true) => {
                    self.endpoint.posted().claim_untagged(source).map(|(c, p)| (Some(c), p))
                }
            })
        };
        self.finish_expected(&mut self.state.borrow_mut());
        let mut found = look(&mut self.state.borrow_mut())?;
        if found.is_none() {
            // A caller may do nothing but peek.
            self.progress();
            found = look(&mut self.state.borrow_mut())?;
        }
        let state = &mut *self.state.borrow_mut();
        let flags = cap::RECV | if op.untagged { cap::MSG } else { cap::TAGGED };
        let Some((claimed, probed)) = found else {
            state.fail(
                Direction::Recv,
                Failure {
                    fields: fields(op.context, flags, 0, std::ptr::null_mut(), 0, op.tag),
                    source: ADDR_NONE,
                    olen: 0,
                    error: err::ENOMSG,
                    text: "no message matches".to_owned(),
                },
            );
            return Ok(0);
        };
        let data = probed.data.unwrap_or(0);
        let flags = flags | if probed.data.is_some() { cap::REMOTE_CQ_DATA } else { 0 };
        let len = probed.len as usize;
        let entry = Entry {
            fields: fields(op.context, flags, len, std::ptr::null_mut(), data, probed.tag),
            source: self.source(state, Some(probed.source)),
        };
        if let Some(claimed) = claimed {
            if op.flags & cap::DISCARD != 0 {
                self.take_claimed(state, claimed, Pieces::One(std::ptr::null_mut(), 0), op, false)?;
            } else {
                state.receives.claims.insert(op.context as usize, (claimed, probed));
            }
        }
        state.add(Direction::Recv, entry);
        Ok(0)
    }

    /// Cancels a receive that has not matched. Its completion says so; a matched one ends as usual.
    pub fn cancel(&self, context: *mut c_void) {
        {
            let state = &mut *self.state.borrow_mut();
            self.finish_expected(state);
            if self.cancel_waiting(state, context) {
                return;
            }
            let of = |rec: &&Option<Rec>| {
                rec.as_ref().is_some_and(|r| r.context == context && r.flags & cap::RECV != 0)
            };
            let op = state.records.recs.iter().find(of).and_then(|rec| rec.as_ref()?.op);
            match op {
                Some(op) => self.endpoint.posted().cancel(op),
                None => return,
            };
        }
        self.reap();
    }
}

/// Returns the record of a receive, and the memory that the message goes to.
///
/// # Errors
/// `FI_ENOMEM`: the machine does not have as much memory as the pieces.
pub fn received(
    pieces: &Pieces<'_>,
    op: &RecvOp,
    report: bool,
) -> Result<(Rec, *mut u8, usize), c_int> {
    let (start, len, bounce) = match *pieces {
        Pieces::One(start, len) => (start, len, None),
        Pieces::Many(iov) => {
            let mut bytes = weft::memory::zeroed(pieces.len()).ok_or(err::ENOMEM)?;
            let pieces = iov.iter().map(|p| (p.iov_base.cast(), p.iov_len)).collect();
            let start = bytes.as_mut_ptr();
            (start, bytes.len(), Some(Box::new(Bounce { bytes, pieces })))
        }
    };
    let kind = if op.untagged { cap::MSG } else { cap::TAGGED };
    let rec = Rec {
        op: None,
        context: op.context,
        flags: cap::RECV | kind,
        report,
        buf: start,
        bounce,
        multi: None,
        silent: false,
    };
    Ok((rec, start, len))
}
