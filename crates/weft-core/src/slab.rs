//! A table whose keys carry a generation, so that a stale key never names a newer entry.

use alloc::vec::Vec;

const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const NONE: u32 = u32::MAX;

struct Slot<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// Up to 2^20 entries under 32-bit keys: index in the low 20 bits, generation in the high 12.
/// Key 0 is never given out.
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    len: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: NONE, len: 0 }
    }
}

impl<T> Slab<T> {
    /// Index part of a key: small and dense, for tables that run beside this one.
    pub fn index(key: u32) -> usize {
        (key & INDEX_MASK) as usize
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `insert` would give `None`.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len >= INDEX_MASK
    }

    /// Adds an entry; `None` when 2^20 - 1 entries live.
    #[inline]
    pub fn insert(&mut self, value: T) -> Option<u32> {
        if self.free == NONE {
            let index = self.slots.len() as u32;
            if index >= INDEX_MASK {
                return None;
            }
            self.slots.push(Slot { generation: 1, next_free: NONE, value: Some(value) });
            self.len += 1;
            return Some(index | 1 << INDEX_BITS);
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        self.free = slot.next_free;
        slot.generation = (slot.generation + 1) & 0xfff;
        if slot.generation == 0 {
            slot.generation = 1;
        }
        slot.value = Some(value);
        self.len += 1;
        Some(index | slot.generation << INDEX_BITS)
    }

    #[inline]
    fn slot(&self, key: u32) -> Option<&Slot<T>> {
        self.slots.get(Self::index(key)).filter(|s| s.generation == key >> INDEX_BITS)
    }

    /// The entry of a key.
    #[inline]
    pub fn get(&self, key: u32) -> Option<&T> {
        self.slot(key).and_then(|s| s.value.as_ref())
    }

    /// The entry of a key, to change.
    #[inline]
    pub fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.slots
            .get_mut(Self::index(key))
            .filter(|s| s.generation == key >> INDEX_BITS)
            .and_then(|s| s.value.as_mut())
    }

    /// Removes the entry of a key.
    #[inline]
    pub fn remove(&mut self, key: u32) -> Option<T> {
        self.slot(key)?;
        let slot = &mut self.slots[Self::index(key)];
        let value = slot.value.take()?;
        slot.next_free = self.free;
        self.free = key & INDEX_MASK;
        self.len -= 1;
        Some(value)
    }

    /// Drops the entry of a key where it is.
    #[inline]
    pub fn discard(&mut self, key: u32) {
        let free = self.free;
        if let Some(slot) = self.slots.get_mut(Self::index(key)) {
            if slot.generation == key >> INDEX_BITS && slot.value.is_some() {
                slot.value = None;
                slot.next_free = free;
                self.free = key & INDEX_MASK;
                self.len -= 1;
            }
        }
    }

    /// Keys of all entries.
    pub fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, s)| s.value.is_some())
            .map(|(i, s)| i as u32 | s.generation << INDEX_BITS)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn get__stale_key_after_reuse() {
        let mut s = Slab::default();
        let a = s.insert('a').unwrap();
        assert_eq!(s.remove(a), Some('a'));
        let b = s.insert('b').unwrap();
        assert_eq!(Slab::<char>::index(a), Slab::<char>::index(b));
        assert_eq!(s.get(a), None);
        assert_eq!(s.remove(a), None);
        assert_eq!(s.get(b), Some(&'b'));
        assert_eq!(s.keys().collect::<Vec<_>>(), [b]);
    }

    #[test]
    fn insert__generation_wraps_past_zero() {
        let mut s = Slab::default();
        for i in 0..5000 {
            let k = s.insert(i).unwrap();
            assert_ne!(k, 0);
            assert_eq!(s.remove(k), Some(i));
        }
        assert!(s.is_empty());
    }
}
