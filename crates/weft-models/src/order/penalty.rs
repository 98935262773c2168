//! Ranks that are excluded again and again wait longer and longer before they get in again.
//!
//! Each exclusion and each join is a change of view, in which nobody sends. A rank that others
//! cannot reach, and that joins as often as it is excluded, would slow down the others for ever.

use std::collections::BTreeMap;
use std::time::Duration;
use weft_core::Instant;

/// Time for which a rank waits after its second exclusion; it doubles with each further one.
const FIRST: Duration = Duration::from_millis(200);
/// Number of times that it doubles.
const DOUBLINGS: u32 = 7;
/// Time without an exclusion after which the earlier ones are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Exclusions of ranks, as far as this member has seen them; bounded by the ranks.
#[derive(Default)]
pub(super) struct Penalties(BTreeMap<u32, (u32, Instant)>);

impl Penalties {
    /// Notes an exclusion.
    pub fn add(&mut self, rank: u32, now: Instant) {
        let (count, at) = self.0.entry(rank).or_insert((0, now));
        if now.since(*at) >= FORGOTTEN {
            *count = 0;
        }
        (*count, *at) = (*count + 1, now);
    }

    /// True if a rank has to wait.
    pub fn holds(&self, rank: u32, now: Instant) -> bool {
        let Some(&(count, at)) = self.0.get(&rank) else { return false };
        let Some(doublings) = count.checked_sub(2) else { return false };
        now.since(at) < FIRST * (1 << doublings.min(DOUBLINGS))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Penalties__grow_with_each_exclusion_and_are_forgotten() {
        let (mut penalties, mut now) = (Penalties::default(), Instant(0));
        let mut waits = Vec::new();
        for _ in 0..12 {
            penalties.add(3, now);
            let start = now;
            while penalties.holds(3, now) {
                now = now + Duration::from_millis(100);
            }
            waits.push(now.since(start).as_millis());
        }
        assert_eq!(waits[..4], [0, 200, 400, 800]);
        assert_eq!(waits[10..], [25_600, 25_600]);
        now = now + FORGOTTEN;
        penalties.add(3, now);
        assert!(!penalties.holds(3, now) && !penalties.holds(4, now));
    }
}
