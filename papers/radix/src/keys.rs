//! Keys: the generator of the Splash benchmark, and files.

use std::io::{self, BufRead, Read};
use weft_apps::{Lines, ReadError};

/// The seed of [`Generator`] in the Splash benchmark.
pub const SEED: u64 = 314_159_265;
/// The multiplier: 5 to the 13th.
const FACTOR: u64 = 1_220_703_125;
/// Bits of the generator's state.
const BITS: u32 = 46;

/// The generator of keys of the benchmark Radix of Splash: a linear congruential one of 46 bits, `s
/// = 5^13 s mod 2^46`, whose mean of four successive numbers, scaled to the range of keys, is a
/// key. Key `i` is the mean of numbers `4i+1` to `4i+4` behind the seed, so any owner makes its
/// keys alone and the array does not depend on the number of owners.
#[derive(Clone, Debug)]
pub struct Generator {
    state: u64,
    below: u32,
}

impl Generator {
    /// Makes the generator of the keys from key `first` on; all keys are less than `below`.
    pub fn new(first: u64, below: u32, seed: u64) -> Generator {
        // The powers of the factor modulo 2^46 are those modulo 2^64, cut.
        let (mut state, mut factor, mut steps) = (seed, FACTOR, 4 * first);
        while steps > 0 {
            if steps & 1 == 1 {
                state = state.wrapping_mul(factor);
            }
            factor = factor.wrapping_mul(factor);
            steps >>= 1;
        }
        Generator { state, below }
    }
}

impl Iterator for Generator {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let mut sum = 0;
        for _ in 0..4 {
            self.state = self.state.wrapping_mul(FACTOR) & ((1 << BITS) - 1);
            sum += self.state;
        }
        // Four numbers of 46 bits sum to 48, so this is exact.
        let mean = sum as f64 / (1u64 << (BITS + 2)) as f64;
        Some((mean * f64::from(self.below)) as u32)
    }
}

/// Reads keys from text: whole numbers from 0 to 4294967295, separated by blanks, commas or line
/// ends; `#` begins a comment.
///
/// # Errors
/// The first line with something else, or with more than `most` keys up to it.
pub fn read_text(input: &mut dyn BufRead, most: usize) -> Result<Vec<u32>, ReadError> {
    let mut lines = Lines::new(input);
    let mut keys = Vec::new();
    while let Some((line, text)) = lines.next_content('#')? {
        let separators = |c: char| c.is_ascii_whitespace() || c == ',';
        for field in text.split(separators).filter(|field| !field.is_empty()) {
            let expected = "a whole number from 0 to 4294967295";
            let key = field.parse().map_err(|_| ReadError::field(line, field, expected))?;
            if keys.len() == most {
                let reason = format!("more than the limit of {most} keys");
                return Err(ReadError { line, reason });
            }
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Reads keys of four bytes, the lowest byte first.
///
/// # Errors
/// The input failed, has more than `most` keys, or ends inside a key, which the error says.
pub fn read_binary(input: &mut dyn Read, most: usize) -> io::Result<Vec<u32>> {
    let fault = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut bytes = Vec::new();
    Read::take(input, (most as u64).saturating_mul(4).saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() / 4 >= most && bytes.len() > most * 4 {
        return Err(fault(format!("more than the limit of {most} keys")));
    }
    let (keys, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        let reason =
            format!("{} bytes behind the last key of 4 bytes, key {}", rest.len(), keys.len());
        return Err(fault(reason));
    }
    Ok(keys.iter().map(|key| u32::from_le_bytes(*key)).collect())
}
