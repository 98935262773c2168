//! Bounds that the users of a host have in common.
//!
//! A user counts together with all users for whom the same one answers ([`user::payer`]): else one
//! who may map the numbers of others would have as many shares as numbers.

use weft_names::share::has_share;
use weft_sys::user;

/// Counts those of `users` for whom the same user answers as for `user`.
pub fn count(user: u32, users: impl Iterator<Item = u32>) -> usize {
    let payer = user::payer(user);
    users.filter(|other| user::payer(*other) == payer).count()
}

/// True if a user with `own` of `all` taken places may take another of `most`: at most half of what
/// others leave ([`has_share`]). The last eighth is for root and the user of this process, who can
/// so always look what goes on.
pub fn admits(user: u32, own: usize, all: usize, most: usize) -> bool {
    let kept = if user::is_own(user) { 0 } else { most / 8 };
    has_share(own, all, most - kept)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Takes as many places as a user gets.
    fn takes(user: u32, taken: &mut Vec<u32>, most: usize) -> usize {
        let before = taken.len();
        while admits(user, count(user, taken.iter().copied()), taken.len(), most) {
            taken.push(user);
        }
        taken.len() - before
    }

    #[test]
    fn admits__whatever_users_take_some_is_left_for_root() {
        let mut taken = Vec::new();
        let others: Vec<usize> = (20_001..20_020).map(|n| takes(n, &mut taken, 128)).collect();
        assert_eq!(others[..7], [56, 28, 14, 7, 4, 2, 1]);
        assert_eq!(others.iter().sum::<usize>(), 112);
        assert!(weft_sys::user::unknown() == Some(0) || takes(0, &mut taken, 128) == 8);
    }

    #[test]
    fn count__numbers_that_nobody_has_by_himself_are_one_user() {
        let all = [7_000_001, 7_000_002, 20_001, 7_000_003];
        let (of_range, of_one) =
            (count(7_000_009, all.into_iter()), count(20_001, all.into_iter()));
        // A file of this machine may name an owner for some of them.
        assert!(of_range == 3 && of_one == 1, "{of_range} {of_one}");
    }
}
