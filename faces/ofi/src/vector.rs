//! Address vectors: names, and their numbers for libfabric's callers.

use crate::name::{self, Name, NameError};
use std::collections::HashMap;
use std::num::NonZeroU32;
use weft_core::EndpointId;
use weft_link::Address;

struct Entry {
    name: Name,
    endpoint: EndpointId,
    /// Number of insertions minus removals.
    count: NonZeroU32,
}

/// Names by number (`fi_addr_t`). Equal names have one number, however often they are inserted:
/// Intel MPI inserts spawned peers twice.
#[derive(Default)]
pub struct Vector {
    entries: Vec<Option<Entry>>,
    by_endpoint: HashMap<EndpointId, u64>,
    changes: u64,
}

impl Vector {
    /// Adds a name and returns its number.
    ///
    /// # Errors
    /// The bytes are no name; the reason.
    pub fn insert(&mut self, name: &[u8]) -> Result<u64, NameError> {
        let endpoint = name::decode(name)?.endpoint;
        self.changes += 1;
        if let Some(&number) = self.by_endpoint.get(&endpoint) {
            if let Some(Some(entry)) = self.entries.get_mut(number as usize) {
                entry.count = entry.count.saturating_add(1);
                return Ok(number);
            }
        }
        let number = self.entries.len() as u64;
        self.by_endpoint.insert(endpoint, number);
        let mut own = [0; name::LEN];
        own[..name.len().min(name::LEN)].copy_from_slice(&name[..name.len().min(name::LEN)]);
        self.entries.push(Some(Entry { name: own, endpoint, count: NonZeroU32::MIN }));
        Ok(number)
    }

    /// Takes back one insertion; false if there was none.
    pub fn remove(&mut self, number: u64) -> bool {
        let Some(slot) = self.entries.get_mut(number as usize) else { return false };
        let Some(entry) = slot else { return false };
        match NonZeroU32::new(entry.count.get() - 1) {
            Some(count) => entry.count = count,
            None => {
                self.by_endpoint.remove(&entry.endpoint);
                *slot = None;
                self.changes += 1;
            }
        }
        true
    }

    /// Lists the numbers of all names.
    pub fn numbers(&self) -> Vec<u64> {
        let taken = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_some());
        taken.map(|(at, _)| at as u64).collect()
    }

    /// Returns the address with this number, which is kept as a name: names of peers that never
    /// meet cost least so.
    pub fn address(&self, number: u64) -> Option<Address> {
        name::decode(self.name(number)?).ok()
    }

    /// Returns the endpoint with this number.
    pub fn endpoint(&self, number: u64) -> Option<EndpointId> {
        self.entries.get(number as usize)?.as_ref().map(|e| e.endpoint)
    }

    /// Returns the name with this number.
    pub fn name(&self, number: u64) -> Option<&Name> {
        self.entries.get(number as usize)?.as_ref().map(|e| &e.name)
    }

    /// Returns the number of an endpoint.
    pub fn find(&self, endpoint: EndpointId) -> Option<u64> {
        self.by_endpoint.get(&endpoint).copied()
    }

    /// Returns the number of changes: data derived from the vector is stale when it differs.
    pub fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn of(endpoint: u64) -> Name {
        name::encode(&Address { endpoint: EndpointId(endpoint), ..Address::default() })
    }

    #[test]
    fn insert__the_same_name_twice_has_one_number() {
        let mut v = Vector::default();
        let one = v.insert(&of(1)).unwrap();
        let two = v.insert(&of(2)).unwrap();
        assert_eq!(v.insert(&of(1)), Ok(one));
        assert_ne!(one, two);
        assert!(v.remove(one));
        assert_eq!(v.find(EndpointId(1)), Some(one), "inserted once more than removed");
        assert!(v.remove(one));
        assert_eq!(v.find(EndpointId(1)), None);
        assert!(!v.remove(one));
    }

    #[test]
    fn insert__after_removal_it_has_a_new_number() {
        let mut v = Vector::default();
        let one = v.insert(&of(1)).unwrap();
        v.remove(one);
        let again = v.insert(&of(1)).unwrap();
        assert_eq!(v.address(again).map(|a| a.endpoint), Some(EndpointId(1)));
        assert_eq!(v.address(one), None);
        assert_eq!(v.name(again), Some(&of(1)));
    }
}
