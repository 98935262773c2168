//! Registered memory: keys, bounds, rights.

use super::Engine;
use crate::slab::Slab;

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
    key: u64,
    len: u64,
    rights: Rights,
}

/// The table of regions. A key is the slot in the low and random bits in the high half.
#[derive(Default)]
pub(super) struct Regions {
    slab: Slab<Region>,
}

impl Regions {
    /// The whole of `offset..offset+len` lies in the region and is permitted.
    pub fn check(&self, key: u64, offset: u64, len: u64, need: Rights) -> bool {
        self.slab.get(key as u32).is_some_and(|r| {
            r.key == key
                && offset.checked_add(len).is_some_and(|end| end <= r.len)
                && (r.rights.read || !need.read)
                && (r.rights.write || !need.write)
        })
    }
}

impl Engine {
    /// Registers a region of `len` bytes under a key made of `random`. `None` when the table is
    /// full.
    pub fn register(&mut self, len: u64, rights: Rights, random: u32) -> Option<u64> {
        let slot = self.regions.slab.insert(Region { key: 0, len, rights })?;
        let key = u64::from(random) << 32 | u64::from(slot);
        if let Some(r) = self.regions.slab.get_mut(slot) {
            r.key = key;
        }
        Some(key)
    }

    /// Ends all remote use of a region. A get that is under way is refused.
    pub fn unregister(&mut self, key: u64) {
        if self.regions.check(key, 0, 0, Rights { read: false, write: false }) {
            self.regions.slab.remove(key as u32);
        }
    }
}
