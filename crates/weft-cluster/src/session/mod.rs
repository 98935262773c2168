//! Sessions of agents: every datagram between two agents is authenticated.
//!
//! An agent that has something to send asks for a session (INIT), the other one answers (ANSWER),
//! the first takes it up (CONFIRM); all three carry a proof that their sender has the key of the
//! cluster. The keys of the session come from that key and a number that each side drew, so those
//! of one session are useless in another. Messages are numbered, and a window refuses those that
//! came before.
//!
//! The answering side keeps nothing until CONFIRM: its number is a code, under a secret of its own,
//! of the asker's address and number and the time, which it makes again to compare. No datagram is
//! answered by a longer one, and nothing but INIT and its like is answered at all before a proof.
//! REFUSED proves nothing and changes no session: it is there for logs, and for an asker with two
//! keys, which goes on with the other one at once instead of a little later.
//!
//! Like `weft-names` this does no I/O and reads no clock.

mod table;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use table::{Established, Sides, Table};
use weft_core::Instant;
use weft_link::secure::{JobKey, Purpose};
use wire::{kind, DataHead, Refusal, Refused, Shake};

use crate::key::ClusterKeys;

/// The protocol that a message belongs to.
pub mod class {
    /// None: the session is there.
    pub const NOTHING: u8 = 0;
    /// Membership and names (`weft-names`).
    pub const NAMES: u8 = 1;
    /// Messages of programs to names.
    pub const MAIL: u8 = 2;
    /// Messages of groups.
    pub const GROUP: u8 = 3;
    /// Ranks and their counters.
    pub const RANKS: u8 = 4;
    /// Messages and connections of TIPC sockets.
    pub const TIPC: u8 = 5;
}

/// Time between two attempts to get a session, at first; it doubles.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// The longest such time.
const AGAIN_MAX: Duration = Duration::from_secs(1);
/// Attempts, after which the waiting messages are dropped. The next message begins anew.
const TRIES_MAX: u32 = 8;
/// Messages that wait for a session with one address.
const WAITING_MAX: usize = 64;
/// Addresses with which a session is attempted at a time.
const ATTEMPTS_MAX: usize = 1024;
/// Time for which the number in an ANSWER is good, once or twice.
const EPOCH: Duration = Duration::from_secs(10);
/// Age after which a session gets a successor.
const RENEW: Duration = Duration::from_secs(3600);
/// Silence of the other side, while this one sends, after which another session is asked for.
const SILENT: Duration = Duration::from_secs(1);
/// Time between two attempts to move a session to the first key.
const RENEW_KEY: Duration = Duration::from_secs(30);
/// Time for which an address is known as that of a member after something genuine came from it.
const KNOWN: Duration = Duration::from_secs(10);
/// Most REFUSED that are sent in a second.
const REFUSED_RATE: u32 = 32;
/// Notices that wait for the driver.
const NOTICES_MAX: usize = 256;

/// Something that people should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A datagram of this address was dropped.
    Dropped(SocketAddr, Refusal),
    /// An agent at this address says that it drops the datagrams of this one.
    DroppedBy(SocketAddr, Refusal, u8),
    /// An agent answered a call to all hosts of the local network.
    Found(SocketAddr),
    /// The agent at this address does not have the first key yet; the other one is in use. Told
    /// once for each address and change of keys.
    Behind(SocketAddr),
}

/// Counters of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams taken.
    pub taken: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Sessions made.
    pub made: u64,
    /// Datagrams dropped, by the numbers of [`Refusal`] less one.
    pub refused: [u64; Refusal::ALL.len()],
    /// Datagrams that are none of this protocol.
    pub malformed: u64,
    /// Datagrams with a false proof or tag.
    pub forged: u64,
    /// Datagrams that came before, or too late.
    pub replayed: u64,
    /// Messages that found no session in time.
    pub unsent: u64,
}

impl Counters {
    /// Passes each counter's name and value to `show`.
    pub fn each(&self, show: &mut dyn FnMut(&str, u64)) {
        let Counters { taken, sent, made, malformed, forged, replayed, unsent, .. } = *self;
        for (name, value) in [
            ("datagrams_taken", taken),
            ("datagrams_sent", sent),
            ("sessions_made", made),
            ("malformed", malformed),
            ("forged", forged),
            ("replayed", replayed),
            ("unsent", unsent),
        ] {
            show(name, value);
        }
        for (refusal, count) in Refusal::ALL.iter().zip(self.refused) {
            show(refusal.name(), count);
        }
    }
}

/// An attempt to get a session with an address.
struct Attempt {
    nonce: [u8; 16],
    /// The key that is tried.
    key: usize,
    /// There is a session, which shall move to the first key: no other one is tried.
    is_renewal: bool,
    tries: u32,
    next: Instant,
    waiting: VecDeque<(u8, Vec<u8>)>,
}

/// The sessions of an agent.
pub struct Sessions {
    cluster: u64,
    keys: ClusterKeys,
    secret: JobKey,
    began: Instant,
    table: Table,
    attempts: BTreeMap<SocketAddr, Attempt>,
    /// The number in the last call to all hosts.
    call: Option<[u8; 16]>,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    notices: VecDeque<Notice>,
    /// Addresses of agents that do not have the first key yet.
    behind: BTreeSet<SocketAddr>,
    /// REFUSED sent in the second that began then.
    refusals: (Instant, u32),
    counters: Counters,
}

fn draw() -> [u8; 16] {
    let mut nonce = [0; 16];
    weft_link::random_bytes(&mut nonce);
    nonce
}

/// Returns the public number of a cluster's name.
pub fn cluster_id(name: &str) -> u64 {
    let key = JobKey::from_bytes(&[0; 32]).expect("32 bytes are a key");
    u64::from_le_bytes(key.derive(Purpose::PublicId, name.as_bytes()))
}

impl Sessions {
    /// Makes the sessions of an agent of the cluster of this name.
    pub fn new(cluster: &str, keys: ClusterKeys, now: Instant) -> Sessions {
        let mut secret = [0; 32];
        weft_link::random_bytes(&mut secret);
        Sessions {
            cluster: cluster_id(cluster),
            keys,
            secret: JobKey::from_bytes(&secret).expect("32 bytes are a key"),
            began: now,
            table: Table::default(),
            attempts: BTreeMap::new(),
            call: None,
            out: VecDeque::new(),
            notices: VecDeque::new(),
            behind: BTreeSet::new(),
            refusals: (now, 0),
            counters: Counters::default(),
        }
    }

    /// Changes the keys after a rotation. Sessions under a key that is gone end; for those under
    /// another than the first a successor is asked for with their next message, and now and then
    /// as long as the other side does not have that key. It asks by itself once it has.
    pub fn set_keys(&mut self, keys: ClusterKeys) {
        self.keys = keys;
        let ids: Vec<u64> = self.keys.all().iter().map(JobKey::public_id).collect();
        self.table.keep_keys(&ids);
        self.table.renew_keys();
        self.behind.clear();
        self.attempts.values_mut().for_each(|a| a.key = 0);
    }

    /// Returns the public numbers of the keys, the first of which is in use.
    pub fn key_ids(&self) -> Vec<u64> {
        self.keys.all().iter().map(JobKey::public_id).collect()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the public number of the key of the session with an address.
    pub fn key_of(&self, address: SocketAddr) -> Option<u64> {
        self.table.of(address).map(|s| s.key_id)
    }

    /// True if a datagram to an address, of which a beginning is given, is of the present session.
    pub fn has_sent(&self, to: SocketAddr, begins: &[u8]) -> bool {
        let session = self.table.of(to);
        session.is_some_and(|s| s.has_sent(begins))
    }

    /// Returns how many sessions there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if there is no session.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Takes a datagram to be sent.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let datagram = self.out.pop_front()?;
        self.counters.sent += 1;
        Some(datagram)
    }

    /// Takes a notice.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Returns the time of the next attempt.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.attempts.values().map(|a| a.next).min()
    }

    /// Sends a message to an address, after a session with it was made.
    pub fn send(&mut self, now: Instant, to: SocketAddr, class: u8, payload: &[u8]) {
        let first = self.keys.all()[0].public_id();
        let Some(session) = self.table.of_mut(to) else {
            return self.attempt(now, to, Some((class, payload.to_vec())), false);
        };
        // The other side takes up the session with CONFIRM, which may be lost.
        if let Some(confirm) = session.confirm(now) {
            self.out.push_back((to, confirm));
        }
        let datagram = session.seal(now, class, payload);
        let is_old = now.since(session.born) > RENEW || session.is_unanswered(now, SILENT);
        let is_other_key = session.key_id != first && session.is_time_for_key(now, RENEW_KEY);
        self.out.push_back((to, datagram));
        if is_old || is_other_key {
            self.attempt(now, to, None, !is_old);
        }
    }

    /// Begins an attempt, or has a message wait for the one that there is.
    fn attempt(
        &mut self,
        now: Instant,
        to: SocketAddr,
        message: Option<(u8, Vec<u8>)>,
        is_renewal: bool,
    ) {
        if !self.attempts.contains_key(&to) && self.attempts.len() >= ATTEMPTS_MAX {
            self.counters.unsent += 1;
            return;
        }
        let attempt = self.attempts.entry(to).or_insert_with(|| Attempt {
            nonce: draw(),
            key: 0,
            is_renewal,
            tries: 0,
            next: now,
            waiting: VecDeque::new(),
        });
        // The session may have ended meanwhile: then any key is welcome.
        attempt.is_renewal &= is_renewal;
        if attempt.waiting.len() >= WAITING_MAX {
            attempt.waiting.pop_front();
            self.counters.unsent += 1;
        }
        attempt.waiting.extend(message);
        if attempt.tries == 0 {
            self.ask(now, to);
        }
    }

    fn init(&self, key: &JobKey, nonce: [u8; 16]) -> Vec<u8> {
        let shake = Shake {
            kind: kind::INIT,
            cluster: self.cluster,
            key: key.public_id(),
            ours: nonce,
            theirs: [0; 16],
            epoch: 0,
        };
        shake.encode(key)
    }

    /// Asks an address for a session, with each key in turn, from the one that it has.
    fn ask(&mut self, now: Instant, to: SocketAddr) {
        let Some(attempt) = self.attempts.get_mut(&to) else { return };
        let count = if attempt.is_renewal { 1 } else { self.keys.all().len() };
        let first = usize::from(self.behind.contains(&to));
        let key = &self.keys.all()[(attempt.key + first) % count];
        let nonce = attempt.nonce;
        attempt.key += 1;
        attempt.tries += 1;
        attempt.next = now + (RETRY_AFTER * 2u32.pow((attempt.tries - 1).min(8))).min(AGAIN_MAX);
        let datagram = self.init(key, nonce);
        self.out.push_back((to, datagram));
    }

    /// Returns a datagram for all hosts of the local network, which agents of this cluster answer.
    pub fn call(&mut self) -> Vec<u8> {
        let nonce = *self.call.insert(draw());
        self.init(&self.keys.all()[0], nonce)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due = self.attempts.iter().filter(|(_, a)| a.next <= now);
        let due: Vec<(SocketAddr, u32)> = due.map(|(to, a)| (*to, a.tries)).collect();
        for (to, tries) in due {
            if tries < TRIES_MAX {
                self.ask(now, to);
            } else if let Some(attempt) = self.attempts.remove(&to) {
                self.counters.unsent += attempt.waiting.len() as u64;
            }
        }
    }

    fn notice(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push_back(notice);
        }
    }

    /// Counts a datagram that is dropped, and tells its sender, if that is no more than it sent.
    fn refuse(&mut self, now: Instant, from: SocketAddr, bytes: &[u8], why: Refusal) {
        self.counters.refused[why as usize - 1] += 1;
        if why != Refusal::Session {
            self.notice(Notice::Dropped(from, why));
        }
        self.tell_refused(now, from, bytes, why);
    }

    fn tell_refused(&mut self, now: Instant, from: SocketAddr, bytes: &[u8], why: Refusal) {
        if now.since(self.refusals.0) >= Duration::from_secs(1) {
            self.refusals = (now, 0);
        }
        let of = bytes.get(8..wire::REFUSED_LEN).and_then(|of| <[u8; 32]>::try_from(of).ok());
        let Some(of) = of.filter(|_| self.refusals.1 < REFUSED_RATE) else { return };
        self.refusals.1 += 1;
        self.out.push_back((from, Refused { version: wire::VERSION, why, of }.encode()));
    }

    /// Takes a datagram. Returns the message in it, if it is a new message of a member.
    pub fn receive<'a>(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &'a [u8],
    ) -> Option<(u8, &'a [u8])> {
        let &[version, kind, ..] = bytes else {
            self.counters.malformed += 1;
            return None;
        };
        match kind {
            kind::REFUSED => self.on_refused(now, from, bytes),
            _ if version != wire::VERSION && (1..16).contains(&version) && bytes.len() >= 32 => {
                self.refuse(now, from, bytes, Refusal::Version);
            }
            kind::DATA => return self.on_data(now, from, bytes),
            _ => match Shake::decode(bytes) {
                Some(shake) => self.on_shake(now, from, bytes, &shake),
                None => self.counters.malformed += 1,
            },
        }
        None
    }

    fn on_refused(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let Some(Refused { version, why, of }) = Refused::decode(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        // Only of what this agent sent: anybody may write a REFUSED.
        let is_attempt = self.attempts.get(&from).is_some_and(|a| a.nonce == of[16..]);
        let session = u64::from_le_bytes(*of.first_chunk().expect("it has 32 bytes"));
        let is_session = self.table.of(from).is_some_and(|s| s.id == session);
        match why {
            Refusal::Session if is_session => self.attempt(now, from, None, false),
            Refusal::Session => {}
            Refusal::Key if is_attempt && self.has_other_key(now, from) => {}
            _ if is_attempt => self.notice(Notice::DroppedBy(from, why, version)),
            _ => {}
        }
    }

    /// Goes on with the other key, or with the session that there is, where an agent does not know
    /// a key. Returns false if there is nothing to go on with.
    fn has_other_key(&mut self, now: Instant, from: SocketAddr) -> bool {
        let count = self.keys.all().len();
        let Some(attempt) = self.attempts.get(&from).filter(|_| count > 1) else { return false };
        if attempt.is_renewal {
            self.attempts.remove(&from);
            if self.behind.len() < ATTEMPTS_MAX && self.behind.insert(from) {
                self.notice(Notice::Behind(from));
            }
            return true;
        }
        let is_next = attempt.key < count;
        if is_next {
            self.ask(now, from);
        }
        is_next
    }

    fn on_shake(&mut self, now: Instant, from: SocketAddr, bytes: &[u8], shake: &Shake) {
        if self.call == Some(shake.ours) && shake.kind == kind::INIT {
            // Its own call, from the network.
            return;
        }
        if shake.cluster != self.cluster {
            return self.refuse(now, from, bytes, Refusal::Cluster);
        }
        let Some(key) = self.keys.all().iter().find(|k| k.public_id() == shake.key).cloned() else {
            let why = match self.keys.was_retired(shake.key) {
                true => Refusal::OldKey,
                false => Refusal::Key,
            };
            // A member that has a key more: it goes on with the one that both have.
            let is_member = self.table.of(from).is_some_and(|s| s.is_heard(now, KNOWN));
            if is_member && why == Refusal::Key {
                return self.tell_refused(now, from, bytes, why);
            }
            return self.refuse(now, from, bytes, why);
        };
        if !Shake::is_proven(bytes, &key) {
            self.counters.forged += 1;
            return;
        }
        match shake.kind {
            kind::INIT => {
                let epoch = self.epoch(now);
                let theirs = self.number(from, shake, epoch);
                let answer = Shake { kind: kind::ANSWER, theirs, epoch, ..*shake };
                self.out.push_back((from, answer.encode(&key)));
            }
            kind::ANSWER => self.on_answer(now, from, &key, shake),
            _ => self.on_confirm(now, from, &key, shake),
        }
    }

    fn epoch(&self, now: Instant) -> u64 {
        (now.since(self.began).as_nanos() / EPOCH.as_nanos()) as u64 + 1
    }

    /// Returns this side's number for an INIT at a time.
    fn number(&self, from: SocketAddr, shake: &Shake, epoch: u64) -> [u8; 16] {
        let mut about = Vec::with_capacity(64);
        let ip = match from.ip() {
            std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            std::net::IpAddr::V6(ip) => ip,
        };
        about.extend(ip.octets());
        about.extend(from.port().to_le_bytes());
        about.extend(shake.key.to_le_bytes());
        about.extend(shake.ours);
        about.extend(epoch.to_le_bytes());
        self.secret.derive(Purpose::ClusterCookie, &about)
    }

    fn on_answer(&mut self, now: Instant, from: SocketAddr, key: &JobKey, shake: &Shake) {
        let is_asked = self.attempts.get(&from).is_some_and(|a| a.nonce == shake.ours);
        let is_called = self.call == Some(shake.ours);
        if !is_asked && !is_called {
            // An INIT that went again is answered twice, and both sides may have asked.
            let is_late = self.table.of(from).is_some_and(|s| s.nonce == shake.ours);
            self.counters.replayed += u64::from(!is_late);
            return;
        }
        if key.public_id() == self.keys.all()[0].public_id() {
            self.behind.remove(&from);
        }
        let confirm = Shake { kind: kind::CONFIRM, ..*shake }.encode(key);
        let mut session = Established::new(now, from, key, shake, Sides::Asked);
        session.hold_confirm(now, confirm.clone());
        if !self.table.add(now, session) {
            return;
        }
        self.counters.made += 1;
        self.out.push_back((from, confirm));
        if is_called {
            self.notice(Notice::Found(from));
        }
        if let Some(attempt) = self.attempts.remove(&from) {
            for (class, payload) in attempt.waiting {
                self.send(now, from, class, &payload);
            }
        }
    }

    fn on_confirm(&mut self, now: Instant, from: SocketAddr, key: &JobKey, shake: &Shake) {
        let epoch = self.epoch(now);
        let is_late = shake.epoch > epoch || shake.epoch + 1 < epoch;
        if is_late || self.number(from, shake, shake.epoch) != shake.theirs {
            self.counters.replayed += 1;
            return;
        }
        let mut session = Established::new(now, from, key, shake, Sides::Answered);
        if let Some(attempt) = self.attempts.get(&from) {
            session.nonce = attempt.nonce;
        }
        if key.public_id() == self.keys.all()[0].public_id() {
            self.behind.remove(&from);
        }
        if self.table.add(now, session) {
            self.counters.made += 1;
            // The other side learns that the session is there, and what waits for one here goes.
            self.send(now, from, class::NOTHING, &[]);
            if let Some(attempt) = self.attempts.remove(&from) {
                for (class, payload) in attempt.waiting {
                    self.send(now, from, class, &payload);
                }
            }
        }
    }

    fn on_data<'a>(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &'a [u8],
    ) -> Option<(u8, &'a [u8])> {
        let Some((head, text, payload, tag)) = DataHead::split(bytes) else {
            self.counters.malformed += 1;
            return None;
        };
        let Some(session) = self.table.by_number(head.session).filter(|s| s.peer == from) else {
            self.refuse(now, from, bytes, Refusal::Session);
            return None;
        };
        if !session.is_genuine(&head, text, payload, tag) {
            self.counters.forged += 1;
            return None;
        }
        if !session.accept(now, head.number) {
            self.counters.replayed += 1;
            return None;
        }
        self.counters.taken += 1;
        (head.class != class::NOTHING).then_some((head.class, payload))
    }
}

#[cfg(test)]
mod tests;
