//! The place of adaptive objects, by the rule of Orca's run-time system.
//!
//! A replicated object costs a broadcast for each write. An object at the rank that uses it most
//! costs a call for each access of the others. Accesses are averaged: three quarters old, one
//! quarter new. All ranks compute the same from the same messages, in whole numbers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Accesses after which the place is considered again.
const PERIOD: u32 = 16;
/// Reads after which a rank that does not write tells them.
pub const TELL_READS: u32 = 256;
/// Parts of an access in an average.
const SCALE: u64 = 1024;

/// The accesses of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Use {
    reads: u32,
    writes: u32,
    /// Averages, in parts.
    mean_reads: u64,
    mean_writes: u64,
}

/// The accesses of all ranks to an object. Those who note the same accesses in the same order are
/// told the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uses {
    by: BTreeMap<usize, Use>,
    since: u32,
}

/// The better place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Replicated on all ranks.
    Everywhere,
    /// At a rank.
    At(usize),
}

impl Uses {
    /// Notes accesses of a rank; returns the better place of an object for `ranks` ranks now and
    /// then, if one of the two is clearly better.
    pub fn note(&mut self, rank: usize, reads: u32, writes: u32, ranks: usize) -> Option<Better> {
        let by = self.by.entry(rank).or_default();
        by.reads = by.reads.saturating_add(reads);
        by.writes = by.writes.saturating_add(writes);
        self.since = self.since.saturating_add(writes.max(1));
        if self.since < PERIOD {
            return None;
        }
        self.since = 0;
        for by in self.by.values_mut() {
            let mean = |old: u64, new: u32| (3 * old + SCALE * u64::from(new)) / 4;
            by.mean_reads = mean(by.mean_reads, by.reads);
            by.mean_writes = mean(by.mean_writes, by.writes);
            (by.reads, by.writes) = (0, 0);
        }
        self.choose(ranks)
    }

    /// Forgets the ranks that are gone.
    pub fn retain(&mut self, lives: impl Fn(&usize) -> bool) {
        self.by.retain(|rank, _| lives(rank));
    }

    fn choose(&self, ranks: usize) -> Option<Better> {
        let of = |by: &Use| by.mean_reads + by.mean_writes;
        // The lowest rank of several with as many accesses.
        let (&heaviest, most) = self.by.iter().rev().max_by_key(|(_, by)| of(by))?;
        let writes: u64 = self.by.values().map(|by| by.mean_writes).sum();
        let others = self.by.values().map(of).sum::<u64>() - of(most);
        // A broadcast costs as much as (ranks + 1) / 2 calls.
        let (everywhere, at_one) = (writes * (ranks as u64 + 1), 2 * others);
        if everywhere * 10 < at_one * 9 {
            Some(Better::Everywhere)
        } else if at_one * 10 < everywhere * 8 {
            Some(Better::At(heaviest))
        } else {
            None
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn last(uses: &mut Uses, each: &[(usize, u32, u32)], ranks: usize) -> Option<Better> {
        let mut last = None;
        for _ in 0..100 {
            for &(rank, reads, writes) in each {
                last = uses.note(rank, reads, writes, ranks).or(last);
            }
        }
        last
    }

    #[test]
    fn note__read_mostly_goes_everywhere_and_a_single_writer_has_it() {
        let mut uses = Uses::default();
        let reads = [(0, 10, 1), (1, 10, 0), (2, 10, 0)];
        assert_eq!(last(&mut uses, &reads, 3), Some(Better::Everywhere));
        assert_eq!(last(&mut uses, &[(2, 1, 5)], 3), Some(Better::At(2)));
        assert_eq!(last(&mut uses, &[(0, 1, 5), (1, 1, 5)], 8), Some(Better::At(0)));
    }

    #[test]
    fn note__waits_for_some_accesses_and_stays_where_nothing_is_better() {
        let mut uses = Uses::default();
        assert_eq!(uses.note(1, 0, 1, 4), None);
        // Costs within a tenth of each other.
        let even = [(0, 5, 2), (1, 3, 2)];
        let mut uses = Uses::default();
        assert_eq!(last(&mut uses, &even, 2), None);
    }
}
