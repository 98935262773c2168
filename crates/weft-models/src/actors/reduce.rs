//! Reductions: the contributions of the objects at a rank are combined there, and then along a tree
//! of ranks. Numbers of contributions go with the values, so that objects may move meanwhile.

use super::entry::Entry;
use std::any::Any;
use std::collections::BTreeMap;

/// Contributions to a round, combined.
pub(super) struct Sum {
    pub count: u32,
    pub value: Box<dyn Any>,
    /// Objects here that have contributed, when objects had moved so often.
    pub passed: u32,
    pub moves: u64,
}

/// The reductions of an array at this rank, by section and round.
#[derive(Default)]
pub(super) struct Rounds {
    /// Arrivals and departures of objects here.
    pub moves: u64,
    pub open: BTreeMap<(u16, u32), Sum>,
    /// At rank 0: what has come from all ranks.
    pub totals: BTreeMap<(u16, u32), (u32, Box<dyn Any>)>,
    /// Objects of sections here, when objects had moved so often.
    present: BTreeMap<u16, (u64, u32)>,
}

impl Rounds {
    /// Notes that an object has come or left.
    pub fn moved(&mut self) {
        self.moves += 1;
    }

    /// True if no reduction is under way here.
    pub fn are_done(&self) -> bool {
        self.open.is_empty() && self.totals.is_empty()
    }

    /// Returns the number of objects of a section that are here.
    fn present(&mut self, entry: &Entry, section: u16) -> u32 {
        let Some(members) = entry.members(section) else { return entry.store.len() as u32 };
        let found = self.present.entry(section).or_insert((u64::MAX, 0));
        if found.0 != self.moves {
            *found = (self.moves, entry.store.present(&members));
        }
        found.1
    }

    /// Takes the sum of a round if all objects here have contributed.
    pub fn complete(&mut self, entry: &Entry, (section, round): (u16, u32)) -> Option<Sum> {
        let present = self.present(entry, section);
        let moves = self.moves;
        let sum = self.open.get_mut(&(section, round))?;
        if sum.moves != moves {
            let members = entry.members(section);
            sum.passed = entry.store.passed(section, round, members.as_deref());
            sum.moves = moves;
        }
        let is_complete = sum.passed >= present;
        is_complete.then(|| self.open.remove(&(section, round))).flatten()
    }
}
