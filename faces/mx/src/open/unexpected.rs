//! Messages that came before their receives, where the program has a handler for them.
//!
//! The handler sees each message once, in the order in which they came, in a call of the program
//! that makes progress. A message that it leaves is kept, before those that come later: receives
//! look there first. A receive that is posted meanwhile waits until the handler has decided.

use super::request::context_of;
use super::wired::Origin;
use super::Open;
use crate::address::Addr;
use crate::code::{self, Answer};
use crate::memory::Memory;
use std::collections::VecDeque;
use std::ffi::c_void;
use weft::{Completion, OpId, PeerId};
use weft_core::engine::types::Claimed;
use weft_ffi::sys::lock::Inside;
use weft_ffi::table::Key;

/// `mx_unexp_handler_t`: context, source, match bits, length, and the bytes if they are at hand.
pub type Handler = extern "C" fn(usize, Addr, u64, u32, *mut c_void) -> i32;

/// A handler of the program, and its context.
#[derive(Clone, Copy)]
pub struct OnUnexpected {
    /// The handler.
    pub handler: Handler,
    /// The program's context.
    pub context: usize,
}

/// Context of an operation that fetches the bytes for the handler.
const FETCH: u64 = u64::MAX;
/// Context of an operation that drops a message.
const DROP: u64 = u64::MAX - 1;
/// Bytes of longer messages are not at hand: the length of one fragment in MX.
const AT_HAND: u64 = 4096;
/// `MX_RECV_FINISHED`.
const FINISHED: i32 = 1;

enum Body {
    Claimed(Claimed),
    /// The bytes are on their way into the memory.
    Fetched(OpId, Memory),
    /// The bytes are here; while the handler runs, its call has them.
    Here(Vec<u8>),
}

/// A message.
struct Message {
    source: PeerId,
    bits: u64,
    len: u64,
    body: Body,
}

/// A handler, and the messages that it has left.
#[derive(Default)]
pub struct Unexpected {
    handler: Option<OnUnexpected>,
    /// The message that the handler decides about next.
    current: Option<Message>,
    /// The thread that is in the handler.
    running: Option<std::thread::ThreadId>,
    kept: VecDeque<Message>,
    /// Receives that wait for the handler's decision, oldest first.
    deferred: Vec<Key>,
}

/// A call of the handler.
struct Call {
    of: OnUnexpected,
    source: Addr,
    bits: u64,
    len: u32,
    /// The bytes, if they are at hand.
    data: Option<Vec<u8>>,
}

impl Call {
    fn run(&mut self) -> i32 {
        let data = self.data.as_mut().map_or(std::ptr::null_mut(), |data| data.as_mut_ptr());
        (self.of.handler)(self.of.context, self.source, self.bits, self.len, data.cast())
    }
}

/// A message that a search has found.
pub struct Found {
    /// The sender.
    pub source: PeerId,
    /// Match bits.
    pub bits: u64,
    /// Length.
    pub len: u64,
}

impl Unexpected {
    /// Returns a message that the handler has left.
    pub fn probe(&self, bits: u64, mask: u64) -> Option<Found> {
        let found = self.kept.iter().find(|message| message.bits & mask == bits)?;
        Some(Found { source: found.source, bits: found.bits, len: found.len })
    }

    /// True if this thread is in the handler.
    pub fn is_in_handler(&self) -> bool {
        self.running == Some(std::thread::current().id())
    }

    /// Removes a receive that waits. True if it did.
    pub fn give_up(&mut self, key: Key) -> bool {
        let before = self.deferred.len();
        self.deferred.retain(|of| *of != key);
        self.deferred.len() < before
    }

    /// Drops the messages of a peer.
    fn forget(&mut self, peer: PeerId) -> VecDeque<Message> {
        let (of, others) = self.kept.drain(..).partition(|message| message.source == peer);
        self.kept = others;
        of
    }
}

impl Open {
    /// Sets the handler, or none.
    pub fn set_handler(&mut self, handler: Option<OnUnexpected>) {
        self.settle_expected();
        self.unexpected.handler = handler;
        let idle = self.unexpected.running.is_none() && self.is_current_at_hand();
        if handler.is_none() && idle {
            self.decided(0, None);
        }
    }

    /// True if the program has a handler, or it has not decided about all messages.
    #[inline]
    pub(super) fn has_handler(&self) -> bool {
        self.unexpected.handler.is_some() || self.unexpected.current.is_some()
    }

    fn is_current_at_hand(&self) -> bool {
        let current = self.unexpected.current.as_ref();
        current.is_some_and(|message| !matches!(message.body, Body::Fetched(..)))
    }

    /// Handles the end of an operation on a message. False if it is none of those.
    #[inline]
    pub fn ended_unexpected(&mut self, done: &Completion) -> bool {
        match done.context {
            DROP => {
                self.drop_offer(done.status.data);
                true
            }
            FETCH => {
                self.fetched(done);
                true
            }
            _ => false,
        }
    }

    fn fetched(&mut self, done: &Completion) {
        let Some(mut message) = self.unexpected.current.take() else { return };
        match message.body {
            Body::Fetched(op, data) if op == done.op => {
                if done.error.is_some() {
                    // Its sender has failed: the message is none.
                    return self.start_deferred();
                }
                message.body = Body::Here(data.into_own());
            }
            body => message.body = body,
        }
        self.unexpected.current = Some(message);
        if self.unexpected.handler.is_none() && self.unexpected.running.is_none() {
            self.decided(0, None);
        }
    }

    /// Finds the next message for the handler. `None` if there is none, or its bytes have not come.
    fn next_call(&mut self) -> Option<Call> {
        let of = self.unexpected.handler?;
        if self.unexpected.running.is_some() || self.is_disabled {
            return None;
        }
        if self.unexpected.current.is_none() {
            let (claimed, probed) = self.endpoint().posted().claim(None, 0, u64::MAX)?;
            let (source, len) = self.origin(probed.source, probed.data, probed.len);
            let bits = probed.tag;
            let is_whole = match Origin::of(probed.data) {
                Origin::Endpoint => probed.data.is_none(),
                Origin::Wire(_) => true,
                Origin::Offer(_) => false,
            };
            let at_hand = len <= AT_HAND && is_whole;
            let body = if at_hand { self.fetch(claimed, len) } else { Body::Claimed(claimed) };
            self.unexpected.current = Some(Message { source, bits, len, body });
            self.collect();
        }
        let message = self.unexpected.current.as_mut()?;
        let data = match &mut message.body {
            Body::Fetched(..) => return None,
            Body::Claimed(_) => None,
            Body::Here(data) => Some(std::mem::take(data)),
        };
        let source = self.key_check.address(message.source);
        self.unexpected.running = Some(std::thread::current().id());
        let len = u32::try_from(message.len).unwrap_or(u32::MAX);
        Some(Call { of, source, bits: message.bits, len, data })
    }

    fn fetch(&mut self, claimed: Claimed, len: u64) -> Body {
        let mut memory = Memory::own(vec![0; len as usize]);
        let op = memory.receive_claimed(self.endpoint(), claimed, FETCH);
        op.map_or(Body::Claimed(claimed), |op| Body::Fetched(op, memory))
    }

    /// Drops a claimed message.
    fn drop_claimed(&self, claimed: Claimed) {
        Memory::default().receive_claimed(self.endpoint(), claimed, DROP);
    }

    /// Does as the handler has decided about the current message, whose bytes its call had.
    fn decided(&mut self, action: i32, had: Option<Vec<u8>>) {
        self.unexpected.running = None;
        let Some(mut message) = self.unexpected.current.take() else {
            return self.start_deferred();
        };
        if let (Body::Here(data), Some(had)) = (&mut message.body, had) {
            *data = had;
        }
        if action == FINISHED {
            self.drop_message(message);
        } else {
            self.unexpected.kept.push_back(message);
        }
        self.start_deferred();
    }

    fn drop_message(&self, message: Message) {
        if let Body::Claimed(claimed) = message.body {
            self.drop_claimed(claimed);
        }
    }

    /// Drops the messages of a peer that no receive has taken.
    pub fn forget_messages(&mut self, peer: PeerId) {
        self.settle_expected();
        for message in self.unexpected.forget(peer) {
            self.drop_message(message);
        }
        if crate::address::wired(peer).is_some() {
            // The engine has them as its own.
            return;
        }
        while let Some((claimed, _)) = self.endpoint().posted().claim(Some(peer), 0, u64::MAX) {
            self.drop_claimed(claimed);
        }
    }

    /// Starts the receives that waited for a decision.
    fn start_deferred(&mut self) {
        for key in std::mem::take(&mut self.unexpected.deferred) {
            if self.start_receive(key).is_err() {
                self.end_with(key, code::STATUS_NO_RESOURCES);
            }
        }
    }

    /// Finds a message that the handler has left.
    pub fn probe_left(&self, bits: u64, mask: u64) -> Option<Found> {
        self.unexpected.probe(bits, mask)
    }

    /// Starts a receive: it takes a message that the handler has left, waits for its decision, or
    /// goes to the endpoint.
    ///
    /// # Errors
    /// `MX_NO_RESOURCES`.
    #[inline]
    pub fn start_receive(&mut self, key: Key) -> Answer {
        if self.unexpected.current.is_some() {
            self.unexpected.deferred.push(key);
            return Ok(());
        }
        self.settle_expected();
        if self.unexpected.kept.is_empty() {
            return self.post_receive(key);
        }
        let Some(request) = self.requests.get_mut(key) else { return Ok(()) };
        let (bits, mask) = (request.status.match_info, request.mask);
        let fits = |message: &Message| message.bits & mask == bits;
        let at = self.unexpected.kept.iter().position(fits);
        if at.is_some() {
            // A message that there is no memory for stays.
            request.memory.make_room().ok_or(code::NO_RESOURCES)?;
        }
        match at.and_then(|at| self.unexpected.kept.remove(at)) {
            Some(message) => self.take_message(key, message),
            None => self.post_receive(key),
        }
    }

    /// Gives a message to a receive.
    fn take_message(&mut self, key: Key, message: Message) -> Answer {
        let source = self.key_check.address(message.source);
        let Some(request) = self.requests.get_mut(key) else { return Ok(()) };
        let data = match message.body {
            Body::Claimed(claimed) => {
                let endpoint = self.port.endpoint();
                let op = request.memory.receive_claimed(endpoint, claimed, context_of(key));
                op.into_iter().for_each(|op| self.note_posted(key, op));
                return op.map(|_| ()).ok_or(code::NO_RESOURCES);
            }
            Body::Here(data) => data,
            Body::Fetched(_, memory) => memory.into_own(),
        };
        request.memory.fill(&data);
        let stored = data.len().min(request.memory.len());
        request.status.source = source;
        request.status.match_info = message.bits;
        request.status.msg_length = data.len() as u32;
        request.status.xfer_length = stored as u32;
        let is_cut = stored < data.len();
        self.end_with(key, if is_cut { code::STATUS_TRUNCATED } else { code::STATUS_SUCCESS });
        Ok(())
    }
}

/// Calls the handler for all messages that have come.
///
/// # Errors
/// `MX_BAD_ENDPOINT`: the endpoint was closed meanwhile.
#[inline]
pub fn run_handler(inside: &mut Inside<Open>) -> Answer {
    if inside.open()?.unexpected.handler.is_none() {
        return Ok(());
    }
    while let Some(mut call) = inside.open()?.next_call() {
        let action = inside.outside(|| call.run())?;
        inside.open()?.decided(action, call.data);
    }
    Ok(())
}
