//! Small deterministic random numbers for fault injection, simulation and tests. Not for keys.

/// The generator xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number
/// generators", 2021). SplitMix64 fills its state. The same seed gives the same numbers on every
/// machine.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Makes a generator from a seed; every seed is good.
    pub fn new(seed: u64) -> Rng {
        Rng::stream(seed, 0)
    }

    /// Makes an independent generator: stream `n` of `seed`. Stream 0 equals `new(seed)`.
    pub fn stream(seed: u64, n: u64) -> Rng {
        let mut x = seed ^ n.wrapping_mul(0xd6e8_feb8_6659_fd93);
        Rng { state: std::array::from_fn(|_| splitmix(&mut x)) }
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let out = s0.wrapping_add(s3).rotate_left(23).wrapping_add(s0);
        let (t2, t3) = (s2 ^ s0, s3 ^ s1);
        self.state = [s0 ^ t3, s1 ^ t2, t2 ^ (s1 << 17), t3.rotate_left(45)];
        out
    }

    /// Returns a number in `0..bound`; 0 when `bound` is 0. The bias is less than `bound` / 2^64,
    /// which does not matter for tests.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        (wide >> 64) as u64
    }

    /// Returns a number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// Returns true with probability `ppm` / 1 000 000.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// Picks one of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014):
/// advances `x` and returns a well-mixed number.
pub fn splitmix(x: &mut u64) -> u64 {
    *x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*x ^ (*x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn splitmix__matches_the_published_sequence() {
        let mut x = 1_234_567;
        let got = [splitmix(&mut x), splitmix(&mut x), splitmix(&mut x)];
        assert_eq!(got, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn next_u64__matches_the_published_sequence() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let got: [u64; 4] = std::array::from_fn(|_| rng.next_u64());
        assert_eq!(got, [41943041, 58720359, 3588806011781223, 3591011842654386]);
    }

    #[test]
    fn below__stays_below_and_reaches_everything() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[rng.below(10) as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn fill__any_length() {
        let mut a = [0; 19];
        Rng::new(5).fill(&mut a);
        let mut b = [0; 19];
        Rng::new(5).fill(&mut b);
        assert_eq!(a, b);
        assert!(a.iter().any(|x| *x != a[0]));
    }

    #[test]
    fn stream__differs_from_the_others_of_its_seed() {
        assert_eq!(Rng::stream(7, 0).next_u64(), Rng::new(7).next_u64());
        assert_ne!(Rng::stream(7, 1).next_u64(), Rng::new(7).next_u64());
    }

    #[test]
    fn between__includes_both_ends() {
        let mut rng = Rng::new(1);
        assert_eq!(rng.between(3, 3), 3);
        assert!((0..100).any(|_| rng.between(3, 4) == 4));
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
