//! Receives and probes.

use super::report::{fields, Direction};
use super::state::{Rec, State, What};
use super::{sys, RecvOp, Worker};
use crate::abi::{cap, err, ADDR_NONE};
use crate::call::Answer;
use crate::idle::{clock, looking};
use crate::members::Member;
use crate::memory::{Borrowed, Bounce, Pieces};
use crate::queue::{Entry, Failure};
use libc::{c_int, c_void};
use weft_core::engine::types::{Claimed, Probed, RecvArgs};
use weft_core::PeerId;

impl Worker {
    /// Posts a receive, or does as its flags say: peeks at a message, takes or discards it.
    pub fn recv(&self, pieces: Pieces<'_>, op: &RecvOp) -> Answer {
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
        let source = self.source_of(state, op)?;
        if op.tags.untagged && op.flags & cap::MULTI_RECV != 0 {
            let Pieces::One(memory) = pieces else { return Err(err::EINVAL) };
            self.offer_many(state, memory, source, op.context, report)?;
            return Ok(0);
        }
        if self.expect(state, &pieces, op, source, report) {
            return Ok(0);
        }
        let (rec, memory) = received(&pieces, op, report)?;
        let at = state.records.keep(rec).ok_or(err::EAGAIN)?;
        if op.tags.untagged && !state.receives.waiting.is_empty() {
            self.queue(state, What::Plain { rec: at, memory }, source);
            return Ok(0);
        }
        let args = RecvArgs {
            source,
            tag: op.tags.tag,
            ignore: op.tags.ignore,
            len: memory.len() as u64,
            addr: 0,
            context: u64::from(at),
            untagged: op.tags.untagged,
        };
        match sys::recv(&self.endpoint, memory, args) {
            Ok(id) => state.started(at, id),
            Err(refused) => return self.refused(state, at, refused),
        }
        Ok(0)
    }

    /// Returns the peer that a receive takes messages of, if it does not take all.
    #[inline]
    fn source_of(&self, state: &mut State, op: &RecvOp) -> Result<Option<PeerId>, c_int> {
        match self.directed && op.source != ADDR_NONE {
            true => Ok(Some(self.peer(state, op.source)?)),
            false => Ok(None),
        }
    }

    /// Receives or discards a message that a peek claimed.
    fn take_claimed(
        &self,
        state: &mut State,
        claimed: Claimed,
        pieces: Pieces<'_>,
        op: &RecvOp,
        report: bool,
    ) -> Answer {
        let discard = op.flags & cap::DISCARD != 0;
        let pieces = if discard { Pieces::One(Borrowed::NONE) } else { pieces };
        let (mut rec, memory) = received(&pieces, op, report)?;
        rec.silent = discard;
        let fields = fields(op.context, rec.flags, 0, std::ptr::null_mut(), 0, op.tags.tag);
        let at = state.records.keep(rec).ok_or(err::EAGAIN)?;
        self.receive_claimed(state, at, claimed, memory)?;
        if discard && report {
            state.add(Direction::Recv, Entry { fields, source: ADDR_NONE });
        }
        Ok(0)
    }

    /// Receives a claimed message into memory that lives until the record is given back.
    pub(super) fn receive_claimed(
        &self,
        state: &mut State,
        at: u32,
        claimed: Claimed,
        memory: Borrowed,
    ) -> Result<(), c_int> {
        match sys::recv_claimed(&self.endpoint, memory, claimed, at) {
            Ok(id) => state.started(at, id),
            Err(refused) => {
                self.refused(state, at, refused)?;
            }
        }
        Ok(())
    }

    /// Reports the message that a receive would take; claims or discards it as the flags say.
    fn peek(&self, op: &RecvOp) -> Answer {
        let (tag, ignore) = (op.tags.tag, op.tags.ignore);
        let look = |state: &mut State| -> Result<Option<(Option<Claimed>, Probed)>, c_int> {
            let source = self.source_of(state, op)?;
            let posted = self.endpoint.posted();
            let take = op.flags & (cap::CLAIM | cap::DISCARD) != 0;
            if op.flags & cap::DISCARD != 0 && !posted.has_room() {
                return Err(self.busy());
            }
            let seen = |probed| (None, probed);
            let taken = |(claimed, probed)| (Some(claimed), probed);
            Ok(match (op.tags.untagged, take) {
                (false, false) => self.endpoint.probe(source, tag, ignore).map(seen),
                (true, false) => posted.probe_untagged(source).map(seen),
                (false, true) => posted.claim(source, tag, ignore).map(taken),
                (true, true) => posted.claim_untagged(source).map(taken),
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
        let none = std::ptr::null_mut();
        let flags = cap::RECV | op.tags.flag();
        let Some((claimed, probed)) = found else {
            let fields = fields(op.context, flags, 0, none, 0, tag);
            let text = "no message matches".to_owned();
            state.fail(Direction::Recv, Failure::new(fields, err::ENOMSG, text));
            return Ok(0);
        };
        let data = probed.data.unwrap_or(0);
        let flags = flags | if probed.data.is_some() { cap::REMOTE_CQ_DATA } else { 0 };
        let len = probed.len as usize;
        let entry = Entry {
            fields: fields(op.context, flags, len, none, data, probed.tag),
            source: self.source(state, Some(probed.source)),
        };
        if let Some(claimed) = claimed {
            if op.flags & cap::DISCARD != 0 {
                self.take_claimed(state, claimed, Pieces::One(Borrowed::NONE), op, false)?;
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
            let of = |rec: &&Rec| rec.context == context && rec.flags & cap::RECV != 0;
            let op = state.records.values().find(of).and_then(|rec| rec.op);
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
fn received(pieces: &Pieces<'_>, op: &RecvOp, report: bool) -> Result<(Rec, Borrowed), c_int> {
    let (memory, bounce) = match *pieces {
        Pieces::One(one) => (one, None),
        Pieces::Many(more) => {
            let bytes = weft::memory::zeroed(pieces.len()).ok_or(err::ENOMEM)?;
            let bounce = Bounce::new(bytes, more);
            (bounce.memory(), Some(bounce))
        }
    };
    let flags = cap::RECV | op.tags.flag();
    Ok((Rec::new(op.context, flags, report, memory.start(), bounce), memory))
}
