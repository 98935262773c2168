//! Registered memory: keys, bounds, rights.

use super::Engine;
use alloc::collections::BTreeMap;

/// What a peer may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Get and atomic operations.
    pub read: bool,
    /// Put and atomic operations.
    pub write: bool,
}

impl Rights {
    /// Everything.
    pub const ALL: Rights = Rights { read: true, write: true };
}

struct Region {
    len: u64,
    rights: Rights,
}

/// Most regions of an endpoint.
const REGIONS_MAX: usize = 1 << 20;

/// The table of regions, by key.
#[derive(Default)]
pub(super) struct Regions {
    by_key: BTreeMap<u64, Region>,
    /// Low half of the next key this side chooses.
    next: u32,
}

impl Regions {
    /// The whole of `offset..offset+len` lies in the region and is permitted.
    pub fn check(&self, key: u64, offset: u64, len: u64, need: Rights) -> bool {
        self.by_key.get(&key).is_some_and(|r| {
            offset.checked_add(len).is_some_and(|end| end <= r.len)
                && (r.rights.read || !need.read)
                && (r.rights.write || !need.write)
        })
    }
}

impl Engine {
    /// Registers a region of `len` bytes under a key made of `random`. `None` when the table is
    /// full.
    pub fn register(&mut self, len: u64, rights: Rights, random: u32) -> Option<u64> {
        let low = self.regions.next;
        self.regions.next = low.wrapping_add(1);
        let key = u64::from(random) << 32 | u64::from(low);
        self.register_as(key, len, rights).then_some(key)
    }

    /// Registers a region of `len` bytes under a key of the caller's choice: as hard to guess as
    /// the caller made it, but peers are authenticated anyway. False when the key is taken or the
    /// table full.
    pub fn register_as(&mut self, key: u64, len: u64, rights: Rights) -> bool {
        let by_key = &mut self.regions.by_key;
        let free = by_key.len() < REGIONS_MAX && !by_key.contains_key(&key);
        if free {
            by_key.insert(key, Region { len, rights });
        }
        free
    }

    /// Ends all remote use of a region. A get that is under way is refused.
    pub fn unregister(&mut self, key: u64) {
        self.regions.by_key.remove(&key);
    }
}
