//! The parts of a pass.

/// The digit that a pass sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digit {
    shift: u32,
    mask: u32,
}

impl Digit {
    /// Returns the digit of pass `pass`, from 0, for a radix that is a power of two.
    pub fn new(pass: u32, radix: u32) -> Digit {
        Digit { shift: pass * radix.trailing_zeros(), mask: radix - 1 }
    }

    /// Returns the values that a digit has.
    pub fn values(self) -> usize {
        self.mask as usize + 1
    }

    /// Returns a key's digit.
    pub fn of(self, key: u32) -> usize {
        (key.checked_shr(self.shift).unwrap_or(0) & self.mask) as usize
    }
}

/// Returns the number of passes that sort keys up to `largest`; at least one, as a sort of zeros
/// moves them once too.
pub fn passes(largest: u32, radix: u32) -> u32 {
    (32 - largest.leading_zeros()).div_ceil(radix.trailing_zeros()).max(1)
}

/// Counts the digits of some keys.
pub fn histogram(keys: &[u32], digit: Digit) -> Vec<u32> {
    // Two sets of counters: equal keys in a row do not wait for each other.
    let (mut even, mut odd) = (vec![0u32; digit.values()], vec![0u32; digit.values()]);
    let (pairs, rest) = keys.as_chunks::<2>();
    for [a, b] in pairs {
        even[digit.of(*a)] += 1;
        odd[digit.of(*b)] += 1;
    }
    rest.iter().for_each(|key| even[digit.of(*key)] += 1);
    even.iter_mut().zip(odd).for_each(|(even, odd)| *even += odd);
    even
}

/// Returns the first place of each digit for the keys of owner `owner`, of the histograms of all
/// owners in the order of their parts: behind all lower digits, and behind the same digit of the
/// owners before.
pub fn starts<'a>(histograms: impl IntoIterator<Item = &'a [u32]>, owner: usize) -> Vec<u32> {
    let (mut before, mut total): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    for (at, counts) in histograms.into_iter().enumerate() {
        total.resize(counts.len(), 0);
        if at == owner {
            before = total.clone();
        }
        total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    let mut start = 0;
    for (before, total) in before.iter_mut().zip(total) {
        *before += start;
        start += total;
    }
    before
}

/// Calls `put` with place and key of each of some keys, in their order, and advances the places.
/// [`starts`] made them; keys may come in several pieces.
#[inline]
pub fn permute(keys: &[u32], digit: Digit, places: &mut [u32], mut put: impl FnMut(u32, u32)) {
    for key in keys {
        let place = &mut places[digit.of(*key)];
        put(*place, *key);
        *place += 1;
    }
}
