//! Comparing: two hosts whose digests differ find out what, and each gets what it lacks.
//!
//! Every probe and its answer carry the digest of all that the sender knows. If it differs from
//! its own, a host sends the digests of 64 buckets (SYNC); the other answers with all that it knows
//! in those that differ (SUMMARY); then the first asks for what it lacks (WANT), and sends what the
//! other lacks. News come by broadcast; this repairs what was lost, and joins what was apart.

use super::digest::{bucket, Digest};
use super::Node;
use crate::directory::{Pages, Taken};
use crate::id::{HostId, Life};
use crate::membership::Record;
use crate::wire::{
    Entry, Have, List, Members, Message, Ops, Snapshot, Summary, Sync, Value, Want, BUCKETS,
    HEAD_LEN,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weft_core::Instant;

/// Messages that answer one WANT for one host.
const PAGES_MAX: usize = 16;
/// Messages that one comparison may send of what the other lacks.
const PUSH_MAX: usize = 64;

/// The comparison in progress, and what was asked for.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// The digest of all that this host knows.
    pub digest: Digest,
    /// A comparison was begun; until this time no other is.
    busy: Instant,
    /// The time of the last change of the digest.
    changed: Instant,
    /// Until these times changes of these hosts are not asked for again.
    wanted: BTreeMap<HostId, Instant>,
    /// Pieces of snapshots that were taken.
    pieces: usize,
}

impl Exchange {
    /// Notes what is known of a host: its record, and the head of its names.
    pub fn note(&mut self, now: Instant, record: &Record, head: u64) {
        if self.digest.note(record, head) {
            self.changed = now;
        }
    }
}

impl Node {
    pub(super) fn room(&self, fixed: usize, item: usize) -> usize {
        (self.config.message_max.saturating_sub(fixed) / item).clamp(1, u16::MAX.into())
    }

    /// Compares with a host whose digest this is, if it differs and no other comparison is on.
    pub(super) fn compare(&mut self, now: Instant, host: HostId, digest: u64, soon: bool) {
        let tolerance = self.config.tolerance;
        // Just after a change the difference is most likely news on its way.
        let is_fresh = !soon && now.since(self.exchange.changed) < tolerance / 75;
        let is_stuck = now.since(self.exchange.busy) > tolerance;
        if digest == self.exchange.digest.total()
            || now < self.exchange.busy
            || is_fresh && !is_stuck
        {
            return;
        }
        self.exchange.busy = now + tolerance / 20;
        self.stats.syncs += 1;
        let buckets = *self.exchange.digest.buckets();
        self.send_host(host, &Message::Sync(Sync { items: List::Items(&buckets) }));
    }

    /// Answers with all that is known in buckets that differ.
    pub(super) fn on_sync(&mut self, host: HostId, theirs: List<'_, u64>) {
        if theirs.len() != BUCKETS {
            self.stats.malformed += 1;
            return;
        }
        let mut entries: Vec<(u64, Entry)> = Vec::new();
        let ours = *self.exchange.digest.buckets();
        let differ: Vec<bool> = theirs.iter().zip(ours).map(|(a, b)| a != b).collect();
        for member in self.members.iter().filter(|m| self.exchange.digest.has(m.record.host)) {
            let Record { host, life, .. } = member.record;
            let place = host.place();
            if differ.get(bucket(place)) == Some(&true) {
                let head = self.names.directory.head(host, life);
                entries.push((place, Entry { record: member.record, head }));
            }
        }
        entries.sort_by_key(|(place, _)| *place);
        let per_message = self.room(HEAD_LEN + 16, Entry::SIZE);
        // Buckets that follow each other are one range; a range may need several messages.
        let mut first = 0;
        while first < BUCKETS {
            if !differ[first] {
                first += 1;
                continue;
            }
            let last = (first..BUCKETS).take_while(|b| differ[*b]).last().unwrap_or(first);
            let (lo, hi) = ((first as u64) << 58, ((last as u64) << 58) | ((1 << 58) - 1));
            let within = entries.iter().filter(|(place, _)| (lo..=hi).contains(place));
            let within: Vec<&(u64, Entry)> = within.collect();
            let mut from = lo;
            let mut chunks = within.chunks(per_message).peekable();
            loop {
                let chunk = chunks.next().unwrap_or(&[]);
                let end = if chunks.peek().is_none() { hi } else { chunk[chunk.len() - 1].0 };
                let items: Vec<Entry> = chunk.iter().map(|(_, e)| e.clone()).collect();
                let summary = Summary { lo: from, hi: end, items: List::Items(&items) };
                self.send_host(host, &Message::Summary(summary));
                if end == hi {
                    break;
                }
                from = end + 1;
            }
            first = last + 1;
        }
    }

    /// Takes what another host knows of a range, asks for what is missing here, and sends what is
    /// missing there.
    pub(super) fn on_summary(&mut self, now: Instant, from: HostId, summary: &Summary<'_>) {
        let hold = now + self.config.tolerance;
        let mut theirs: BTreeMap<HostId, Entry> = BTreeMap::new();
        for entry in summary.items.iter() {
            let record = entry.record;
            theirs.insert(record.host, entry);
            self.learn(now, record, Some(hold));
            if self.is_over {
                return;
            }
        }
        let (mut records, mut wants, mut gives) = (Vec::new(), Vec::new(), Vec::new());
        let range = summary.lo..=summary.hi;
        for member in self.members.iter().filter(|m| range.contains(&m.record.host.place())) {
            let record = member.record;
            let Record { host, life, .. } = record;
            let there = theirs.get(&host);
            if there.is_none() && !self.exchange.digest.has(host) {
                continue;
            }
            if there.is_none_or(|e| e.record.order() < record.order()) {
                records.push(Entry { record, head: self.names.directory.head(host, life) });
            }
            let known = there.filter(|e| e.record.life == life).map_or(0, |e| e.head);
            match self.names.directory.head(host, life) {
                head if head < known => wants.push(host),
                head if head > known => {
                    gives.push(Have { host, life, head: known, snapshot: 0, after: 0 })
                }
                _ => {}
            }
        }
        // An empty range states nothing about hosts that are not listed.
        let (lo, hi) = (1, 0);
        for chunk in records.chunks(self.room(HEAD_LEN + 16, Entry::SIZE)) {
            let part = Summary { lo, hi, items: List::Items(chunk) };
            self.send_host(from, &Message::Summary(part));
        }
        self.want(now, from, &wants);
        let mut left = PUSH_MAX;
        for have in gives {
            left = left.saturating_sub(self.give(from, &have, left.min(PAGES_MAX)));
        }
    }

    /// Takes a record that another host has. A loss of a host that is there is held back, and the
    /// host is asked to speak for itself.
    pub(super) fn learn(&mut self, now: Instant, record: Record, hold: Option<Instant>) {
        if record.host == self.me.host {
            return self.about_me(now, record);
        }
        let was_known = self.members.get(record.host).is_some();
        let is_new = self.adopt(now, record, hold);
        if !is_new && !was_known && record.is_up() {
            self.event(super::Event::Crowded { host: record.host });
        }
        let member = self.members.get(record.host);
        if is_new && member.is_some_and(|m| m.held().is_some()) {
            let items = [record];
            let message = Message::Members(Members { items: List::Items(&items) });
            self.send_host(record.host, &message);
        }
    }

    /// Asks a host for the names of others.
    pub(super) fn want(&mut self, now: Instant, from: HostId, hosts: &[HostId]) {
        let again = now + self.config.tolerance / 30;
        self.exchange.wanted.retain(|_, at| *at > now);
        let mut haves = Vec::new();
        for host in hosts {
            let life = self.members.get(*host).map(|m| m.record.life);
            let origin = self.names.directory.origin(*host).filter(|o| Some(o.life()) == life);
            let Some(origin) = origin else { continue };
            if self.exchange.wanted.contains_key(host) {
                continue;
            }
            self.exchange.wanted.insert(*host, again);
            haves.push(origin.have());
        }
        let per_message = self.room(HEAD_LEN, Have::SIZE);
        for chunk in haves.chunks(per_message) {
            self.send_host(from, &Message::Want(Want { items: List::Items(chunk) }));
        }
    }

    /// Sends names that are asked for.
    pub(super) fn on_want(&mut self, from: HostId, items: List<'_, Have>) {
        let mut left = PUSH_MAX;
        for have in items.iter() {
            left = left.saturating_sub(self.give(from, &have, left.min(PAGES_MAX)));
        }
    }

    /// Sends a host the names of an origin that it lacks. Returns the number of messages.
    fn give(&mut self, to: HostId, have: &Have, max: usize) -> usize {
        let origin = self.names.directory.origin(have.host).filter(|o| o.life() == have.life);
        let room = self.config.message_max.saturating_sub(HEAD_LEN + 48);
        let pages = origin.map_or(Vec::new(), |o| o.pages(have, room, max));
        let (origin, origin_life) = (have.host, have.life);
        for page in &pages {
            match page {
                Pages::Ops(first, changes) => {
                    let items = List::Items(changes);
                    let ops = Ops { origin, origin_life, first: *first, items };
                    self.send_host(to, &Message::Ops(ops));
                }
                Pages::Snapshot(head, (after, upto), names) => {
                    let (head, after, upto) = (*head, *after, *upto);
                    let items = List::Items(names);
                    let part = Snapshot { origin, origin_life, head, after, upto, items };
                    self.send_host(to, &Message::Snapshot(part));
                }
            }
        }
        pages.len()
    }

    /// Takes changes of a host's names.
    pub(super) fn on_ops(&mut self, now: Instant, from: HostId, ops: &Ops<'_>) {
        let Ops { origin, origin_life, first, items } = ops;
        let taken = self.names.directory.take_ops(*origin, *origin_life, *first, *items);
        self.note(now, *origin);
        if taken == Taken::Gap {
            self.stats.gaps += 1;
            self.want(now, from, &[*origin]);
        }
    }

    /// Takes a piece of a host's names.
    pub(super) fn on_snapshot(&mut self, now: Instant, from: HostId, part: &Snapshot<'_>) {
        let Snapshot { origin, origin_life, head, after, upto, items } = part;
        let before = self.progress(*origin, *origin_life);
        let range = (*head, *after, *upto);
        let taken = self.names.directory.take_snapshot(*origin, *origin_life, range, *items);
        let after = self.progress(*origin, *origin_life);
        if taken == Taken::Up && after.0 > before.0 {
            self.stats.snapshots += 1;
        }
        self.note(now, *origin);
        // A host sends so many pieces for one question.
        if taken == Taken::Gap && after != before {
            self.exchange.pieces += 1;
            if self.exchange.pieces.is_multiple_of(PAGES_MAX) {
                self.exchange.wanted.remove(origin);
                self.want(now, from, &[*origin]);
            }
        }
    }

    /// Returns how far the names of a host are known.
    fn progress(&self, host: HostId, life: Life) -> (u64, u64) {
        let origin = self.names.directory.origin(host).filter(|o| o.life() == life);
        origin.map_or((0, 0), |o| (o.head(), o.have().after))
    }
}
