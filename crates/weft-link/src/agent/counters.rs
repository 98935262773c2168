//! Fetch-and-add in the rank's place: words that live here and are served while it computes.

use std::collections::BTreeMap;
use weft_core::wire::{code, status, Atomic, Reply};

/// The words of one rank, by key.
#[derive(Default)]
pub struct Counters {
    words: BTreeMap<u64, Box<[u64]>>,
    count: usize,
    /// Operations served.
    pub served: u64,
}

impl Counters {
    /// Keeps `words` words of this value under `key`. False if that would be more than `most` in
    /// all, or the key is in use.
    pub fn open(&mut self, key: u64, words: u32, value: u64, most: usize) -> bool {
        let words = words as usize;
        if words == 0 || self.count + words > most || self.words.contains_key(&key) {
            return false;
        }
        self.count += words;
        self.words.insert(key, vec![value; words].into());
        true
    }

    /// Forgets the words under `key`.
    pub fn close(&mut self, key: u64) {
        self.count -= self.words.remove(&key).map_or(0, |w| w.len());
    }

    /// The value of a word.
    pub fn read(&self, key: u64, word: u32) -> Option<u64> {
        self.words.get(&key)?.get(word as usize).copied()
    }

    /// Does an operation if its key is one of these; the answer.
    pub fn serve(&mut self, atomic: &Atomic) -> Option<Reply> {
        let words = self.words.get_mut(&atomic.key)?;
        self.served += 1;
        let at =
            usize::try_from(atomic.offset / 8).ok().filter(|_| atomic.offset.is_multiple_of(8));
        let Some(word) = at.and_then(|at| words.get_mut(at)) else {
            return Some(Reply { value: 0, status: status::REFUSED });
        };
        let (before, operand) = (*word, atomic.operand);
        *word = match atomic.code {
            code::FETCH_ADD => before.wrapping_add(operand),
            code::COMPARE_SWAP if before == atomic.compare => operand,
            code::COMPARE_SWAP => before,
            code::SWAP => operand,
            code::FETCH_AND => before & operand,
            code::FETCH_OR => before | operand,
            code::FETCH_XOR => before ^ operand,
            _ => return Some(Reply { value: 0, status: status::REFUSED }),
        };
        Some(Reply { value: before, status: status::OK })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn add(key: u64, offset: u64, operand: u64) -> Atomic {
        Atomic { key, offset, operand, compare: 0, code: code::FETCH_ADD }
    }

    #[test]
    fn serve__adds_and_refuses_what_is_out_of_bounds() {
        let mut all = Counters::default();
        assert!(all.open(7, 2, 0, 10));
        assert_eq!(all.serve(&add(7, 8, 5)), Some(Reply { value: 0, status: status::OK }));
        assert_eq!(all.serve(&add(7, 8, 1)), Some(Reply { value: 5, status: status::OK }));
        assert_eq!((all.read(7, 1), all.read(7, 0), all.read(7, 2)), (Some(6), Some(0), None));
        for offset in [16, 4, u64::MAX, u64::MAX - 7] {
            let reply = all.serve(&add(7, offset, 1)).unwrap();
            assert_eq!(reply.status, status::REFUSED, "{offset}");
        }
        assert_eq!(all.serve(&add(8, 0, 1)), None, "somebody else's key");
        let swap = Atomic { code: code::COMPARE_SWAP, compare: 6, operand: 9, ..add(7, 8, 0) };
        assert_eq!(all.serve(&swap).unwrap().value, 6);
        assert_eq!(all.read(7, 1), Some(9));
    }

    #[test]
    fn open__the_quota_counts_words() {
        let mut all = Counters::default();
        assert!(all.open(1, 6, 0, 10) && !all.open(1, 1, 0, 10) && !all.open(2, 5, 0, 10));
        assert!(all.open(2, 4, 0, 10) && !all.open(3, 0, 0, 10));
        all.close(1);
        all.close(1);
        assert!(all.open(3, 6, 0, 10));
    }
}
