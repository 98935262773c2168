//! Requests of other sides, and calls that wait for one.

use crate::address::NetAddress;
use crate::table::{Key, Table};
use crate::wire::Offer;
use weft::PeerId;

/// Most requests for connections that wait to be accepted.
const CALLERS_MAX: usize = 1024;

/// A request of another side that waits to be accepted: `VIP_CONN_HANDLE`.
#[derive(Debug)]
pub struct Caller {
    /// Its endpoint.
    pub peer: PeerId,
    /// Its side of the connection.
    pub offer: Offer,
    /// Its address.
    pub from: NetAddress,
    /// True if it has given up, or has failed.
    pub gone: bool,
}

/// A call of `VipConnectWait`.
struct Waiter {
    number: u64,
    local: NetAddress,
    /// The request that came for it.
    found: Option<Key>,
}

/// The requests that wait, and the calls that wait for them.
pub struct Callers {
    all: Table<Caller>,
    waiters: Vec<Waiter>,
    /// Number of the latest waiter.
    last: u64,
}

impl Callers {
    /// Makes an empty table; `turn` as of [`Table::new`].
    pub fn new(turn: u32) -> Callers {
        Callers { all: Table::new(CALLERS_MAX, turn), waiters: Vec::new(), last: 0 }
    }

    /// Returns a request.
    pub fn get(&self, key: Key) -> Option<&Caller> {
        self.all.get(key)
    }

    /// Removes a request.
    pub fn remove(&mut self, key: Key) -> Option<Caller> {
        self.all.remove(key)
    }

    /// Returns the keys of all requests.
    pub fn keys(&self) -> Vec<Key> {
        self.all.keys()
    }

    /// Begins a wait for a request at an address; returns its number.
    pub fn wait_at(&mut self, local: NetAddress) -> u64 {
        self.last += 1;
        self.waiters.push(Waiter { number: self.last, local, found: None });
        self.last
    }

    /// Returns the request that came for a wait.
    pub fn found(&self, number: u64) -> Option<Key> {
        self.waiters.iter().find(|waiter| waiter.number == number)?.found
    }

    /// Ends a wait.
    pub fn end_wait(&mut self, number: u64) {
        self.waiters.retain(|waiter| waiter.number != number);
    }

    /// Gives a request to a call that waits at an address. False if none does, or too many requests
    /// wait.
    pub fn give(&mut self, caller: Caller, to: &NetAddress) -> bool {
        let waits = |waiter: &&mut Waiter| waiter.found.is_none() && waiter.local == *to;
        let Some(waiter) = self.waiters.iter_mut().find(waits) else { return false };
        waiter.found = self.all.add(caller);
        waiter.found.is_some()
    }

    /// Notes that the requests for which `is_it` is true have given up, or their sides have failed.
    pub fn note_gone(&mut self, is_it: impl Fn(&Caller) -> bool) {
        for key in self.all.keys() {
            let caller = self.all.get_mut(key);
            caller.into_iter().for_each(|caller| caller.gone |= is_it(caller));
        }
    }
}
