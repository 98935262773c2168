//! Requests, and those that have completed.

use crate::code::StatusCode;
use crate::memory::Memory;
use crate::status::Status;
use std::collections::VecDeque;
use weft::{OpId, PeerId};
use weft_ffi::table::{Key, Table};

/// Most requests of an endpoint.
const REQUESTS_MAX: usize = 1 << 20;
/// Most names of requests already taken that stay in the queue before it is swept.
const STALE_MAX: usize = 64;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A send.
    Send,
    /// A receive.
    Recv,
    /// A request to connect.
    Connect,
}

/// A request.
pub struct Request {
    /// Its kind.
    pub kind: Kind,
    /// Its status: of one that has completed whole, before that what is known.
    pub status: Status,
    /// True if it has completed.
    pub is_done: bool,
    /// The bits of a receive that must match.
    pub mask: u64,
    /// The other endpoint, if it is known.
    pub peer: Option<PeerId>,
    /// The operation of weft's endpoint.
    pub op: Option<OpId>,
    /// The memory.
    pub memory: Memory,
    /// True if no call asks for its end.
    pub is_forgotten: bool,
    /// True if it is the library's own: searches for any request do not find it.
    pub is_own: bool,
    /// The status that a cancelled operation ends with.
    pub instead: Option<StatusCode>,
    /// The key of a request to connect.
    pub secret: u32,
    /// True of a receive that has matched, and whose message is on its way by MXoE.
    pub is_pulling: bool,
    /// True of a send whose memory MXoE sends from.
    pub is_lent: bool,
}

impl Request {
    /// Makes one.
    pub fn new(kind: Kind, match_bits: u64, context: usize, memory: Memory) -> Request {
        Request {
            kind,
            status: Status { match_info: match_bits, context, ..Status::default() },
            is_done: false,
            mask: 0,
            peer: None,
            op: None,
            memory,
            is_forgotten: false,
            is_own: false,
            instead: None,
            secret: 0,
            is_pulling: false,
            is_lent: false,
        }
    }
}

/// Returns a key as the context of an operation.
#[inline]
pub fn context_of(key: Key) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}

/// Returns the key of a context.
#[inline]
pub fn key_of(context: u64) -> Key {
    Key { index: context as u32, generation: (context >> 32) as u32 }
}

/// The requests of an endpoint.
pub struct Requests {
    all: Table<Request>,
    /// Requests that have completed, oldest first. Some may have been taken meanwhile.
    done: VecDeque<Key>,
}

impl Requests {
    /// Makes an empty table.
    pub fn new(turn: u32) -> Requests {
        Requests { all: Table::new(REQUESTS_MAX, turn), done: VecDeque::new() }
    }

    /// Adds a request. `None` if there are too many.
    #[inline]
    pub fn add(&mut self, request: Request) -> Option<Key> {
        self.all.add(request)
    }

    /// True if there is room for one more.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.all.len() < REQUESTS_MAX
    }

    /// Adds a request that has completed. `None` if there are too many.
    #[inline]
    pub fn add_done(&mut self, request: Request) -> Option<Key> {
        let key = self.all.add(request)?;
        self.done.push_back(key);
        Some(key)
    }

    /// Returns a request.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&Request> {
        self.all.get(key)
    }

    /// Returns a request.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Request> {
        self.all.get_mut(key)
    }

    /// Removes a request.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<Request> {
        if self.done.front() == Some(&key) {
            self.done.pop_front();
        }
        let request = self.all.remove(key);
        self.sweep();
        request
    }

    /// Removes a request; returns its status.
    #[inline]
    pub fn take_status(&mut self, key: Key) -> Option<Status> {
        if self.done.front() == Some(&key) {
            self.done.pop_front();
        }
        let status = self.all.remove_with(key, |request| request.status);
        self.sweep();
        status
    }

    /// Forgets names of requests that were taken, if there are many.
    #[inline]
    fn sweep(&mut self) {
        if self.done.len() > STALE_MAX + 2 * self.all.len() {
            self.done.retain(|key| self.all.get(*key).is_some());
        }
    }

    /// Ends a request with the status that it has.
    #[inline]
    pub fn end(&mut self, key: Key) {
        let Some(request) = self.all.get_mut(key).filter(|request| !request.is_done) else {
            return;
        };
        request.is_done = true;
        request.op = None;
        let (is_forgotten, is_own) = (request.is_forgotten, request.is_own);
        if is_forgotten {
            self.all.remove_with(key, |_| {});
        } else if !is_own {
            self.done.push_back(key);
        }
    }

    /// Returns the oldest one that has completed, if its match bits fit.
    pub fn done(&mut self, bits: u64, mask: u64) -> Option<Key> {
        while self.done.front().is_some_and(|key| self.all.get(*key).is_none()) {
            self.done.pop_front();
        }
        let fits = |key: &&Key| {
            let request = self.all.get(**key);
            request.is_some_and(|of| !of.is_forgotten && of.status.match_info & mask == bits)
        };
        self.done.iter().find(fits).copied()
    }

    /// Returns the names of all.
    pub fn keys(&self) -> Vec<Key> {
        self.all.keys()
    }
}
