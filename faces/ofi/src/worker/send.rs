//! Sends.

use super::complete::error_of;
use super::report::Direction;
use super::state::Rec;
use super::{sys, SendOp, Tags, Worker};
use crate::abi::{cap, err};
use crate::call::Answer;
use crate::members::Member;
use crate::memory::{Borrowed, Bounce, Pieces};
use crate::offer;
use libc::c_int;
use weft_core::engine::types::{Refused, SendArgs};

impl Worker {
    /// Sends from a copy, without a completion.
    #[inline]
    pub fn inject(&self, from: Borrowed, to: u64, tags: Tags, data: Option<u64>) -> Answer {
        if from.len() > self.inject_max {
            return Err(err::EMSGSIZE);
        }
        let state = &mut *self.state.borrow_mut();
        let peer = self.peer(state, to)?;
        match self.endpoint.posted().inject(peer, tags.tag, from.bytes(), data, tags.untagged) {
            Ok(()) => {
                state.count(Direction::Send, true);
                self.meet(state, peer);
                Ok(0)
            }
            Err(Refused::Busy) => Err(self.busy()),
            Err(refused) => Err(error_of(refused)),
        }
    }

    /// Makes progress and returns the error of a full queue: the caller may only try again.
    #[cold]
    pub(super) fn busy(&self) -> c_int {
        self.endpoint.progress();
        err::EAGAIN
    }

    /// Returns an error if an operation with these flags may not start yet: a fenced one starts
    /// when all earlier ones have ended, to other peers too. Makes progress, since the caller may
    /// only try again.
    #[inline]
    pub(super) fn fence(&self, flags: u64) -> Result<(), c_int> {
        match flags & cap::FENCE {
            0 => Ok(()),
            _ => self.wait_for_quiet(),
        }
    }

    #[cold]
    fn wait_for_quiet(&self) -> Result<(), c_int> {
        self.progress();
        match self.state.borrow().is_quiet() {
            true => Ok(()),
            false => Err(err::EAGAIN),
        }
    }

    /// Starts a send.
    pub fn send(&self, pieces: Pieces<'_>, op: &SendOp) -> Answer {
        pieces.check(offer::MESSAGE)?;
        self.fence(op.flags)?;
        let state = &mut *self.state.borrow_mut();
        let peer = self.peer(state, op.to)?;
        let sync = op.flags & cap::MATCH_COMPLETE != 0;
        // Without one of these levels a completion promises no more than that the memory is free
        // again, as from libfabric's own software providers: a copy fulfils that, and the peer need
        // not acknowledge the message at once.
        let late = op.flags & (cap::DELIVERY_COMPLETE | cap::TRANSMIT_COMPLETE) != 0;
        let inject = !late && !sync && pieces.len() <= self.inject_max;
        let bounce = match pieces {
            Pieces::One(_) if op.flags & cap::INJECT == 0 || inject => None,
            pieces => Some(Bounce::new(pieces.gather()?, &[])),
        };
        let memory = match (&bounce, pieces) {
            (Some(bounce), _) => bounce.memory(),
            (None, Pieces::One(one)) => one,
            (None, Pieces::Many(_)) => return Err(err::EINVAL),
        };
        let report = state.reports(Direction::Send, op.flags);
        let flags = cap::SEND | op.tags.flag();
        let rec = Rec::new(op.context, flags, report, memory.start(), bounce);
        let at = state.records.keep(rec).ok_or(err::EAGAIN)?;
        let (len, tag) = (memory.len(), op.tags.tag);
        let args = SendArgs {
            peer,
            tag,
            len: len as u64,
            data: op.data,
            context: u64::from(at),
            addr: 0,
            inject,
            sync,
            delivered: op.flags & cap::DELIVERY_COMPLETE != 0,
            active: false,
            untagged: op.tags.untagged,
        };
        match sys::send(&self.endpoint, memory, args) {
            Ok(Some(id)) if !inject => state.started(at, id),
            Ok(_) => state.done(at, Direction::Send, len, tag),
            Err(refused) => return self.refused(state, at, refused),
        }
        self.meet(state, peer);
        Ok(0)
    }
}
