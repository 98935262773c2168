//! Hashes of results that do not depend on the order of evaluation.

/// Applies the finaliser of SplitMix64, a bijection that changes half of all bits for each input
/// bit.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the wrapping sum of a hash of each value and its place; the first has place `first`.
/// Digests of parts add up, in any order, to the digest of the whole.
pub fn digest(first: u64, values: impl IntoIterator<Item = u64>) -> u64 {
    let places = (first..).zip(values);
    places.fold(0, |sum, (place, value)| sum.wrapping_add(mix(mix(place.wrapping_add(1)) ^ value)))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn digest__parts_add_up_and_places_count() {
        let whole = digest(0, [5, 6, 7, 8]);
        assert_eq!(whole, digest(2, [7, 8]).wrapping_add(digest(0, [5, 6])));
        assert_ne!(whole, digest(0, [6, 5, 7, 8]));
        assert_ne!(digest(0, [0]), digest(0, []));
    }
}
