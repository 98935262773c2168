//! An open endpoint.

mod connect;
mod ends;
mod expect;
pub mod request;
mod send;
#[allow(unsafe_code)]
mod sys;
mod unexpected;
mod wired;

pub use send::Sending;
pub use unexpected::{run_handler, Found, Handler, OnUnexpected};

use crate::address::{Addr, Local};
use crate::code::{self, Answer, StatusCode};
use crate::handle::{request_handle, Handle};
use crate::key_check::KeyCheck;
use crate::wire::claim::Claim;
use crate::wire::{self, Wire};
use ends::Ends;
use expect::Receives;
use request::{key_of, Kind, Request, Requests};
use std::rc::Rc;
use std::time::Duration;
use unexpected::Unexpected;
use weft::port::Port;
use weft::{Completion, Endpoint, OpError};
use weft_core::event::Status as Message;
use weft_ffi::rendezvous::Post;
use weft_ffi::table::Key;
use weft_link::secure::JobKey;
use wired::Wired;

/// Longest message that is copied, so that its send completes at once.
const COPIED: usize = 4 << 10;
/// Time for the last messages by MXoE when an endpoint closes.
const WIRE_END: Duration = Duration::from_secs(2);

/// The names of an endpoint, which no other one has until they are dropped: that under which others
/// find it, and its number on the interface of MXoE.
pub type Names = (Post, Option<Claim>);

/// Calls that wait.
#[derive(Default)]
pub struct Waits {
    /// Number of calls of `mx_wakeup`.
    pub wakeups: u64,
    /// Threads that wait for a message without a receive.
    pub probers: u32,
}

/// An open endpoint.
pub struct Open {
    /// Its port.
    pub port: Port,
    /// Its key, and the endpoints that it knows.
    pub key_check: Rc<KeyCheck>,
    /// The job's key.
    pub key: JobKey,
    /// Slot and generation.
    pub local: Local,
    /// The address of the endpoint itself.
    pub own: Addr,
    /// Its requests.
    pub requests: Requests,
    /// The ends of requests by time.
    ends: Ends,
    /// Receives at the endpoint of weft.
    receives: Receives,
    /// Messages for the program's handler.
    unexpected: Unexpected,
    /// Its parts for MXoE.
    wired: Option<Wired>,
    /// The bits of match bits that name a context.
    pub contexts: u64,
    /// Number of changes for which a thread may wait.
    pub changes: u64,
    /// Calls that wait.
    pub waits: Waits,
    /// True while the program wants no progress.
    is_disabled: bool,
    /// Its names, as long as it is open.
    _names: Names,
}

/// The parts of a new endpoint.
pub struct Parts {
    /// The endpoint of weft.
    pub endpoint: Endpoint,
    /// The job's key.
    pub key: JobKey,
    /// Network interface and number.
    pub name: (u64, u32),
    /// Its names.
    pub names: Names,
    /// Its socket for MXoE.
    pub wire: Option<Rc<Wire>>,
}

impl Open {
    /// Makes an endpoint.
    ///
    /// # Errors
    /// `MX_BAD_BAD_BAD`, `MX_NO_RESOURCES`.
    pub fn new(parts: Parts, local: Local, turn: u32, secret: u32, contexts: u64) -> Answer<Open> {
        let Parts { endpoint, key, name, names, wire } = parts;
        let made = endpoint.port(crate::key_check::CLIENT, || KeyCheck::new(local, name, secret));
        let (port, key_check) = made.map_err(|_| code::BAD_BAD_BAD)?;
        let me = endpoint.connect(&endpoint.address()).map_err(|_| code::NO_RESOURCES)?;
        let own = key_check.meet(me, name);
        let start = |wire: Rc<Wire>| -> Answer<Wired> {
            wire.start(name.1, secret).map_err(|_| code::NO_RESOURCES)?;
            let made = endpoint.port(wire::CLIENT, || Rc::clone(&wire));
            let (port, wire) = made.map_err(|_| code::BAD_BAD_BAD)?;
            port.poll_each_round();
            Ok(Wired::new(wire, port))
        };
        let wired = wire.map(start).transpose()?;
        Ok(Open {
            port,
            key_check,
            key,
            local,
            own,
            requests: Requests::new(turn),
            ends: Ends::default(),
            receives: Receives::default(),
            unexpected: Unexpected::default(),
            wired,
            contexts,
            changes: 0,
            waits: Waits::default(),
            is_disabled: false,
            _names: names,
        })
    }

    /// Returns the endpoint.
    #[inline]
    pub fn endpoint(&self) -> &Endpoint {
        self.port.endpoint()
    }

    /// Takes what a round of progress brought.
    #[inline]
    fn take_ended(&mut self) {
        if self.is_disabled {
            return;
        }
        if self.wired.is_some() {
            self.take_wire();
        }
        self.collect();
        self.look_expected();
        while let Some(news) = self.key_check.news() {
            self.handle_news(news);
        }
        if self.key_check.take_due() {
            self.end_late();
        }
        self.changes += u64::from(self.waits.probers > 0);
    }

    /// Makes a round of progress. True if anything happened.
    #[inline]
    fn make_progress(&self) -> bool {
        // Frames of MXoE are looked for in whole rounds alone.
        match self.receives.is_expecting() && self.wired.is_none() {
            true => self.endpoint().posted().progress_expected(),
            false => self.endpoint().progress(),
        }
    }

    /// Lets nothing complete, or all as usual.
    pub fn disable(&mut self, is_disabled: bool) {
        if is_disabled {
            self.settle_expected();
        }
        self.is_disabled = is_disabled;
    }

    /// Takes back the memory of all requests: the program may free it.
    fn take_all_back(&mut self) {
        self.forget_expected();
        for key in self.requests.keys() {
            let op = self.requests.get(key).and_then(|request| request.op);
            op.into_iter().for_each(|op| self.endpoint().posted().take_back(op));
        }
        self.end_wired(WIRE_END);
    }

    /// Checks that this thread is not in the endpoint's handler of unexpected messages.
    ///
    /// # Errors
    /// `MX_CLOSE_IN_HANDLER`.
    pub fn may_close(&self) -> Answer {
        match self.unexpected.is_in_handler() {
            true => Err(code::CLOSE_IN_HANDLER),
            false => Ok(()),
        }
    }

    /// Returns the handle of a request.
    #[inline]
    pub fn handle_of(&self, key: Key) -> Handle {
        request_handle(self.local.slot, key)
    }

    /// Adds a request.
    ///
    /// # Errors
    /// `MX_NO_RESOURCES`.
    #[inline]
    pub fn add(&mut self, request: Request) -> Answer<Key> {
        let key = self.requests.add(request).ok_or(code::NO_RESOURCES)?;
        if self.ends.patience > 0 {
            self.set_end(key, self.ends.patience);
        }
        Ok(key)
    }

    /// Sets the time after which requests end that begin later; 0 for none.
    pub fn set_patience(&mut self, ms: u32) {
        self.ends.patience = ms;
    }

    /// Sets the time after which a request ends; 0 for none.
    pub fn set_end(&mut self, key: Key, ms: u32) {
        let time = Duration::from_millis(ms.into());
        let at = (ms > 0).then(|| self.port.now() + time);
        self.ends.set(key, at);
        at.into_iter().for_each(|at| self.port.call_by(at));
    }

    /// Ends the requests whose time is over.
    fn end_late(&mut self) {
        let now = self.port.now();
        while let Some(key) = self.ends.take(now) {
            self.stop(key, code::STATUS_TIMEOUT);
        }
        self.ends.next().into_iter().for_each(|at| self.port.call_by(at));
    }

    /// Ends a request that has not completed. A receive that has matched goes on.
    pub fn stop(&mut self, key: Key, status: StatusCode) {
        if self.is_expected(key) {
            self.settle_expected();
        }
        let Some(request) = self.requests.get_mut(key).filter(|request| !request.is_done) else {
            return;
        };
        match (request.kind, request.op) {
            (Kind::Recv, Some(op)) => {
                if self.endpoint().posted().cancel(op) {
                    let request = self.requests.get_mut(key);
                    request.into_iter().for_each(|request| request.instead = Some(status));
                }
                self.collect();
            }
            (Kind::Recv, None) if request.is_pulling => {}
            (Kind::Recv, None) => {
                self.unexpected.give_up(key);
                self.end_with(key, status);
            }
            (Kind::Send | Kind::Connect, op) => {
                op.into_iter().for_each(|op| self.endpoint().posted().take_back(op));
                self.end_with(key, status);
            }
        }
    }

    /// Ends a request with a status.
    #[inline]
    pub fn end_with(&mut self, key: Key, status: StatusCode) {
        if let Some(request) = self.requests.get_mut(key) {
            request.status.code = status;
            if request.kind != Kind::Recv && status != code::STATUS_SUCCESS {
                // Nobody knows how much arrived, if anything did.
                request.status.xfer_length = 0;
            }
            if request.is_lent || request.is_pulling {
                self.take_back_wired(key);
            }
            self.requests.end(key);
            self.changes += 1;
        }
    }

    /// Handles operations that have ended.
    #[inline]
    pub fn collect(&mut self) {
        while let Some(done) = self.endpoint().posted().poll() {
            if !self.ended_unexpected(&done) && !self.ended_wired(&done) {
                self.ended(&done);
            }
        }
    }

    #[inline]
    fn ended(&mut self, done: &Completion) {
        let key = key_of(done.context);
        let Some(request) = self.requests.get(key) else { return };
        match request.kind {
            Kind::Recv => {
                self.receives.ended();
                self.ended_receive(key, &done.status, done.error);
            }
            _ => self.end_with(key, done.error.map_or(code::STATUS_SUCCESS, code::status_of)),
        }
    }

    /// Handles the end of a receive.
    #[inline]
    fn ended_receive(&mut self, key: Key, of: &Message, error: Option<OpError>) {
        let source = of.source.map(|peer| self.origin(peer, of.data, 0).0);
        let source = source.map(|peer| self.key_check.address(peer));
        let Some(request) = self.requests.get_mut(key) else { return };
        let mut status = error.map_or(code::STATUS_SUCCESS, code::status_of);
        let sent = match error {
            Some(OpError::Truncated { sent }) => sent,
            _ => of.len,
        };
        let stored = sent.min(request.memory.len() as u64);
        if matches!(error, None | Some(OpError::Truncated { .. })) {
            request.memory.scatter(stored as usize);
            request.status.match_info = of.tag;
            request.status.msg_length = u32::try_from(sent).unwrap_or(u32::MAX);
            request.status.xfer_length = stored as u32;
        }
        request.status.source = source.unwrap_or_default();
        status = request.instead.filter(|_| status == code::STATUS_CANCELLED).unwrap_or(status);
        if !self.pull_offer(key, of.data) {
            self.end_with(key, status);
        }
    }
}
