//! Messages to sockets of other hosts: those of one socket to one host in order, one at a time.

use super::Far;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use weft_cluster::mail::{Outcome, Post, Receiver};
use weft_cluster::names::{HostId, Owner};
use weft_core::Instant;
use weft_streams::tipc::{Packet, What};

/// Time after which data go again to a socket whose program did not read; it doubles.
const AGAIN: Duration = Duration::from_millis(2);
const AGAIN_MAX: Duration = Duration::from_millis(200);

/// The messages of one socket to one host.
#[derive(Default)]
struct Line {
    queue: VecDeque<Packet>,
    owner: Owner,
    letter: Option<u64>,
    not_before: Option<Instant>,
    tries: u32,
}

impl Line {
    fn next_timeout(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.letter.is_none() && !self.queue.is_empty())
    }

    /// Tries again later.
    fn later(&mut self, now: Instant) {
        self.not_before = Some(now + (AGAIN * 2u32.pow(self.tries.min(8))).min(AGAIN_MAX));
        self.tries += 1;
    }
}

/// The messages of all sockets to other hosts.
pub(super) struct Lines {
    table: BTreeMap<Far, Line>,
    /// The lines of letters that are under way.
    of_letter: BTreeMap<u64, Far>,
    pub post: Post,
}

impl Lines {
    pub fn new() -> Lines {
        let post = Post::new(weft_link::random_u64());
        Lines { table: BTreeMap::new(), of_letter: BTreeMap::new(), post }
    }

    /// Adds a message of a socket to a host.
    pub fn push(&mut self, key: Far, owner: Owner, packet: Packet) {
        let line = self.table.entry(key).or_default();
        line.owner = owner;
        line.queue.push_back(packet);
    }

    /// True if the next message of a line may be sent now.
    pub fn may_begin(&mut self, now: Instant, key: Far) -> bool {
        let Some(line) = self.table.get(&key) else { return false };
        if line.letter.is_some() || line.not_before.is_some_and(|at| at > now) {
            return false;
        }
        let is_empty = line.queue.is_empty();
        if is_empty {
            self.table.remove(&key);
        }
        !is_empty
    }

    /// Sends the next message of a line.
    pub fn begin(&mut self, now: Instant, key: Far, to: Receiver) {
        let Some(line) = self.table.get_mut(&key) else { return };
        let Some(first) = line.queue.front() else { return };
        match self.post.begin(now, to, line.owner, first.encode()) {
            Some(letter) => {
                line.letter = Some(letter);
                self.of_letter.insert(letter, key);
            }
            None => line.later(now),
        }
    }

    /// Removes a line, and returns its messages.
    pub fn remove(&mut self, key: Far) -> VecDeque<Packet> {
        let Some(line) = self.table.remove(&key) else { return VecDeque::new() };
        if let Some(letter) = line.letter {
            self.of_letter.remove(&letter);
        }
        line.queue
    }

    /// Takes the outcome of a message.
    pub fn poll_outcome(&mut self) -> Option<(Far, Outcome)> {
        loop {
            let (letter, verdict) = self.post.poll_outcome()?;
            if let Some(key) = self.of_letter.remove(&letter) {
                return Some((key, verdict.outcome));
            }
        }
    }

    /// Ends the message of a line that was under way, and returns it. `None`: it goes again later.
    pub fn settle(&mut self, now: Instant, key: Far, outcome: &Outcome) -> Option<Packet> {
        let line = self.table.get_mut(&key)?;
        line.letter = None;
        let is_data = line.queue.front().is_some_and(|p| p.what == What::Data);
        if *outcome == Outcome::Overload && is_data {
            // The other end's program does not read: so this one's waits.
            line.later(now);
            return None;
        }
        (line.tries, line.not_before) = (0, None);
        line.queue.pop_front()
    }

    /// Does what is due of messages under way; returns the lines whose next message is due.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Far> {
        self.post.handle_timeout(now);
        let is_due = |line: &Line| line.next_timeout().is_some_and(|at| at <= now);
        let due = self.table.iter().filter(|(_, line)| is_due(line));
        due.map(|(key, _)| *key).collect()
    }

    /// Returns the lines to a host.
    pub fn to_host(&self, host: HostId) -> Vec<Far> {
        self.table.keys().filter(|(of, _)| *of == host).copied().collect()
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        let lines = self.table.values().filter_map(Line::next_timeout);
        lines.chain(self.post.next_timeout()).min()
    }
}
