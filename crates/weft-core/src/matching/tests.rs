#![allow(non_snake_case)]

use super::*;
use alloc::vec::Vec;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % n
    }

    fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn spec(&mut self) -> RecvSpec {
        let source = (self.below(4) > 0).then(|| PeerId(self.below(4) as u32));
        let ignore = [0, 0, 0, 0, 1, 6, u64::MAX, 1 << 63][self.below(8) as usize];
        RecvSpec { source, tag: self.tag(), ignore }
    }

    fn tag(&mut self) -> u64 {
        self.below(6) | self.below(2) << 63
    }

    fn peer(&mut self) -> PeerId {
        PeerId(self.below(4) as u32)
    }
}

fn exact(source: u32, tag: u64) -> RecvSpec {
    RecvSpec { source: Some(PeerId(source)), tag, ignore: 0 }
}

/// Removes the first element that passes, as MPI prescribes.
fn take_first<T, U: Copy>(list: &mut Vec<(T, U)>, accept: impl Fn(&T) -> bool) -> Option<U> {
    let at = list.iter().position(|(key, _)| accept(key))?;
    Some(list.remove(at).1)
}

/// Removes every element that passes.
fn take_all<T: Copy, U: Copy>(list: &mut Vec<(T, U)>, accept: impl Fn(&T) -> bool) -> Vec<U> {
    let gone = list.iter().filter(|(key, _)| accept(key)).map(|&(_, id)| id).collect();
    list.retain(|(key, _)| !accept(key));
    gone
}

#[test]
fn posted__agrees_with_a_list() {
    for seed in 1..40 {
        let mut rng = Rng::new(seed);
        let mut posted = Posted::new();
        let mut list: Vec<(RecvSpec, u32)> = Vec::new();
        for id in 0..4_000u32 {
            // Growth and shrinkage alternate, to cross the limits of the bins often.
            let growing = id / 200 % 2 == 0;
            match rng.below(100) {
                0..=1 => {
                    let peer = rng.peer();
                    let mut gone = Vec::new();
                    posted.fail_peer(peer, &mut |id| gone.push(id));
                    assert_eq!(gone, take_all(&mut list, |spec| spec.source == Some(peer)));
                }
                2..=9 => {
                    let victim = list.get(rng.below(60) as usize).map_or(id + 1, |&(_, id)| id);
                    let known = list.iter().any(|&(_, id)| id == victim);
                    list.retain(|&(_, id)| id != victim);
                    assert_eq!(posted.cancel(victim), known);
                }
                n if (n < 75) == growing => {
                    let spec = rng.spec();
                    posted.post(spec, id);
                    list.push((spec, id));
                }
                _ => {
                    let (source, tag) = (rng.peer(), rng.tag());
                    let want = take_first(&mut list, |spec| spec.accepts(source, tag));
                    assert_eq!(posted.arrive(source, tag), want);
                }
            }
            assert_eq!(posted.len(), list.len());
            assert_eq!(posted.is_empty(), list.is_empty());
        }
    }
}

#[test]
fn unexpected__agrees_with_a_list() {
    for seed in 1..40 {
        let mut rng = Rng::new(seed);
        let mut unexpected = Unexpected::new();
        let mut list: Vec<((PeerId, u64), u32)> = Vec::new();
        for id in 0..4_000u32 {
            let growing = id / 200 % 2 == 0;
            match rng.below(100) {
                0..=1 => {
                    let peer = rng.peer();
                    let (mut asked, odd) = (Vec::new(), rng.below(2) == 0);
                    unexpected.retain_of(peer, &mut |id| {
                        asked.push(id);
                        odd && id % 2 == 1
                    });
                    let of_peer = list.iter().filter(|((source, _), _)| *source == peer);
                    assert!(of_peer.map(|&(_, id)| id).eq(asked), "all, from the oldest on");
                    list.retain(|&((source, _), id)| source != peer || odd && id % 2 == 1);
                }
                2..=9 => {
                    let victim = list.get(rng.below(60) as usize).map_or(id + 1, |&(_, id)| id);
                    let known = list.iter().any(|&(_, id)| id == victim);
                    list.retain(|&(_, id)| id != victim);
                    assert_eq!(unexpected.remove(victim), known);
                }
                n if (n < 75) == growing => {
                    let key = (rng.peer(), rng.tag());
                    unexpected.add(key.0, key.1, id);
                    list.push((key, id));
                }
                _ => {
                    let spec = rng.spec();
                    let peeked = unexpected.peek(&spec);
                    let want = take_first(&mut list, |&(source, tag)| spec.accepts(source, tag));
                    assert_eq!((peeked, unexpected.take(&spec)), (want, want));
                }
            }
            assert_eq!(unexpected.len(), list.len());
            assert_eq!(unexpected.is_empty(), list.is_empty());
        }
    }
}

#[test]
fn arrive__takes_the_oldest_of_exact_any_source_and_masked() {
    let any = RecvSpec { source: None, tag: 7, ignore: 0 };
    let masked = RecvSpec { source: Some(PeerId(1)), tag: 0, ignore: u64::MAX };
    for filler in [0, 100] {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut posted = Posted::new();
            for i in 0..filler {
                posted.post(exact(9, i), 100 + i as usize);
            }
            for which in order {
                posted.post([exact(1, 7), any, masked][which], which);
            }
            for which in order {
                assert_eq!(posted.arrive(PeerId(1), 7), Some(which));
            }
            assert_eq!(posted.arrive(PeerId(1), 7), None);
        }
    }
}

#[test]
fn posted__same_receive_many_times_keeps_its_order() {
    let mut posted = Posted::new();
    for i in 0..5_000 {
        posted.post(exact(1, 1), i);
    }
    for i in 0..5_000 {
        assert_eq!(posted.arrive(PeerId(1), 1), Some(i));
    }
}

/// Checks that rounds after the first take no memory.
fn keeps_its_memory<T>(queue: &mut T, round: impl Fn(&mut T), capacity: impl Fn(&T) -> usize) {
    round(queue);
    let before = capacity(queue);
    for _ in 0..3 {
        round(queue);
    }
    assert_eq!(capacity(queue), before);
}

#[test]
fn posted__steady_state_allocates_nothing() {
    let mut posted = Posted::new();
    let round = |posted: &mut Posted<u64>| {
        for i in 0..1_000 {
            posted.post(exact(i as u32 % 7, i), i);
        }
        for i in (0..1_000).rev() {
            assert_eq!(posted.arrive(PeerId(i as u32 % 7), i), Some(i));
        }
    };
    keeps_its_memory(&mut posted, round, Posted::capacity);
}

#[test]
fn unexpected__steady_state_allocates_nothing() {
    let mut unexpected = Unexpected::new();
    let round = |unexpected: &mut Unexpected<u64>| {
        for i in 0..1_000 {
            unexpected.add(PeerId(i as u32 % 7), i, i);
        }
        for i in (0..1_000).rev() {
            let spec = RecvSpec { source: None, tag: i, ignore: 0 };
            assert_eq!(unexpected.take(&spec), Some(i));
        }
    };
    keeps_its_memory(&mut unexpected, round, Unexpected::capacity);
}

#[test]
fn matching__empty_owns_no_memory() {
    let mut posted = Posted::new();
    let mut unexpected = Unexpected::new();
    assert_eq!((posted.capacity(), unexpected.capacity()), (0, 0));
    for i in 0..100 {
        posted.post(exact(0, i), i);
        unexpected.add(PeerId(0), i, i);
    }
    posted.shrink();
    unexpected.shrink();
    assert_eq!((posted.len(), unexpected.len()), (100, 100));
    for i in 0..100 {
        assert_eq!(posted.arrive(PeerId(0), i), Some(i));
        assert_eq!(unexpected.take(&exact(0, i)), Some(i));
    }
    posted.shrink();
    unexpected.shrink();
    assert_eq!((posted.capacity(), unexpected.capacity()), (0, 0));
    posted.post(exact(0, 1), 1);
    assert_eq!(posted.arrive(PeerId(0), 1), Some(1));
}

#[test]
fn accepts__compares_what_the_mask_leaves() {
    let spec = RecvSpec { source: None, tag: 0b1010, ignore: 0b0110 };
    assert!(spec.accepts(PeerId(3), 0b1100));
    assert!(!spec.accepts(PeerId(3), 0b0100));
    assert!(!exact(1, 5).accepts(PeerId(2), 5));
}

#[test]
fn hash__spreads_typical_tags_over_the_bins() {
    let spread = |key: &dyn Fn(u64) -> (u64, u64)| {
        let mut bins = alloc::vec![0u32; 2048];
        for i in 0..1024 {
            let (source, tag) = key(i);
            bins[(slab::hash(source, tag) >> 32) as usize % 2048] += 1;
        }
        bins.into_iter().max().unwrap()
    };
    assert!(spread(&|i| (0, i)) <= 8, "consecutive tags");
    assert!(spread(&|i| (0, i << 32)) <= 8, "tags in the high half");
    assert!(spread(&|i| (0, i << 54)) <= 8, "tags in the topmost bits");
    assert!(spread(&|i| (i, 42)) <= 8, "one tag from every source");
    assert!(spread(&|i| (i % 32, i / 32)) <= 8, "tags and sources");
}
