//! The one receive that the endpoint has no operation for: most programs wait for one message at a
//! time, and a message of one packet takes less work so.
//!
//! The receive is posted before anything else that concerns matching, and before a thread sleeps.

use super::request::{context_of, Kind};
use super::Open;
use crate::code::{self, Answer};
use weft::endpoint::Expected;
use weft_ffi::table::Key;

/// Receives that have neither ended nor wait for the handler's decision.
#[derive(Default)]
pub struct Receives {
    /// The one that the endpoint has no operation for.
    expecting: Option<Key>,
    /// Number of those that it has an operation for.
    posted: usize,
}

impl Receives {
    /// True if the endpoint expects the message of one.
    #[inline]
    pub fn is_expecting(&self) -> bool {
        self.expecting.is_some()
    }

    /// Notes the end of one that was posted.
    #[inline]
    pub fn ended(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }
}

impl Open {
    /// Gives a receive to the endpoint: as an expected message if no other receive is with it.
    ///
    /// # Errors
    /// `MX_NO_RESOURCES`.
    #[inline]
    pub fn post_receive(&mut self, key: Key) -> Answer {
        self.settle_expected();
        let is_alone = self.receives.posted == 0 && !self.has_handler();
        if !is_alone || self.is_disabled || !self.endpoint().posted().has_room() {
            return self.post_now(key);
        }
        let Some(request) = self.requests.get_mut(key) else { return Ok(()) };
        let matching = (request.status.match_info, !request.mask);
        let expects = request.memory.expect(self.port.endpoint(), matching);
        if !expects {
            return self.post_now(key);
        }
        self.receives.expecting = Some(key);
        Ok(())
    }

    /// Posts a receive at the endpoint.
    fn post_now(&mut self, key: Key) -> Answer {
        let Some(request) = self.requests.get_mut(key) else { return Ok(()) };
        let matching = (request.status.match_info, !request.mask);
        let op = request.memory.receive(self.port.endpoint(), matching, context_of(key));
        let op = op.ok_or(code::NO_RESOURCES)?;
        self.note_posted(key, op);
        Ok(())
    }

    /// Handles the state of the expected message after progress.
    #[inline]
    pub fn look_expected(&mut self) {
        if let Some(key) = self.receives.expecting {
            let state = self.endpoint().posted().expected();
            self.handle_expected(key, &state);
        }
    }

    #[inline]
    fn handle_expected(&mut self, key: Key, state: &Expected) {
        match state {
            Expected::Waiting => {}
            Expected::Came(came) => {
                self.receives.expecting = None;
                self.ended_receive(key, &came.status, came.error);
            }
            Expected::Posted(op) => {
                self.receives.expecting = None;
                match self.endpoint().posted().adopt(*op, context_of(key)) {
                    None => self.note_posted(key, *op),
                    Some(came) => self.ended_receive(key, &came.status, came.error),
                }
            }
            Expected::Post => self.post_expected(key),
        }
    }

    /// Ends the expectation: the receive becomes one as all others, or has ended.
    #[inline]
    pub fn settle_expected(&mut self) {
        let Some(key) = self.receives.expecting else { return };
        let state = self.endpoint().posted().expected();
        match state {
            Expected::Waiting => self.post_expected(key),
            state => self.handle_expected(key, &state),
        }
    }

    fn post_expected(&mut self, key: Key) {
        self.forget_expected();
        if self.post_now(key).is_err() {
            // Sends have taken the room that was there.
            self.end_with(key, code::STATUS_NO_RESOURCES);
        }
    }

    /// Forgets the expected receive: its memory is not written any more.
    pub fn forget_expected(&mut self) {
        if self.receives.expecting.take().is_some() {
            self.endpoint().posted().end_expected();
        }
    }

    /// Notes the operation of a receive.
    pub(super) fn note_posted(&mut self, key: Key, op: weft::OpId) {
        self.receives.posted += 1;
        self.requests.get_mut(key).into_iter().for_each(|request| request.op = Some(op));
    }

    /// True if a request is a receive that the endpoint has no operation for.
    pub(super) fn is_expected(&self, key: Key) -> bool {
        self.receives.expecting == Some(key)
            && self.requests.get(key).is_some_and(|request| request.kind == Kind::Recv)
    }
}
