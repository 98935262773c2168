//! Registered memory: keys, bounds, rights.

use alloc::collections::BTreeMap;

/// A peer's rights on a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Get and atomic operations.
    pub read: bool,
    /// Put and atomic operations.
    pub write: bool,
}

impl Rights {
    /// All rights.
    pub const ALL: Rights = Rights { read: true, write: true };
}

struct Region {
    /// The peers' offset of the first byte: 0, or its address if they name bytes by address.
    first: u64,
    len: u64,
    rights: Rights,
}

/// Most regions of an endpoint.
const REGIONS_MAX: usize = 1 << 20;

/// The table of regions, by key.
#[derive(Default)]
pub struct Regions {
    by_key: BTreeMap<u64, Region>,
    /// Low half of the next key that this side chooses.
    next: u32,
}

impl Regions {
    /// Returns the offset in the region of `len` bytes that a peer calls `offset`, if all of them
    /// lie inside and the access is permitted.
    pub fn find(&self, key: u64, offset: u64, len: u64, need: Rights) -> Option<u64> {
        let r = self.by_key.get(&key)?;
        let start = offset.checked_sub(r.first)?;
        let inside = start.checked_add(len)? <= r.len;
        let allowed = (r.rights.read || !need.read) && (r.rights.write || !need.write);
        (inside && allowed).then_some(start)
    }

    /// Returns true if there is a region under the key.
    pub fn has(&self, key: u64) -> bool {
        self.by_key.contains_key(&key)
    }
}

impl Regions {
    /// Registers a region of `len` bytes under a key made of `random`. `None` if the table is full.
    pub fn register(&mut self, len: u64, rights: Rights, random: u32) -> Option<u64> {
        let low = self.next;
        self.next = low.wrapping_add(1);
        let key = u64::from(random) << 32 | u64::from(low);
        self.register_as(key, 0, len, rights).then_some(key)
    }

    /// Registers a region of `len` bytes under a key of the caller's choice: as hard to guess as
    /// the caller made it, but peers are authenticated anyway. Peers count its bytes from `first`.
    /// False if the key is taken or the table full.
    pub fn register_as(&mut self, key: u64, first: u64, len: u64, rights: Rights) -> bool {
        let by_key = &mut self.by_key;
        let free = by_key.len() < REGIONS_MAX && !by_key.contains_key(&key);
        if free {
            by_key.insert(key, Region { first, len, rights });
        }
        free
    }

    /// Ends all remote use of a region. A get in progress is refused.
    pub fn unregister(&mut self, key: u64) {
        self.by_key.remove(&key);
    }
}
