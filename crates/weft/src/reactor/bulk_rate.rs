//! Speed of bulk data: while it comes slower than a core could take it, a waiting side sleeps.

use std::time::Duration;
use weft_core::Instant;

/// Rate in bytes a microsecond below which a core would poll in vain most of the time: it takes
/// some 4,000 over networks.
const SLOW: u64 = 1000;
/// Time over which the rate is measured.
const SPAN: Duration = Duration::from_micros(500);
/// Time for which the rest of a transfer has to last, so that a late wake-up does not matter.
const REST_US: u64 = 1000;
/// Time without data after which an old rate says nothing.
const STALE: Duration = Duration::from_millis(10);

/// The bulk data that arrives or leaves.
pub(super) struct BulkRate {
    /// Bytes since `since`.
    bytes: u64,
    since: Instant,
    last: Instant,
    /// Bytes a microsecond over the last span; the highest number until there was one.
    rate: u64,
    /// Bytes left of the transfer that moved last.
    left: u64,
}

impl Default for BulkRate {
    fn default() -> BulkRate {
        BulkRate { bytes: 0, since: Instant(0), last: Instant(0), rate: u64::MAX, left: 0 }
    }
}

impl BulkRate {
    /// Notes that `bytes` of a transfer have moved, of which `left` are left.
    #[inline]
    pub fn moved(&mut self, now: Instant, bytes: u64, left: u64) {
        if now.since(self.last) > STALE {
            // The bytes of this call moved before the new span.
            *self = BulkRate { since: now, last: now, left, ..BulkRate::default() };
            return;
        }
        (self.last, self.left, self.bytes) = (now, left, self.bytes + bytes);
        let span = now.since(self.since);
        if span >= SPAN {
            self.rate = self.bytes / span.as_micros() as u64;
            (self.bytes, self.since) = (0, now);
        }
    }

    /// Bytes since the rate was last measured.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if a waiting side should sleep instead of polling.
    #[inline]
    pub fn is_slow(&self, now: Instant) -> bool {
        self.rate < SLOW
            && self.left > self.rate.saturating_mul(REST_US)
            && now.since(self.last) <= STALE
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const TRAIN: u64 = 64_000;

    fn at(us: u64) -> Instant {
        Instant(1_000_000_000 + us * 1000)
    }

    /// Moves trains of a transfer of `len` bytes, one each `gap_us`; returns the time of the last.
    fn move_trains(rate: &mut BulkRate, len: u64, trains: u64, gap_us: u64) -> Instant {
        for n in 1..=trains {
            rate.moved(at(n * gap_us), TRAIN, len - n * TRAIN);
        }
        at(trains * gap_us)
    }

    #[test]
    fn is_slow__a_gigabit_and_not_twenty() {
        let mut gigabit = BulkRate::default();
        let now = move_trains(&mut gigabit, 1 << 30, 10, 512);
        assert!(gigabit.is_slow(now));
        let mut twenty = BulkRate::default();
        let now = move_trains(&mut twenty, 1 << 30, 100, 25);
        assert!(!twenty.is_slow(now));
    }

    #[test]
    fn is_slow__not_before_the_rate_is_known() {
        let mut f = BulkRate::default();
        let now = move_trains(&mut f, 1 << 30, 1, 512);
        assert!(!f.is_slow(now));
    }

    #[test]
    fn is_slow__not_near_the_end_of_a_transfer() {
        let mut f = BulkRate::default();
        let now = move_trains(&mut f, 11 * TRAIN, 10, 512);
        assert!(!f.is_slow(now), "the last train comes within a millisecond");
    }

    #[test]
    fn is_slow__not_after_a_pause() {
        let mut f = BulkRate::default();
        let now = move_trains(&mut f, 1 << 30, 10, 512);
        assert!(!f.is_slow(now + Duration::from_millis(11)));
        f.moved(now + Duration::from_millis(11), TRAIN, 1 << 30);
        assert!(!f.is_slow(now + Duration::from_millis(11)), "the rate is measured anew");
    }
}
