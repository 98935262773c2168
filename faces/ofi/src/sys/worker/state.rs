//! The state of an endpoint.

use super::buffer::Bounce;
use crate::sys::abi::{cap, err, CqTaggedEntry, ADDR_NONE};
use crate::sys::av::Av;
use crate::sys::cntr::Counter;
use crate::sys::cq::{Cq, Entry, Failure};
use libc::{c_int, c_void};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
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
    pub multi: Option<usize>,
    /// True if it is never reported.
    pub silent: bool,
}

/// The direction of an operation, for queues and counters.
#[derive(Clone, Copy)]
pub enum Direction {
    Send,
    Recv,
    Write,
    Read,
}

#[derive(Default)]
pub struct Bound {
    pub vector: Option<Rc<Av>>,
    pub tx: Option<Rc<Cq>>,
    pub rx: Option<Rc<Cq>>,
    /// True if only operations that ask for a completion are reported: sends, receives.
    pub selective: (bool, bool),
    /// Counters of sends, receives, writes, reads.
    pub counters: [Option<Rc<Counter>>; 4],
    /// Counters of peers' writes and reads of memory here.
    pub remote_counters: [Option<Rc<Counter>>; 2],
}

/// The records of operations in progress.
#[derive(Default)]
pub struct Records {
    pub recs: Vec<Option<Rec>>,
    free: Vec<u32>,
    /// Number of free records from which memory is given back, if more than `FREE_MAX`.
    free_max: usize,
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
    pub start: *mut u8,
    pub len: usize,
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
    Multi(usize),
    Plain { rec: u32, start: *mut u8, len: usize },
}

/// A receive of a tagged message that the engine has no operation for.
pub struct Expecting {
    pub spec: RecvSpec,
    pub start: *mut u8,
    pub len: usize,
    pub context: *mut c_void,
    pub report: bool,
    pub polls: u32,
}

impl Expecting {
    pub fn rec(&self) -> Rec {
        Rec {
            op: None,
            context: self.context,
            flags: cap::RECV | cap::TAGGED,
            report: self.report,
            buf: self.start,
            bounce: None,
            multi: None,
            silent: false,
        }
    }
}

/// Receives without an operation of the engine, and the messages that they claimed.
#[derive(Default)]
pub struct Receives {
    pub waiting: VecDeque<Waiting>,
    pub multis: Vec<Option<Multi>>,
    pub claims: HashMap<usize, (Claimed, Probed)>,
    pub expecting: Option<Expecting>,
    /// Number of failed peers at the last check.
    pub failures: u64,
}

pub struct State {
    pub bound: Bound,
    pub records: Records,
    pub peers: Peers,
    pub receives: Receives,
    pub remote: super::remote::Remote,
}

impl Records {
    /// Most free records that are kept.
    const FREE_MAX: usize = 4096;

    /// Returns true if no operation is in progress.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.recs.len() == self.free.len()
    }

    #[inline]
    pub fn keep(&mut self, rec: Rec) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            self.recs[at as usize] = Some(rec);
            return Some(at);
        }
        if self.recs.len() >= u32::MAX as usize {
            return None;
        }
        self.recs.push(Some(rec));
        Some(self.recs.len() as u32 - 1)
    }

    #[inline]
    pub fn give_back(&mut self, at: u32) -> Option<Rec> {
        let rec = self.recs.get_mut(at as usize)?.take()?;
        self.free.push(at);
        if self.free.len() >= self.free_max.max(Records::FREE_MAX) {
            self.shrink();
        }
        Some(rec)
    }

    /// Gives back the memory of records after a burst of operations.
    #[cold]
    fn shrink(&mut self) {
        while let Some(None) = self.recs.last() {
            self.recs.pop();
        }
        self.recs.shrink_to_fit();
        let recs = self.recs.len();
        // Low numbers are used first, so that the highest become free in time.
        self.free.retain(|&at| (at as usize) < recs);
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        self.free.shrink_to_fit();
        self.free_max = 2 * self.free.len();
    }

    #[inline]
    pub fn started(&mut self, at: u32, id: OpId) {
        if let Some(Some(rec)) = self.recs.get_mut(at as usize) {
            rec.op = Some(id);
        }
    }
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
        self.remote.is_quiet() && !self.records.recs.iter().flatten().any(sends)
    }

    /// Returns true if an operation with these flags is reported when it ends well.
    #[inline]
    pub fn reports(&self, way: Direction, flags: u64) -> bool {
        let (cq, selective) = match way {
            Direction::Recv => (&self.bound.rx, self.bound.selective.1),
            _ => (&self.bound.tx, self.bound.selective.0),
        };
        cq.is_some() && (!selective || flags & cap::COMPLETION != 0)
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
        let Some(rec) = self.records.give_back(at) else { return };
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

    #[inline]
    pub fn add(&self, way: Direction, entry: Entry) {
        let cq = match way {
            Direction::Recv => &self.bound.rx,
            _ => &self.bound.tx,
        };
        if let Some(cq) = cq {
            cq.add(entry);
        }
    }

    #[cold]
    pub fn fail(&self, way: Direction, failure: Failure) {
        let cq = match way {
            Direction::Recv => &self.bound.rx,
            _ => &self.bound.tx,
        };
        if let Some(cq) = cq {
            cq.fail(failure);
        }
    }
}
#[inline]
pub fn fields(
    op_context: *mut c_void,
    flags: u64,
    len: usize,
    buf: *mut u8,
    data: u64,
    tag: u64,
) -> CqTaggedEntry {
    CqTaggedEntry { op_context, flags, len, buf: buf.cast(), data, tag }
}
