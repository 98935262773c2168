//! Random numbers from a seed: xoshiro256++ (Blackman and Vigna, 2019), seeded by SplitMix64.

/// A deterministic generator. The same seed and stream give the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

/// One step of SplitMix64: advances `state` and returns a well-mixed number.
pub fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng::stream(seed, 0)
    }

    /// An independent generator: stream `n` of `seed`.
    pub fn stream(seed: u64, n: u64) -> Rng {
        let mut state = seed ^ n.wrapping_mul(0xd6e8_feb8_6659_fd93);
        Rng([0; 4].map(|_: u64| splitmix(&mut state)))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number in `0..n`; 0 when `n` is 0. The bias, below n / 2^64, does not matter here.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// True `ppm` times in a million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// One of `items`, which are not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn bits__same_seed_same_numbers() {
        let mut a = Rng::new(7);
        let mut b = Rng::new(7);
        assert!((0..100).all(|_| a.bits() == b.bits()));
        assert_ne!(Rng::new(8).bits(), Rng::new(7).bits());
        assert_ne!(Rng::stream(7, 1).bits(), Rng::new(7).bits());
    }

    #[test]
    fn below__covers_the_range_and_no_more() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[rng.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.between(3, 3), 3);
    }

    #[test]
    fn chance__is_about_the_rate() {
        let mut rng = Rng::new(2);
        let hits = (0..100_000).filter(|_| rng.chance(100_000)).count();
        assert!((9_000..11_000).contains(&hits), "{hits}");
        assert!(!rng.chance(0));
        assert!(rng.chance(1_000_000));
    }
}
