//! The ends of requests by time.

use super::request::{context_of, key_of};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weft_core::Instant;
use weft_ffi::table::Key;

/// The ends of requests, the next one first.
#[derive(Default)]
pub struct Ends {
    /// Time after which requests that begin end, in milliseconds; 0 for none.
    pub patience: u32,
    all: BinaryHeap<(Reverse<Instant>, u64)>,
}

impl Ends {
    /// Sets the end of a request, or none.
    pub fn set(&mut self, key: Key, at: Option<Instant>) {
        self.all.retain(|(_, of)| *of != context_of(key));
        self.all.extend(at.map(|at| (Reverse(at), context_of(key))));
    }

    /// Takes the request that ends first, if its time is over.
    pub fn take(&mut self, now: Instant) -> Option<Key> {
        self.next().filter(|at| *at <= now)?;
        self.all.pop().map(|(_, context)| key_of(context))
    }

    /// Returns the time of the next end.
    pub fn next(&self) -> Option<Instant> {
        self.all.peek().map(|(Reverse(at), _)| *at)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn take__the_first_whose_time_is_over() {
        let mut ends = Ends::default();
        let key = |index| Key { index, generation: 1 };
        for (index, at) in [(0, 9), (1, 5), (2, 7)] {
            ends.set(key(index), Some(Instant(at)));
        }
        ends.set(key(2), None);
        ends.set(key(0), Some(Instant(3)));
        assert_eq!((ends.take(Instant(2)), ends.next()), (None, Some(Instant(3))));
        assert_eq!([(); 3].map(|()| ends.take(Instant(5))), [Some(key(0)), Some(key(1)), None]);
    }
}
