//! One peer of an endpoint: what was sent and not acknowledged, and what came in parts.

use super::{Failure, Lent, Mac, NotSent, Settings, Time, NO_INDEX, WAITING_MAX, WINDOW};
use crate::packet::{Window, MEDIUM_MAX};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Bits of a sequence number; the other two are the session's.
const SEQ_BITS: u16 = 0x3fff;

/// Returns the sequence number of the first message of a connection: its session bits differ from
/// those of the connections before, so late messages of those are out of the window.
fn start_of(epoch: u16) -> u16 {
    epoch << SEQ_BITS.count_ones() | 1
}

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
    /// True if the peer is connected, and is asked because it is silent.
    pub is_probe: bool,
    at: Time,
    tries: u32,
}

/// The content of something sent with a sequence number.
pub enum Body {
    /// A message that goes in the packet, or in fragments.
    Data(Vec<u8>),
    /// A message that is to be announced, once a window is free.
    Long(Lent),
    /// The announcement of a message, in the window with this number.
    Window(u8),
    /// The end of a pull.
    Taken { total: u32, window: Window },
}

/// Something sent that is not acknowledged, or waits for its turn.
pub struct Kept {
    pub match_bits: u64,
    pub body: Body,
    pub context: u64,
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

/// The content of a packet with a sequence number.
pub enum Arrival<'a> {
    /// A part of a message, or all of it.
    Part { match_bits: u64, len: u32, at: usize, part: &'a [u8] },
    /// Something that one packet brings.
    Whole(Whole),
}

/// Something whose turn has come.
#[derive(Clone, Debug)]
pub enum Whole {
    /// A message.
    Message { match_bits: u64, data: Vec<u8> },
    /// The announcement of a message that is to be pulled.
    Announced { match_bits: u64, len: u32, window: Window },
    /// The end of a pull from a window.
    Taken { total: u32, window: u8, seq: u8 },
}

/// Something that has come before its turn, or not whole.
enum Slot {
    Parts(Parts),
    Whole(Whole),
}

/// The result of placing a part of a message.
pub enum Placed {
    /// The part belongs to no message of the window, or does not fit its message.
    Nothing,
    /// The part came before.
    Again,
    /// The part is in its place.
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
    /// The session that this one has replaced, and the last request of this one: late requests
    /// are no news.
    past: Option<u32>,
    request: Option<u8>,
    /// Connections of the peer that have ended.
    epoch: u16,
    /// The reason why the last connection ended.
    pub failure: Option<Failure>,
    pub asked: Option<Asked>,
    asks: u8,
    /// The key of the last request.
    key: u32,
    /// The messages that were sent from `acked` on, and behind `sent` those that wait.
    kept: VecDeque<Kept>,
    sent: usize,
    acked: u16,
    /// The messages that have come from `received` on.
    slots: VecDeque<Option<Slot>>,
    received: u16,
    pub unacked: u32,
    ack_at: Option<Time>,
    pub acks_sent: u32,
    pub acks_seen: u32,
    /// Windows that the peer has not pulled.
    pub windows: u32,
    /// The time of the last frame of its session.
    heard: Time,
}

impl Peer {
    pub fn new(mac: Mac, number: u8) -> Peer {
        Peer {
            mac,
            number,
            index: NO_INDEX,
            session: None,
            past: None,
            request: None,
            epoch: 0,
            failure: None,
            asked: None,
            asks: 0,
            key: 0,
            kept: VecDeque::new(),
            sent: 0,
            acked: start_of(0),
            slots: VecDeque::new(),
            received: start_of(0),
            unacked: 0,
            ack_at: None,
            acks_sent: 0,
            acks_seen: 0,
            windows: 0,
            heard: 0,
        }
    }

    /// Forgets the connection.
    pub fn reset(&mut self) {
        if self.session.is_some() {
            self.epoch = self.epoch.wrapping_add(1);
        }
        *self = Peer {
            asks: self.asks,
            key: self.key,
            past: self.past,
            epoch: self.epoch,
            received: start_of(self.epoch),
            ..Peer::new(self.mac, self.number)
        };
    }

    /// True if a request came late: of a session that is over, or before another one.
    pub fn is_late(&self, session: u32, number: u8) -> bool {
        let before = |last: u8| (number.wrapping_sub(last) as i8) < 0;
        match self.session == Some(session) {
            true => self.request.is_some_and(before),
            false => self.past == Some(session),
        }
    }

    /// True if the peer expects messages of another connection than this one: it has forgotten it.
    pub fn has_forgotten(&self, session: u32, recv_start: u16) -> bool {
        self.session == Some(session) && steps(self.acked, recv_start).is_none()
    }

    /// Returns the sequence number of the next message.
    pub fn recv_next(&self) -> u16 {
        self.received
    }

    /// Notes that the peer lives.
    pub fn hear(&mut self, now: Time) {
        self.heard = now;
    }

    /// True if all was sent and acknowledged.
    pub fn is_quiet(&self) -> bool {
        self.kept.is_empty() && self.windows == 0
    }

    /// Begins a request.
    pub fn ask(&mut self, again: Time, key: u32) {
        self.key = key;
        self.begin(again, false);
    }

    /// Begins a request with the key of the last one.
    pub fn ask_again(&mut self, again: Time) {
        self.begin(again, false);
    }

    /// Begins to ask if the peer has the session that is known.
    pub fn probe(&mut self, again: Time) {
        self.begin(again, true);
    }

    fn begin(&mut self, again: Time, is_probe: bool) {
        self.asks = self.asks.wrapping_add(1);
        let (number, key) = (self.asks, self.key);
        self.asked = Some(Asked { number, key, is_probe, at: again, tries: 0 });
    }

    /// Takes the request of a peer with a number; returns true if it was connected before, in
    /// another session, or in a connection that it has forgotten.
    pub fn accept(&mut self, session: u32, send_next: u16, (index, number): (u16, u8)) -> bool {
        let lost = self.take_session(session, send_next, true);
        (self.index, self.request) = (index, Some(number));
        lost
    }

    /// Takes the answer to a request; returns true if it was connected in another session.
    pub fn answered(&mut self, session: u32, send_next: u16, index: u16) -> bool {
        let lost = self.take_session(session, send_next, false);
        self.index = index;
        lost
    }

    fn take_session(&mut self, session: u32, send_next: u16, asked: bool) -> bool {
        let is_same = self.session == Some(session);
        if is_same && !self.has_forgotten(session, send_next) {
            return false;
        }
        // A connection that brought nothing yet is replaced without a word.
        let is_unused = is_same && self.is_quiet() && self.received == start_of(self.epoch);
        let (lost, pending) = (self.session.is_some() && !is_unused, self.asked);
        let past = if is_same { self.past } else { self.session.or(self.past) };
        if lost || asked {
            self.reset();
            self.asked = pending;
        }
        (self.session, self.acked, self.failure) = (Some(session), send_next, None);
        self.past = past;
        lost
    }

    /// Keeps something until it is acknowledged.
    pub fn keep(&mut self, match_bits: u64, body: Body, context: u64) -> Result<(), NotSent> {
        let why = self.failure.map_or(NotSent::NotConnected, NotSent::Failed);
        self.session.ok_or(why)?;
        let is_message = !matches!(body, Body::Taken { .. });
        if is_message && self.kept.len() >= WAITING_MAX {
            return Err(NotSent::Busy);
        }
        self.kept.push_back(Kept { match_bits, body, context, at: 0, tries: 0 });
        Ok(())
    }

    /// Copies the bytes of a message that waits.
    pub fn own(&mut self, context: u64) {
        for kept in self.kept.iter_mut().filter(|kept| kept.context == context) {
            if let Body::Long(data) = &mut kept.body {
                *data = copy_of(data);
            }
        }
    }

    /// Returns what is to be sent next, if the window has room.
    pub fn next_unsent(&mut self) -> Option<&mut Kept> {
        match self.sent < usize::from(WINDOW) {
            true => self.kept.get_mut(self.sent),
            false => None,
        }
    }

    /// Notes that it is sent now; returns its sequence number.
    pub fn mark_sent(&mut self, again: Time) -> u16 {
        if let Some(kept) = self.kept.get_mut(self.sent) {
            kept.at = again;
        }
        let seq = step(self.acked, self.sent as u16);
        self.sent += 1;
        seq
    }

    /// True if a sequence number is of something that was sent and not acknowledged, or the next.
    pub fn is_expected(&self, seq: u16) -> bool {
        steps(self.acked, seq).is_some_and(|ahead| usize::from(ahead) <= self.sent)
    }

    /// Returns the sequence number of the first message that is not acknowledged.
    #[cfg(test)]
    pub fn first_unacked(&self) -> u16 {
        self.acked
    }

    /// Returns what was sent with a sequence number and is not acknowledged.
    pub fn sent(&self, seq: u16) -> Option<&Kept> {
        let ahead = usize::from(steps(self.acked, seq)?);
        self.kept.get(ahead).filter(|_| ahead < self.sent)
    }

    /// Removes what was sent before a sequence number; returns context and length of messages.
    pub fn acknowledged(&mut self, before: u16) -> Vec<(u64, u32)> {
        let new = steps(self.acked, before).map_or(0, usize::from);
        if new > self.sent {
            return Vec::new();
        }
        self.acked = step(self.acked, new as u16);
        self.sent -= new;
        let done = self.kept.drain(..new).filter_map(|kept| match kept.body {
            Body::Data(data) => Some((kept.context, data.len() as u32)),
            _ => None,
        });
        done.collect()
    }

    /// Returns the acknowledgement of what has come; none is due then.
    pub fn acknowledge(&mut self) -> u16 {
        (self.unacked, self.ack_at) = (0, None);
        self.received
    }

    /// Places the content of a packet.
    pub fn place(&mut self, seq: u16, arrival: Arrival<'_>, fragment: u16) -> Placed {
        let Some(ahead) = steps(self.received, seq) else { return Placed::Nothing };
        if ahead >= WINDOW {
            return if ahead > SEQ_BITS / 2 { Placed::Again } else { Placed::Nothing };
        }
        if !fits(&arrival, fragment) {
            return Placed::Nothing;
        }
        while self.slots.len() <= usize::from(ahead) {
            self.slots.push_back(None);
        }
        let slot = &mut self.slots[usize::from(ahead)];
        match (arrival, slot) {
            (Arrival::Whole(whole), slot @ None) => {
                *slot = Some(Slot::Whole(whole));
                Placed::Part
            }
            (Arrival::Whole(_), Some(Slot::Whole(_))) => Placed::Part,
            (Arrival::Part { match_bits, len, at, part }, slot) => {
                let each = usize::from(fragment);
                let new = || Slot::Parts(Parts::new(match_bits, len as usize, each));
                match slot.get_or_insert_with(new) {
                    Slot::Parts(parts) => parts.place(match_bits, (len as usize, at), part, each),
                    Slot::Whole(_) => Placed::Nothing,
                }
            }
            (Arrival::Whole(_), Some(Slot::Parts(_))) => Placed::Nothing,
        }
    }

    /// Takes the next one, if it is whole; its acknowledgement is due at a time.
    pub fn next_whole(&mut self, ack_at: Time) -> Option<Whole> {
        let is_whole = |slot: &Slot| match slot {
            Slot::Parts(parts) => parts.missing == 0,
            Slot::Whole(_) => true,
        };
        self.slots.front()?.as_ref().filter(|slot| is_whole(slot))?;
        let slot = self.slots.pop_front().flatten()?;
        self.received = step(self.received, 1);
        self.unacked += 1;
        self.ack_at.get_or_insert(ack_at);
        Some(match slot {
            Slot::Parts(Parts { match_bits, data, .. }) => Whole::Message { match_bits, data },
            Slot::Whole(whole) => whole,
        })
    }

    /// Returns the time at which the peer is asked if it lives: it has windows to pull, and was
    /// silent.
    fn probe_at(&self, settings: &Settings) -> Option<Time> {
        let waits = self.windows > 0 && self.asked.is_none() && settings.probe > 0;
        waits.then(|| self.heard.saturating_add(settings.probe))
    }

    pub fn next_timeout(&self, settings: &Settings) -> Option<Time> {
        let request = self.asked.map(|asked| asked.at);
        let message = self.kept.iter().take(self.sent).map(|kept| kept.at).min();
        let all = [request, message, self.ack_at, self.probe_at(settings)];
        all.into_iter().flatten().min()
    }

    /// Returns the work whose time has come.
    pub fn due(&mut self, now: Time, settings: &Settings) -> Option<Due> {
        if self.next_timeout(settings)? > now {
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
        for (kept, ahead) in self.kept.iter_mut().take(self.sent).zip(0..) {
            if try_again(&mut kept.at, &mut kept.tries) {
                due.messages.push(step(self.acked, ahead));
            }
        }
        if self.probe_at(settings).is_some_and(|at| at <= now) {
            self.begin(now + settings.resend, true);
            due.request = true;
        }
        due.ack = self.ack_at.is_some_and(|at| at <= now);
        Some(due)
    }
}

/// Returns a copy of bytes that the caller has lent.
pub fn copy_of(data: &Lent) -> Lent {
    Box::new((**data).as_ref().to_vec())
}

/// True if a part can be one of its message.
fn fits(arrival: &Arrival<'_>, fragment: u16) -> bool {
    let Arrival::Part { len, at, part, .. } = arrival else { return true };
    let (len, each) = (*len as usize, usize::from(fragment));
    let whole = len.saturating_sub(*at).min(each.max(128));
    part.len() == whole && len <= MEDIUM_MAX as usize && at / each.max(1) < 64 && *at <= len
}

impl Parts {
    fn new(match_bits: u64, len: usize, each: usize) -> Parts {
        let missing = len.div_ceil(each.max(1)).max(1);
        Parts { match_bits, data: vec![0; len], have: 0, missing }
    }

    fn place(
        &mut self,
        match_bits: u64,
        (len, at): (usize, usize),
        part: &[u8],
        each: usize,
    ) -> Placed {
        let fits = self.data.len() == len && self.match_bits == match_bits;
        let bit = 1 << (at / each.max(1));
        if !fits || self.have & bit != 0 {
            return if fits { Placed::Part } else { Placed::Nothing };
        }
        let Some(place) = self.data.get_mut(at..at + part.len()) else { return Placed::Nothing };
        place.copy_from_slice(part);
        self.have |= bit;
        self.missing -= 1;
        Placed::Part
    }
}
