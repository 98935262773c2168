//! The contents of places that follow each other.

use super::wire::Slot;
use std::collections::VecDeque;
use std::ops::Range;

/// The contents of some places, near each other: a queue with gaps.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The place of the queue's front.
    first: u64,
    /// `None`: not known. The last one is known.
    contents: VecDeque<Option<Slot>>,
}

impl Places {
    fn index(&self, place: u64) -> Option<usize> {
        usize::try_from(place.checked_sub(self.first)?).ok()
    }

    /// Returns the content of a place, if it is known.
    pub fn get(&self, place: u64) -> Option<&Slot> {
        self.contents.get(self.index(place)?)?.as_ref()
    }

    /// Sets the content of a place. The caller bounds its distance from the other places.
    pub fn insert(&mut self, place: u64, content: Slot) {
        *self.entry(place) = Some(content);
    }

    /// Sets the content of a place, unless it is known.
    pub fn insert_new(&mut self, place: u64, content: Slot) {
        self.entry(place).get_or_insert(content);
    }

    fn entry(&mut self, place: u64) -> &mut Option<Slot> {
        if self.contents.is_empty() {
            self.first = place;
        }
        for _ in place..self.first {
            self.contents.push_front(None);
        }
        self.first = self.first.min(place);
        let index = (place - self.first) as usize;
        if index >= self.contents.len() {
            self.contents.resize_with(index + 1, || None);
        }
        &mut self.contents[index]
    }

    /// Forgets the places below one.
    pub fn forget_below(&mut self, place: u64) {
        while self.first < place && self.contents.pop_front().is_some() {
            self.first += 1;
        }
        let unknown = self.contents.iter().take_while(|content| content.is_none()).count();
        self.contents.drain(..unknown);
        self.first += unknown as u64;
    }

    /// Forgets the places from one on.
    pub fn forget_from(&mut self, place: u64) {
        self.contents.truncate(self.index(place).unwrap_or(0));
        while self.contents.back().is_some_and(Option::is_none) {
            self.contents.pop_back();
        }
    }

    /// Returns the highest place whose content is known.
    pub fn last(&self) -> Option<u64> {
        let above = self.contents.len().checked_sub(1)?;
        Some(self.first + above as u64)
    }

    /// Returns the places of a range whose contents are known.
    pub fn range(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Slot)> {
        let all = (self.first..).zip(&self.contents);
        let within = all.filter(move |(place, _)| range.contains(place));
        within.filter_map(|(place, content)| Some((place, content.as_ref()?)))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use weft_link::rng::Rng;

    fn slot(number: u64) -> Slot {
        Slot { sender: 1, number, data: Vec::new() }
    }

    #[test]
    fn Places__are_a_map_whatever_is_done_with_them() {
        for seed in 0..200 {
            let (mut rng, mut places, mut map) =
                (Rng::new(seed), Places::default(), BTreeMap::new());
            for number in 0..300 {
                let place = 100 + rng.below(40);
                match rng.below(8) {
                    0 => {
                        places.forget_below(place);
                        map = map.split_off(&place);
                    }
                    1 => {
                        places.forget_from(place);
                        drop(map.split_off(&place));
                    }
                    2 | 3 => {
                        places.insert(place, slot(number));
                        map.insert(place, slot(number));
                    }
                    _ => {
                        places.insert_new(place, slot(number));
                        map.entry(place).or_insert(slot(number));
                    }
                }
                let end = place + rng.below(20);
                assert_eq!(places.get(place), map.get(&place), "seed {seed}");
                assert_eq!(places.last(), map.keys().next_back().copied(), "seed {seed}");
                assert!(places.range(place..end).eq(map.range(place..end).map(|(p, s)| (*p, s))));
            }
        }
    }
}
