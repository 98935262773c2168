//! Sessions that are made.

use super::wire::{DataHead, Shake, DATA_TAG};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use weft_core::Instant;
use weft_link::secure::{Backend, JobKey, Mac, Message, Purpose, Window};

/// Most sessions; four times the hosts that are known, with room for successors.
const SESSIONS_MAX: usize = 16_384;
/// Sessions with one address: the present one, and some before whose messages may be under way.
const OF_ADDRESS: usize = 3;
/// Time for which the number of a session that was given up is remembered; longer than a CONFIRM is
/// good, so that a copy of it does not bring the session back with an empty window.
const SPENT: Duration = Duration::from_secs(30);
/// Time between two CONFIRMs of a session from which nothing has come.
const CONFIRM_AGAIN: Duration = Duration::from_millis(50);
/// Silence on both sides after which a session is given up.
const IDLE: Duration = Duration::from_secs(7200);

/// This side's part in making a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    /// This side asked.
    Asked,
    /// This side answered.
    Answered,
}

/// A session.
pub(super) struct Established {
    pub id: u64,
    pub peer: SocketAddr,
    pub key_id: u64,
    pub born: Instant,
    /// The number in the INIT of this side that was answered last, or was under way.
    pub nonce: [u8; 16],
    /// The time at which a session under the first key was asked for in place of this one.
    renewed: Option<Instant>,
    seal: Mac,
    open: Mac,
    sent: u64,
    window: Window,
    /// CONFIRM and the time when it was sent, until something comes.
    confirm: Option<(Instant, Vec<u8>)>,
    heard: Instant,
    /// The time of the first message sent since something came.
    unanswered: Option<Instant>,
    last: Instant,
}

impl Established {
    pub fn new(
        now: Instant,
        peer: SocketAddr,
        key: &JobKey,
        shake: &Shake,
        side: Sides,
    ) -> Established {
        let mut context = Vec::with_capacity(40);
        context.extend(shake.cluster.to_le_bytes());
        context.extend(shake.ours);
        context.extend(shake.theirs);
        let keys: [u8; 72] = key.derive(Purpose::ClusterSession, &context);
        let part = |at: usize| -> [u8; 16] { *keys[at..].first_chunk().expect("72 bytes") };
        let backend = Backend::detect();
        let asker = Mac::new(part(8), part(24), backend);
        let answerer = Mac::new(part(40), part(56), backend);
        let (seal, open) = match side {
            Sides::Asked => (asker, answerer),
            Sides::Answered => (answerer, asker),
        };
        Established {
            id: u64::from_le_bytes(*keys.first_chunk().expect("72 bytes")),
            peer,
            key_id: key.public_id(),
            born: now,
            nonce: shake.ours,
            renewed: None,
            seal,
            open,
            sent: 0,
            window: Window::default(),
            confirm: None,
            heard: now,
            unanswered: None,
            last: now,
        }
    }

    /// True if this is the beginning of a datagram that was sealed here.
    pub fn has_sent(&self, begins: &[u8]) -> bool {
        let number = |at: usize| begins.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
        let is_data =
            begins.get(..2) == DataHead { class: 0, session: 0, number: 0 }.encode().get(..2);
        let (session, sent) = (number(8), number(16).unwrap_or(0));
        is_data && session == Some(self.id) && (1..=self.sent).contains(&sent)
    }

    /// Keeps CONFIRM until the other side says that it has it.
    pub fn hold_confirm(&mut self, now: Instant, confirm: Vec<u8>) {
        self.confirm = Some((now, confirm));
    }

    /// Returns CONFIRM, if it is time to send it again.
    pub fn confirm(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (at, confirm) = self.confirm.as_mut()?;
        if now.since(*at) < CONFIRM_AGAIN {
            return None;
        }
        *at = now;
        Some(confirm.clone())
    }

    /// Makes a datagram of a message.
    pub fn seal(&mut self, now: Instant, class: u8, payload: &[u8]) -> Vec<u8> {
        self.sent += 1;
        self.last = now;
        self.unanswered.get_or_insert(now);
        let head = DataHead { class, session: self.id, number: self.sent };
        let header = head.encode();
        let message = Message { number: self.id, header: &header, payload };
        let tag = self.seal.tag([self.id, self.sent], &message);
        let mut out = Vec::with_capacity(header.len() + payload.len() + DATA_TAG);
        out.extend(header);
        out.extend(payload);
        out.extend(tag);
        out
    }

    /// Returns true if the other side has waited long for an answer.
    pub fn is_unanswered(&self, now: Instant, limit: Duration) -> bool {
        self.unanswered.is_some_and(|at| now.since(at) > limit)
    }

    /// Returns true if something genuine came in this time.
    pub fn is_heard(&self, now: Instant, limit: Duration) -> bool {
        now.since(self.heard) <= limit
    }

    /// Returns true if it is time to ask for a session under the first key, and notes it.
    pub fn is_time_for_key(&mut self, now: Instant, limit: Duration) -> bool {
        let is_due = self.renewed.is_none_or(|at| now.since(at) >= limit);
        if is_due {
            self.renewed = Some(now);
        }
        is_due
    }

    /// Returns true if the other side of the session made the datagram.
    pub fn is_genuine(
        &self,
        head: &DataHead,
        header: &[u8],
        payload: &[u8],
        tag: [u8; DATA_TAG],
    ) -> bool {
        let message = Message { number: self.id, header, payload };
        let right = self.open.tag([self.id, head.number], &message);
        right.iter().zip(tag).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }

    /// Notes a genuine message. Returns false if it came before.
    pub fn accept(&mut self, now: Instant, number: u64) -> bool {
        if !self.window.is_fresh(number) {
            return false;
        }
        self.window.accept(number);
        (self.heard, self.last) = (now, now);
        self.unanswered = None;
        self.confirm = None;
        true
    }
}

/// The sessions of an agent.
#[derive(Default)]
pub(super) struct Table {
    sessions: BTreeMap<u64, Established>,
    /// Sessions with an address, the present one last.
    by_address: BTreeMap<SocketAddr, Vec<u64>>,
    spent: VecDeque<(Instant, u64)>,
}

impl Table {
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn of(&self, address: SocketAddr) -> Option<&Established> {
        self.sessions.get(self.by_address.get(&address)?.last()?)
    }

    pub fn of_mut(&mut self, address: SocketAddr) -> Option<&mut Established> {
        self.sessions.get_mut(self.by_address.get(&address)?.last()?)
    }

    pub fn by_number(&mut self, id: u64) -> Option<&mut Established> {
        self.sessions.get_mut(&id)
    }

    /// Adds a session, which is the present one from now on. Returns false if it was there before,
    /// or there is no room.
    pub fn add(&mut self, now: Instant, session: Established) -> bool {
        self.spent.retain(|(at, _)| now.since(*at) < SPENT);
        let is_known = |id| self.sessions.contains_key(&id);
        if is_known(session.id) || self.spent.iter().any(|(_, id)| *id == session.id) {
            return false;
        }
        if self.sessions.len() >= SESSIONS_MAX {
            let idle = self.sessions.values().filter(|s| now.since(s.last) > IDLE);
            let idle: Vec<u64> = idle.map(|s| s.id).collect();
            idle.into_iter().for_each(|id| self.remove(now, id));
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return false;
        }
        let of = self.by_address.entry(session.peer).or_default();
        of.push(session.id);
        let oldest = (of.len() > OF_ADDRESS).then(|| of[0]);
        self.sessions.insert(session.id, session);
        if let Some(id) = oldest {
            self.remove(now, id);
        }
        true
    }

    fn remove(&mut self, now: Instant, id: u64) {
        let Some(session) = self.sessions.remove(&id) else { return };
        if let Some(of) = self.by_address.get_mut(&session.peer) {
            of.retain(|other| *other != id);
            if of.is_empty() {
                self.by_address.remove(&session.peer);
            }
        }
        self.spent.push_back((now, id));
        if self.spent.len() > SESSIONS_MAX {
            self.spent.pop_front();
        }
    }

    /// Has sessions under another key than the first be renewed with their next message.
    pub fn renew_keys(&mut self) {
        self.sessions.values_mut().for_each(|s| s.renewed = None);
    }

    /// Ends sessions under other keys than these.
    pub fn keep_keys(&mut self, ids: &[u64]) {
        self.sessions.retain(|_, s| ids.contains(&s.key_id));
        for of in self.by_address.values_mut() {
            of.retain(|id| self.sessions.contains_key(id));
        }
        self.by_address.retain(|_, of| !of.is_empty());
    }
}
