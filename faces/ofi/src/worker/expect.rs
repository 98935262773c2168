//! The one receive that a caller polls for, as most callers do: posted only when necessary.

use super::state::{Expecting, State};
use super::{sys, RecvOp, Worker};
use crate::memory::Pieces;
use weft::endpoint::Expected;
use weft_core::engine::types::{RecvArgs, Refused};
use weft_core::event::Status;
use weft_core::matching::RecvSpec;
use weft_core::{OpError, OpId, PeerId};

/// Polls in vain before it is posted: the engine watches peers for operations alone.
const POLLS: u32 = 64;

impl Worker {
    /// Expects the message of a receive, if no other operation is in progress. False if the receive
    /// has to be posted.
    #[inline]
    pub(super) fn expect(
        &self,
        state: &mut State,
        pieces: &Pieces<'_>,
        op: &RecvOp,
        source: Option<PeerId>,
        report: bool,
    ) -> bool {
        let Pieces::One(memory) = *pieces else { return false };
        if op.tags.untagged || !state.records.is_empty() {
            return false;
        }
        let spec = RecvSpec { source, tag: op.tags.tag, ignore: op.tags.ignore };
        let expected = sys::expect(&self.endpoint, memory, spec);
        if expected {
            let context = op.context;
            state.receives.expecting = Some(Expecting { spec, memory, context, report, polls: 0 });
        }
        expected
    }

    /// Makes progress while a message is expected.
    pub(super) fn progress_expecting(&self) -> bool {
        let mut did = self.endpoint.posted().progress_expected() | self.unreported.take();
        if did {
            // `reap` comes first; its comment says why.
            self.reap();
        }
        let state = &mut *self.state.borrow_mut();
        match self.endpoint.posted().expected() {
            Expected::Waiting => {
                let Some(expecting) = &mut state.receives.expecting else { return did };
                expecting.polls += 1;
                if expecting.polls < POLLS {
                    return did;
                }
                did |= self.post_expected(state);
            }
            Expected::Came(came) => {
                self.came(state, came.status, came.error);
                return true;
            }
            Expected::Posted(op) => {
                self.posted(state, op);
                return true;
            }
            Expected::Post => did |= self.post_expected(state),
        }
        did
    }

    fn came(&self, state: &mut State, status: Status, error: Option<OpError>) {
        if let Some(expecting) = state.receives.expecting.take() {
            self.ended(state, expecting.rec(), &status, error);
        }
    }

    /// Posts the expected receive to the engine, before any other call that concerns matching. True
    /// if there was one.
    #[inline]
    pub(super) fn finish_expected(&self, state: &mut State) -> bool {
        if state.receives.expecting.is_none() {
            return false;
        }
        match self.endpoint.posted().expected() {
            Expected::Came(came) => self.came(state, came.status, came.error),
            Expected::Posted(op) => self.posted(state, op),
            Expected::Waiting | Expected::Post => {
                self.post_expected(state);
            }
        }
        true
    }

    /// Notes that the engine has posted the receive: it is an ordinary operation from now on.
    fn posted(&self, state: &mut State, op: OpId) {
        let Some(expecting) = state.receives.expecting.take() else { return };
        // A record is free: no other operation was in progress when the message was expected.
        let Some(at) = state.records.keep(expecting.rec()) else { return };
        match self.endpoint.posted().adopt(op, at.into()) {
            None => state.started(at, op),
            Some(came) => {
                if let Some(rec) = state.records.take(at) {
                    self.ended(state, rec, &came.status, came.error);
                }
            }
        }
    }

    /// Posts the receive. True if it was posted or has ended in an error; if false, try again.
    #[cold]
    fn post_expected(&self, state: &mut State) -> bool {
        self.endpoint.posted().end_expected();
        let Some(expecting) = state.receives.expecting.take() else { return false };
        let Some(at) = state.records.keep(expecting.rec()) else { return false };
        let RecvSpec { source, tag, ignore } = expecting.spec;
        let args = RecvArgs { source, tag, ignore, ..sys::any(at) };
        match sys::recv(&self.endpoint, expecting.memory, args) {
            Ok(id) => state.started(at, id),
            Err(Refused::Busy) => {
                state.records.take(at);
                state.receives.expecting = Some(expecting);
                return false;
            }
            Err(refused) => {
                let _reported = self.refused(state, at, refused);
            }
        }
        true
    }
}
