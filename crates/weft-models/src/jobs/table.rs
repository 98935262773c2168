//! The part of a table that a rank has.

/// A table of fixed size that forgets: where two keys want the same place, the newer one has it
/// unless the older one is worth more.
///
/// Each rank has the part for the jobs that it owns, so that all look-ups are local.
#[derive(Clone, Debug)]
pub struct Table<V> {
    slots: Vec<Option<(u64, V)>>,
    mask: usize,
    hits: u64,
}

impl<V: Copy> Table<V> {
    /// Makes a table of at least so many places, a power of two.
    pub fn new(places: usize) -> Table<V> {
        let places = places.max(2).next_power_of_two();
        Table { slots: vec![None; places], mask: places - 1, hits: 0 }
    }

    /// Places of a key: two neighbours, so that one that is worth much does not block a place.
    fn places(&self, key: u64) -> [usize; 2] {
        // The finaliser of SplitMix64.
        let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let first = (key ^ key >> 31) as usize & self.mask;
        [first, first ^ 1]
    }

    /// Returns the value of a key, if it is still here.
    pub fn get(&mut self, key: u64) -> Option<V> {
        let slots = self.places(key).map(|at| self.slots[at]);
        let found = slots.into_iter().flatten().find(|(known, _)| *known == key);
        self.hits += u64::from(found.is_some());
        found.map(|(_, value)| value)
    }

    /// Puts a value. `worth` tells which of two keys is kept: the one with the greater worth, or
    /// else the new one; the other one moves to the second place, or is forgotten.
    pub fn put(&mut self, key: u64, value: V, worth: impl Fn(&V) -> u64) {
        let [first, second] = self.places(key);
        for at in [first, second] {
            if self.slots[at].is_some_and(|(known, _)| known == key) {
                self.slots[at] = Some((key, value));
                return;
            }
        }
        match self.slots[first] {
            Some((_, old)) if worth(&old) > worth(&value) => {
                self.slots[second] = Some((key, value))
            }
            _ => self.slots[first] = Some((key, value)),
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.slots.fill(None);
    }

    /// The number of look-ups that found their key.
    pub fn hits(&self) -> u64 {
        self.hits
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Table__finds_what_it_has_and_keeps_what_is_worth_more() {
        let mut table = Table::new(1 << 10);
        let worth = |value: &u64| *value;
        (0..200).for_each(|key| table.put(key, key + 1000, worth));
        let found = (0..200).filter(|&key| table.get(key) == Some(key + 1000)).count();
        assert!(found > 150 && table.hits() == found as u64, "{found}");
        assert_eq!(table.get(777), None);
        let mut small = Table::new(2);
        small.put(1, 9, worth);
        small.put(2, 5, worth);
        small.put(3, 5, worth);
        assert_eq!(small.get(1), Some(9));
        small.put(1, 10, worth);
        assert_eq!(small.get(1), Some(10));
        small.clear();
        assert_eq!(small.get(1), None);
    }
}
