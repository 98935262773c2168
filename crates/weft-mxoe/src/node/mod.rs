//! One endpoint that speaks MXoE, as a state machine: frames and the time go in, frames and events
//! come out. It does no I/O and reads no clock.
//!
//! It connects by keys, sends messages of up to 32 KiB as tiny, small or fragmented ones, in order
//! and once, whatever the network loses, doubles or reorders. Longer messages, which the receiver
//! pulls, are refused. Everything is bounded: peers, messages on their way, frames that wait.
//!
//! The format has no authentication, so a frame acts only if it names the session of this endpoint,
//! a peer of its address and a sequence number of the window. All others are dropped and counted.

mod peer;
#[cfg(test)]
mod tests;

use crate::packet::{MEDIUM_MAX, SMALL_MAX, TINY_MAX};
use crate::{
    Ack, ConnectReply, ConnectRequest, Dialect, Ends, Frame, Medium, Message, NackLib, Packet,
    Refusal, View,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use peer::{Peer, Placed};

/// A time in microseconds, from any beginning.
pub type Time = u64;
/// An address of Ethernet.
pub type Mac = [u8; 6];

/// Most peers of an endpoint.
const PEERS_MAX: usize = 1024;
/// Most frames that wait to be sent; further ones are lost, and sent again later.
const QUEUE_MAX: usize = 4096;
/// Most messages to a peer that it has not acknowledged.
pub const WINDOW: u16 = 64;
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
    /// Time after which a message is sent again.
    pub resend: Time,
    /// A peer that answers none of so many has failed.
    pub resends_max: u32,
    /// Longest time until a message is acknowledged.
    pub ack_delay: Time,
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
        Settings { dialect, fragment, resend: 500_000, resends_max: 1000, ack_delay: 15_625 }
    }
}

/// Number of a peer of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerIndex(pub u16);

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
    /// The peer has acknowledged a message.
    Sent {
        /// The receiver.
        peer: PeerIndex,
        /// The caller's context of the message.
        context: u64,
    },
    /// The peer answers no more, or was opened anew: messages to it are lost.
    Failed(PeerIndex),
}

/// The reason why a message is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The peer is not connected.
    NotConnected,
    /// Longer than 32 KiB.
    TooLong,
    /// Too many messages are on their way: try again later.
    Busy,
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that had no meaning, named another session, or exceeded a bound.
    pub dropped: u64,
    /// Messages that came before.
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
    frames: VecDeque<(Mac, Vec<u8>)>,
    events: VecDeque<Event>,
    counters: Counters,
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
            frames: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Asks an endpoint to connect. `None` if there are too many peers.
    pub fn connect(&mut self, now: Time, to: Mac, number: u8, key: u32) -> Option<PeerIndex> {
        let index = self.meet(to, number)?;
        let peer = &mut self.peers[usize::from(index.0)];
        peer.ask(now + self.settings.resend, key);
        self.send_request(index);
        Some(index)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// It is too long, the peer is not connected, or too many messages are on their way.
    pub fn send(
        &mut self,
        now: Time,
        to: PeerIndex,
        match_bits: u64,
        data: &[u8],
        context: u64,
    ) -> Result<(), NotSent> {
        if data.len() > MEDIUM_MAX as usize {
            return Err(NotSent::TooLong);
        }
        let peer = self.peers.get_mut(usize::from(to.0)).ok_or(NotSent::NotConnected)?;
        let seq = peer.keep(now + self.settings.resend, match_bits, data, context)?;
        self.send_message(to, seq);
        Ok(())
    }

    /// Handles a frame, without the header of Ethernet, from an address.
    pub fn handle(&mut self, now: Time, from: Mac, bytes: &[u8]) {
        let Ok(view) = View::new_checked(self.settings.dialect, bytes) else {
            self.counters.dropped += 1;
            return;
        };
        let payload = view.payload();
        let done = match &view.frame().packet {
            Packet::ConnectRequest(request) => self.handle_request(from, request),
            Packet::ConnectReply(reply) => self.handle_reply(from, reply),
            Packet::Tiny(message) | Packet::Small(message) => {
                self.handle_message(now, from, message, (0, payload))
            }
            Packet::Medium(medium) => {
                let at = usize::from(medium.fragment) * usize::from(self.settings.fragment);
                self.handle_message(now, from, &medium.message, (at, payload))
            }
            Packet::Ack(ack) => self.handle_ack(from, ack),
            Packet::NackLib(nack) => self.handle_refusal(from, nack),
            _ => None,
        };
        self.counters.dropped += u64::from(done.is_none());
    }

    /// Returns the next frame, without the header of Ethernet, and its destination.
    pub fn poll_transmit(&mut self) -> Option<(Mac, Vec<u8>)> {
        self.frames.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the time of the next call of [`handle_timeout`](Node::handle_timeout).
    pub fn next_timeout(&self) -> Option<Time> {
        self.peers.iter().filter_map(Peer::next_timeout).min()
    }

    /// Sends again what was not answered, and acknowledgements that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        for at in 0..self.peers.len() {
            let index = PeerIndex(at as u16);
            let peer = &mut self.peers[at];
            let Some(due) = peer.due(now, &self.settings) else { continue };
            if due.failed {
                self.fail(index);
                continue;
            }
            if due.request {
                self.counters.resent += 1;
                self.send_request(index);
            }
            for seq in due.messages {
                self.counters.resent += 1;
                self.send_message(index, seq);
            }
            if due.ack {
                self.send_ack(index);
            }
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
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

    fn push(&mut self, to: Mac, index: u16, packet: Packet, payload: &[u8]) {
        if self.frames.len() >= QUEUE_MAX {
            return;
        }
        if let Ok(header) = Frame::new(index, packet).encode(self.settings.dialect) {
            let mut bytes = header.to_vec();
            bytes.extend_from_slice(payload);
            self.frames.push_back((to, bytes));
        }
    }

    fn fail(&mut self, index: PeerIndex) {
        self.peers[usize::from(index.0)].reset();
        self.events.push_back(Event::Failed(index));
    }
}

/// Sending.
impl Node {
    fn send_request(&mut self, to: PeerIndex) {
        let peer = &self.peers[usize::from(to.0)];
        let Some(asked) = peer.asked else { return };
        let request = ConnectRequest {
            ends: self.ends(peer.number),
            seq: 0,
            peer_index: to.0,
            session: self.session,
            key: asked.key,
            recv_start: peer.recv_next(),
            connect_seq: asked.number,
        };
        let (mac, index) = (peer.mac, peer.index);
        self.push(mac, index, Packet::ConnectRequest(request), &[]);
    }

    fn send_message(&mut self, to: PeerIndex, seq: u16) {
        let peer = &mut self.peers[usize::from(to.0)];
        let Some((match_bits, data, session)) = peer.message(seq) else { return };
        let (mac, index, number, ack) = (peer.mac, peer.index, peer.number, peer.acknowledge());
        let len = data.len() as u32;
        let ends = self.ends(number);
        let message = Message { ends, len, checksum: 0, seq, ack, match_bits, session };
        if len <= u32::from(TINY_MAX) {
            return self.push(mac, index, Packet::Tiny(message), &data);
        }
        if len <= u32::from(SMALL_MAX) {
            return self.push(mac, index, Packet::Small(message), &data);
        }
        for (part, fragment) in data.chunks(usize::from(self.settings.fragment)).zip(0..) {
            let medium = Medium {
                message,
                fragment_len: part.len() as u16,
                fragment,
                pipeline: match self.settings.dialect {
                    Dialect::Compat => 12,
                    Dialect::Native => 0,
                },
                checksum: 0,
            };
            self.push(mac, index, Packet::Medium(medium), part);
        }
    }

    fn send_ack(&mut self, to: PeerIndex) {
        let peer = &mut self.peers[usize::from(to.0)];
        let (Some(session), seq) = (peer.session, peer.acknowledge()) else { return };
        peer.acks_sent = peer.acks_sent.wrapping_add(1);
        let (mac, index, number) = (peer.mac, peer.index, peer.acks_sent);
        let ends = Ends { to: peer.number, from: self.number, generation: 0 };
        let acked_session = session;
        let ack = Ack { ends, session, seq, acked_session, number, send_seq: seq, resent: 0 };
        self.push(mac, index, Packet::Ack(ack), &[]);
    }

    fn refuse(&mut self, to: Mac, ends: Ends, seq: u16, refusal: Refusal) {
        let nack = NackLib {
            from: ends.to,
            generation: 0,
            refusal,
            to: ends.from,
            peer_index: NO_INDEX,
            seq,
        };
        self.push(to, NO_INDEX, Packet::NackLib(nack), &[]);
    }
}

/// Receiving. `None` where a frame is dropped.
impl Node {
    fn handle_request(&mut self, from: Mac, request: &ConnectRequest) -> Option<()> {
        if request.ends.to != self.number {
            self.refuse(from, request.ends, request.seq, Refusal::BadEndpoint);
            return Some(());
        }
        let right = request.key == self.key;
        let (mut index, mut recv_start) = (NO_INDEX, 1);
        if right {
            let at = self.meet(from, request.ends.from)?;
            let peer = &mut self.peers[usize::from(at.0)];
            let lost = peer.accept(request.session, request.recv_start, request.peer_index);
            (index, recv_start) = (at.0, peer.recv_next());
            if lost {
                self.events.push_back(Event::Failed(at));
            }
        }
        let reply = ConnectReply {
            ends: self.ends(request.ends.from),
            seq: 0,
            peer_index: index,
            asking_session: request.session,
            session: self.session,
            recv_start,
            connect_seq: request.connect_seq,
            status: if right { 0 } else { BAD_KEY },
        };
        self.push(from, request.peer_index, Packet::ConnectReply(reply), &[]);
        Some(())
    }

    fn handle_reply(&mut self, from: Mac, reply: &ConnectReply) -> Option<()> {
        let index = self.find(from, reply.ends.from)?;
        let peer = &mut self.peers[usize::from(index.0)];
        peer.asked.filter(|asked| asked.number == reply.connect_seq)?;
        if reply.asking_session != self.session || reply.ends.to != self.number {
            return None;
        }
        peer.asked = None;
        if reply.status != 0 {
            self.events.push_back(Event::Refused(index, reply.status));
            return Some(());
        }
        if peer.answered(reply.session, reply.recv_start, reply.peer_index) {
            self.events.push_back(Event::Failed(index));
        }
        self.events.push_back(Event::Connected(index));
        Some(())
    }

    fn handle_message(
        &mut self,
        now: Time,
        from: Mac,
        message: &Message,
        part: (usize, &[u8]),
    ) -> Option<()> {
        let known = self.find(from, message.ends.from);
        let known = known.filter(|at| self.peers[usize::from(at.0)].session.is_some());
        let (Some(index), true) = (known, message.session == self.session) else {
            self.refuse(from, message.ends, message.seq, Refusal::BadSession);
            return None;
        };
        if message.ends.to != self.number {
            self.refuse(from, message.ends, message.seq, Refusal::BadEndpoint);
            return None;
        }
        self.acknowledged(index, message.ack);
        let peer = &mut self.peers[usize::from(index.0)];
        match peer.place(message, part, self.settings.fragment) {
            Placed::Nothing => return None,
            Placed::Again => {
                self.counters.duplicates += 1;
                self.send_ack(index);
            }
            Placed::Part => {}
        }
        let peer = &mut self.peers[usize::from(index.0)];
        while let Some((match_bits, data)) = peer.next_whole(now + self.settings.ack_delay) {
            self.events.push_back(Event::Received { peer: index, match_bits, data });
        }
        if peer.unacked >= UNACKED_MAX {
            self.send_ack(index);
        }
        Some(())
    }

    fn acknowledged(&mut self, index: PeerIndex, before: u16) {
        let peer = &mut self.peers[usize::from(index.0)];
        for context in peer.acknowledged(before) {
            self.events.push_back(Event::Sent { peer: index, context });
        }
    }

    fn handle_ack(&mut self, from: Mac, ack: &Ack) -> Option<()> {
        let index = self.find(from, ack.ends.from)?;
        let is_ours = ack.session == self.session && ack.ends.to == self.number;
        let peer = &mut self.peers[usize::from(index.0)];
        if !is_ours || ack.number <= peer.acks_seen {
            return None;
        }
        peer.acks_seen = ack.number;
        self.acknowledged(index, ack.seq);
        Some(())
    }

    /// A refusal counts only if it names a message or request that waits for an answer.
    fn handle_refusal(&mut self, from: Mac, nack: &NackLib) -> Option<()> {
        let index = self.find(from, nack.from).filter(|_| nack.to == self.number)?;
        let peer = &mut self.peers[usize::from(index.0)];
        if peer.asked.is_some() && nack.seq == 0 {
            peer.asked = None;
            let status = match nack.refusal {
                Refusal::BadEndpoint => 12,
                Refusal::Closed => 8,
                Refusal::BadSession => 10,
                Refusal::BadWindow => 13,
            };
            self.events.push_back(Event::Refused(index, status));
            return Some(());
        }
        peer.message(nack.seq)?;
        self.fail(index);
        Some(())
    }
}
