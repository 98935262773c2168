//! Checks the promises of endpoints: every message arrives exactly once, whole, in order per sender
//! and tag; every operation ends, well or with a true reason.
//!
//! The programs of a simulation report to one shared [`Checker`]. The content of a message follows
//! from (seed, sender, receiver, tag, index), so a receiver can tell a wrong message from a damaged
//! one, and name the message it got instead.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use weft_link::rng::{splitmix, Rng};

/// A checker that programs share.
pub type SharedChecker = Rc<RefCell<Checker>>;

/// The messages from one host to another under one tag: delivered in the order posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    pub dst: u32,
    /// Match bits.
    pub tag: u64,
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} tag {:#x}", self.src, self.dst, self.tag)
    }
}

/// Returns the content of message `index` of a lane.
pub fn content(seed: u64, lane: Lane, index: u64, len: usize) -> Vec<u8> {
    let mut state = seed ^ (u64::from(lane.src) << 32 | u64::from(lane.dst));
    let mixed = splitmix(&mut state) ^ lane.tag;
    let mut rng = Rng::stream(mixed, index + 1);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[derive(Debug, Default)]
struct LaneState {
    /// Length of each message posted.
    lens: Vec<usize>,
    sends_ended: u64,
    received: u64,
    broken: bool,
}

/// A word that hosts change by atomic operations: either all add one, or all store values that
/// differ from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word {
    /// Host whose memory contains it.
    pub host: u32,
    /// Its number among the host's words.
    pub number: u32,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "word {} of host {}", self.number, self.host)
    }
}

#[derive(Debug, Default)]
struct WordState {
    /// Additions that began.
    posted: u64,
    /// Values that additions found.
    found: BTreeSet<u64>,
    /// Values that hosts began to store.
    offered: BTreeSet<u64>,
    /// Values replaced, and their replacements.
    replaced: BTreeMap<u64, u64>,
    /// Operations that began and have not ended well.
    open: u64,
}

/// An operation that must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(usize);

#[derive(Debug)]
struct Op {
    host: u32,
    what: String,
    ended: bool,
}

/// Number of violations kept; more are only counted.
const KEEP: usize = 20;

/// Records the operations of a simulation.
#[derive(Debug)]
pub struct Checker {
    seed: u64,
    lanes: BTreeMap<Lane, LaneState>,
    words: BTreeMap<Word, WordState>,
    ops: Vec<Op>,
    violations: Vec<String>,
    count: u64,
    delivered: u64,
    failed: u64,
}

/// The violations of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations {
    /// The first ones, in the order found.
    pub list: Vec<String>,
    /// Their total number.
    pub count: u64,
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} violations:", self.count)?;
        self.list.iter().try_for_each(|v| write!(f, "\n  {v}"))
    }
}

impl std::error::Error for Violations {}

impl Checker {
    /// Creates an empty checker; `seed` decides the contents.
    pub fn new(seed: u64) -> Checker {
        Checker {
            seed,
            lanes: BTreeMap::new(),
            words: BTreeMap::new(),
            ops: Vec::new(),
            violations: Vec::new(),
            count: 0,
            delivered: 0,
            failed: 0,
        }
    }

    /// Creates a checker to be shared.
    pub fn shared(seed: u64) -> SharedChecker {
        Rc::new(RefCell::new(Checker::new(seed)))
    }

    /// Returns the number of messages delivered with all checks passed.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the number of operations that ended with an accepted error.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Records a violation.
    pub fn violation(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.violations.len() < KEEP {
            self.violations.push(what());
        }
    }

    /// Notes that a host is about to send; returns the index and the content of the message.
    pub fn send_posted(&mut self, lane: Lane, len: usize) -> (u64, Vec<u8>) {
        let state = self.lanes.entry(lane).or_default();
        let index = state.lens.len() as u64;
        state.lens.push(len);
        (index, content(self.seed, lane, index, len))
    }

    /// Notes the end of a send; `failure` is the error's text, and true if it is acceptable.
    pub fn send_ended(&mut self, lane: Lane, index: u64, failure: Option<(String, bool)>) {
        let state = self.lanes.entry(lane).or_default();
        state.sends_ended += 1;
        match failure {
            None => {}
            Some((_, true)) => {
                self.failed += 1;
                state.broken = true;
            }
            Some((why, false)) => self.violation(|| format!("{lane}: send {index} failed: {why}")),
        }
    }

    /// Returns the index of the message that a lane's receiver gets next.
    pub fn next_index(&self, lane: Lane) -> u64 {
        self.lanes.get(&lane).map_or(0, |state| state.received)
    }

    /// Notes that a host received `data` as the next message of a lane; the message was `sent`
    /// bytes long, and `data` is its start (all of it, unless truncated).
    pub fn received(&mut self, lane: Lane, sent: usize, data: &[u8]) {
        let seed = self.seed;
        let state = self.lanes.entry(lane).or_default();
        let index = state.received;
        state.received += 1;
        let Some(&len) = state.lens.get(index as usize) else {
            let posted = state.lens.len();
            return self.violation(|| format!("{lane}: message {index} of {posted} received"));
        };
        let fits = |i: u64, len: usize| {
            let want = content(seed, lane, i, len);
            sent == len && data.len() <= len && data == &want[..data.len()]
        };
        if fits(index, len) {
            self.delivered += 1;
            return;
        }
        let other = (0u64..).zip(&state.lens).find(|&(i, &len)| fits(i, len)).map(|(i, _)| i);
        let meant = self.meant_for(sent, data);
        self.violation(|| match (other, meant) {
            (Some(other), _) => format!("{lane}: message {other} came where {index} was due"),
            (None, Some((other, i))) => format!("{lane}: message {i} of {other} came"),
            (None, None) => format!(
                "{lane}: message {index} of {len} bytes is damaged: \
                 {sent} bytes announced, {} given",
                data.len()
            ),
        });
    }

    /// Returns the message that starts with these bytes, if there is one.
    fn meant_for(&self, sent: usize, data: &[u8]) -> Option<(Lane, u64)> {
        let fits = |&(lane, i): &(Lane, u64)| data == content(self.seed, lane, i, data.len());
        let of_lane = |(&lane, state): (&Lane, &LaneState)| {
            let long = (0u64..).zip(state.lens.clone()).filter(|&(_, len)| len == sent);
            long.map(|(i, _)| (lane, i)).collect::<Vec<_>>()
        };
        let mut found = self.lanes.iter().flat_map(of_lane);
        found.find(fits).filter(|_| data.len() >= 8)
    }

    /// Notes an acceptable failure of a receive of this lane: no further message is expected.
    pub fn receive_failed(&mut self, lane: Lane) {
        self.failed += 1;
        self.lanes.entry(lane).or_default().broken = true;
    }

    /// Notes that an operation on remote memory ended well.
    pub fn remote_done(&mut self) {
        self.delivered += 1;
    }

    /// Notes an acceptable failure of an operation on remote memory.
    pub fn remote_failed(&mut self) {
        self.failed += 1;
    }

    /// Notes that an addition of one begins.
    pub fn add_posted(&mut self, word: Word) {
        let state = self.words.entry(word).or_default();
        state.posted += 1;
        state.open += 1;
    }

    /// Notes the value that an addition found. If each is done once, all values differ.
    pub fn added(&mut self, word: Word, old: u64) {
        let state = self.words.entry(word).or_default();
        state.open -= 1;
        let posted = state.posted;
        if old >= posted {
            self.violation(|| format!("{word}: found {old} after {posted} additions at most"));
        } else if !state.found.insert(old) {
            self.violation(|| format!("{word}: two additions found {old}"));
        }
    }

    /// Notes that a host begins to store `value`; no other host stores the same.
    pub fn exchange_posted(&mut self, word: Word, value: u64) {
        let state = self.words.entry(word).or_default();
        state.open += u64::from(state.offered.insert(value));
    }

    /// Notes that an exchange found `old`, and replaced it by `new` if that is given. No value is
    /// stored twice, so none is replaced twice.
    pub fn exchanged(&mut self, word: Word, old: u64, new: Option<u64>) {
        let state = self.words.entry(word).or_default();
        let known = old == 0 || state.offered.contains(&old);
        let again = new.and_then(|new| state.replaced.insert(old, new));
        state.open -= u64::from(new.is_some());
        if !known {
            self.violation(|| format!("{word}: found {old:#x}, which nobody put there"));
        }
        if let Some(before) = again {
            self.violation(|| format!("{word}: {old:#x} was replaced twice, by {before:#x} too"));
        }
    }

    /// Notes that a host gives up storing a value.
    pub fn exchange_given_up(&mut self, word: Word) {
        self.words.entry(word).or_default().open -= 1;
    }

    /// Returns the fault of a word once everything has ended.
    fn verify_word(word: Word, state: &WordState) -> Option<String> {
        let WordState { posted, found, replaced, .. } = state;
        if found.len() as u64 != *posted {
            return Some(format!("{word}: {} of {posted} additions", found.len()));
        }
        let put: BTreeSet<u64> = replaced.values().copied().chain([0]).collect();
        let lost = replaced.keys().find(|old| !put.contains(old))?;
        Some(format!("{word}: {lost:#x} was found, but whoever put it there was not told"))
    }

    /// Notes that an operation of any type begins; `what` describes it.
    pub fn posted(&mut self, host: u32, what: impl Into<String>) -> Ticket {
        self.ops.push(Op { host, what: what.into(), ended: false });
        Ticket(self.ops.len() - 1)
    }

    /// Notes that the operation ended.
    pub fn ended(&mut self, ticket: Ticket) {
        let op = &mut self.ops[ticket.0];
        if std::mem::replace(&mut op.ended, true) {
            let text = format!("host {}: {} ended twice", op.host, op.what);
            self.violation(|| text);
        }
    }

    /// Returns the operations of a host that have not ended.
    pub fn pending(&self, host: u32) -> impl Iterator<Item = &str> {
        self.ops.iter().filter(move |op| op.host == host && !op.ended).map(|op| op.what.as_str())
    }

    /// Checks the end state: everything posted has ended and every message was received, except
    /// where one of the `dead` hosts took part or an error was accepted.
    pub fn verify(&mut self, dead: &[u32]) -> Result<(), Violations> {
        let mut found = Vec::new();
        for (lane, state) in &self.lanes {
            if dead.contains(&lane.src) || dead.contains(&lane.dst) || state.broken {
                continue;
            }
            let posted = state.lens.len() as u64;
            if state.received != posted {
                found.push(format!("{lane}: {} of {posted} messages received", state.received));
            }
            if state.sends_ended != posted {
                found.push(format!("{lane}: {} of {posted} sends ended", state.sends_ended));
            }
        }
        // An operation that did not end may or may not have been executed.
        let settled = self.words.iter().filter(|(_, state)| state.open == 0);
        found.extend(settled.filter_map(|(&word, state)| Checker::verify_word(word, state)));
        let open = self.ops.iter().filter(|op| !op.ended && !dead.contains(&op.host));
        found.extend(open.map(|op| format!("host {}: {} never ended", op.host, op.what)));
        found.into_iter().for_each(|text| self.violation(|| text));
        if self.count == 0 {
            return Ok(());
        }
        Err(Violations { list: self.violations.clone(), count: self.count })
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const LANE: Lane = Lane { src: 1, dst: 2, tag: 7 };

    fn text(checker: &mut Checker, dead: &[u32]) -> String {
        checker.verify(dead).map_or_else(|v| v.to_string(), |()| "fine".into())
    }

    #[test]
    fn received__in_order_and_whole_is_fine() {
        let mut c = Checker::new(3);
        for len in [0, 9, 4000] {
            let (index, data) = c.send_posted(LANE, len);
            c.send_ended(LANE, index, None);
            c.received(LANE, len, &data);
        }
        assert_eq!(text(&mut c, &[]), "fine");
        assert_eq!(c.delivered(), 3);
    }

    #[test]
    fn received__truncated_is_a_beginning() {
        let mut c = Checker::new(3);
        let (_, data) = c.send_posted(LANE, 100);
        c.received(LANE, 100, &data[..10]);
        assert_eq!(c.delivered(), 1);
    }

    #[test]
    fn received__swapped_damaged_and_doubled_are_distinguished() {
        let mut c = Checker::new(3);
        let a = c.send_posted(LANE, 50).1;
        let b = c.send_posted(LANE, 50).1;
        c.received(LANE, 50, &b);
        c.received(LANE, 50, &[0; 50]);
        c.received(LANE, 50, &a);
        let text = text(&mut c, &[1]);
        assert!(text.contains("message 1 came where 0 was due"), "{text}");
        assert!(text.contains("message 1 of 50 bytes is damaged"), "{text}");
        assert!(text.contains("message 2 of 2 received"), "{text}");
    }

    #[test]
    fn received__what_was_meant_for_another_is_named() {
        let mut c = Checker::new(3);
        let old = Lane { dst: 9, ..LANE };
        let _ = c.send_posted(LANE, 50);
        let data = c.send_posted(old, 50).1;
        c.received(LANE, 50, &data);
        let text = text(&mut c, &[1]);
        assert!(text.contains("1 > 2 tag 0x7: message 0 of 1 > 9 tag 0x7 came"), "{text}");
    }

    #[test]
    fn verify__missing_message_and_open_operation() {
        let mut c = Checker::new(3);
        let (index, _) = c.send_posted(LANE, 1);
        c.send_ended(LANE, index, None);
        let ticket = c.posted(4, "get from 5");
        assert_eq!(c.pending(4).collect::<Vec<_>>(), ["get from 5"]);
        let text = text(&mut c, &[]);
        assert!(text.contains("1 > 2 tag 0x7: 0 of 1 messages received"), "{text}");
        assert!(text.contains("host 4: get from 5 never ended"), "{text}");
        c.ended(ticket);
        assert_eq!(c.pending(4).count(), 0);
    }

    /// Checks that the verdict has these parts.
    fn says(c: &mut Checker, parts: &[&str]) {
        let text = text(c, &[]);
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }

    const WORD: Word = Word { host: 2, number: 0 };

    #[test]
    fn added__twice_done_lost_and_invented_are_found() {
        let mut c = Checker::new(3);
        (0..4).for_each(|_| c.add_posted(WORD));
        [0, 1, 1, 9].into_iter().for_each(|old| c.added(WORD, old));
        let found =
            ["word 0 of host 2: two additions found 1", "found 9 after 4 additions at most"];
        says(&mut c, &found);
        says(&mut c, &["2 of 4 additions"]);
    }

    #[test]
    fn exchanged__a_value_is_replaced_once_by_a_value_that_was_stored() {
        let mut c = Checker::new(3);
        (1..=4).for_each(|value| c.exchange_posted(WORD, value));
        c.exchanged(WORD, 0, Some(1));
        c.exchanged(WORD, 1, Some(2));
        c.exchanged(WORD, 2, None);
        assert_eq!(text(&mut c, &[]), "fine");
        c.exchanged(WORD, 1, Some(3));
        c.exchanged(WORD, 7, Some(4));
        says(&mut c, &["0x1 was replaced twice, by 0x2 too", "found 0x7, which nobody put there"]);
        says(&mut c, &["0x7 was found, but whoever put it there was not told"]);
    }

    #[test]
    fn verify__the_dead_are_excused_and_others_not() {
        let mut c = Checker::new(3);
        let (index, _) = c.send_posted(LANE, 1);
        c.send_ended(LANE, index, Some(("silent".into(), true)));
        c.posted(2, "receive");
        assert_eq!(text(&mut c, &[2]), "fine");
        let (index, _) = c.send_posted(LANE, 1);
        c.send_ended(LANE, index, Some(("refused".into(), false)));
        assert!(text(&mut c, &[2]).contains("send 1 failed: refused"));
    }
}
