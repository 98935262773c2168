//! The digest of all that a node knows: equal digests mean equal knowledge.

use crate::id::{mix, mix_all, HostId};
use crate::membership::Record;
use crate::wire::BUCKETS;
use alloc::collections::BTreeMap;

/// Sums of marks, a bucket for each 64th of the ring.
#[derive(Debug)]
pub(super) struct Digest {
    buckets: [u64; BUCKETS],
    marks: BTreeMap<HostId, u64>,
}

impl Default for Digest {
    fn default() -> Digest {
        Digest { buckets: [0; BUCKETS], marks: BTreeMap::new() }
    }
}

/// Returns the bucket of a place on the ring.
pub(super) fn bucket(place: u64) -> usize {
    (place >> 58) as usize
}

impl Digest {
    /// Notes what is known of a host: its record, and the head of its names. Returns true if that
    /// is new.
    pub fn note(&mut self, record: &Record, head: u64) -> bool {
        let Record { host, life, number, .. } = record;
        let mark = mix_all(&[host.0, life.incarnation, life.nonce, (*number).into(), head]);
        self.set(*host, mark)
    }

    /// Leaves a host out.
    pub fn leave_out(&mut self, host: HostId) -> bool {
        self.set(host, 0)
    }

    fn set(&mut self, host: HostId, mark: u64) -> bool {
        let before = match mark {
            0 => self.marks.remove(&host),
            mark => self.marks.insert(host, mark),
        };
        let before = before.unwrap_or(0);
        self.buckets[bucket(host.place())] ^= before ^ mark;
        before != mark
    }

    /// Returns true if the host is in it.
    pub fn has(&self, host: HostId) -> bool {
        self.marks.contains_key(&host)
    }

    /// Returns the digest of each bucket.
    pub fn buckets(&self) -> &[u64; BUCKETS] {
        &self.buckets
    }

    /// Returns the digest of all.
    pub fn total(&self) -> u64 {
        self.buckets.iter().fold(1, |sum, bucket| mix(sum) ^ bucket)
    }
}
