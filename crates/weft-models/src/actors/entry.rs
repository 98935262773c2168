//! An array at a rank.

use super::casts::Casts;
use super::reduce::Rounds;
use super::store::AnyStore;
use super::Shape;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// An array at this rank.
pub(super) struct Entry {
    pub store: Rc<dyn AnyStore>,
    pub shape: Shape,
    /// The rank and the moves of objects, as far as this rank knows; those that are not here are at
    /// their homes.
    pub places: RefCell<BTreeMap<u32, (u32, u32)>>,
    pub casts: RefCell<Casts>,
    pub rounds: RefCell<Rounds>,
    /// The objects of sections.
    pub sections: RefCell<BTreeMap<u16, Rc<[u32]>>>,
    /// The bytes of the last result of each section's reductions.
    pub results: RefCell<BTreeMap<u16, Rc<[u8]>>>,
}

impl Entry {
    /// Returns the objects of a section; `None` for the whole array.
    pub fn members(&self, section: u16) -> Option<Rc<[u32]>> {
        self.sections.borrow().get(&section).cloned()
    }

    /// Returns the rank at which an object is, as far as this rank knows.
    pub fn rank_of(&self, element: u32, ranks: usize) -> usize {
        let places = self.places.borrow();
        let home = || self.shape.home(element, ranks);
        // Most arrays have objects at their homes alone.
        match places.is_empty() {
            true => home(),
            false => places.get(&element).map_or_else(home, |(rank, _)| *rank as usize),
        }
    }

    /// True if a section is known, or is the whole array.
    pub fn has(&self, section: u16) -> bool {
        section == 0 || self.sections.borrow().contains_key(&section)
    }
}
