//! An open endpoint.

use super::abi::{request_handle, Handle};
use super::memory::Memory;
use super::request::{context_of, key_of, Kind, Request, Requests};
use super::unexpected::Unexpected;
use super::wired::Wired;
use crate::address::{wired, Addr, Local};
use crate::code::{self, Answer, Return, StatusCode};
use crate::key_check::{KeyCheck, News};
use crate::wire::claim::Claim;
use crate::wire::{self, Wire};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;
use weft::port::Port;
use weft::{Completion, Endpoint, OpError, PeerFailure, PeerId, SendArgs};
use weft_core::event::Status as Message;
use weft_core::Instant;
use weft_ffi::rendezvous::{Post, Sought};
use weft_ffi::sys::lock::{Face, Place};
use weft_ffi::table::Key;
use weft_link::secure::JobKey;

/// Longest message that is copied, so that its send completes at once.
pub(super) const COPIED: usize = 4 << 10;
/// Time for the last messages by MXoE when an endpoint closes.
const WIRE_END: Duration = Duration::from_secs(2);
/// Data of a message whose sender waits until it is matched: its bytes are not at hand before.
const MATCHED: u32 = 1;

/// An open endpoint.
pub struct Open {
    /// Its port.
    pub port: Port,
    /// Its key, and the endpoints that it knows.
    pub key_check: Rc<KeyCheck>,
    /// The job's key.
    pub key: JobKey,
    /// Network interface and number.
    pub name: (u64, u32),
    /// Slot and generation.
    pub local: Local,
    /// The address of the endpoint itself.
    pub own: Addr,
    /// Its requests.
    pub requests: Requests,
    /// Messages for the program's handler.
    pub unexpected: Unexpected,
    /// Its parts for MXoE.
    pub(super) wired: Option<Wired>,
    /// The bits of match bits that name a context.
    pub contexts: u64,
    /// Number of changes for which a thread may wait.
    pub changes: u64,
    /// Number of calls of `mx_wakeup`.
    pub wakeups: u64,
    /// Threads that wait for a message without a receive.
    pub probers: u32,
    /// True while the program wants no progress.
    pub is_disabled: bool,
    /// Time after which requests end, in milliseconds; 0 for none.
    pub patience: u32,
    /// The receive that the endpoint has no operation for.
    pub(super) expecting: Option<Key>,
    /// Receives that it has an operation for.
    pub(super) posted: usize,
    /// The ends of requests.
    ends: BinaryHeap<(Reverse<Instant>, u64)>,
    /// The name under which others find it.
    pub post: Post,
    /// Its number on the interface of MXoE.
    pub claim: Option<Claim>,
}

static PLACE: Place<Open> = Place::new();

// SAFETY: no clone of the endpoint or of the key check leaves the functions of this crate that hold
// the lock. Memory of requests is the program's, which lends it to the library.
unsafe impl Face for Open {
    type Code = Return;
    type Call = ();
    const CLOSED: Return = code::BAD_ENDPOINT;
    const REFUSED: Return = code::BUSY;
    const TIMEOUT: Return = code::TIMEOUT;
    const NAME: &'static str = "mx";

    fn place() -> &'static Place<Open> {
        &PLACE
    }

    #[inline]
    fn endpoint(&self) -> &Endpoint {
        self.port.endpoint()
    }

    #[inline]
    fn reap(&mut self) {
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
        self.changes += u64::from(self.probers > 0);
    }

    #[inline]
    fn changes(&self) -> u64 {
        self.changes
    }

    #[inline]
    fn progress(&self) -> bool {
        // Frames of MXoE are looked for in whole rounds alone.
        match self.expecting.is_some() && self.wired.is_none() {
            true => self.endpoint().posted().progress_expected(),
            false => self.endpoint().progress(),
        }
    }

    fn before_sleep(&mut self) {
        self.settle_expected();
    }

    fn end(&mut self) {
        self.forget_expected();
        for key in self.requests.keys() {
            // The program may free the memory.
            let op = self.requests.get(key).and_then(|request| request.op);
            op.into_iter().for_each(|op| self.endpoint().posted().take_back(op));
        }
        self.end_wired(WIRE_END);
    }
}

/// The parts of a new endpoint.
pub struct Parts {
    /// The endpoint of weft.
    pub endpoint: Endpoint,
    /// The job's key.
    pub key: JobKey,
    /// Network interface and number.
    pub name: (u64, u32),
    /// The name under which others find it.
    pub post: Post,
    /// Its socket for MXoE, and its number on that interface.
    pub wire: Option<(Rc<Wire>, Claim)>,
}

impl Open {
    /// Makes an endpoint.
    ///
    /// # Errors
    /// `MX_BAD_BAD_BAD`, `MX_NO_RESOURCES`.
    pub fn new(parts: Parts, local: Local, turn: u32, secret: u32, contexts: u64) -> Answer<Open> {
        let Parts { endpoint, key, name, post, wire } = parts;
        let made = endpoint.port(crate::key_check::CLIENT, || KeyCheck::new(local, name, secret));
        let (port, key_check) = made.map_err(|_| code::BAD_BAD_BAD)?;
        let me = endpoint.connect(&endpoint.address()).map_err(|_| code::NO_RESOURCES)?;
        let own = key_check.meet(me, name);
        let (wired, claim) = match wire {
            Some((wire, claim)) => {
                wire.start(name.1, secret).map_err(|_| code::NO_RESOURCES)?;
                let made = endpoint.port(wire::CLIENT, || Rc::clone(&wire));
                let (port, wire) = made.map_err(|_| code::BAD_BAD_BAD)?;
                port.poll_each_round();
                (Some(Wired::new(wire, port)), Some(claim))
            }
            None => (None, None),
        };
        Ok(Open {
            port,
            key_check,
            key,
            name,
            local,
            own,
            requests: Requests::new(turn),
            unexpected: Unexpected::default(),
            wired,
            contexts,
            changes: 0,
            wakeups: 0,
            probers: 0,
            is_disabled: false,
            patience: 0,
            expecting: None,
            posted: 0,
            ends: BinaryHeap::new(),
            post,
            claim,
        })
    }

    /// Returns the endpoint.
    #[inline]
    pub fn endpoint(&self) -> &Endpoint {
        self.port.endpoint()
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
        if self.patience > 0 {
            self.set_end(key, self.patience);
        }
        Ok(key)
    }

    /// Sets the time after which a request ends; 0 for none.
    pub fn set_end(&mut self, key: Key, ms: u32) {
        self.ends.retain(|(_, of)| *of != context_of(key));
        if ms > 0 {
            let at = self.port.now() + Duration::from_millis(ms.into());
            self.ends.push((Reverse(at), context_of(key)));
            self.port.call_by(at);
        }
    }

    /// Ends the requests whose time is over.
    fn end_late(&mut self) {
        let now = self.port.now();
        while let Some(&(Reverse(at), context)) = self.ends.peek() {
            if at > now {
                return self.port.call_by(at);
            }
            self.ends.pop();
            self.stop(key_of(context), code::STATUS_TIMEOUT);
        }
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
                self.posted = self.posted.saturating_sub(1);
                self.ended_receive(key, &done.status, done.error);
            }
            _ => self.end_with(key, done.error.map_or(code::STATUS_SUCCESS, code::status_of)),
        }
    }

    /// Handles the end of a receive.
    #[inline]
    pub(super) fn ended_receive(&mut self, key: Key, of: &Message, error: Option<OpError>) {
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
            // SAFETY: the program lends the memory to the request, which ends here.
            unsafe { request.memory.scatter(stored as usize) };
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

    fn handle_news(&mut self, news: News) {
        match news {
            News::Answered { peer, request, status } => {
                let key = key_of(request);
                let of = self.requests.get(key);
                let waits =
                    |of: &Request| of.kind == Kind::Connect && !of.is_done && of.peer == Some(peer);
                let Some(asked) = of.filter(|of| waits(of)) else { return };
                if status == code::STATUS_SUCCESS {
                    let name = asked.status.source.endpoint();
                    let addr = self.key_check.meet(peer, name);
                    let request = self.requests.get_mut(key);
                    request.into_iter().for_each(|request| request.status.source = addr);
                }
                self.end_with(key, status);
            }
            News::Failed(peer, failure) => self.peer_failed(peer, failure),
        }
    }

    /// Ends the requests to connect with a peer that failed.
    fn peer_failed(&mut self, peer: PeerId, failure: PeerFailure) {
        for key in self.requests.keys() {
            let of = self.requests.get(key);
            let asks = |of: &Request| of.kind == Kind::Connect && of.peer == Some(peer);
            if of.is_some_and(|of| asks(of) && !of.is_done) {
                self.end_with(key, code::status_of_failure(failure));
            }
        }
    }
}

/// The destination and kind of a send.
#[derive(Clone, Copy)]
pub struct Sending {
    /// The destination.
    pub to: Addr,
    /// Match bits.
    pub bits: u64,
    /// True if it completes when a receive has matched it.
    pub is_sync: bool,
    /// True if no call asks for its end.
    pub is_forgotten: bool,
    /// The program's context.
    pub context: usize,
}

impl Sending {
    /// Makes the request.
    #[inline]
    fn request(&self, peer: PeerId, memory: Memory) -> Request {
        let len = memory.len() as u32;
        let mut request = Request::new(Kind::Send, self.bits, self.context, memory);
        request.is_forgotten = self.is_forgotten;
        request.status.source = self.to;
        (request.status.msg_length, request.status.xfer_length) = (len, len);
        request.peer = Some(peer);
        request
    }
}

impl Open {
    /// Starts a send. `None` if it has no request: it is forgotten, and has ended.
    ///
    /// # Errors
    /// `MX_BAD_ENDPOINT`: the address is none of this endpoint; `MX_NO_RESOURCES`.
    ///
    /// # Safety
    /// The program lends the memory until the request has ended.
    #[inline]
    pub unsafe fn send(&mut self, mut memory: Memory, sending: &Sending) -> Answer<Option<Key>> {
        let (peer, is_connected) = self.key_check.peer(sending.to).ok_or(code::BAD_ENDPOINT)?;
        // SAFETY: promised by the caller.
        if is_connected && unsafe { self.send_copy(peer, &mut memory, sending) } {
            if sending.is_forgotten {
                return Ok(None);
            }
            let request = Request { is_done: true, ..sending.request(peer, memory) };
            let key = self.requests.add_done(request).ok_or(code::NO_RESOURCES)?;
            self.changes += 1;
            return Ok(Some(key));
        }
        // SAFETY: promised by the caller.
        unsafe { self.send_long((peer, is_connected), memory, sending) }.map(Some)
    }

    /// Sends a copy of a short message, if it can leave at once. False if nothing was sent.
    ///
    /// # Safety
    /// The memory is there.
    #[inline]
    unsafe fn send_copy(&self, peer: PeerId, memory: &mut Memory, sending: &Sending) -> bool {
        let len = memory.len();
        if sending.is_sync || len > COPIED || wired(peer).is_some() {
            return false;
        }
        let Some((at, _)) = memory.one_piece() else { return false };
        if !sending.is_forgotten && !self.requests.has_room() {
            return false;
        }
        // A copy needs no acknowledgement at once.
        let args = SendArgs { inject: true, ..SendArgs::new(peer, sending.bits, len as u64) };
        // SAFETY: promised by the caller.
        unsafe { self.endpoint().posted().send(at, args) }.is_ok()
    }

    /// Starts a send that may last.
    ///
    /// # Errors
    /// `MX_NO_RESOURCES`.
    ///
    /// # Safety
    /// The caller keeps the rules of `send`.
    unsafe fn send_long(
        &mut self,
        (peer, is_connected): (PeerId, bool),
        memory: Memory,
        sending: &Sending,
    ) -> Answer<Key> {
        let len = memory.len();
        let mut request = sending.request(peer, memory);
        // SAFETY: promised by the caller.
        let at = unsafe { request.memory.gather() }.ok_or(code::NO_RESOURCES)?;
        let key = self.add(request)?;
        if !is_connected {
            self.end_with(key, code::STATUS_BAD_SESSION);
            return Ok(key);
        }
        if let Some(to) = wired(peer) {
            // SAFETY: promised by the caller, or the piece of the request.
            let sent = unsafe { self.send_wired(key, to, (at, len), sending) };
            if sent.is_err() {
                self.requests.remove(key);
            }
            return sent.map(|()| key);
        }
        let args = SendArgs {
            context: context_of(key),
            sync: sending.is_sync,
            data: sending.is_sync.then_some(MATCHED.into()),
            // A copy needs no acknowledgement at once.
            inject: !sending.is_sync && len <= COPIED,
            ..SendArgs::new(peer, sending.bits, len as u64)
        };
        // SAFETY: promised by the caller, or the piece of the request, which stays until its end.
        let posted = match unsafe { self.endpoint().posted().send(at, args) } {
            Err(weft::Refused::Busy) if args.inject => {
                let args = SendArgs { inject: false, ..args };
                // SAFETY: as above.
                unsafe { self.endpoint().posted().send(at, args) }
            }
            posted => posted,
        };
        match posted {
            Ok(None) => self.end_with(key, code::STATUS_SUCCESS),
            Ok(op) => self.requests.get_mut(key).into_iter().for_each(|request| request.op = op),
            Err(weft::Refused::Peer(_, failure)) => {
                self.end_with(key, code::status_of_failure(failure));
            }
            Err(_) => {
                self.requests.remove(key);
                return Err(code::NO_RESOURCES);
            }
        }
        Ok(key)
    }

    /// Goes on with a request to connect, when the search for the endpoint has a result.
    pub fn sought(&mut self, key: Key, found: &Sought) {
        let waits = |of: &&mut Request| of.kind == Kind::Connect && !of.is_done;
        let Some(request) = self.requests.get_mut(key).filter(waits) else { return };
        let secret = request.secret;
        let address = match found {
            Sought::Found(address) => address,
            Sought::Nobody => return self.end_with(key, code::STATUS_ENDPOINT_CLOSED),
            Sought::Unreachable => return self.end_with(key, code::STATUS_ENDPOINT_UNREACHABLE),
            Sought::Late => return self.end_with(key, code::STATUS_TIMEOUT),
        };
        let peer = match self.endpoint().connect(address) {
            Ok(peer) => peer,
            Err(why) => {
                log::info!("a request to connect: {why}");
                return self.end_with(key, code::STATUS_ENDPOINT_UNREACHABLE);
            }
        };
        self.requests.get_mut(key).into_iter().for_each(|request| request.peer = Some(peer));
        if let Err(error) = self.key_check.ask(&self.port, peer, context_of(key), secret) {
            self.end_with(key, code::status_of(error));
        }
    }

    /// Ends the connection of an address: what was not sent ends, what was not received is dropped.
    ///
    /// # Errors
    /// `MX_BAD_ENDPOINT`: the address is none of this endpoint.
    pub fn disconnect(&mut self, addr: Addr) -> Answer {
        let (peer, is_connected) = self.key_check.peer(addr).ok_or(code::BAD_ENDPOINT)?;
        if !is_connected {
            return Ok(());
        }
        self.key_check.part(peer);
        if let Some(peer) = wired(peer) {
            self.disconnect_wired(peer);
        }
        for key in self.requests.keys() {
            let of = self.requests.get(key);
            if of.is_some_and(|of| of.kind != Kind::Recv && of.peer == Some(peer)) {
                self.stop(key, code::STATUS_ENDPOINT_UNREACHABLE);
            }
        }
        self.forget_messages(peer);
        Ok(())
    }
}
