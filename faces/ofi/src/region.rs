//! Registered memory.

use crate::memory::Borrowed;
use std::cell::RefCell;
use std::rc::Rc;
use weft_core::engine::Rights;

/// A counter of peers' operations.
pub trait Sum {
    /// Counts several operations that ended well.
    fn add_up(&self, count: u64);
}

/// The counters of peers' writes and of their reads.
pub type Sums = [Option<Rc<dyn Sum>>; 2];

/// Memory that peers may use under a key.
pub struct Region {
    pub key: u64,
    /// The address or offset by which peers name the first byte.
    pub first: u64,
    pub memory: Borrowed,
    pub rights: Rights,
    pub sums: RefCell<Sums>,
}
