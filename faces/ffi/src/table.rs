//! Tables whose entries are named by index and generation: a stale name finds nothing.

use std::collections::VecDeque;

/// The name of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Index in the table.
    pub index: u32,
    /// Number of the entry at this index, of 24 bits. Its low 8 bits are never all 0.
    pub generation: u32,
}

/// Bits of a generation.
pub const GENERATION_BITS: u32 = 24;

/// Generations between those of tables that follow each other. It is odd, so that all are used.
const TURN: u32 = 4099;

/// Returns the generation after one.
pub fn next_generation(generation: u32) -> u32 {
    let next = (generation + 1) & ((1 << GENERATION_BITS) - 1);
    if next & 0xff == 0 {
        next + 1
    } else {
        next
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A table of at most some number of entries. The index that has been free for longest is used
/// first.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
    max: usize,
    /// Generation of an index that is new.
    first: u32,
}

impl<T> Table<T> {
    /// Makes an empty table for at most `max` entries. `turn` differs for tables that follow each
    /// other in one place: keys of an earlier one find nothing in it.
    pub fn new(max: usize, turn: u32) -> Table<T> {
        let first = next_generation(turn.wrapping_mul(TURN) & ((1 << GENERATION_BITS) - 1));
        Table { slots: Vec::new(), free: VecDeque::new(), max, first }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an entry. `None` if the table is full.
    pub fn add(&mut self, value: T) -> Option<Key> {
        // An index rests as long as others are unused, up to a bound.
        let rests = self.free.len() < 64 && self.slots.len() < self.max;
        if let Some(index) = (!rests).then(|| self.free.pop_front()).flatten() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Some(Key { index, generation: slot.generation });
        }
        let index = u32::try_from(self.slots.len()).ok().filter(|&i| (i as usize) < self.max)?;
        let generation = self.first;
        self.slots.push(Slot { generation, value: Some(value) });
        Some(Key { index, generation })
    }

    /// Returns an entry.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    /// Returns an entry.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == key.generation)
    }

    /// Returns the key of the entry at an index, if the low bits of its generation are these.
    #[inline]
    pub fn key_at(&self, index: u32, low: u32, mask: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        let is_it = slot.value.is_some() && slot.generation & mask == low;
        is_it.then_some(Key { index, generation: slot.generation })
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let slot = &mut self.slots[key.index as usize];
        slot.generation = next_generation(slot.generation);
        self.free.push_back(key.index);
        slot.value.take()
    }

    /// Removes an entry of which `f` takes what is wanted: the entry is not moved.
    #[inline]
    pub fn remove_with<R>(&mut self, key: Key, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let result = f(self.get_mut(key)?);
        let slot = &mut self.slots[key.index as usize];
        slot.generation = next_generation(slot.generation);
        self.free.push_back(key.index);
        slot.value = None;
        Some(result)
    }

    /// Returns the keys of all entries.
    pub fn keys(&self) -> Vec<Key> {
        let slots = self.slots.iter().zip(0u32..).filter(|(slot, _)| slot.value.is_some());
        slots.map(|(slot, index)| Key { index, generation: slot.generation }).collect()
    }

    /// Returns all entries.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn get__a_key_of_a_removed_entry_finds_nothing() {
        let mut table = Table::new(3, 0);
        let keys: Vec<Key> = (0..3).map(|n| table.add(n).unwrap()).collect();
        assert!(table.add(3).is_none() && table.len() == 3);
        assert_eq!((table.remove(keys[1]), table.remove(keys[1])), (Some(1), None));
        assert_eq!(table.remove_with(keys[1], |n| *n), None);
        let again = table.add(9).unwrap();
        assert_eq!((again.index, table.get(keys[1]), table.get(again)), (1, None, Some(&9)));
        assert_eq!(table.keys(), [keys[0], again, keys[2]]);
    }

    #[test]
    fn new__a_key_of_an_earlier_table_finds_nothing() {
        let keys = (0..100).map(|turn| Table::new(1, turn).add(()).unwrap());
        let keys: std::collections::HashSet<Key> = keys.collect();
        assert_eq!(keys.len(), 100);
    }

    #[test]
    fn add__an_index_rests_after_use() {
        let mut table = Table::new(1000, 0);
        let first = table.add(0).unwrap();
        table.remove(first);
        let others: Vec<Key> = (0..60).map(|n| table.add(n).unwrap()).collect();
        assert!(others.iter().all(|key| key.index != first.index));
    }

    #[test]
    fn next_generation__its_low_bits_are_never_0() {
        let mut generation = 0;
        for _ in 0..1000 {
            generation = next_generation(generation);
            assert_ne!(generation & 0xff, 0);
        }
        assert_eq!(next_generation((1 << GENERATION_BITS) - 1), 1);
    }
}
