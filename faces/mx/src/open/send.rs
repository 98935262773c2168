//! Sends.

use super::request::{context_of, Kind, Request};
use super::{Open, COPIED};
use crate::address::{wired, Addr};
use crate::code::{self, Answer};
use crate::memory::Memory;
use weft::{PeerId, Refused, SendArgs};
use weft_ffi::table::Key;

/// Data of a message whose sender waits until it is matched: its bytes are not at hand before.
const MATCHED: u32 = 1;

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
    #[inline]
    pub fn send(&mut self, mut memory: Memory, sending: &Sending) -> Answer<Option<Key>> {
        let (peer, is_connected) = self.key_check.peer(sending.to).ok_or(code::BAD_ENDPOINT)?;
        if is_connected && self.send_copy(peer, &mut memory, sending) {
            if sending.is_forgotten {
                return Ok(None);
            }
            let request = Request { is_done: true, ..sending.request(peer, memory) };
            let key = self.requests.add_done(request).ok_or(code::NO_RESOURCES)?;
            self.changes += 1;
            return Ok(Some(key));
        }
        self.send_long((peer, is_connected), memory, sending).map(Some)
    }

    /// Sends a copy of a short message, if it can leave at once. False if nothing was sent.
    #[inline]
    fn send_copy(&self, peer: PeerId, memory: &mut Memory, sending: &Sending) -> bool {
        let len = memory.len();
        let is_short = len <= COPIED && memory.is_one_piece();
        if sending.is_sync || !is_short || wired(peer).is_some() {
            return false;
        }
        if !sending.is_forgotten && !self.requests.has_room() {
            return false;
        }
        // A copy needs no acknowledgement at once.
        let args = SendArgs { inject: true, ..SendArgs::new(peer, sending.bits, len as u64) };
        memory.send(self.endpoint(), args).is_ok()
    }

    /// Starts a send that may last.
    ///
    /// # Errors
    /// `MX_NO_RESOURCES`.
    fn send_long(
        &mut self,
        (peer, is_connected): (PeerId, bool),
        memory: Memory,
        sending: &Sending,
    ) -> Answer<Key> {
        let len = memory.len();
        let mut request = sending.request(peer, memory);
        request.memory.gather().ok_or(code::NO_RESOURCES)?;
        let key = self.add(request)?;
        if !is_connected {
            self.end_with(key, code::STATUS_BAD_SESSION);
            return Ok(key);
        }
        if let Some(to) = wired(peer) {
            let sent = self.send_wired(key, to, sending);
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
        let Some(request) = self.requests.get_mut(key) else { return Ok(key) };
        match request.memory.send_or_borrow(self.port.endpoint(), args) {
            Ok(None) => self.end_with(key, code::STATUS_SUCCESS),
            Ok(op) => request.op = op,
            Err(Refused::Peer(_, failure)) => {
                self.end_with(key, code::status_of_failure(failure));
            }
            Err(_) => {
                self.requests.remove(key);
                return Err(code::NO_RESOURCES);
            }
        }
        Ok(key)
    }
}
