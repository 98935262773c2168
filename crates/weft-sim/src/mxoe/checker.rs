//! Checks what the endpoints of a plan say.

use super::plan::{Message, MxPlan};
use std::collections::{BTreeMap, BTreeSet};

/// Length of the part of match bits that numbers a message; above it is the sender's incarnation.
const NUMBER_BITS: u32 = 32;

/// A message, as the match bits name it: the sender's incarnation and its number in the plan.
pub(super) type Id = (u32, u32);

/// Returns the match bits of a message.
pub(super) fn bits_of((incarnation, number): Id) -> u64 {
    u64::from(incarnation) << NUMBER_BITS | u64::from(number)
}

fn id_of(bits: u64) -> Id {
    ((bits >> NUMBER_BITS) as u32, bits as u32)
}

/// Returns the bytes of a message.
pub(super) fn content((incarnation, number): Id, len: u32) -> Vec<u8> {
    let start = number.wrapping_mul(31).wrapping_add(incarnation.wrapping_mul(97));
    (0..len).map(|at| (start + at.wrapping_mul(7) + at / 251) as u8).collect()
}

/// Knows what was sent, what has come, and the first fault.
pub(super) struct Checker {
    plan: MxPlan,
    /// Messages that have come or were announced, and those whose bytes are there.
    come: BTreeSet<Id>,
    whole: BTreeSet<Id>,
    /// The last message of a sender's incarnation to a host.
    last: BTreeMap<(u32, u32, u32), u32>,
    /// Messages whose senders know their end; and those that senders know as lost.
    ended: BTreeSet<Id>,
    lost: u64,
    failed: u64,
    pulled: u64,
    fault: Option<String>,
}

impl Checker {
    pub fn new(plan: MxPlan) -> Checker {
        Checker {
            plan,
            come: BTreeSet::new(),
            whole: BTreeSet::new(),
            last: BTreeMap::new(),
            ended: BTreeSet::new(),
            lost: 0,
            failed: 0,
            pulled: 0,
            fault: None,
        }
    }

    pub fn plan(&self) -> &MxPlan {
        &self.plan
    }

    /// Returns the first fault.
    pub fn fault(&self) -> Option<String> {
        self.fault.clone()
    }

    /// Notes a fault, unless there was one before.
    pub fn note(&mut self, why: impl FnOnce() -> String) {
        self.fault.get_or_insert_with(why);
    }

    fn message(&mut self, host: u32, bits: u64) -> Option<(Id, Message)> {
        let id = id_of(bits);
        let found = self.plan.messages.get(id.1 as usize).copied();
        let found = found.filter(|message| message.to == host);
        if found.is_none() {
            self.note(|| format!("host {host}: a message {id:?} that is not its own"));
        }
        found.map(|message| (id, message))
    }

    /// True if the connection of two hosts may end.
    pub fn may_fail(&self, host: u32, other: u32) -> bool {
        self.plan.is_mortal(host) || self.plan.is_mortal(other)
    }

    /// A message has come, or was announced; returns the bytes that the receiver has room for.
    fn came(&mut self, host: u32, bits: u64, len: usize) -> Option<(Id, u32)> {
        let (id, message) = self.message(host, bits)?;
        if !self.come.insert(id) {
            self.note(|| format!("host {host}: message {id:?} came twice: {message:?}"));
        }
        if len != message.len as usize {
            self.note(|| format!("host {host}: message {id:?} has {len} bytes: {message:?}"));
        }
        let key = (message.from, id.0, host);
        let before = self.last.insert(key, id.1);
        let skipped = self.skipped(before, id, &message);
        let out_of_turn = before.is_some_and(|before| before >= id.1);
        if out_of_turn || skipped && !self.may_fail(message.from, host) {
            self.note(|| format!("host {host}: message {id:?} came after {before:?}"));
        }
        Some((id, message.room.min(message.len)))
    }

    /// True if the sender has messages to the receiver between two that came.
    fn skipped(&self, before: Option<u32>, id: Id, message: &Message) -> bool {
        let from = before.map_or(0, |before| before + 1) as usize;
        let between = self.plan.messages.get(from..id.1 as usize).unwrap_or_default();
        between.iter().any(|of| (of.from, of.to) == (message.from, message.to))
    }

    /// Takes a message that came as it is.
    pub fn received(&mut self, host: u32, bits: u64, data: &[u8]) {
        let Some((id, _)) = self.came(host, bits, data.len()) else { return };
        let (_, Message { len, is_sync, .. }) = self.message(host, bits).unwrap_or_else(|| {
            // `came` has found it.
            unreachable!()
        });
        if is_sync {
            self.note(|| format!("host {host}: message {id:?} was not announced"));
        }
        self.take(host, id, data, len);
    }

    /// Takes an announcement; returns the bytes to pull.
    pub fn announced(&mut self, host: u32, bits: u64, len: u32) -> u32 {
        self.came(host, bits, len as usize).map_or(0, |(_, room)| room)
    }

    /// Takes a message that was pulled.
    pub fn pulled(&mut self, host: u32, bits: u64, data: &[u8]) {
        let Some((id, message)) = self.message(host, bits) else { return };
        self.pulled += 1;
        self.take(host, id, data, message.len.min(message.room));
    }

    fn take(&mut self, host: u32, id: Id, data: &[u8], len: u32) {
        if data != content(id, len) {
            self.note(|| format!("host {host}: message {id:?} is damaged"));
        }
        if !self.whole.insert(id) {
            self.note(|| format!("host {host}: message {id:?} was taken twice"));
        }
    }

    /// A message could not be pulled.
    pub fn not_pulled(&mut self, host: u32, from: u32) {
        if !self.may_fail(host, from) {
            self.note(|| format!("host {host}: a message of {from} could not be pulled"));
        }
    }

    /// A sender learned that its message was taken.
    pub fn sent(&mut self, host: u32, bits: u64, len: u32) {
        let id = id_of(bits);
        let Some(message) = self.plan.messages.get(id.1 as usize).copied() else {
            return self.note(|| format!("host {host}: message {id:?} was sent by nobody"));
        };
        let is_long = message.is_sync || message.len > weft_mxoe::MEDIUM_MAX;
        let expected = if is_long { message.len.min(message.room) } else { message.len };
        if !self.whole.contains(&id) || len != expected {
            self.note(|| format!("host {host}: message {id:?} was sent and has not come ({len})"));
        }
        self.end(host, id);
    }

    /// A sender learned that its message is lost.
    pub fn lost(&mut self, host: u32, id: Id) {
        self.lost += 1;
        self.end(host, id);
    }

    fn end(&mut self, host: u32, id: Id) {
        if !self.ended.insert(id) {
            self.note(|| format!("host {host}: message {id:?} ended twice"));
        }
    }

    /// A connection ended.
    pub fn failed(&mut self, host: u32, other: u32, why: &str) {
        self.failed += 1;
        if !self.may_fail(host, other) {
            self.note(|| format!("host {host}: {other} is given up: {why}"));
        }
    }

    /// Checks at the end that each message of hosts that live has come and ended.
    pub fn check_end(&self) -> Result<(), String> {
        for (number, message) in (0u32..).zip(&self.plan.messages) {
            let id = (0, number);
            if self.may_fail(message.from, message.to) {
                continue;
            }
            if !self.whole.contains(&id) || !self.ended.contains(&id) {
                return Err(format!("message {id:?} is missing: {message:?}"));
            }
        }
        Ok(())
    }

    /// Returns the numbers of messages that came as they are, and of those that were pulled.
    pub fn arrived(&self) -> (u64, u64) {
        (self.whole.len() as u64 - self.pulled, self.pulled)
    }

    /// Returns the numbers of lost messages and of failed connections.
    pub fn losses(&self) -> (u64, u64) {
        (self.lost, self.failed)
    }
}
