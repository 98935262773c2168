//! The ends of messages that wait for their programs.
//!
//! A message to a name counts as sent when it is in the connection of its owner. The owner may end
//! before it reads, or its host may be lost. So the owner's agent keeps the order of the
//! messages that the program was given ([`Unread`]), the program says how many it has taken, and
//! the agent tells the sender's agent the end of each: taken, or the owner has vanished
//! ([`End`]). The sender's agent keeps the messages whose end it does not know ([`Open`]); a
//! program with too many of them sends no further one. Like [`crate::mail`] this does no I/O and
//! reads no clock.

use crate::mail::Outcome;
use crate::share;
use std::collections::{BTreeMap, VecDeque};
use weft_names::wire::{Reader, WireError, Writer};
use weft_names::HostId;
use weft_sys::user::payer;

/// Messages that one program was given and has not taken, of all users that send. The messages of
/// one user are at most half of what others leave, so that no user keeps the others out.
pub const UNREAD_MAX: usize = 512;
/// Bytes of these messages, likewise.
pub const UNREAD_BYTES: usize = 1 << 20;
/// Messages of one program whose ends are not known.
pub const OPEN_MAX: usize = 256;
/// Ends in one message between agents.
pub const ENDS_MAX: usize = 64;

/// A message, as the agents of its sender and of its owner call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The message went over a tree, to all owners of a name.
    pub is_tree: bool,
    /// Its number at the sender's agent: of the tree, or of the message.
    pub number: u64,
}

/// The end of a message on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The message.
    pub mark: Mark,
    /// [`Outcome::Delivered`]: its owners have taken it.
    pub outcome: Outcome,
}

impl End {
    /// Encodes ends, at most [`ENDS_MAX`].
    pub fn encode(ends: &[End]) -> Vec<u8> {
        let mut to = Writer::default();
        for End { mark, outcome } in ends {
            to.bytes(&[u8::from(mark.is_tree), *outcome as u8, 0, 0, 0, 0, 0, 0]);
            to.value(&mark.number);
        }
        to.0
    }

    /// Decodes ends.
    ///
    /// # Errors
    /// The bytes are no ends.
    pub fn parse(bytes: &[u8]) -> Result<Vec<End>, WireError> {
        let (mut from, mut ends) = (Reader(bytes), Vec::new());
        while !from.0.is_empty() {
            let [is_tree @ 0..=1, outcome] = *from.bytes(2)? else {
                return Err(WireError::Value { name: "tree" });
            };
            from.pad(6)?;
            let outcome = Outcome::of(outcome).ok_or(WireError::Value { name: "outcome" })?;
            let mark = Mark { is_tree: is_tree == 1, number: from.value()? };
            ends.push(End { mark, outcome });
        }
        match ends.len() {
            1..=ENDS_MAX => Ok(ends),
            _ => Err(WireError::Value { name: "ends" }),
        }
    }
}

/// A message that a program was given and has not taken.
struct Given {
    from: HostId,
    mark: Mark,
    /// The user who sent it.
    user: u32,
    len: usize,
}

/// The messages that programs of this host were given and have not taken, by connection.
#[derive(Default)]
pub struct Unread {
    of_program: BTreeMap<u64, VecDeque<Given>>,
    /// Owners of this host that have not taken a message to all, and the outcome so far.
    trees: BTreeMap<(HostId, Mark), (usize, Outcome)>,
    ends: VecDeque<(HostId, End)>,
}

impl Unread {
    /// True if the program may be given another message of a user.
    pub fn has_room(&self, program: u64, user: u32) -> bool {
        let Some(all) = self.of_program.get(&program) else { return true };
        let own = || all.iter().filter(|given| payer(given.user) == payer(user));
        let bytes = all.iter().map(|given| given.len).sum();
        share::admits(user, own().count(), all.len(), UNREAD_MAX)
            && share::admits(user, own().map(|given| given.len).sum(), bytes, UNREAD_BYTES)
    }

    /// Notes that a program was given a message of this length, which a user of a host sent.
    pub fn give(&mut self, program: u64, (from, user): (HostId, u32), mark: Mark, len: usize) {
        let given = Given { from, mark, user, len };
        self.of_program.entry(program).or_default().push_back(given);
        if mark.is_tree {
            self.trees.entry((from, mark)).or_insert((0, Outcome::Delivered)).0 += 1;
        }
    }

    /// Notes that a message to all was given to those owners of this host that take it. Without
    /// one its end is there at once.
    pub fn given_to_all(&mut self, from: HostId, mark: Mark) {
        if !self.trees.contains_key(&(from, mark)) {
            self.ends.push_back((from, End { mark, outcome: Outcome::Delivered }));
        }
    }

    /// Notes that a program has taken so many messages.
    pub fn took(&mut self, program: u64, count: u32) {
        for _ in 0..count {
            let given = self.of_program.get_mut(&program).and_then(VecDeque::pop_front);
            let Some(Given { from, mark, .. }) = given else { return };
            self.end(from, mark, Outcome::Delivered);
        }
    }

    /// Notes that a program has ended: it takes nothing any more.
    pub fn ended(&mut self, program: u64) {
        for given in self.of_program.remove(&program).into_iter().flatten() {
            self.end(given.from, given.mark, Outcome::Vanished);
        }
    }

    fn end(&mut self, from: HostId, mark: Mark, mut outcome: Outcome) {
        if mark.is_tree {
            let Some((left, worst)) = self.trees.get_mut(&(from, mark)) else { return };
            if outcome != Outcome::Delivered {
                *worst = outcome;
            }
            *left -= 1;
            outcome = *worst;
            if *left > 0 {
                return;
            }
            self.trees.remove(&(from, mark));
        }
        self.ends.push_back((from, End { mark, outcome }));
    }

    /// Takes the end of a message, and the host of its sender.
    pub fn poll_end(&mut self) -> Option<(HostId, End)> {
        self.ends.pop_front()
    }
}

/// A request of a program whose messages have no end yet.
struct Request {
    program: u64,
    marks: Vec<(HostId, Mark)>,
}

/// The messages of the programs of this host whose ends are not known.
#[derive(Default)]
pub struct Open {
    of_mark: BTreeMap<(HostId, Mark), u64>,
    requests: BTreeMap<u64, Request>,
    of_program: BTreeMap<u64, usize>,
}

impl Open {
    /// True if a program may send another message.
    pub fn has_room(&self, program: u64) -> bool {
        self.of_program.get(&program).is_none_or(|open| *open < OPEN_MAX)
    }

    /// Notes a message of a request of a program to a host.
    pub fn begin(&mut self, program: u64, request: u64, host: HostId, mark: Mark) {
        let fresh = || Request { program, marks: Vec::new() };
        if !self.requests.contains_key(&request) {
            *self.of_program.entry(program).or_default() += 1;
        }
        self.requests.entry(request).or_insert_with(fresh).marks.push((host, mark));
        self.of_mark.insert((host, mark), request);
    }

    /// Takes the end of a message on a host. Returns program and request, if it is not that its
    /// owners have taken it.
    pub fn on_end(&mut self, host: HostId, end: End) -> Option<(u64, u64)> {
        let request = self.of_mark.remove(&(host, end.mark))?;
        let of_request = self.requests.get_mut(&request)?;
        let program = of_request.program;
        of_request.marks.retain(|mark| *mark != (host, end.mark));
        if of_request.marks.is_empty() {
            self.forget(request);
        }
        (end.outcome != Outcome::Delivered).then_some((program, request))
    }

    /// Takes the messages on a host that is gone, as program and request.
    pub fn host_gone(&mut self, host: HostId) -> Vec<(u64, u64)> {
        let first = Mark { is_tree: false, number: 0 };
        let of_host = self.of_mark.range((host, first)..).take_while(|((of, _), _)| *of == host);
        let marks: Vec<Mark> = of_host.map(|((_, mark), _)| *mark).collect();
        let outcome = Outcome::Silent;
        marks.into_iter().filter_map(|mark| self.on_end(host, End { mark, outcome })).collect()
    }

    /// Forgets a request: its program knows the outcome, or is gone.
    pub fn forget(&mut self, request: u64) {
        let Some(Request { program, marks }) = self.requests.remove(&request) else { return };
        for mark in &marks {
            self.of_mark.remove(mark);
        }
        if let Some(open) = self.of_program.get_mut(&program) {
            *open -= 1;
            if *open == 0 {
                self.of_program.remove(&program);
            }
        }
    }

    /// Forgets the requests of a program that has ended.
    pub fn ended(&mut self, program: u64) {
        if self.of_program.contains_key(&program) {
            let of_program = self.requests.iter().filter(|(_, r)| r.program == program);
            let requests: Vec<u64> = of_program.map(|(request, _)| *request).collect();
            requests.into_iter().for_each(|request| self.forget(request));
        }
    }
}

#[cfg(test)]
mod tests;
