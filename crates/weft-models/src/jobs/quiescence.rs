//! The end of work that is spread over ranks.

use crate::net::{Net, RankFailure};
use crate::together::Together;
use std::cell::Cell;

/// Finds out that no rank has work left and that none is on its way.
///
/// Mattern's four counters: a wave adds up the records that all ranks have sent and received. If as
/// many have been sent by the end of a wave as had been received by the end of the one before,
/// nothing was on its way between the two, and nobody had work.
pub struct Quiescence<N: Net> {
    together: Together<N>,
    sent: Cell<u64>,
    received: Cell<u64>,
    /// The records that all had received in the wave before.
    before: Cell<Option<u64>>,
}

impl<N: Net> Quiescence<N> {
    /// Opens the detection of all ranks; `number` (0 to 255) tells several apart.
    ///
    /// # Panics
    /// The number is too large.
    pub fn open(net: &N, number: u16) -> Quiescence<N> {
        Quiescence::with_handler(net, super::handlers(number).1)
    }

    pub(crate) fn with_handler(net: &N, handler: u16) -> Quiescence<N> {
        Quiescence {
            together: Together::with_handler(net, handler),
            sent: Cell::new(0),
            received: Cell::new(0),
            before: Cell::new(None),
        }
    }

    /// Notes that records have been sent; those of a rank to itself count, if both ends are noted.
    pub fn sent(&self, count: u64) {
        self.sent.set(self.sent.get() + count);
    }

    /// Notes that records have been received.
    pub fn received(&self, count: u64) {
        self.received.set(self.received.get() + count);
    }

    /// Ends the waves of all ranks with a failure. Returns the one that they end with.
    pub(crate) fn failed(&self, failure: RankFailure) -> RankFailure {
        self.together.end_by(failure)
    }

    /// Takes part in a wave; each rank does so again and again, whenever it has nothing to do and
    /// its records are sent. True, on all ranks, if the work has ended. The counts are those of the
    /// first poll: a rank goes on with work that comes meanwhile.
    ///
    /// # Errors
    /// A rank has failed.
    pub async fn wave(&self) -> Result<bool, RankFailure> {
        let mine = [self.sent.get(), self.received.get()];
        let bytes = mine.iter().flat_map(|count| count.to_le_bytes()).collect();
        let all = self.together.reduce(bytes, |all, other| {
            let (a, b) = (counts(&all), counts(other));
            let sums = [a[0].wrapping_add(b[0]), a[1].wrapping_add(b[1])];
            sums.iter().flat_map(|count| count.to_le_bytes()).collect()
        });
        let [sent, received] = counts(&all.await?);
        let ended = self.before.replace(Some(received)) == Some(sent);
        if ended {
            self.before.set(None);
        }
        Ok(ended)
    }
}

fn counts(bytes: &[u8]) -> [u64; 2] {
    let all = bytes.as_chunks::<8>().0;
    let count = |at: usize| all.get(at).copied().map_or(0, u64::from_le_bytes);
    [count(0), count(1)]
}
