//! The messages that come to a member, from their first part until the program has taken them.

use super::{Part, IN_BYTES, PART};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use weft_core::Instant;
use weft_names::groups::Wanted;
use weft_names::BindingId;

/// Time after which a message beyond [`IN_BYTES`] gives its place to another one, if it is not
/// whole.
const BEYOND: Duration = Duration::from_secs(5);

/// The parts of a message; those that have not come are none.
type Parts = Vec<Option<Vec<u8>>>;

/// The one message that may take more than [`IN_BYTES`].
#[derive(Debug)]
pub(super) struct Beyond {
    pub from: BindingId,
    record: u32,
    number: u64,
    since: Instant,
    /// The message has come whole, and the program has not taken it.
    is_whole: bool,
}

/// The messages that came and were not taken.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Messages of which parts are missing, by member, its record and their number.
    pub parts: BTreeMap<(BindingId, u32, u64), Parts>,
    /// Messages that came whole, and wait for earlier ones.
    pub whole: BTreeMap<(BindingId, u64), Vec<u8>>,
    /// Messages that the program has and has not taken; no member: it is gone.
    given: VecDeque<(Option<BindingId>, u64, usize)>,
    /// Bytes of all of these.
    pub bytes: usize,
    pub beyond: Option<Beyond>,
    /// Parts that found no room.
    pub dropped: u64,
}

impl Incoming {
    /// Keeps a part. Returns the message if it is whole.
    pub fn collect(
        &mut self,
        now: Instant,
        from: BindingId,
        wanted: Wanted,
        part: &Part<'_>,
    ) -> Option<Vec<u8>> {
        let Wanted { record, number, .. } = wanted;
        self.end_beyond(|b| b.from == from && b.record < record && !b.is_whole);
        self.forget_parts(|of, its, _| of == from && its < record);
        let parts = usize::from(part.parts);
        let key = (from, record, number);
        if !self.parts.contains_key(&key) {
            // All its parts have room, or none is kept: messages that came in part would otherwise
            // hold each other up.
            let is_beyond = self.bytes + parts * PART > IN_BYTES;
            if is_beyond && !self.may_go_beyond(now, from, wanted) {
                self.dropped += 1;
                return None;
            }
            self.bytes += parts * PART;
            self.parts.insert(key, vec![None; parts]);
        }
        let kept = self.parts.get_mut(&key)?;
        if kept.len() != parts {
            return None;
        }
        *kept.get_mut(usize::from(part.part))? = Some(part.bytes.to_vec());
        if kept.iter().any(Option::is_none) {
            return None;
        }
        let payload = self.parts.remove(&key)?.into_iter().flatten().flatten().collect();
        self.bytes -= parts * PART;
        let beyond = self.beyond.as_mut().filter(|b| (b.from, b.record, b.number) == key);
        beyond.into_iter().for_each(|b| b.is_whole = true);
        Some(payload)
    }

    /// True if a message may take more than the bytes for all: the next one of a member, if no
    /// other message does.
    fn may_go_beyond(&mut self, now: Instant, from: BindingId, wanted: Wanted) -> bool {
        let Wanted { record, number, is_next } = wanted;
        if !is_next {
            return false;
        }
        let late = self.beyond.as_ref().filter(|b| !b.is_whole && now.since(b.since) >= BEYOND);
        if let Some((of, its, its_number)) = late.map(|b| (b.from, b.record, b.number)) {
            if (of, its, its_number) != (from, record, number) {
                // Its sender sends it again.
                self.beyond = None;
                self.forget_parts(|a, b, c| (a, b, c) == (of, its, its_number));
            }
        }
        let fresh = || Beyond { from, record, number, since: now, is_whole: false };
        let beyond = self.beyond.get_or_insert_with(fresh);
        (beyond.from, beyond.record, beyond.number) == (from, record, number)
    }

    fn end_beyond(&mut self, is_over: impl Fn(&Beyond) -> bool) {
        if self.beyond.as_ref().is_some_and(is_over) {
            self.beyond = None;
        }
    }

    /// Drops parts of messages by their members, records and numbers.
    fn forget_parts(&mut self, is_over: impl Fn(BindingId, u32, u64) -> bool) {
        let bytes = &mut self.bytes;
        self.parts.retain(|(of, record, number), parts| {
            let is_over = is_over(*of, *record, *number);
            if is_over {
                *bytes -= parts.len() * PART;
            }
            !is_over
        });
    }

    /// Keeps a message that came whole until its turn.
    pub fn keep(&mut self, from: BindingId, number: u64, payload: Vec<u8>) {
        self.bytes += payload.len();
        self.whole.insert((from, number), payload);
    }

    /// Notes that a message of a member came whole and was of no use.
    pub fn refuse(&mut self, from: BindingId) {
        self.end_beyond(|b| b.is_whole && b.from == from);
    }

    /// Returns a message whose turn has come.
    pub fn deliver(&mut self, from: BindingId, number: u64) -> Option<Vec<u8>> {
        self.whole.remove(&(from, number))
    }

    /// Returns the number of messages that the program has and has not taken.
    pub fn given(&self) -> usize {
        self.given.len()
    }

    /// Notes that the program has a message of so many bytes.
    pub fn give(&mut self, from: BindingId, number: u64, len: usize) {
        self.given.push_back((Some(from), number, len));
    }

    /// Notes that the program has taken the message that it has had the longest. Returns its
    /// sender, if that is there, and its number.
    pub fn taken(&mut self) -> Option<(Option<BindingId>, u64)> {
        let (from, number, len) = self.given.pop_front()?;
        self.bytes -= len;
        self.end_beyond(|b| {
            b.is_whole && b.number == number && from.is_none_or(|from| from == b.from)
        });
        Some((from, number))
    }

    /// Drops what came of a member that is gone, except messages whose turn has come.
    pub fn forget(&mut self, id: BindingId) {
        self.forget_parts(|of, _, _| of == id);
        let is_kept = |b: &Beyond| b.is_whole && !self.whole.contains_key(&(id, b.number));
        if self.beyond.as_ref().is_some_and(|b| b.from == id && !is_kept(b)) {
            self.beyond = None;
        }
        let bytes = &mut self.bytes;
        self.whole.retain(|(of, _), payload| {
            if *of == id {
                *bytes -= payload.len();
            }
            *of != id
        });
        for (of, ..) in self.given.iter_mut().filter(|(of, ..)| *of == Some(id)) {
            *of = None;
        }
    }
}
