//! Bounds that many have in common, so that none of them leaves nothing to the others.

/// True if one who has `own` of `all` taken places may take another of `most`: it takes at most
/// half of what the others left. So some who take all they can leave room for the next, each half
/// as much as for the one before, instead of nothing.
pub fn has_share(own: usize, all: usize, most: usize) -> bool {
    own < most.saturating_sub(all.saturating_sub(own)).div_ceil(2) && all < most
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn has_share__whatever_some_take_the_next_finds_a_place() {
        let (most, mut taken) = (64, Vec::new());
        for user in 0..6 {
            taken.push(0);
            while has_share(taken[user], taken.iter().sum(), most) {
                taken[user] += 1;
            }
        }
        assert_eq!(taken, [32, 16, 8, 4, 2, 1]);
        assert!(!has_share(0, 64, 64) && !has_share(64, 64, 64) && has_share(0, 63, 64));
    }
}
