//! One peer of an endpoint: what was sent and not acknowledged, and what came in parts.

use super::{Mac, NotSent, Settings, Time, NO_INDEX, WINDOW};
use crate::packet::MEDIUM_MAX;
use crate::Message;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Bits of a sequence number; the other two are the session's.
const SEQ_BITS: u16 = 0x3fff;

/// Returns the sequence number some steps further.
fn step(seq: u16, by: u16) -> u16 {
    seq & !SEQ_BITS | seq.wrapping_add(by) & SEQ_BITS
}

/// Returns the steps from one sequence number to another. `None` if their sessions differ.
fn steps(from: u16, to: u16) -> Option<u16> {
    ((from ^ to) & !SEQ_BITS == 0).then(|| to.wrapping_sub(from) & SEQ_BITS)
}

/// A request to connect that has no answer.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub number: u8,
    pub key: u32,
    at: Time,
    tries: u32,
}

/// A message that is not acknowledged.
struct Kept {
    match_bits: u64,
    data: Vec<u8>,
    context: u64,
    at: Time,
    tries: u32,
}

/// A message of which parts have come.
struct Parts {
    match_bits: u64,
    data: Vec<u8>,
    /// The fragments that have come, a bit each.
    have: u64,
    missing: usize,
}

/// The result of placing a part of a message.
pub enum Placed {
    /// It belongs to no message of the window, or does not fit its message.
    Nothing,
    /// It came before.
    Again,
    /// It is in its place.
    Part,
}

/// Work whose time has come.
pub struct Due {
    pub failed: bool,
    pub request: bool,
    pub messages: Vec<u16>,
    pub ack: bool,
}

/// A peer.
pub struct Peer {
    pub mac: Mac,
    pub number: u8,
    /// The index by which the peer knows this endpoint.
    pub index: u16,
    /// The session of the peer, once it is known.
    pub session: Option<u32>,
    pub asked: Option<Asked>,
    asks: u8,
    /// Messages from `acked` on.
    kept: VecDeque<Kept>,
    acked: u16,
    /// Messages from `received` on, which have come before their turn or not whole.
    parts: VecDeque<Option<Parts>>,
    received: u16,
    pub unacked: u32,
    ack_at: Option<Time>,
    pub acks_sent: u32,
    pub acks_seen: u32,
}

impl Peer {
    pub fn new(mac: Mac, number: u8) -> Peer {
        Peer {
            mac,
            number,
            index: NO_INDEX,
            session: None,
            asked: None,
            asks: 0,
            kept: VecDeque::new(),
            acked: 1,
            parts: VecDeque::new(),
            received: 1,
            unacked: 0,
            ack_at: None,
            acks_sent: 0,
            acks_seen: 0,
        }
    }

    /// Forgets the connection.
    pub fn reset(&mut self) {
        *self = Peer { asks: self.asks, ..Peer::new(self.mac, self.number) };
    }

    /// Returns the sequence number of the next message.
    pub fn recv_next(&self) -> u16 {
        self.received
    }

    /// Begins a request.
    pub fn ask(&mut self, again: Time, key: u32) {
        self.asks = self.asks.wrapping_add(1);
        self.asked = Some(Asked { number: self.asks, key, at: again, tries: 0 });
    }

    /// Takes the request of a peer; returns true if it was connected in another session.
    pub fn accept(&mut self, session: u32, send_next: u16, index: u16) -> bool {
        let lost = self.take_session(session, send_next, true);
        self.index = index;
        lost
    }

    /// Takes the answer to a request; returns true if it was connected in another session.
    pub fn answered(&mut self, session: u32, send_next: u16, index: u16) -> bool {
        let lost = self.take_session(session, send_next, false);
        self.index = index;
        lost
    }

    fn take_session(&mut self, session: u32, send_next: u16, asked: bool) -> bool {
        if self.session == Some(session) {
            return false;
        }
        let (lost, pending) = (self.session.is_some(), self.asked);
        if lost || asked {
            self.reset();
            self.asked = pending;
        }
        (self.session, self.acked) = (Some(session), send_next);
        lost
    }

    /// Keeps a message until it is acknowledged; returns its sequence number.
    pub fn keep(
        &mut self,
        again: Time,
        match_bits: u64,
        data: &[u8],
        context: u64,
    ) -> Result<u16, NotSent> {
        self.session.ok_or(NotSent::NotConnected)?;
        let ahead = self.kept.len() as u16;
        if ahead >= WINDOW {
            return Err(NotSent::Busy);
        }
        let data = data.to_vec();
        self.kept.push_back(Kept { match_bits, data, context, at: again, tries: 0 });
        Ok(step(self.acked, ahead))
    }

    /// Returns match bits, bytes and session of a message that is not acknowledged.
    pub fn message(&self, seq: u16) -> Option<(u64, Vec<u8>, u32)> {
        let kept = self.kept.get(usize::from(steps(self.acked, seq)?))?;
        Some((kept.match_bits, kept.data.clone(), self.session?))
    }

    /// Removes messages before a sequence number; returns their contexts.
    pub fn acknowledged(&mut self, before: u16) -> Vec<u64> {
        let new = steps(self.acked, before).map_or(0, usize::from);
        if new > self.kept.len() {
            return Vec::new();
        }
        self.acked = step(self.acked, new as u16);
        self.kept.drain(..new).map(|kept| kept.context).collect()
    }

    /// Returns the acknowledgement of what has come; none is due then.
    pub fn acknowledge(&mut self) -> u16 {
        (self.unacked, self.ack_at) = (0, None);
        self.received
    }

    /// Places a part of a message.
    pub fn place(
        &mut self,
        message: &Message,
        (at, part): (usize, &[u8]),
        fragment: u16,
    ) -> Placed {
        let Some(ahead) = steps(self.received, message.seq) else { return Placed::Nothing };
        if ahead >= WINDOW {
            return if ahead > SEQ_BITS / 2 { Placed::Again } else { Placed::Nothing };
        }
        let (len, each) = (message.len as usize, usize::from(fragment));
        let whole = len.saturating_sub(at).min(each.max(128));
        let number = at / each.max(1);
        if part.len() != whole || message.len > MEDIUM_MAX || number >= 64 || at > len {
            return Placed::Nothing;
        }
        while self.parts.len() <= usize::from(ahead) {
            self.parts.push_back(None);
        }
        let slot = &mut self.parts[usize::from(ahead)];
        let parts = slot.get_or_insert_with(|| Parts {
            match_bits: message.match_bits,
            data: vec![0; len],
            have: 0,
            missing: len.div_ceil(each.max(1)).max(1),
        });
        let fits = parts.data.len() == len && parts.match_bits == message.match_bits;
        let (bit, end) = (1 << number, at + part.len());
        if !fits || parts.have & bit != 0 {
            return if fits { Placed::Part } else { Placed::Nothing };
        }
        let Some(place) = parts.data.get_mut(at..end) else { return Placed::Nothing };
        place.copy_from_slice(part);
        parts.have |= bit;
        parts.missing -= 1;
        Placed::Part
    }

    /// Takes the next message, if it is whole; its acknowledgement is due at a time.
    pub fn next_whole(&mut self, ack_at: Time) -> Option<(u64, Vec<u8>)> {
        let is_whole = |parts: &Parts| parts.missing == 0;
        self.parts.front()?.as_ref().filter(|parts| is_whole(parts))?;
        let parts = self.parts.pop_front().flatten()?;
        self.received = step(self.received, 1);
        self.unacked += 1;
        self.ack_at.get_or_insert(ack_at);
        Some((parts.match_bits, parts.data))
    }

    pub fn next_timeout(&self) -> Option<Time> {
        let request = self.asked.map(|asked| asked.at);
        let message = self.kept.iter().map(|kept| kept.at).min();
        [request, message, self.ack_at].into_iter().flatten().min()
    }

    /// Returns the work whose time has come.
    pub fn due(&mut self, now: Time, settings: &Settings) -> Option<Due> {
        if self.next_timeout()? > now {
            return None;
        }
        let mut due = Due { failed: false, request: false, messages: Vec::new(), ack: false };
        let mut try_again = |at: &mut Time, tries: &mut u32| {
            if *at > now {
                return false;
            }
            (*at, *tries) = (now + settings.resend, *tries + 1);
            due.failed |= *tries > settings.resends_max;
            true
        };
        if let Some(asked) = &mut self.asked {
            due.request = try_again(&mut asked.at, &mut asked.tries);
        }
        for (kept, ahead) in self.kept.iter_mut().zip(0..) {
            if try_again(&mut kept.at, &mut kept.tries) {
                due.messages.push(step(self.acked, ahead));
            }
        }
        due.ack = self.ack_at.is_some_and(|at| at <= now);
        Some(due)
    }
}
