//! Random numbers that are the same everywhere.

use crate::mix;

/// The generator SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// Makes a generator from a seed; equal seeds give equal numbers on every machine.
    pub fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }

    /// Makes the generator of stream `index` under a seed. A rank that owns some columns or rows
    /// makes theirs alone, and the whole does not depend on the number of ranks.
    pub fn stream(seed: u64, index: u64) -> SplitMix {
        SplitMix(mix(mix(seed) ^ index.wrapping_add(1)))
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `bound`; 32 of 64 random bits make the bias negligible.
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// Returns a number from 0 up to, not including, 1: a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn bits__are_those_of_the_published_generator() {
        let mut random = SplitMix::new(1_234_567);
        let first = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([random.bits(), random.bits()], first);
    }

    #[test]
    fn unit__stays_inside_and_streams_differ() {
        let mut random = SplitMix::stream(7, 0);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
        assert!((0..1000).all(|_| random.below(10) < 10));
        assert_ne!(SplitMix::stream(7, 1).bits(), SplitMix::stream(7, 0).bits());
    }
}
