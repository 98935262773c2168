//! Buffers for many messages without tags (`FI_MULTI_RECV`), and the receives queued after them.
//!
//! The engine has only receives for one message. While a buffer for many is the oldest, receives
//! wait here, and messages that arrived are claimed for them one by one.

use super::complete::failure_of;
use super::report::{fields, Direction};
use super::state::{Multi, Rec, State, Waiting, What};
use super::{sys, Worker};
use crate::abi::{cap, err, ADDR_NONE};
use crate::memory::Borrowed;
use crate::queue::{Entry, Failure};
use libc::{c_int, c_void};
use weft_core::engine::types::RecvArgs;
use weft_core::PeerId;

impl Worker {
    /// Queues a receive here, after all others that wait.
    pub fn queue(&self, state: &mut State, what: What, source: Option<PeerId>) {
        let watched = source.is_some_and(|peer| self.endpoint.peer(peer).expect());
        state.receives.waiting.push_back(Waiting { what, source, watched });
        if source.is_some() && !watched {
            // The source has failed already.
            state.receives.failures = State::RECHECK_AFTER;
        }
        self.pump(state);
    }

    /// Takes the `i`th receive that waits out of the queue.
    fn unqueue(&self, state: &mut State, i: usize) -> Option<Waiting> {
        let waiting = state.receives.waiting.remove(i)?;
        if let (Some(peer), true) = (waiting.source, waiting.watched) {
            self.endpoint.peer(peer).unexpect();
        }
        Some(waiting)
    }

    /// Gives untagged messages that arrived to the receives that wait here, oldest first. Each
    /// needs an operation; without room for one, they wait on.
    pub fn pump(&self, state: &mut State) {
        let mut i = 0;
        while let Some(&Waiting { what, source, .. }) = state.receives.waiting.get(i) {
            if !self.endpoint.posted().has_room() {
                return;
            }
            match what {
                What::Plain { rec, memory } if i == 0 => {
                    // This receive can be posted: no other receive waits before it.
                    self.unqueue(state, 0);
                    self.post_waiting(state, rec, memory, source);
                }
                What::Plain { rec, memory } => {
                    match self.endpoint.posted().claim_untagged(source) {
                        Some((claimed, _)) => {
                            self.unqueue(state, i);
                            let _reported = self.receive_claimed(state, rec, claimed, memory);
                        }
                        None if source.is_none() => return,
                        None => i += 1,
                    }
                }
                What::Multi(at) => match self.endpoint.posted().probe_untagged(source) {
                    Some(probed) if state.is_too_long(at, probed.len) => {
                        self.unqueue(state, i);
                        state.fill(at);
                    }
                    Some(_) => self.receive_part(state, i, at, source),
                    // The buffer takes messages from any source, so there is no message at all.
                    None if source.is_none() => return,
                    None => i += 1,
                },
            }
        }
    }

    /// Ends the receives that wait here for peers that have failed. Messages that such a peer sent
    /// before, and that are whole, are received first.
    #[cold]
    pub fn lose_waiting(&self, state: &mut State) {
        self.pump(state);
        let failed = |w: &Waiting| self.endpoint.peer(w.source?).failure();
        let mut i = 0;
        while let Some(waiting) = state.receives.waiting.get(i) {
            let (Some(peer), Some(failure)) = (waiting.source, failed(waiting)) else {
                i += 1;
                continue;
            };
            if let Some(waiting) = self.unqueue(state, i) {
                let text = format!("{}: {failure}", self.endpoint.peer(peer).describe());
                state.fail_waiting(waiting.what, failure_of(failure), text);
            }
        }
    }

    /// Cancels a receive that is not posted to the engine.
    pub fn cancel_waiting(&self, state: &mut State, context: *mut c_void) -> bool {
        let i =
            state.receives.waiting.iter().position(|w| state.context_of(w.what) == Some(context));
        let Some(waiting) = i.and_then(|i| self.unqueue(state, i)) else { return false };
        state.fail_waiting(waiting.what, err::ECANCELED, "cancelled".to_owned());
        true
    }

    /// Adds a buffer for many messages.
    ///
    /// # Errors
    /// `FI_EAGAIN`: there are too many.
    pub fn offer_many(
        &self,
        state: &mut State,
        memory: Borrowed,
        source: Option<PeerId>,
        context: *mut c_void,
        report: bool,
    ) -> Result<(), c_int> {
        let multi = Multi { memory, used: 0, arriving: 0, full: false, context, report };
        let at = state.receives.multis.keep(multi).ok_or(err::EAGAIN)?;
        self.queue(state, What::Multi(at), source);
        Ok(())
    }

    fn post_waiting(&self, state: &mut State, rec: u32, memory: Borrowed, source: Option<PeerId>) {
        let args = RecvArgs { source, ignore: u64::MAX, untagged: true, ..sys::any(rec) };
        match sys::recv(&self.endpoint, memory, args) {
            Ok(id) => state.started(rec, id),
            Err(refused) => {
                let _reported = self.refused(state, rec, refused);
            }
        }
    }

    /// Receives a message that arrived into a buffer for many, the `i`th that waits.
    fn receive_part(&self, state: &mut State, i: usize, at: u32, source: Option<PeerId>) {
        let Some((claimed, probed)) = self.endpoint.posted().claim_untagged(source) else { return };
        let least = self.min_multi_recv.get();
        let Some(multi) = state.receives.multis.get_mut(at) else { return };
        let memory = multi.memory.part(multi.used, probed.len as usize);
        multi.used += memory.len();
        multi.arriving += 1;
        multi.full = multi.memory.len() - multi.used < least.max(1);
        let flags = cap::RECV | cap::MSG;
        let rec = Rec::new(multi.context, flags, multi.report, memory.start(), None);
        let rec = Rec { multi: Some(at), ..rec };
        if multi.full {
            self.unqueue(state, i);
        }
        match state.records.keep(rec) {
            Some(rec) => {
                let _reported = self.receive_claimed(state, rec, claimed, memory);
            }
            None => log::error!("more operations than there are numbers: a message is lost"),
        }
    }
}

impl State {
    /// Returns true if a message does not fit into the rest of a buffer that already holds some.
    fn is_too_long(&self, at: u32, len: u64) -> bool {
        let multi = self.receives.multis.get(at);
        multi.is_some_and(|m| m.used > 0 && len > (m.memory.len() - m.used) as u64)
    }

    /// Closes a buffer for many messages to further messages.
    pub fn fill(&mut self, at: u32) {
        let Some(multi) = self.receives.multis.get_mut(at) else { return };
        multi.full = true;
        if multi.arriving > 0 {
            return;
        }
        let (context, start) = (multi.context, multi.memory.start());
        self.receives.multis.take(at);
        let fields = fields(context, cap::RECV | cap::MULTI_RECV, 0, start, 0, 0);
        self.add(Direction::Recv, Entry { fields, source: ADDR_NONE });
    }

    /// Notes that a message was received into its buffer for many; true if it was the last.
    pub fn part_ended(&mut self, at: u32) -> bool {
        let Some(multi) = self.receives.multis.get_mut(at) else { return false };
        multi.arriving -= 1;
        let last = multi.full && multi.arriving == 0;
        if last {
            self.receives.multis.take(at);
        }
        last
    }

    fn context_of(&self, what: What) -> Option<*mut c_void> {
        match what {
            What::Multi(at) => self.receives.multis.get(at).map(|multi| multi.context),
            What::Plain { rec, .. } => self.records.get(rec).map(|rec| rec.context),
        }
    }

    /// Ends a receive that is not posted to the engine with an error.
    fn fail_waiting(&mut self, what: What, error: c_int, text: String) {
        let Some(context) = self.context_of(what) else { return };
        let mut flags = cap::RECV | cap::MSG;
        match what {
            What::Plain { rec, .. } => drop(self.records.take(rec)),
            What::Multi(at) => match self.receives.multis.get_mut(at) {
                Some(multi) if multi.arriving > 0 => multi.full = true,
                _ => {
                    flags |= cap::MULTI_RECV;
                    self.receives.multis.take(at);
                }
            },
        }
        let fields = fields(context, flags, 0, std::ptr::null_mut(), 0, 0);
        self.failed(Direction::Recv, Failure::new(fields, error, text));
    }
}
