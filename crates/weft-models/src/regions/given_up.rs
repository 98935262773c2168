//! Ranks that their homes have given up, and that may live.
//!
//! A home that cannot reach a rank takes away its copies without its answer, and others write the
//! regions. The rank may be in reach of those others. So all ranks pass on that it was given up,
//! before anything else that they send from then on: the rank forgets its copies before it sees
//! what was done after that.

use super::runtime::Inner;
use super::wire::among;
use crate::net::{Net, RankFailure};

impl<N: Net> Inner<N> {
    /// Notes that this home has given a rank up that may live and has copies of its regions.
    pub fn give_up(&self, failure: &RankFailure) {
        if !failure.certain && self.has_copies(failure.rank) {
            let me = self.net.rank();
            self.pass_on(me, failure.rank);
        }
    }

    fn has_copies(&self, rank: usize) -> bool {
        let table = self.table.borrow();
        let mut homes = table.values().filter_map(|entry| entry.home.as_ref());
        homes.any(|home| home.borrow().has_copy(rank))
    }

    /// Tells all other ranks, once, that a home has given a rank up.
    fn pass_on(&self, home: usize, rank: usize) -> bool {
        let is_new = self.standing.borrow_mut().given_up.insert((home, rank));
        if is_new {
            let bytes = [home, rank].map(|rank| (rank as u32).to_le_bytes()).concat();
            let me = self.net.rank();
            for to in (0..self.net.size()).filter(|to| ![me, home].contains(to)) {
                // A rank that has failed here hears it from others.
                _ = self.channel.post(to, among::GIVEN_UP, &[&bytes]);
            }
        }
        is_new
    }

    /// Handles the news that a home has given a rank up. `None` if they are malformed.
    pub fn told_given_up(&self, from: usize, bytes: &[u8]) -> Option<()> {
        let ([home, rank], []) = bytes.as_chunks::<4>() else { return None };
        let [home, rank] = [home, rank].map(|rank| u32::from_le_bytes(*rank) as usize);
        let is_rank = home.max(rank) < self.net.size() && home != self.net.rank();
        if !is_rank || !self.pass_on(home, rank) || rank != self.net.rank() {
            return is_rank.then_some(());
        }
        let why = format!("rank {from} reports that rank {home} has given this rank up");
        let lost = self.home_lost(RankFailure { rank: home, certain: false, why });
        self.lose_home(home, &lost);
        Some(())
    }
}
