//! One peer of an endpoint: what was sent and not acknowledged, and what came in parts.

use super::incoming::Incoming;
use super::seq::start_of;
use super::unacked::{Body, Unacked};
use super::{Failure, Mac, NotSent, Settings, Time, NO_INDEX};
use alloc::vec::Vec;

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
    pub outgoing: Unacked,
    pub incoming: Incoming,
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
            outgoing: Unacked::from(start_of(0)),
            incoming: Incoming::from(start_of(0)),
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
            incoming: Incoming::from(start_of(self.epoch)),
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
        self.session == Some(session) && !self.outgoing.is_of(recv_start)
    }

    /// Notes that the peer lives.
    pub fn hear(&mut self, now: Time) {
        self.heard = now;
    }

    /// True if all was sent and acknowledged.
    pub fn is_quiet(&self) -> bool {
        self.outgoing.is_empty() && self.windows == 0
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
        let is_unused = is_same && self.is_quiet() && self.incoming.next() == start_of(self.epoch);
        let (lost, pending) = (self.session.is_some() && !is_unused, self.asked);
        let past = if is_same { self.past } else { self.session.or(self.past) };
        if lost || asked {
            self.reset();
            self.asked = pending;
        }
        (self.session, self.failure) = (Some(session), None);
        self.outgoing.start_at(send_next);
        self.past = past;
        lost
    }

    /// Keeps something until it is acknowledged.
    pub fn keep(&mut self, match_bits: u64, body: Body, context: u64) -> Result<(), NotSent> {
        let why = self.failure.map_or(NotSent::NotConnected, NotSent::Failed);
        self.session.ok_or(why)?;
        self.outgoing.keep(match_bits, body, context)
    }

    /// Returns the time at which the peer is asked if it lives: it has windows to pull, and was
    /// silent.
    fn probe_at(&self, settings: &Settings) -> Option<Time> {
        let waits = self.windows > 0 && self.asked.is_none() && settings.probe > 0;
        waits.then(|| self.heard.saturating_add(settings.probe))
    }

    pub fn next_timeout(&self, settings: &Settings) -> Option<Time> {
        let request = self.asked.map(|asked| asked.at);
        let (message, ack) = (self.outgoing.next_timeout(), self.incoming.ack_at());
        let all = [request, message, ack, self.probe_at(settings)];
        all.into_iter().flatten().min()
    }

    /// Returns the work whose time has come.
    pub fn due(&mut self, now: Time, settings: &Settings) -> Option<Due> {
        if self.next_timeout(settings)? > now {
            return None;
        }
        let (messages, tries) = self.outgoing.due(now, settings);
        let failed = tries > settings.resends_max;
        let mut due = Due { failed, request: false, messages, ack: false };
        if let Some(asked) = self.asked.as_mut().filter(|asked| asked.at <= now) {
            (asked.at, asked.tries) = (now + settings.resend, asked.tries + 1);
            due.failed |= asked.tries > settings.resends_max;
            due.request = true;
        }
        if self.probe_at(settings).is_some_and(|at| at <= now) {
            self.begin(now + settings.resend, true);
            due.request = true;
        }
        due.ack = self.incoming.ack_at().is_some_and(|at| at <= now);
        Some(due)
    }
}
