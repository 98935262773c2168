//! Values under numbers, which are used again.

/// Values under numbers.
pub struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    /// Number of free slots from which memory is given back, if more than `FREE_MAX`.
    free_max: usize,
}

/// Most free slots that are kept.
const FREE_MAX: usize = 4096;

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new(), free_max: 0 }
    }
}

impl<T> Slab<T> {
    /// Returns true if there is no value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    /// Keeps a value; returns its number. `None`: there are no more numbers.
    #[inline]
    pub fn keep(&mut self, value: T) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            self.slots[at as usize] = Some(value);
            return Some(at);
        }
        if self.slots.len() >= u32::MAX as usize {
            return None;
        }
        self.slots.push(Some(value));
        Some(self.slots.len() as u32 - 1)
    }

    /// Removes and returns a value.
    #[inline]
    pub fn take(&mut self, at: u32) -> Option<T> {
        let value = self.slots.get_mut(at as usize)?.take()?;
        self.free.push(at);
        if self.free.len() >= self.free_max.max(FREE_MAX) {
            self.shrink();
        }
        Some(value)
    }

    /// Gives back the memory of slots after a burst of values.
    #[cold]
    fn shrink(&mut self) {
        while let Some(None) = self.slots.last() {
            self.slots.pop();
        }
        self.slots.shrink_to_fit();
        let slots = self.slots.len();
        // Low numbers are used first, so that the highest become free in time.
        self.free.retain(|&at| (at as usize) < slots);
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        self.free.shrink_to_fit();
        self.free_max = 2 * self.free.len();
    }

    /// Returns a value.
    #[inline]
    pub fn get(&self, at: u32) -> Option<&T> {
        self.slots.get(at as usize)?.as_ref()
    }

    /// Returns a value, to be changed.
    #[inline]
    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// Returns all values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    /// Returns the numbers of the values that `is_wanted` holds for.
    pub fn numbers(&self, is_wanted: impl Fn(&T) -> bool) -> Vec<u32> {
        let all = self.slots.iter().zip(0..);
        all.filter(|(slot, _)| slot.as_ref().is_some_and(&is_wanted)).map(|(_, at)| at).collect()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn take__gives_back_memory_after_a_burst_and_keeps_what_is_in_use() {
        let mut slab = Slab::default();
        let numbers: Vec<u32> = (0..3 * FREE_MAX).map(|i| slab.keep(i).unwrap()).collect();
        for &at in numbers.iter().rev().filter(|&&at| at != 7) {
            assert_eq!(slab.take(at), Some(at as usize));
        }
        assert!(slab.slots.len() <= FREE_MAX && !slab.is_empty());
        assert_eq!((slab.take(8), slab.get(7)), (None, Some(&7)));
        assert_eq!(slab.numbers(|value| *value == 7), [7]);
        assert_eq!(slab.keep(1), Some(0), "low numbers are used first");
        assert_eq!(slab.values().count(), 2);
    }
}
