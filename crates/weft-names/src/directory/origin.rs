//! The names of one host, with the numbers of its changes.

use super::name::{Binding, Gone};
use crate::id::{BindingId, HostId, Life};
use crate::wire::{Change, Have, Publication};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Most changes of a host that are kept while others before them are missing.
const AHEAD_MAX: usize = 64;

/// A claim that ended, while others may ask for it.
#[derive(Clone, Debug)]
struct Ended {
    /// Number of the change that ended it.
    op: u64,
    gone: Gone,
    publication: Publication,
}

/// The names of one host in one life of it.
#[derive(Clone, Debug)]
pub struct Origin {
    host: HostId,
    life: Life,
    /// Changes that are known, from the first on without a gap.
    head: u64,
    /// Withdrawals up to here are forgotten.
    floor: u64,
    live: BTreeMap<u64, Binding>,
    ended: VecDeque<Ended>,
    /// Head of the snapshot that is being taken, and the claims up to here that were taken.
    taking: (u64, u64),
    /// Changes that came before others with lesser numbers.
    ahead: BTreeMap<u64, Change>,
    shown: bool,
}

/// A part of a host's names for another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Changes: the number of the first, and the changes.
    Ops(u64, Vec<Change>),
    /// A piece of the whole table: head, range, claims.
    Snapshot(u64, (u64, u64), Vec<Publication>),
}

impl Origin {
    pub(super) fn new(host: HostId, life: Life, shown: bool) -> Origin {
        let (live, ended) = (BTreeMap::new(), VecDeque::new());
        Origin {
            host,
            life,
            head: 0,
            floor: 0,
            live,
            ended,
            taking: (0, 0),
            ahead: BTreeMap::new(),
            shown,
        }
    }

    /// Returns the life in which the changes are numbered.
    pub fn life(&self) -> Life {
        self.life
    }

    /// Returns the number of the last change that is known.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Returns how many names it has.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns true if it has no name.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Returns true if look-ups find its names.
    pub fn is_shown(&self) -> bool {
        self.shown
    }

    /// Returns its names, in order of their claims.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> {
        self.live.values()
    }

    /// Returns what a host that is behind needs first of all to come up.
    pub fn have(&self) -> Have {
        let (snapshot, after) = self.taking;
        Have { host: self.host, life: self.life, head: self.head, snapshot, after }
    }

    pub(super) fn into_bindings(self) -> impl Iterator<Item = Binding> {
        self.live.into_values()
    }

    pub(super) fn get(&self, claim: u64) -> Option<&Binding> {
        self.live.get(&claim)
    }

    pub(super) fn has(&self, claim: u64) -> bool {
        self.live.contains_key(&claim)
    }

    pub(super) fn claims(&self, after: u64, upto: u64) -> impl Iterator<Item = u64> + '_ {
        let range = (core::ops::Bound::Excluded(after), core::ops::Bound::Included(upto));
        // `BTreeMap::range` does not take an empty range between two equal bounds.
        let some = (after < upto).then(|| self.live.range(range));
        some.into_iter().flatten().map(|(claim, _)| *claim)
    }

    pub(super) fn advance(&mut self, by: u64) {
        self.head += by;
    }

    /// Keeps a change until those before it have come, if there is room.
    pub(super) fn keep(&mut self, number: u64, change: Change) {
        let is_next = number == self.head + 1;
        if is_next || self.ahead.len() < AHEAD_MAX {
            self.ahead.insert(number, change);
        }
    }

    /// Takes the next change, if it has come.
    pub(super) fn due(&mut self) -> Option<(u64, Change)> {
        self.ahead.remove_entry(&(self.head + 1))
    }

    /// Returns true if changes came that others with lesser numbers are missing before.
    pub(super) fn has_gap(&self) -> bool {
        !self.ahead.is_empty()
    }

    pub(super) fn seal(&mut self) {
        self.floor = self.head;
    }

    pub(super) fn set_shown(&mut self, shown: bool) -> bool {
        core::mem::replace(&mut self.shown, shown) != shown
    }

    pub(super) fn add(&mut self, publication: Publication) -> Binding {
        let Publication { claim, stamp, name } = publication;
        let id = BindingId { host: self.host, life: self.life, claim };
        let binding = Binding { id, stamp, name };
        self.live.insert(claim, binding.clone());
        binding
    }

    pub(super) fn remove(&mut self, claim: u64) -> Option<Binding> {
        self.live.remove(&claim)
    }

    /// Remembers a withdrawal, the last change.
    pub(super) fn log(&mut self, binding: &Binding, gone: Gone, max: usize) {
        let publication = publication(binding);
        self.ended.push_back(Ended { op: self.head, gone, publication });
        while self.ended.len() > max {
            self.floor = self.ended.pop_front().map_or(self.floor, |e| e.op);
        }
    }

    pub(super) fn may_take(&self, head: u64, after: u64) -> bool {
        let (taking, taken) = self.taking;
        after == if taking == head { taken } else { 0 }
    }

    /// Notes a piece of a snapshot. Returns true if it was the last.
    pub(super) fn took(&mut self, head: u64, upto: u64) -> bool {
        self.taking = (head, upto);
        let is_last = upto == head;
        if is_last {
            self.head = head;
            self.floor = head;
            self.ended.clear();
            self.ahead.clear();
            self.taking = (0, 0);
        }
        is_last
    }

    /// Returns what a host needs that has less, in pieces of at most `room` bytes, and at most
    /// `max` of them.
    pub fn pages(&self, have: &Have, room: usize, max: usize) -> Vec<Pages> {
        match have.head {
            head if head >= self.head => Vec::new(),
            head if head >= self.floor => self.ops_behind(head, room, max),
            _ => self.snapshot(if have.snapshot == self.head { have.after } else { 0 }, room, max),
        }
    }

    fn ops_behind(&self, head: u64, room: usize, max: usize) -> Vec<Pages> {
        let mut ops: Vec<(u64, Change)> = Vec::new();
        for (claim, binding) in self.live.range(head + 1..).filter(|(c, _)| **c <= self.head) {
            ops.push((*claim, Change::Claimed(publication(binding))));
        }
        for ended in self.ended.iter().filter(|e| e.op > head) {
            let Ended { op, gone, publication } = ended;
            let claim = publication.claim;
            ops.push((*op, Change::Withdrawn { claim, gone: *gone }));
            if claim > head {
                ops.push((claim, Change::Claimed(publication.clone())));
            }
        }
        ops.sort_by_key(|(number, _)| *number);
        let mut pages: Vec<Pages> = Vec::new();
        let (mut next, mut left) = (head + 1, 0);
        for (number, change) in ops {
            if number != next {
                // A binding was refused for want of room: those behind it come with a snapshot.
                break;
            }
            next += 1;
            if pages.is_empty() || change.encoded_len() > left {
                if pages.len() == max {
                    break;
                }
                left = room;
                pages.push(Pages::Ops(number, Vec::new()));
            }
            left = left.saturating_sub(change.encoded_len());
            if let Some(Pages::Ops(_, page)) = pages.last_mut() {
                page.push(change);
            }
        }
        pages
    }

    fn snapshot(&self, after: u64, room: usize, max: usize) -> Vec<Pages> {
        let mut pages = Vec::new();
        let mut live = self.live.range(after + 1..).filter(|(c, _)| **c <= self.head).peekable();
        let mut from = after;
        while pages.len() < max && from < self.head {
            let (mut page, mut left) = (Vec::new(), room);
            while let Some((_, binding)) = live.peek() {
                let publication = publication(binding);
                if publication.encoded_len() > left && !page.is_empty() {
                    break;
                }
                left = left.saturating_sub(publication.encoded_len());
                page.push(publication);
                live.next();
            }
            let last = page.last().map_or(self.head, |p| p.claim);
            let upto = if live.peek().is_none() { self.head } else { last };
            pages.push(Pages::Snapshot(self.head, (from, upto), page));
            from = upto;
        }
        pages
    }
}

fn publication(binding: &Binding) -> Publication {
    let Binding { id, stamp, name } = binding.clone();
    Publication { claim: id.claim, stamp, name }
}
