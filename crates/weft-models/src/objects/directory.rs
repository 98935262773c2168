//! The objects that a rank knows, by number.

use super::entry::Entry;
use crate::net::Net;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The objects of a rank.
pub(super) struct Directory<N: Net> {
    entries: RefCell<BTreeMap<u64, Rc<Entry<N>>>>,
    /// Objects whose states were too long, with their lengths, until their opening has ended.
    refused: RefCell<BTreeMap<u64, usize>>,
    /// Objects that all ranks open by numbers and that have been deleted.
    deleted: RefCell<BTreeSet<u64>>,
}

impl<N: Net> Default for Directory<N> {
    fn default() -> Directory<N> {
        Directory {
            entries: RefCell::default(),
            refused: RefCell::default(),
            deleted: RefCell::default(),
        }
    }
}

impl<N: Net> Directory<N> {
    /// Returns an object.
    pub fn get(&self, number: u64) -> Option<Rc<Entry<N>>> {
        self.entries.borrow().get(&number).cloned()
    }

    /// True if an object is there.
    pub fn contains(&self, number: u64) -> bool {
        self.entries.borrow().contains_key(&number)
    }

    /// True if an object is there, or was there, or cannot be.
    pub fn is_decided(&self, number: u64) -> bool {
        self.contains(number)
            || self.is_deleted(number)
            || self.refused.borrow().contains_key(&number)
    }

    /// True if an object that ranks open by its number was deleted.
    pub fn is_deleted(&self, number: u64) -> bool {
        self.deleted.borrow().contains(&number)
    }

    /// Returns all objects.
    pub fn all(&self) -> Vec<Rc<Entry<N>>> {
        self.entries.borrow().values().cloned().collect()
    }

    pub fn insert(&self, entry: Entry<N>) {
        self.entries.borrow_mut().insert(entry.number, Rc::new(entry));
    }

    /// Removes an object that is deleted. `is_known`: all ranks open it by its number.
    pub fn delete(&self, number: u64, is_known: bool) {
        self.entries.borrow_mut().remove(&number);
        if is_known {
            self.deleted.borrow_mut().insert(number);
        }
    }

    /// Notes that the state of an object is too long.
    pub fn refuse(&self, number: u64, len: usize) {
        self.refused.borrow_mut().insert(number, len);
    }

    /// Takes the length of a state that was too long.
    pub fn take_refused(&self, number: u64) -> Option<usize> {
        self.refused.borrow_mut().remove(&number)
    }
}
