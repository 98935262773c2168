//! The sockets of this host, by number and by cookie.

use super::Port;
use std::collections::BTreeMap;

/// The sockets of this host.
pub(super) struct Ports {
    table: BTreeMap<u32, Port>,
    of_cookie: BTreeMap<u64, u32>,
    /// The number that was given last.
    last: u32,
}

impl Ports {
    pub fn new() -> Ports {
        let last = weft_link::random_u64() as u32;
        Ports { table: BTreeMap::new(), of_cookie: BTreeMap::new(), last }
    }

    /// Returns a number that no socket has.
    pub fn next_number(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.table.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    pub fn insert(&mut self, id: u32, port: Port) {
        self.of_cookie.insert(port.cookie, id);
        self.table.insert(id, port);
    }

    pub fn remove(&mut self, id: u32) -> Option<Port> {
        let port = self.table.remove(&id)?;
        self.of_cookie.remove(&port.cookie);
        Some(port)
    }

    pub fn get(&self, id: &u32) -> Option<&Port> {
        self.table.get(id)
    }

    pub fn get_mut(&mut self, id: &u32) -> Option<&mut Port> {
        self.table.get_mut(id)
    }

    /// Returns the number of the socket that has a cookie.
    pub fn of_cookie(&self, cookie: u64) -> Option<u32> {
        self.of_cookie.get(&cookie).copied()
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn values(&self) -> impl Iterator<Item = &Port> {
        self.table.values()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&u32, &Port)> {
        self.table.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&u32, &mut Port)> {
        self.table.iter_mut()
    }
}
