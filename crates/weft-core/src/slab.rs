//! A table whose keys carry a generation, so that a stale key never names a newer entry.

use alloc::vec::Vec;

/// Bits of the index in the keys of stored messages, of which there may be very many. Their keys
/// are short-lived, so that six bits of generation suffice.
pub const STORED_BITS: u32 = 26;
/// Bits of the index in the keys of all things but stored messages.
const INDEX_BITS: u32 = 20;
const NONE: u32 = u32::MAX;
/// Number of slots below which no memory is given back.
const PLACES_MIN: usize = 4096;

/// Indices of keys of operations.
pub type OpKeys = Slab<(), INDEX_BITS>;
/// Indices of keys of stored messages.
pub type StoredKeys = Slab<(), STORED_BITS>;

struct Slot<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// Up to 2^20 entries (or another power of two) under 32-bit keys: index in the low 20 bits,
/// generation in the others. Key 0 is never given out.
pub struct Slab<T, const BITS: u32 = INDEX_BITS> {
    slots: Vec<Slot<T>>,
    free: u32,
    len: u32,
    /// Generation of the first entry in a new slot.
    fresh: u32,
}

impl<T, const BITS: u32> Default for Slab<T, BITS> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: NONE, len: 0, fresh: 1 }
    }
}

impl<T, const BITS: u32> Slab<T, BITS> {
    const MASK: u32 = (1 << BITS) - 1;

    /// Returns the index part of a key: small and dense, for tables parallel to this one.
    #[inline]
    pub fn index(key: u32) -> usize {
        (key & Self::MASK) as usize
    }

    /// Returns the generation after this one; never 0.
    #[inline]
    fn after(generation: u32) -> u32 {
        match (generation + 1) & (u32::MAX >> BITS) {
            0 => 1,
            next => next,
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if `insert` would return `None`.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len >= Self::MASK
    }

    /// Adds an entry; `None` when 2^20 - 1 entries live.
    #[inline]
    pub fn insert(&mut self, value: T) -> Option<u32> {
        if self.free == NONE {
            let index = self.slots.len() as u32;
            if index >= Self::MASK {
                return None;
            }
            let generation = self.fresh;
            self.slots.push(Slot { generation, next_free: NONE, value: Some(value) });
            self.len += 1;
            return Some(index | generation << BITS);
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        self.free = slot.next_free;
        slot.generation = Self::after(slot.generation);
        slot.value = Some(value);
        self.len += 1;
        Some(index | slot.generation << BITS)
    }

    #[inline]
    fn slot(&self, key: u32) -> Option<&Slot<T>> {
        self.slots.get(Self::index(key)).filter(|s| s.generation == key >> BITS)
    }

    /// Returns the entry of a key.
    #[inline]
    pub fn get(&self, key: u32) -> Option<&T> {
        self.slot(key).and_then(|s| s.value.as_ref())
    }

    /// Returns the entry of a key, to change.
    #[inline]
    pub fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.slots
            .get_mut(Self::index(key))
            .filter(|s| s.generation == key >> BITS)
            .and_then(|s| s.value.as_mut())
    }

    /// Removes the entry of a key.
    #[inline]
    pub fn remove(&mut self, key: u32) -> Option<T> {
        self.slot(key)?;
        let slot = &mut self.slots[Self::index(key)];
        let value = slot.value.take()?;
        slot.next_free = self.free;
        self.free = key & Self::MASK;
        self.len -= 1;
        Some(value)
    }

    /// Drops the entry of a key in place.
    #[inline]
    pub fn discard(&mut self, key: u32) {
        let free = self.free;
        if let Some(slot) = self.slots.get_mut(Self::index(key)) {
            if slot.generation == key >> BITS && slot.value.is_some() {
                slot.value = None;
                slot.next_free = free;
                self.free = key & Self::MASK;
                self.len -= 1;
            }
        }
    }

    /// Gives memory back if most of it is unused, and returns the number of slots left. Keys stay
    /// valid.
    pub fn shrink(&mut self) -> Option<usize> {
        let before = self.slots.len();
        if before <= PLACES_MIN || self.len() > before / 4 {
            return None;
        }
        while let Some(last) = self.slots.pop_if(|slot| slot.value.is_none()) {
            self.fresh = self.fresh.max(Self::after(last.generation));
        }
        self.slots.shrink_to_fit();
        // Low numbers are used first, so that the highest become free in time.
        self.free = NONE;
        for (index, slot) in self.slots.iter_mut().enumerate().rev() {
            if slot.value.is_none() {
                slot.next_free = self.free;
                self.free = index as u32;
            }
        }
        (self.slots.len() < before).then_some(self.slots.len())
    }

    /// Returns the keys of all entries.
    pub fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, s)| s.value.is_some())
            .map(|(i, s)| i as u32 | s.generation << BITS)
    }
}

#[cfg(test)]
impl<T, const BITS: u32> Slab<T, BITS> {
    /// Returns the number of slots in memory.
    pub(crate) fn places(&self) -> usize {
        self.slots.capacity()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn get__stale_key_after_reuse() {
        let mut s: Slab<_> = Slab::default();
        let a = s.insert('a').unwrap();
        assert_eq!(s.remove(a), Some('a'));
        let b = s.insert('b').unwrap();
        assert_eq!(OpKeys::index(a), OpKeys::index(b));
        assert_eq!(s.get(a), None);
        assert_eq!(s.remove(a), None);
        assert_eq!(s.get(b), Some(&'b'));
        assert_eq!(s.keys().collect::<Vec<_>>(), [b]);
    }

    #[test]
    fn shrink__gives_back_what_a_burst_took_and_stale_keys_stay_stale() {
        let mut s: Slab<u32> = Slab::default();
        let keys: Vec<_> = (0..10_000).map(|i| s.insert(i).unwrap()).collect();
        assert_eq!(s.shrink(), None);
        for &key in keys.iter().filter(|&&key| key != keys[20]) {
            s.remove(key);
        }
        assert_eq!(s.shrink(), Some(21));
        assert_eq!((s.get(keys[20]), s.slots.capacity()), (Some(&20), 21));
        let again: Vec<_> = (0..100).map(|i| s.insert(i).unwrap()).collect();
        assert_eq!(OpKeys::index(again[0]), 0);
        assert!(keys.iter().all(|key| *key == keys[20] || s.get(*key).is_none()));
        assert!((0..100).all(|i| s.get(again[i as usize]) == Some(&i)));
        assert_eq!(s.keys().count(), 101);
        assert_eq!(s.shrink(), None, "little is given back for nothing");
    }

    #[test]
    fn insert__generation_wraps_past_zero() {
        let mut s: Slab<_> = Slab::default();
        for i in 0..5000 {
            let k = s.insert(i).unwrap();
            assert_ne!(k, 0);
            assert_eq!(s.remove(k), Some(i));
        }
        assert!(s.is_empty());
    }
}
