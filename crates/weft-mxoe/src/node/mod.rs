//! One endpoint that speaks MXoE, as a state machine: frames and the time go in, frames and events
//! come out. It does no I/O and reads no clock.
//!
//! The endpoint connects by keys and sends messages in order and once, whatever the network loses,
//! doubles or reorders. Messages of up to 32 KiB go as tiny, small or fragmented ones. Longer
//! messages, and those whose sender waits until they are matched, are announced; the receiver pulls
//! them in blocks when it wants them, and tells the sender when it has them. Everything is bounded:
//! peers, windows, pulls, frames and messages that wait.
//!
//! The format has no authentication, so a frame acts only if it names the session of this endpoint,
//! a peer of its address and a sequence number of the window, or a window or pull that exists. All
//! others are dropped and counted.

mod incoming;
mod peer;
mod pull;
mod receive;
mod send;
mod seq;
#[cfg(test)]
mod tests;
mod unacked;
mod window;

use crate::packet::{Window, MEDIUM_MAX};
use crate::{Dialect, Ends, Frame, Packet, Refusal};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use peer::Peer;
pub use pull::pull_magic;
use pull::Pulls;
use unacked::Body;
use window::Windows;

/// A time in microseconds, from any beginning.
pub type Time = u64;
/// An address of Ethernet.
pub type Mac = [u8; 6];

/// Most peers of an endpoint.
const PEERS_MAX: usize = 1024;
/// Most frames that wait to be sent; further ones are lost, and sent again later.
const QUEUE_MAX: usize = 4096;
/// Most events that wait; while there are so many, no further messages are taken.
const EVENTS_MAX: usize = 1 << 14;
/// Most messages to a peer that it has not acknowledged.
pub const WINDOW: u16 = 64;
/// Most messages to a peer, those that wait for the window included.
pub const WAITING_MAX: usize = 1 << 16;
/// Messages that come without an acknowledgement back.
const UNACKED_MAX: u32 = 4;
/// The index of a sender before the receiver has told one.
const NO_INDEX: u16 = u16::MAX;
/// Status of a connection with a wrong key.
const BAD_KEY: u8 = 11;

/// Settings that both hosts share, and times.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The dialect of the network.
    pub dialect: Dialect,
    /// Length of the fragments of a medium message.
    pub fragment: u16,
    /// Length of the frames of a pull.
    pub reply: u16,
    /// Frames of a block of a pull, at most 64.
    pub block: u8,
    /// Blocks of a pull that are on their way at a time.
    pub depth: u8,
    /// Time after which a message is sent again.
    pub resend: Time,
    /// A peer that answers none of so many has failed.
    pub resends_max: u32,
    /// Time without a frame after which a block of a pull is asked for again.
    pub pull_again: Time,
    /// Longest time until a message is acknowledged.
    pub ack_delay: Time,
    /// Time of silence after which a peer that has not pulled a message is asked if it lives; 0 for
    /// never.
    pub probe: Time,
    /// True if other endpoints of this host have the address too: requests for a number that is
    /// not this endpoint's are told by [`Event::Misdirected`] and not refused.
    pub is_shared: bool,
}

impl Settings {
    /// Returns those of Open-MX for frames of a length, Ethernet's header included.
    pub fn of(dialect: Dialect, mtu: u16) -> Settings {
        let room = mtu.saturating_sub(48).max(1);
        let fragment = match dialect {
            Dialect::Compat => dialect.fragment_max(),
            Dialect::Native if room <= 4096 => room,
            Dialect::Native if room < 8192 => 4096,
            Dialect::Native => 8192,
        };
        let reply = match dialect {
            Dialect::Compat => dialect.reply_max(),
            Dialect::Native => mtu.saturating_sub(32).clamp(1, dialect.reply_max()),
        };
        Settings {
            dialect,
            fragment,
            reply,
            block: dialect.replies_per_block() as u8,
            depth: 4,
            resend: 500_000,
            resends_max: 1000,
            pull_again: 1_000_000,
            ack_delay: 15_625,
            probe: 5_000_000,
            is_shared: false,
        }
    }
}

/// Number of a peer of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerIndex(pub u16);

/// An announced message, which its receiver may pull: once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The sender.
    pub peer: PeerIndex,
    /// Length of the message.
    pub len: u32,
    session: u32,
    window: Window,
}

/// A packet for an endpoint that is not this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misdirected {
    /// The number that it names.
    pub number: u8,
    to: Mac,
    ends: Ends,
    seq: u16,
}

/// A message to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Match bits.
    pub match_bits: u64,
    /// The message.
    pub data: Vec<u8>,
    /// The caller's context, which comes back when the message was sent.
    pub context: u64,
    /// True if it has been sent only when its receiver has taken it.
    pub is_sync: bool,
}

/// The bytes of a message: the endpoint's own, or lent by the caller until the message has ended.
pub type Lent = Box<dyn AsRef<[u8]>>;

/// Takes the bytes of a pull that the caller places: the context of the pull, the offset in the
/// message, and bytes of the frame.
pub type Sink<'a> = dyn FnMut(u64, usize, &[u8]) + 'a;

/// A frame in two parts, without the header of Ethernet.
pub struct Transmit<'a> {
    /// Its destination.
    pub to: Mac,
    /// Its beginning.
    pub head: &'a [u8],
    /// The rest: bytes of a message where that lies.
    pub payload: &'a [u8],
}

/// An event of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request to connect was answered.
    Connected(PeerIndex),
    /// A request to connect was refused: a status of MX.
    Refused(PeerIndex, u8),
    /// A message came.
    Received {
        /// The sender.
        peer: PeerIndex,
        /// Match bits.
        match_bits: u64,
        /// The message.
        data: Vec<u8>,
    },
    /// A message is announced: [`Node::pull`] fetches it.
    Announced {
        /// The message.
        offer: Offer,
        /// Match bits.
        match_bits: u64,
    },
    /// A message was pulled.
    Pulled {
        /// The sender.
        peer: PeerIndex,
        /// The caller's context of the pull.
        context: u64,
        /// The message, as much as was asked for; empty if the caller has placed it.
        data: Vec<u8>,
        /// The bytes that came.
        len: u32,
    },
    /// A message cannot be pulled: its sender has it no more.
    NotPulled {
        /// The sender.
        peer: PeerIndex,
        /// The caller's context of the pull.
        context: u64,
    },
    /// The peer has acknowledged a message, or has pulled it.
    Sent {
        /// The receiver.
        peer: PeerIndex,
        /// The caller's context of the message.
        context: u64,
        /// Bytes that the receiver has taken.
        len: u32,
    },
    /// A peer failed: messages to it are lost. Pulls from it have ended by [`Event::NotPulled`]
    /// before.
    Failed(PeerIndex, Failure),
    /// A request came for a number that is not this endpoint's: [`Node::refuse`] tells the sender
    /// that no endpoint has it.
    Misdirected(Misdirected),
}

/// The reason why a peer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer answers no more.
    Silent,
    /// The peer was closed, or opened anew.
    Closed,
}

/// The reason why a message is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The peer is not connected.
    NotConnected,
    /// The peer has failed.
    Failed(Failure),
    /// Longer than 4 GiB.
    TooLong,
    /// Too many messages wait: try again later.
    Busy,
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that had no meaning, named a session, window or pull that does not exist, or exceeded
    /// a bound.
    pub dropped: u64,
    /// Messages and frames of pulls that came before.
    pub duplicates: u64,
    /// Messages and requests that were sent again.
    pub resent: u64,
}

/// An endpoint.
pub struct Node {
    settings: Settings,
    number: u8,
    key: u32,
    session: u32,
    peers: Vec<Peer>,
    windows: Windows,
    pulls: Pulls,
    frames: Frames,
    /// The beginnings of the frames that are being sent.
    head: Vec<u8>,
    /// Answers that are being sent, each with the place of its beginning.
    replies: Vec<(window::Reply, core::ops::Range<usize>)>,
    events: VecDeque<Event>,
    counters: Counters,
    /// True while no further messages are taken.
    is_full: bool,
}

/// Frames that wait to be sent.
struct Frames {
    dialect: Dialect,
    queue: VecDeque<(Mac, Vec<u8>)>,
}

impl Frames {
    fn push(&mut self, to: Mac, index: u16, packet: Packet, payload: &[u8]) {
        if self.queue.len() >= QUEUE_MAX {
            return;
        }
        if let Ok(header) = Frame::new(index, packet).encode(self.dialect) {
            let mut bytes = Vec::with_capacity(header.len() + payload.len());
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(payload);
            self.queue.push_back((to, bytes));
        }
    }
}

impl Node {
    /// Opens an endpoint with a number, a key that others need, and a session that no earlier
    /// endpoint of this number had.
    pub fn new(settings: Settings, number: u8, key: u32, session: u32) -> Node {
        Node {
            settings,
            number,
            key,
            session,
            peers: Vec::new(),
            windows: Windows::new(settings.reply),
            pulls: Pulls::new(&settings, number, session),
            frames: Frames { dialect: settings.dialect, queue: VecDeque::new() },
            head: Vec::new(),
            replies: Vec::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            is_full: false,
        }
    }

    /// Asks an endpoint to connect. `None` if there are too many peers.
    pub fn connect(&mut self, now: Time, to: Mac, number: u8, key: u32) -> Option<PeerIndex> {
        let index = self.meet(to, number)?;
        let again = now + self.settings.resend;
        self.peer_mut(index).ask(again, key);
        self.send_request(index);
        Some(index)
    }

    /// Ends the connection to a peer: messages to it and pulls from it end without an event.
    pub fn disconnect(&mut self, now: Time, peer: PeerIndex) {
        if self.peers.len() > usize::from(peer.0) {
            self.peer_mut(peer).reset();
            self.windows.forget(peer);
            self.pulls.forget(now, peer);
            self.flush_all(now);
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The message is too long, the peer is not connected, or too many messages wait.
    pub fn send(&mut self, now: Time, to: PeerIndex, message: Outgoing) -> Result<(), NotSent> {
        let Outgoing { match_bits, data, context, is_sync } = message;
        u32::try_from(data.len()).map_err(|_| NotSent::TooLong)?;
        let is_long = is_sync || data.len() > MEDIUM_MAX as usize;
        let body = if is_long { Body::Long(Box::new(data)) } else { Body::Data(data) };
        self.send_body(now, to, (match_bits, context), body)
    }

    /// Announces a message whose bytes stay with the caller: until [`Event::Sent`] with its
    /// context, until its peer has failed or is disconnected, or until [`own`](Node::own).
    ///
    /// # Errors
    /// Returns the errors of [`send`](Node::send).
    pub fn send_lent(
        &mut self,
        now: Time,
        to: PeerIndex,
        (match_bits, context): (u64, u64),
        data: Lent,
    ) -> Result<(), NotSent> {
        u32::try_from((*data).as_ref().len()).map_err(|_| NotSent::TooLong)?;
        self.send_body(now, to, (match_bits, context), Body::Long(data))
    }

    /// Copies the bytes of a message that the caller has lent, and gives them back.
    pub fn own(&mut self, context: u64) {
        self.windows.own(context);
        self.peers.iter_mut().for_each(|peer| peer.outgoing.own(context));
    }

    fn send_body(
        &mut self,
        now: Time,
        to: PeerIndex,
        (match_bits, context): (u64, u64),
        body: Body,
    ) -> Result<(), NotSent> {
        let peer = self.peers.get_mut(usize::from(to.0)).ok_or(NotSent::NotConnected)?;
        peer.keep(match_bits, body, context)?;
        self.flush(now, to);
        Ok(())
    }

    /// Pulls the first bytes of an announced message. Without bytes it is dropped. Either way the
    /// sender learns that the message was taken.
    pub fn pull(&mut self, now: Time, offer: Offer, len: u32, context: u64) {
        self.begin_pull(now, offer, len, context, true);
    }

    /// Pulls an offered message as [`pull`](Node::pull) does, but the bytes go to the [`Sink`] of
    /// [`handle_into`](Node::handle_into), each once, in any order.
    pub fn pull_into(&mut self, now: Time, offer: Offer, len: u32, context: u64) {
        self.begin_pull(now, offer, len, context, false);
    }

    fn begin_pull(&mut self, now: Time, offer: Offer, len: u32, context: u64, keeps: bool) {
        let peer = self.peers.get(usize::from(offer.peer.0));
        if peer.and_then(|peer| peer.session) != Some(offer.session) {
            self.events.push_back(Event::NotPulled { peer: offer.peer, context });
            return;
        }
        match len.min(offer.len) {
            0 => {
                let Offer { peer, window, .. } = offer;
                let ended = pull::Ended { peer, context, window, data: Vec::new(), len: 0 };
                self.pulled(now, ended);
            }
            len => {
                self.pulls.begin(now, offer, len, context, keeps);
                self.send_asks();
            }
        }
    }

    /// Tells the peers that this endpoint is closed. Messages that they have not acknowledged are
    /// lost.
    pub fn close(&mut self) {
        for at in 0..self.peers.len() {
            let peer = &self.peers[at];
            if peer.session.is_some() {
                let (mac, ends, seq) = (peer.mac, self.ends(peer.number), peer.incoming.next());
                let ends = Ends { to: ends.from, from: ends.to, ..ends };
                self.send_refusal(mac, ends, seq, Refusal::Closed);
            }
        }
    }

    /// Tells the sender of a packet that no endpoint of this host has the number.
    pub fn refuse(&mut self, misdirected: Misdirected) {
        let Misdirected { to, ends, seq, .. } = misdirected;
        self.send_refusal(to, ends, seq, Refusal::BadEndpoint);
    }

    /// While it is full, an endpoint takes no further messages: their senders send them again.
    pub fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// Appends the next frame, without the header of Ethernet; returns its destination.
    pub fn poll_transmit(&mut self, frame: &mut Vec<u8>) -> Option<Mac> {
        if let Some((to, bytes)) = self.frames.queue.pop_front() {
            frame.extend_from_slice(&bytes);
            return Some(to);
        }
        let reply = self.windows.next_reply()?;
        let header = Frame::new(reply.index, Packet::PullReply(reply.reply));
        frame.extend_from_slice(&header.encode(self.settings.dialect).ok()?);
        frame.extend_from_slice(self.windows.payload_of(&reply));
        Some(reply.to)
    }

    /// Returns the next frame to send, as [`poll_transmit`](Node::poll_transmit) does, but the
    /// bytes of a message stay where they are.
    pub fn poll_transmit_parts(&mut self) -> Option<Transmit<'_>> {
        if let Some((to, bytes)) = self.frames.queue.pop_front() {
            self.head = bytes;
            return Some(Transmit { to, head: &self.head, payload: &[] });
        }
        let reply = self.windows.next_reply()?;
        let header = Frame::new(reply.index, Packet::PullReply(reply.reply));
        self.head.clear();
        self.head.extend_from_slice(&header.encode(self.settings.dialect).ok()?);
        Some(Transmit { to: reply.to, head: &self.head, payload: self.windows.payload_of(&reply) })
    }

    /// True if the next frame is an answer to a pull.
    pub fn has_replies_next(&self) -> bool {
        self.frames.queue.is_empty() && !self.windows.is_quiet()
    }

    /// Takes the next frames of answers to pulls, at most `most` of them, which one call of the
    /// system may send. None if other frames wait, which
    /// [`poll_transmit_parts`](Node::poll_transmit_parts) takes first.
    pub fn poll_replies(&mut self, most: usize) -> impl ExactSizeIterator<Item = Transmit<'_>> {
        self.head.clear();
        self.replies.clear();
        while self.frames.queue.is_empty() && self.replies.len() < most {
            let Some(reply) = self.windows.next_reply() else { break };
            let header = Frame::new(reply.index, Packet::PullReply(reply.reply));
            let Ok(header) = header.encode(self.settings.dialect) else { continue };
            let begin = self.head.len();
            self.head.extend_from_slice(&header);
            self.replies.push((reply, begin..self.head.len()));
        }
        let Node { head, replies, windows, .. } = &*self;
        replies.iter().map(move |(reply, place)| Transmit {
            to: reply.to,
            head: &head[place.clone()],
            payload: windows.payload_of(reply),
        })
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the time of the next call of [`handle_timeout`](Node::handle_timeout).
    pub fn next_timeout(&self) -> Option<Time> {
        let peers = self.peers.iter().filter_map(|peer| peer.next_timeout(&self.settings)).min();
        [peers, self.pulls.next_timeout()].into_iter().flatten().min()
    }

    /// Sends again what was not answered, and acknowledgements that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        for at in 0..self.peers.len() {
            let index = PeerIndex(at as u16);
            let peer = &mut self.peers[at];
            let Some(due) = peer.due(now, &self.settings) else { continue };
            if due.failed {
                self.fail(now, index, Failure::Silent);
                continue;
            }
            if due.request {
                self.counters.resent += 1;
                self.send_request(index);
            }
            for seq in due.messages {
                self.counters.resent += 1;
                self.send_kept(index, seq);
            }
            if due.ack {
                self.send_ack(index);
            }
        }
        let (asked, failed) = self.pulls.handle_timeout(now, self.settings.resends_max);
        self.counters.resent += asked;
        failed.into_iter().for_each(|peer| self.fail(now, peer, Failure::Silent));
        self.send_asks();
    }

    /// True if all messages were sent and acknowledged, and none is being pulled.
    pub fn is_quiet(&self) -> bool {
        self.has_sent() && self.peers.iter().all(Peer::is_quiet) && self.pulls.is_quiet()
    }

    /// True if no frame waits to be sent.
    pub fn has_sent(&self) -> bool {
        self.frames.queue.is_empty() && self.windows.is_quiet()
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns address and number of a peer.
    pub fn peer(&self, peer: PeerIndex) -> Option<(Mac, u8)> {
        self.peers.get(usize::from(peer.0)).map(|peer| (peer.mac, peer.number))
    }

    /// Returns the session of a connected peer.
    pub fn session(&self, peer: PeerIndex) -> Option<u32> {
        self.peers.get(usize::from(peer.0))?.session
    }

    /// True while no further messages are taken.
    fn is_full(&self) -> bool {
        self.is_full || self.events.len() >= EVENTS_MAX
    }

    fn peer_mut(&mut self, peer: PeerIndex) -> &mut Peer {
        &mut self.peers[usize::from(peer.0)]
    }

    /// Returns the peer of an address and a number, which is new if it is unknown.
    fn meet(&mut self, mac: Mac, number: u8) -> Option<PeerIndex> {
        if let Some(known) = self.find(mac, number) {
            return Some(known);
        }
        if self.peers.len() >= PEERS_MAX {
            return None;
        }
        self.peers.push(Peer::new(mac, number));
        Some(PeerIndex(self.peers.len() as u16 - 1))
    }

    fn find(&self, mac: Mac, number: u8) -> Option<PeerIndex> {
        let is_it = |peer: &Peer| peer.mac == mac && peer.number == number;
        self.peers.iter().position(is_it).map(|at| PeerIndex(at as u16))
    }

    fn ends(&self, to: u8) -> Ends {
        Ends { to, from: self.number, generation: 0 }
    }

    /// Ends the connection of a peer that has failed.
    fn fail(&mut self, now: Time, peer: PeerIndex, failure: Failure) {
        self.peer_mut(peer).reset();
        self.peer_mut(peer).failure = Some(failure);
        self.lost(now, peer, failure);
    }

    /// Ends a connection that the peer has forgotten, and asks for another.
    fn lost_and_asked(&mut self, now: Time, peer: PeerIndex) {
        let again = now + self.settings.resend;
        let of = self.peer_mut(peer);
        of.reset();
        of.ask_again(again);
        self.lost(now, peer, Failure::Closed);
        self.send_request(peer);
    }

    /// Ends all that belonged to the connection of a peer.
    fn lost(&mut self, now: Time, peer: PeerIndex, failure: Failure) {
        self.windows.forget(peer);
        for context in self.pulls.forget(now, peer) {
            self.events.push_back(Event::NotPulled { peer, context });
        }
        self.events.push_back(Event::Failed(peer, failure));
        self.flush_all(now);
        self.send_asks();
    }
}
