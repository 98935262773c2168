//! The ranks of a host, as its agent tells other agents and programs on request.
//!
//! A rank hands its agent the page of its counters. Process and user are those that the kernel
//! names, so that a rank can lie about its own job only. An agent that is asked answers with as
//! much as one datagram holds, from a place in its list on ([`Cursor`]), and the place where the
//! next answer begins: it keeps nothing between two questions, and the asking side asks again where
//! an answer is lost. A rank whose counters do not fit into what is left of a datagram goes in
//! parts.

use crate::counters::{AwaitedOp, Snapshot, Waiting, AWAITED_MAX};
use std::time::{Duration, SystemTime};
use weft_names::wire::{Reader, WireError, Writer};
use weft_names::HostId;

/// Longest answer.
pub const ANSWER_MAX: usize = 1200;
/// Longest name of a counter.
const NAME_MAX: usize = 24;
/// Longest name of a job.
const JOB_MAX: usize = 64;

/// A place in the list of a host's ranks: an entry, and a counter of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Number of the entry, in the order of which they are listed.
    pub entry: u64,
    /// Counters before this one were told.
    pub counter: u32,
}

/// A rank, or a part of its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number at its agent.
    pub number: u64,
    /// The user, as the kernel names it.
    pub user: u32,
    /// Its page; the process is as the kernel names it.
    pub snapshot: Snapshot,
}

/// A question for ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Number of the question.
    pub id: u64,
    /// The user who asks.
    pub user: u32,
    /// The place at which the answer begins.
    pub from: Cursor,
}

/// A part of the answer of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number of the question.
    pub id: u64,
    /// The place at which it begins.
    pub from: Cursor,
    /// The place at which the next one begins; `None`: this is the last.
    pub next: Option<Cursor>,
    /// Ranks of other users, which are not told.
    pub hidden: u32,
    /// The time of that host's clock, by which the times of ranks are to be read.
    pub at: SystemTime,
    /// The ranks.
    pub entries: Vec<Entry>,
}

/// A message between agents about ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A question.
    Ask(Ask),
    /// A part of an answer.
    Answer(Answer),
}

/// The part of an answer to a program that is of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfHost {
    /// The host.
    pub host: HostId,
    /// False: it did not answer in time, and there may be more.
    pub is_whole: bool,
    /// Ranks of other users.
    pub hidden: u32,
    /// The time of its clock.
    pub at: SystemTime,
    /// Its ranks, or some of them.
    pub entries: Vec<Entry>,
}

fn ns(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn time(ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(ns)
}

fn put_short(to: &mut Writer, text: &str, most: usize) {
    let bytes = &text.as_bytes()[..text.len().min(most)];
    to.value(&(bytes.len() as u8));
    to.bytes(bytes);
}

/// Takes a text of plain characters: names of jobs and counters have no others.
fn short(from: &mut Reader<'_>, most: usize) -> Result<String, WireError> {
    let len: u8 = from.value()?;
    let bytes = from.bytes(len.into())?;
    match bytes.len() <= most && bytes.iter().all(u8::is_ascii_graphic) {
        true => Ok(bytes.iter().map(|b| char::from(*b)).collect()),
        false => Err(WireError::Value { name: "text" }),
    }
}

fn put_cursor(to: &mut Writer, at: &Cursor) {
    to.value(&at.entry);
    to.value(&at.counter);
}

fn cursor(from: &mut Reader<'_>) -> Result<Cursor, WireError> {
    Ok(Cursor { entry: from.value()?, counter: from.value()? })
}

fn put_waiting(to: &mut Writer, waiting: &Option<Waiting>) {
    let (ago, count) = waiting.as_ref().map_or((0, 0), |w| (w.ago.as_nanos() as u64, w.count));
    let awaited = waiting.iter().flat_map(|w| &w.awaited).take(AWAITED_MAX);
    to.value(&(awaited.clone().count() as u8));
    to.value(&ago);
    to.value(&count);
    awaited.flat_map(AwaitedOp::words).for_each(|word| to.value(&word));
}

fn waiting(from: &mut Reader<'_>) -> Result<Option<Waiting>, WireError> {
    let wrong = WireError::Value { name: "waiting" };
    let (some, ago, count): (u8, u64, u64) = (from.value()?, from.value()?, from.value()?);
    if usize::from(some) > AWAITED_MAX || some == 0 && (ago, count) != (0, 0) {
        return Err(wrong);
    }
    let mut awaited = Vec::new();
    for _ in 0..some {
        awaited.push(AwaitedOp::of_words(from.value()?, from.value()?).ok_or(wrong)?);
    }
    let ago = Duration::from_nanos(ago);
    Ok((some > 0).then_some(Waiting { ago, count, awaited }))
}

/// Appends a rank with its counters from one on, as far as they fit. Returns the first counter that
/// does not, or `None` if all do; then the rest of the bytes are as before if there was no room for
/// one counter.
fn put_entry(to: &mut Writer, entry: &Entry, from: u32, room: usize) -> Option<u32> {
    let (start, s) = (to.0.len(), &entry.snapshot);
    to.value(&entry.number);
    to.value(&entry.user);
    to.value(&s.pid);
    for number in [s.rank, s.size, ns(s.start), ns(s.updated), s.peers] {
        to.value(&number);
    }
    put_waiting(to, &s.waiting);
    put_short(to, &s.job, JOB_MAX);
    let count_at = to.0.len();
    to.value(&0u8);
    let mut count = 0;
    for (at, (name, value)) in (0u32..).zip(&s.counters).skip(from as usize) {
        let is_full = to.0.len() + 1 + name.len().min(NAME_MAX) + 8 > room || count == u8::MAX;
        if is_full && count == 0 {
            to.0.truncate(start);
            return Some(from);
        }
        if is_full {
            return Some(at);
        }
        put_short(to, name, NAME_MAX);
        to.value(value);
        count += 1;
        to.0[count_at] = count;
    }
    if to.0.len() > room {
        to.0.truncate(start);
        return Some(from);
    }
    None
}

fn entry(from: &mut Reader<'_>) -> Result<Entry, WireError> {
    let (number, user, pid) = (from.value()?, from.value()?, from.value()?);
    let (rank, size) = (from.value()?, from.value()?);
    let (start, updated) = (time(from.value()?), time(from.value()?));
    let (peers, waiting) = (from.value()?, waiting(from)?);
    let job = short(from, JOB_MAX)?;
    let count: u8 = from.value()?;
    let mut counters = std::collections::BTreeMap::new();
    for _ in 0..count {
        let name = short(from, NAME_MAX)?;
        let is_next = counters.last_key_value().is_none_or(|(last, _)| *last < name);
        if !is_next || !crate::counters::is_name(&name) {
            return Err(WireError::Value { name: "counter" });
        }
        counters.insert(name, from.value()?);
    }
    let snapshot = Snapshot { pid, job, rank, size, start, updated, peers, waiting, counters };
    Ok(Entry { number, user, snapshot })
}

fn entries(from: &mut Reader<'_>) -> Result<Vec<Entry>, WireError> {
    let mut entries = Vec::new();
    while !from.0.is_empty() {
        entries.push(entry(from)?);
    }
    Ok(entries)
}

/// Types of the messages.
mod kind {
    pub const ASK: u8 = 1;
    pub const ANSWER: u8 = 2;
}

impl Ask {
    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.bytes(&[kind::ASK, 0, 0, 0]);
        to.value(&self.user);
        to.value(&self.id);
        put_cursor(&mut to, &self.from);
        to.0
    }
}

impl Answer {
    /// Begins an answer without ranks.
    pub fn new(ask: &Ask, hidden: u32, at: SystemTime) -> Answer {
        Answer { id: ask.id, from: ask.from, next: None, hidden, at, entries: Vec::new() }
    }

    /// Encodes it with as many of its ranks as fit; `next` is where the others begin.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.bytes(&[kind::ANSWER, 0, 0, 0]);
        to.value(&self.hidden);
        to.value(&self.id);
        put_cursor(&mut to, &self.from);
        let next_at = to.0.len();
        put_cursor(&mut to, &Cursor::default());
        to.value(&ns(self.at));
        let mut next = self.next;
        for one in &self.entries {
            let is_first = one.number == self.from.entry;
            let from = if is_first { self.from.counter } else { 0 };
            if let Some(counter) = put_entry(&mut to, one, from, ANSWER_MAX) {
                next = Some(Cursor { entry: one.number, counter });
                break;
            }
        }
        if let Some(next) = next {
            to.0[1] = 1;
            let mut cursor = Writer::default();
            put_cursor(&mut cursor, &next);
            to.0[next_at..next_at + cursor.0.len()].copy_from_slice(&cursor.0);
        }
        to.0
    }
}

impl Message {
    /// Parses a message of another agent.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn parse(bytes: &[u8]) -> Result<Message, WireError> {
        if bytes.len() > ANSWER_MAX {
            return Err(WireError::Long);
        }
        let mut from = Reader(bytes);
        let [kind, flag, 0, 0] = *from.bytes(4)? else { return Err(WireError::Reserved) };
        if flag > 1 {
            return Err(WireError::Value { name: "flag" });
        }
        let (number, id, at): (u32, u64, Cursor) =
            (from.value()?, from.value()?, cursor(&mut from)?);
        match kind {
            kind::ASK if flag == 1 => Err(WireError::Reserved),
            kind::ASK if from.0.is_empty() => Ok(Message::Ask(Ask { id, user: number, from: at })),
            kind::ASK => Err(WireError::Long),
            kind::ANSWER => {
                let next = cursor(&mut from)?;
                let next = match flag {
                    1 if next > at => Some(next),
                    0 if next == Cursor::default() => None,
                    _ => return Err(WireError::Value { name: "next" }),
                };
                let (told, entries) = (time(from.value()?), entries(&mut from)?);
                let hidden = number;
                let in_order = entries.is_sorted_by(|one, other| one.number < other.number);
                let begins = entries.first().is_none_or(|one| one.number >= at.entry);
                let ends = match (entries.last(), next) {
                    (Some(last), Some(next)) => next.entry >= last.number,
                    _ => true,
                };
                if !(in_order && begins && ends) {
                    return Err(WireError::Value { name: "order" });
                }
                Ok(Message::Answer(Answer { id, from: at, next, hidden, at: told, entries }))
            }
            found => Err(WireError::Type { found }),
        }
    }
}

impl OfHost {
    pub(crate) fn put(&self, to: &mut Writer) {
        to.value(&self.host);
        to.value(&u8::from(self.is_whole));
        to.value(&self.hidden);
        to.value(&ns(self.at));
        for one in &self.entries {
            put_entry(to, one, 0, usize::MAX);
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<OfHost, WireError> {
        let host = from.value()?;
        let is_whole = match from.value::<u8>()? {
            flag @ 0..=1 => flag == 1,
            _ => return Err(WireError::Value { name: "flag" }),
        };
        let (hidden, at) = (from.value()?, time(from.value()?));
        Ok(OfHost { host, is_whole, hidden, at, entries: entries(from)? })
    }
}

/// A rank of a host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Its host.
    pub host: HostId,
    /// Its user there.
    pub user: u32,
    /// The time of the host's clock when it was read.
    pub at: SystemTime,
    /// Its counters.
    pub snapshot: Snapshot,
}

/// The ranks of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// Ranks that this user sees.
    pub ranks: Vec<Rank>,
    /// Hosts that did not tell all.
    pub silent: Vec<HostId>,
    /// Ranks of other users on each host, where there are any.
    pub hidden: Vec<(HostId, u32)>,
}

impl Ranks {
    /// Puts together what an agent told.
    pub(crate) fn of(told: Vec<OfHost>) -> Ranks {
        use std::collections::{BTreeMap, BTreeSet};
        let mut entries: BTreeMap<(HostId, u64), Rank> = BTreeMap::new();
        let (mut silent, mut hidden) = (BTreeSet::new(), BTreeMap::new());
        for OfHost { host, is_whole, hidden: others, at, entries: some } in told {
            if !is_whole {
                silent.insert(host);
            }
            if others > 0 {
                hidden.insert(host, others);
            }
            for Entry { number, user, snapshot } in some {
                let counters = snapshot.counters.clone();
                let rank = || Rank { host, user, at, snapshot };
                let one = entries.entry((host, number)).or_insert_with(rank);
                one.snapshot.counters.extend(counters);
            }
        }
        let mut by_owner: BTreeMap<(HostId, u32), (SystemTime, Vec<Snapshot>)> = BTreeMap::new();
        for rank in entries.into_values() {
            let of = by_owner.entry((rank.host, rank.user)).or_insert((rank.at, Vec::new()));
            of.1.push(rank.snapshot);
        }
        let ranks = by_owner.into_iter().flat_map(|((host, user), (at, pages))| {
            let merged = crate::counters::merge(pages).into_iter();
            merged.map(move |snapshot| Rank { host, user, at, snapshot })
        });
        let (silent, hidden) = (silent.into_iter().collect(), hidden.into_iter().collect());
        Ranks { ranks: ranks.collect(), silent, hidden }
    }
}

/// Returns one of each message, for tests.
pub fn examples() -> (Vec<Message>, OfHost) {
    use weft_core::engine::types::OpKind;
    let awaited = AwaitedOp { kind: OpKind::Recv, anybody: false, rank: Some(3), tag: 7 };
    let waiting = Waiting { ago: Duration::from_secs(9), count: 1, awaited: vec![awaited] };
    let counters = [("bytes_sent", 1), ("messages_sent", 2), ("waits", 3)];
    let snapshot = Snapshot {
        pid: 5,
        job: "job".into(),
        rank: 1,
        size: 2,
        start: time(1_000_000_000),
        updated: time(2_000_000_000),
        peers: 1,
        waiting: Some(waiting),
        counters: counters.map(|(name, value)| (name.to_string(), value)).into(),
    };
    let entry = Entry { number: 4, user: 1000, snapshot };
    let at = time(3_000_000_000);
    let ask = Ask { id: 1, user: 1000, from: Cursor::default() };
    let of_host =
        OfHost { host: HostId(5), is_whole: true, hidden: 6, at, entries: vec![entry.clone()] };
    let answer = Answer { entries: vec![entry], ..Answer::new(&ask, 6, at) };
    (vec![Message::Ask(ask), Message::Answer(answer)], of_host)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn encode(message: &Message) -> Vec<u8> {
        match message {
            Message::Ask(ask) => ask.encode(),
            Message::Answer(answer) => answer.encode(),
        }
    }

    #[test]
    fn messages__are_read_as_they_were_written_and_no_part_of_one_is() {
        for one in examples().0 {
            let bytes = encode(&one);
            assert_eq!(Message::parse(&bytes), Ok(one.clone()));
            for len in 0..bytes.len() {
                // An answer may end between two ranks: it has none here.
                let cut = Message::parse(&bytes[..len]);
                let is_empty = matches!(&cut, Ok(Message::Answer(a)) if a.entries.is_empty());
                assert!(cut.is_err() || is_empty, "{len}");
            }
            assert!(Message::parse(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn answer__ranks_with_many_counters_go_in_parts_that_fit_and_come_together_again() {
        let Message::Answer(answer) = examples().0.remove(1) else { unreachable!() };
        let mut entries = Vec::new();
        for number in 1..=7 {
            let mut one = answer.entries[0].clone();
            let name = |n| format!("a_counter_of_length_{n:04}");
            one.number = number;
            one.snapshot.pid = number as u32;
            one.snapshot.counters = (0..40 * number).map(|n| (name(n), n)).collect();
            entries.push(one);
        }
        let mut told = Vec::new();
        let mut ask = Ask { id: 1, user: 0, from: Cursor::default() };
        loop {
            let left = entries.iter().filter(|e| e.number >= ask.from.entry).cloned().collect();
            let bytes = Answer { entries: left, ..Answer::new(&ask, 0, answer.at) }.encode();
            assert!(bytes.len() <= ANSWER_MAX);
            let Ok(Message::Answer(part)) = Message::parse(&bytes) else { panic!() };
            let (is_whole, host) = (true, HostId(1));
            told.push(OfHost { host, is_whole, hidden: 0, at: part.at, entries: part.entries });
            match part.next {
                Some(next) => ask.from = next,
                None => break,
            }
        }
        assert!(told.len() > 7);
        let found = Ranks::of(told).ranks;
        let wanted: Vec<_> = entries.into_iter().map(|e| e.snapshot).collect();
        assert_eq!(found.into_iter().map(|r| r.snapshot).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn ranks__of_other_users_are_never_taken_for_those_of_one() {
        let (_, one) = examples();
        let mut forged = one.clone();
        (forged.entries[0].user, forged.entries[0].number) = (1001, 5);
        let found = Ranks::of(vec![one, forged]).ranks;
        assert_eq!(found.iter().map(|r| r.user).collect::<Vec<_>>(), [1000, 1001]);
        assert!(found.iter().all(|r| r.snapshot.get("messages_sent") == 2), "and are not added up");
    }
}
