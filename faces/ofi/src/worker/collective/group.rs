//! A group: its members that are neighbours in the tree, and its operations in progress.

use super::{End, Said};
use crate::collective::{Message, Operation, Place, Step, Work};
use crate::memory::Borrowed;
use libc::c_int;
use std::collections::{HashMap, VecDeque};
use weft::PeerId;

/// Most operations of a group in progress.
pub const RUNNING: usize = 64;

/// The result of an operation: the number of an error, and a sentence for people.
pub type Ended = Result<(), (c_int, String)>;

/// An operation in progress.
pub struct Running {
    number: u32,
    operation: Operation,
    /// Memory for the result.
    to: Borrowed,
    pub end: End,
    /// True if the bytes of the own subtree have been given to the member above.
    is_up: bool,
    /// Neighbours whose silence is noticed meanwhile.
    pub watched: Vec<PeerId>,
}

/// Bytes of a neighbour for an operation, as far as they have come.
struct Arriving {
    whole: usize,
    bytes: Vec<u8>,
}

/// A group that this endpoint is a member of.
pub struct Group {
    /// The name of the group among its members.
    pub id: u64,
    /// Numbers in the address vector.
    pub members: Vec<u64>,
    pub place: Place,
    above: Option<PeerId>,
    /// The members below, in order.
    below: Vec<(usize, PeerId)>,
    /// The number of the next operation.
    next: u32,
    pub running: VecDeque<Running>,
    /// Bytes that have come, by operation and neighbour: of at most `RUNNING` operations.
    arrived: HashMap<(u32, PeerId), Arriving>,
    /// The failure that ended the group.
    pub failed: Option<(c_int, String)>,
}

impl Running {
    /// Creates the next operation of a group.
    pub fn new(group: &mut Group, (work, own, to): (Work, Vec<u8>, Borrowed), end: End) -> Running {
        let number = group.next;
        group.next = number.wrapping_add(1);
        let operation = Operation::new(work, group.place, own);
        Running { number, operation, to, end, is_up: false, watched: Vec::new() }
    }
}

impl Group {
    /// Creates a group with the member above and the members below.
    pub fn new(
        id: u64,
        members: Vec<u64>,
        place: Place,
        (above, below): (Option<PeerId>, Vec<(usize, PeerId)>),
    ) -> Group {
        let (running, arrived) = Default::default();
        Group { id, members, place, above, below, next: 0, running, arrived, failed: None }
    }

    /// Returns the members that this one exchanges messages with.
    pub fn neighbours(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.above.into_iter().chain(self.below.iter().map(|&(_, peer)| peer))
    }

    /// Returns the place of a neighbour in the group.
    pub fn member(&self, peer: PeerId) -> Option<usize> {
        if self.above == Some(peer) {
            return self.place.above();
        }
        self.below.iter().find(|&&(_, one)| one == peer).map(|&(member, _)| member)
    }

    /// Keeps bytes of a neighbour. False: the message is none of a neighbour for an operation that
    /// is in progress here, or will be soon.
    pub fn arrive(&mut self, peer: PeerId, number: u32, message: &Message<'_>) -> bool {
        let from = if self.above == Some(peer) { Step::Down } else { Step::Up };
        let is_soon = (number.wrapping_sub(self.next) as usize) < RUNNING;
        let is_now = || self.running.iter().any(|one| one.number == number);
        if self.member(peer).is_none() || message.step != from || !(is_soon || is_now()) {
            return false;
        }
        let new = || Arriving { whole: message.whole, bytes: Vec::new() };
        let arriving = self.arrived.entry((number, peer)).or_insert_with(new);
        arriving.bytes.extend_from_slice(message.part);
        arriving.whole == message.whole && arriving.bytes.len() <= arriving.whole
    }

    /// Moves operations on, and takes those out that have ended; adds messages to send. True: the
    /// members disagree on an operation.
    pub fn advance(&mut self, owed: &mut VecDeque<Said>, ended: &mut Vec<Running>) -> bool {
        let mut at = 0;
        while at < self.running.len() {
            match self.step(at, owed) {
                Ok(true) => ended.extend(self.running.remove(at)),
                Ok(false) => at += 1,
                Err(Differ) => return true,
            }
        }
        false
    }

    /// Moves an operation on; true if it has ended.
    fn step(&mut self, at: usize, owed: &mut VecDeque<Said>) -> Result<bool, Differ> {
        let Group { running, arrived, below, above, id, .. } = self;
        let Running { number, operation, to, is_up, .. } = &mut running[at];
        let mut whole = |peer: PeerId| {
            let is_whole = |one: &Arriving| one.bytes.len() == one.whole;
            arrived.get(&(*number, peer)).filter(|one| is_whole(one))?;
            arrived.remove(&(*number, peer))
        };
        let mut owe = |peer: PeerId, step: Step, bytes: &[u8]| {
            let parts = Message::parts(*id, step, bytes);
            owed.extend(parts.into_iter().map(|part| (peer, *number, part)));
        };
        let peer = |member: usize| below.iter().find(|one| one.0 == member).map(|one| one.1);
        while let Some(member) = operation.next() {
            let Some(given) = peer(member).and_then(&mut whole) else { return Ok(false) };
            operation.take(&given.bytes).map_err(|_| Differ)?;
        }
        let answer = match *above {
            None => operation.gathered().to_vec(),
            Some(above) => {
                if !std::mem::replace(is_up, true) {
                    owe(above, Step::Up, operation.gathered());
                }
                let Some(answer) = whole(above) else { return Ok(false) };
                answer.bytes
            }
        };
        if !operation.is_answer(&answer) {
            return Err(Differ);
        }
        for (member, part) in operation.answers(&answer) {
            peer(member).into_iter().for_each(|peer| owe(peer, Step::Down, part));
        }
        to.write(operation.result(&answer));
        Ok(true)
    }
}

/// The members disagree on an operation.
struct Differ;
