//! The state of an endpoint.

use super::collective::Collectives;
use super::report::{fields, Direction};
use super::transfers::Remote;
use super::{Addresses, Counter, Queue};
use crate::abi::{cap, err, ADDR_NONE};
use crate::events::Events;
use crate::memory::{Borrowed, Bounce};
use crate::queue::{Entry, Failure};
use crate::region::Sums;
use crate::slab::Slab;
use libc::{c_int, c_void};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Weak;
use weft_core::engine::types::{Claimed, Probed};
use weft_core::matching::RecvSpec;
use weft_core::{OpId, PeerId};

/// An operation in progress.
pub struct Rec {
    pub op: Option<OpId>,
    pub context: *mut c_void,
    /// Flags of the completion.
    pub flags: u64,
    /// True if its completion is reported when it ends well.
    pub report: bool,
    pub buf: *mut u8,
    pub bounce: Option<Box<Bounce>>,
    /// The buffer for many messages that it is a part of.
    pub multi: Option<u32>,
    /// True if it is never reported.
    pub silent: bool,
}

#[derive(Default)]
pub struct Bound {
    pub vector: Option<Rc<Addresses>>,
    pub tx: Option<Rc<Queue>>,
    pub rx: Option<Rc<Queue>>,
    /// True if only operations that ask for a completion are reported: sends, receives.
    pub selective: (bool, bool),
    /// Counters of sends, receives, writes, reads.
    pub counters: [Option<Rc<Counter>>; 4],
    /// Counters of peers' writes and reads of memory here.
    pub remote_counters: Sums,
    /// The queue to which joins of groups are reported; the endpoint does not keep it open.
    pub events: Weak<Events>,
}

/// Peers and their numbers in the address vector.
#[derive(Default)]
pub struct Peers {
    /// Peers by number in the address vector, valid while its `changes` is the same.
    pub by_number: Vec<Option<PeerId>>,
    changes: u64,
    /// Numbers in the address vector, by the peer's number.
    pub numbers: Vec<u64>,
    /// By the peer's number: true if the first send has waited for its answer.
    pub met: Vec<bool>,
}

/// A buffer for many messages.
pub struct Multi {
    pub memory: Borrowed,
    pub used: usize,
    /// Number of messages that are being received into it.
    pub arriving: u32,
    /// True if no more messages go into it.
    pub full: bool,
    pub context: *mut c_void,
    pub report: bool,
}

/// A receive of untagged messages that is not posted to the engine yet.
pub struct Waiting {
    pub what: What,
    pub source: Option<PeerId>,
    /// True if the engine watches its source for silence.
    pub watched: bool,
}

#[derive(Clone, Copy)]
pub enum What {
    Multi(u32),
    Plain { rec: u32, memory: Borrowed },
}

/// A receive of a tagged message that the engine has no operation for.
pub struct Expecting {
    pub spec: RecvSpec,
    pub memory: Borrowed,
    pub context: *mut c_void,
    pub report: bool,
    pub polls: u32,
}

impl Rec {
    /// Creates the record of an operation with memory at `buf`, or with memory of its own.
    #[inline]
    pub fn new(
        context: *mut c_void,
        flags: u64,
        report: bool,
        buf: *mut u8,
        bounce: Option<Box<Bounce>>,
    ) -> Rec {
        Rec { op: None, context, flags, report, buf, bounce, multi: None, silent: false }
    }
}

impl Expecting {
    pub fn rec(&self) -> Rec {
        let (flags, buf) = (cap::RECV | cap::TAGGED, self.memory.start());
        Rec::new(self.context, flags, self.report, buf, None)
    }
}

/// Receives without an operation of the engine, and the messages that they claimed.
#[derive(Default)]
pub struct Receives {
    pub waiting: VecDeque<Waiting>,
    pub multis: Slab<Multi>,
    pub claims: HashMap<usize, (Claimed, Probed)>,
    pub expecting: Option<Expecting>,
    /// Number of failed peers at the last check.
    pub failures: u64,
}

pub struct State {
    pub bound: Bound,
    /// Operations in progress.
    pub records: Slab<Rec>,
    pub peers: Peers,
    pub receives: Receives,
    pub remote: Remote,
    pub collectives: Collectives,
}

impl Peers {
    /// Drops data derived from the address vector if that has changed.
    #[inline]
    fn follow(&mut self, changes: u64) {
        if self.changes != changes {
            self.changes = changes;
            self.by_number.clear();
            self.numbers.clear();
        }
    }
}

impl State {
    /// No number of peers: forces a check.
    pub const RECHECK_AFTER: u64 = u64::MAX;

    /// Returns true if every send and every operation on memory of others has ended.
    pub fn is_quiet(&self) -> bool {
        let sends = |rec: &Rec| rec.op.is_some() && rec.flags & cap::SEND != 0;
        let quiet = self.remote.is_quiet() && self.collectives.is_quiet();
        quiet && !self.records.values().any(sends)
    }

    /// Returns true if an operation with these flags is reported when it ends well.
    #[inline]
    pub fn reports(&self, way: Direction, flags: u64) -> bool {
        let selective = match way {
            Direction::Recv => self.bound.selective.1,
            _ => self.bound.selective.0,
        };
        self.queue(way).is_some() && (!selective || flags & cap::COMPLETION != 0)
    }

    /// Notes that the engine has an operation now.
    #[inline]
    pub fn started(&mut self, at: u32, id: OpId) {
        if let Some(rec) = self.records.get_mut(at) {
            rec.op = Some(id);
        }
    }

    /// Drops data derived from the address vector if that has changed.
    #[inline]
    pub fn follow_vector(&mut self) -> Result<(), c_int> {
        let vector = self.bound.vector.as_ref().ok_or(err::ENOAV)?;
        self.peers.follow(vector.vector.borrow().changes());
        Ok(())
    }

    /// Reports an operation that ended before it was in progress.
    #[inline]
    pub fn done(&mut self, at: u32, way: Direction, len: usize, tag: u64) {
        let Some(rec) = self.records.take(at) else { return };
        self.count(way, true);
        if rec.report {
            let fields = fields(rec.context, rec.flags, len, rec.buf, 0, tag);
            self.add(way, Entry { fields, source: ADDR_NONE });
        }
    }

    #[inline]
    pub fn count(&self, way: Direction, ok: bool) {
        if let Some(counter) = &self.bound.counters[way as usize] {
            counter.count(ok);
        }
    }

    /// Returns the queue of a direction.
    #[inline]
    fn queue(&self, way: Direction) -> Option<&Queue> {
        match way {
            Direction::Recv => self.bound.rx.as_deref(),
            _ => self.bound.tx.as_deref(),
        }
    }

    #[inline]
    pub fn add(&self, way: Direction, entry: Entry) {
        if let Some(queue) = self.queue(way) {
            queue.add(entry);
        }
    }

    /// Counts and reports an operation that ended in an error.
    #[cold]
    pub fn failed(&self, way: Direction, failure: Failure) {
        self.count(way, false);
        self.fail(way, failure);
    }

    /// Reports an error.
    #[cold]
    pub fn fail(&self, way: Direction, failure: Failure) {
        if let Some(queue) = self.queue(way) {
            queue.fail(failure);
        }
    }
}
