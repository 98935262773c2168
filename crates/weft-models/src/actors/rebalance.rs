//! Balances: rank 0 gets the loads of all ranks, plans, and tells all.

use super::balance::Strategy;
use super::loads::{Balanced, Loads, Reported};
use super::runtime::{Actors, Inner};
use super::wire::Note;
use super::ActorError;
use crate::net::Net;

/// Objects in a message about loads.
const PER_MESSAGE: usize = 1 << 12;

impl<N: Net> Actors<N> {
    /// Moves objects by a strategy and the loads since [`measure`](Actors::measure), or since the
    /// last balance. All ranks call this, between runs.
    ///
    /// # Errors
    /// The errors of a run.
    pub async fn balance(&self, strategy: &Strategy) -> Result<Balanced, ActorError> {
        self.balance_by(|loads| strategy.plan(loads)).await
    }

    /// Moves objects to the ranks that a function finds, which rank 0 calls; the others do not. All
    /// ranks call this, between runs.
    ///
    /// # Errors
    /// The errors of a run, or the function returned another number of ranks than there are
    /// objects, or a rank that does not exist.
    pub async fn balance_by(
        &self,
        plan: impl FnOnce(&Loads) -> Vec<usize>,
    ) -> Result<Balanced, ActorError> {
        let inner = &self.inner;
        inner.collected.balanced.set(Balanced::default());
        let mine = inner.report();
        if inner.net.rank() == 0 {
            inner.collected.loads.borrow_mut().extend(mine);
        } else {
            for part in mine.chunks(PER_MESSAGE) {
                inner.channel.room(0).await;
                inner.note(0, &Note::Loads(part.to_vec()));
            }
        }
        inner.to_the_end().await?;
        if inner.net.rank() == 0 {
            inner.move_by(plan);
        }
        inner.to_the_end().await?;
        Ok(inner.collected.balanced.get())
    }
}

impl<N: Net> Inner<N> {
    fn report(&self) -> Vec<Reported> {
        let rank = self.net.rank() as u32;
        let mut all = Vec::new();
        for (&array, entry) in self.arrays.borrow().iter() {
            let places = entry.places.borrow();
            for measured in entry.store.take_measured() {
                let element = measured.element;
                let moves = places.get(&element).map_or(0, |(_, moves)| *moves);
                let send = |((array, to), (count, bytes))| (array, to, count, bytes);
                let sends = measured.sends.into_iter().map(send).collect();
                all.push(Reported { array, element, rank, moves, load: measured.load, sends });
            }
        }
        all
    }

    /// Plans at rank 0, and tells all ranks.
    fn move_by(&self, plan: impl FnOnce(&Loads) -> Vec<usize>) {
        let mut reported = self.collected.loads.take();
        reported.sort_unstable_by_key(|r| (r.array, r.element));
        let ranks = self.net.size();
        let loads = Loads::of(ranks, &reported);
        let places = plan(&loads);
        if places.len() != reported.len() || places.iter().any(|rank| *rank >= ranks) {
            let (count, objects) = (places.len(), reported.len());
            let text = format!(
                "a balance of {objects} objects on {ranks} ranks has {count} places, of which each \
                 has to be a rank"
            );
            return self.fault(None, text);
        }
        let all = reported.iter().zip(&places);
        let moves = all.filter(|(r, rank)| r.rank as usize != **rank);
        let moves: Vec<_> =
            moves.map(|(r, rank)| (r.array, r.element, *rank as u32, r.moves + 1)).collect();
        let before = loads.imbalance(loads.objects.iter().map(|load| load.rank));
        let after = loads.imbalance(places.iter().copied());
        let note = Note::Plan(moves, before, after);
        (1..ranks).for_each(|rank| self.note(rank, &note));
        if let Note::Plan(moves, ..) = &note {
            self.take_plan(moves, (before, after));
        }
    }
}
