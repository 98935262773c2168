//! Requests with peers that are reached by MXoE.
//!
//! The engine matches: a message that came is sent on to the endpoint itself, with a mark that says
//! where it is from. An announced message is sent on without its bytes; the receive that takes it
//! pulls them.

use super::request::{context_of, key_of, Kind, Request};
use super::{Open, Sending, COPIED};
use crate::address::{peer_id, Addr};
use crate::code::{self, Answer, StatusCode};
use crate::memory::Memory;
use crate::wire::{setting, Wire};
use std::rc::Rc;
use weft::port::Port;
use weft::{Completion, OpId, PeerId, SendArgs};
use weft_ffi::table::Key;
use weft_mxoe::node::{Event, Failure, Mac, NotSent, Offer, Outgoing, PeerIndex};
use weft_mxoe::MEDIUM_MAX;

/// Completion data of a message that was sent on: its peer, or with `OFFERED` the number of an
/// announcement.
const BROUGHT: u32 = 1 << 31;
const OFFERED: u32 = 1 << 30;
/// Contexts of operations that send messages on: no request has such a generation.
const SENT_ON: u64 = 1 << 63;
/// Messages that wait for receives, beyond the room that the endpoint has for them: with more the
/// senders wait.
const HELD_MAX: usize = 64 << 20;
const HELD_COUNT: usize = 1 << 16;

/// The origin of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A peer of the endpoint, which has sent it as it is.
    Endpoint,
    /// A peer that is reached by MXoE.
    Wire(PeerIndex),
    /// An announcement of such a peer.
    Offer(u32),
}

impl Origin {
    /// Returns the origin of a message with completion data.
    #[inline]
    pub fn of(data: Option<u64>) -> Origin {
        match data.map(|data| data as u32) {
            Some(data) if data & BROUGHT == 0 => Origin::Endpoint,
            Some(data) if data & OFFERED == 0 => Origin::Wire(PeerIndex(data as u16)),
            Some(data) => Origin::Offer(data & !(BROUGHT | OFFERED)),
            None => Origin::Endpoint,
        }
    }
}

fn status_of(failure: Failure) -> StatusCode {
    match failure {
        Failure::Silent => code::STATUS_ENDPOINT_UNREACHABLE,
        Failure::Closed => code::STATUS_ENDPOINT_CLOSED,
    }
}

/// A table of things that are taken once.
struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    fn new() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    fn add(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(value);
                at
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() as u32 - 1
            }
        }
    }

    fn get(&self, at: u32) -> Option<&T> {
        self.slots.get(at as usize)?.as_ref()
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    fn take(&mut self, at: u32) -> Option<T> {
        let value = self.slots.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(value)
    }
}

/// The parts of an endpoint for MXoE.
pub struct Wired {
    wire: Rc<Wire>,
    port: Port,
    offers: Slab<Offer>,
    /// Messages that are being sent on.
    brought: Slab<(Memory, Option<OpId>)>,
    held: usize,
    count: usize,
}

impl Wired {
    /// Makes the parts.
    pub fn new(wire: Rc<Wire>, port: Port) -> Wired {
        let (offers, brought) = (Slab::new(), Slab::new());
        Wired { wire, port, offers, brought, held: 0, count: 0 }
    }

    /// Drops an announced message: its sender learns that it was taken.
    fn refuse(&self, offer: Offer) {
        self.wire.refuse_offer(&self.port, offer);
    }

    fn note_room(&self) {
        self.wire.set_full(self.held > HELD_MAX || self.count > HELD_COUNT);
    }
}

impl Open {
    /// Returns the address of a message's sender, and the message's length.
    #[inline]
    pub fn origin(&self, source: PeerId, data: Option<u64>, len: u64) -> (PeerId, u64) {
        match Origin::of(data) {
            Origin::Endpoint => (source, len),
            Origin::Wire(peer) => (peer_id(peer), len),
            Origin::Offer(at) => {
                let offer = self.wired.as_ref().and_then(|wired| wired.offers.get(at));
                offer.map_or((source, len), |offer| (peer_id(offer.peer), offer.len.into()))
            }
        }
    }

    /// Handles what the wire has brought.
    pub fn take_wire(&mut self) {
        while let Some(event) = self.wired.as_ref().and_then(|of| of.wire.event(&of.port)) {
            self.wire_event(event);
        }
    }

    fn wire_event(&mut self, event: Event) {
        match event {
            Event::Connected(peer) => {
                let addr = self.meet_wired(peer);
                self.each_of(Kind::Connect, peer, |open, key| {
                    open.set_source(key, addr);
                    open.end_with(key, code::STATUS_SUCCESS);
                });
            }
            Event::Refused(peer, status) => {
                let status = match StatusCode::from(status) {
                    // No endpoint is open there, as one of weft would say.
                    code::STATUS_BAD_ENDPOINT => code::STATUS_ENDPOINT_CLOSED,
                    status => status,
                };
                self.each_of(Kind::Connect, peer, |open, key| open.end_with(key, status));
            }
            Event::Received { peer, match_bits, data } => {
                self.meet_wired(peer);
                self.bring(match_bits, data, u32::from(peer.0));
            }
            Event::Announced { offer, match_bits } => {
                self.meet_wired(offer.peer);
                let Some(wired) = &mut self.wired else { return };
                let at = wired.offers.add(offer);
                self.bring(match_bits, Vec::new(), OFFERED | at);
            }
            Event::Pulled { context, len, .. } => self.pulled(key_of(context), len),
            Event::NotPulled { context, .. } => {
                let key = key_of(context);
                if self.requests.get(key).is_some_and(|request| request.is_pulling) {
                    self.end_with(key, code::STATUS_ENDPOINT_UNREACHABLE);
                }
            }
            Event::Sent { context, len, .. } => {
                let key = key_of(context);
                let Some(request) = self.requests.get_mut(key) else { return };
                if request.kind == Kind::Send && !request.is_done {
                    request.status.xfer_length = len;
                    // The wire has given the bytes back.
                    request.is_lent = false;
                    self.end_with(key, code::STATUS_SUCCESS);
                }
            }
            Event::Failed(peer, failure) => {
                let status = status_of(failure);
                self.each_of(Kind::Send, peer, |open, key| open.end_with(key, status));
                self.each_of(Kind::Connect, peer, |open, key| open.end_with(key, status));
            }
            Event::Misdirected(_) => {}
        }
    }

    /// Notes the endpoint of a peer, which is connected; returns its address.
    fn meet_wired(&mut self, peer: PeerIndex) -> Addr {
        let id = peer_id(peer);
        let addr = self.key_check.address(id);
        if let Some((_, true)) = self.key_check.peer(addr) {
            return addr;
        }
        let known = self.wired.as_ref().and_then(|wired| wired.wire.peer(peer));
        let (mac, number) = known.unwrap_or_default();
        self.key_check.meet(id, (setting::nic_of(mac), number.into()))
    }

    fn set_source(&mut self, key: Key, addr: Addr) {
        if let Some(request) = self.requests.get_mut(key) {
            request.status.source = addr;
        }
    }

    /// Calls `f` with the requests of a kind that wait for a peer.
    fn each_of(&mut self, kind: Kind, peer: PeerIndex, mut f: impl FnMut(&mut Open, Key)) {
        let id = Some(peer_id(peer));
        let waits = |of: &Request| of.kind == kind && of.peer == id && !of.is_done;
        for key in self.requests.keys() {
            if self.requests.get(key).is_some_and(waits) {
                f(self, key);
            }
        }
    }

    /// Sends a message on to the endpoint itself.
    fn bring(&mut self, bits: u64, bytes: Vec<u8>, mark: u32) {
        let (_, me) = self.own.peer();
        let Some(wired) = &mut self.wired else { return };
        let len = bytes.len();
        let slot = wired.brought.add((Memory::own(bytes), None));
        let args = SendArgs {
            context: SENT_ON | u64::from(slot),
            data: Some((BROUGHT | mark).into()),
            inject: len <= COPIED,
            ..SendArgs::new(me, bits, len as u64)
        };
        let Some((memory, of)) = wired.brought.get_mut(slot) else { return };
        match memory.send_or_borrow(self.port.endpoint(), args) {
            Ok(None) => {
                wired.brought.take(slot);
            }
            Ok(op) => {
                *of = op;
                (wired.held, wired.count) = (wired.held + len, wired.count + 1);
                wired.note_room();
            }
            Err(why) => {
                log::error!("a message of MX over Ethernet is lost: {why:?}");
                wired.brought.take(slot);
            }
        }
    }

    /// Handles the end of an operation that has sent a message on. False if it is none.
    #[inline]
    pub fn ended_wired(&mut self, done: &Completion) -> bool {
        if done.context >> 32 != SENT_ON >> 32 {
            return false;
        }
        if let Some(wired) = &mut self.wired {
            let taken = wired.brought.take(done.context as u32);
            let len = taken.map_or(0, |(memory, _)| memory.len());
            (wired.held, wired.count) = (wired.held - len, wired.count - 1);
            wired.note_room();
        }
        true
    }

    /// Drops an announced message: its sender learns that it was taken.
    pub fn drop_offer(&mut self, data: Option<u64>) {
        let Origin::Offer(at) = Origin::of(data) else { return };
        let Some(wired) = &mut self.wired else { return };
        if let Some(offer) = wired.offers.take(at) {
            wired.refuse(offer);
        }
    }

    /// Pulls the announced message that a receive has matched. False if the message has come as it
    /// is.
    pub fn pull_offer(&mut self, key: Key, data: Option<u64>) -> bool {
        let Origin::Offer(at) = Origin::of(data) else { return false };
        let (Some(wired), Some(request)) = (&mut self.wired, self.requests.get_mut(key)) else {
            return true;
        };
        let Some(offer) = wired.offers.take(at) else { return true };
        let room = u32::try_from(request.memory.len()).unwrap_or(u32::MAX);
        (request.op, request.is_pulling) = (None, true);
        request.peer = Some(peer_id(offer.peer));
        request.status.msg_length = offer.len;
        // The end of the request forgets the place.
        let to = request.memory.target();
        wired.wire.pull(&wired.port, offer, room, (context_of(key), to));
        true
    }

    /// Takes the memory of a request back from the wire.
    pub fn take_back_wired(&mut self, key: Key) {
        let (Some(wired), Some(request)) = (&self.wired, self.requests.get_mut(key)) else {
            return;
        };
        if std::mem::take(&mut request.is_lent) {
            wired.wire.own(context_of(key));
        }
        if request.is_pulling {
            wired.wire.forget_place(context_of(key));
        }
    }

    /// Ends a receive whose message was pulled.
    fn pulled(&mut self, key: Key, len: u32) {
        let Some(request) = self.requests.get_mut(key).filter(|request| request.is_pulling) else {
            return;
        };
        request.status.xfer_length = len;
        let is_cut = request.status.xfer_length < request.status.msg_length;
        self.end_with(key, if is_cut { code::STATUS_TRUNCATED } else { code::STATUS_SUCCESS });
    }

    /// Begins a request to connect with an endpoint at an address of Ethernet.
    pub fn connect_wired(&mut self, key: Key, mac: Mac, number: u8, secret: u32) {
        let Some(wired) = &self.wired else { return };
        match wired.wire.connect(&wired.port, mac, number, secret) {
            Some(peer) => {
                let request = self.requests.get_mut(key);
                request.into_iter().for_each(|of| of.peer = Some(peer_id(peer)));
            }
            None => self.end_with(key, code::STATUS_NO_RESOURCES),
        }
    }

    /// Returns the interface's address, if the endpoint has one for MXoE.
    pub fn mac(&self) -> Option<Mac> {
        self.wired.as_ref().map(|wired| wired.wire.mac())
    }

    /// Starts a send to a peer that is reached by MXoE.
    ///
    /// # Errors
    /// `MX_NO_RESOURCES`.
    pub fn send_wired(&mut self, key: Key, peer: PeerIndex, sending: &Sending) -> Answer {
        let Some(wired) = &self.wired else { return Err(code::BAD_ENDPOINT) };
        let Some(request) = self.requests.get_mut(key) else { return Ok(()) };
        let (match_bits, context, is_sync) = (sending.bits, context_of(key), sending.is_sync);
        let len = request.memory.len();
        let sent = if len > MEDIUM_MAX as usize && wired.wire.lends() {
            request.is_lent = true;
            // The end of the request takes them back.
            let data = Box::new(request.memory.borrowed());
            wired.wire.send_lent(&wired.port, peer, (match_bits, context), data)
        } else {
            let data = request.memory.copied().ok_or(code::NO_RESOURCES)?;
            let message = Outgoing { match_bits, data, context, is_sync };
            wired.wire.send(&wired.port, peer, message)
        };
        match sent {
            // The node has the bytes: the memory can be used again.
            Ok(()) if !is_sync && len <= MEDIUM_MAX as usize => {
                self.end_with(key, code::STATUS_SUCCESS);
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(NotSent::NotConnected) => {
                self.end_with(key, code::STATUS_ENDPOINT_UNREACHABLE);
                Ok(())
            }
            Err(NotSent::Failed(failure)) => {
                self.end_with(key, status_of(failure));
                Ok(())
            }
            Err(NotSent::Busy | NotSent::TooLong) => Err(code::NO_RESOURCES),
        }
    }

    /// Ends the connection to a peer that is reached by MXoE.
    pub fn disconnect_wired(&mut self, peer: PeerIndex) {
        let status = code::STATUS_ENDPOINT_UNREACHABLE;
        for kind in [Kind::Send, Kind::Connect, Kind::Recv] {
            self.each_of(kind, peer, |open, key| open.end_with(key, status));
        }
        if let Some(wired) = &self.wired {
            wired.wire.disconnect(&wired.port, peer);
        }
    }

    /// Returns the session of a peer that is reached by MXoE.
    pub fn session_wired(&self, peer: PeerIndex) -> u32 {
        let session = self.wired.as_ref().and_then(|wired| wired.wire.session(peer));
        session.unwrap_or_default()
    }

    /// Waits until peers have what was sent to them, but not for ever.
    pub fn end_wired(&mut self, time: std::time::Duration) {
        let Some(wired) = &self.wired else { return };
        let end = std::time::Instant::now() + time;
        while !wired.wire.is_quiet() && std::time::Instant::now() < end {
            self.port.endpoint().wait(Some(std::time::Duration::from_millis(10)));
            wired.wire.progress(&wired.port);
        }
        wired.wire.close(&wired.port);
        for (_, op) in wired.brought.slots.iter().flatten() {
            op.iter().for_each(|op| self.port.endpoint().posted().take_back(*op));
        }
    }
}
