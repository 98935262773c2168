//! Quorums: the sets of members of which at most one can decide at a time.
//!
//! Two quorums of the same members always have a member in common, so two parts of a group that
//! cannot see each other never both go on. Not counted is a member that has *resigned*: it has told
//! its last state to others, and takes part in nothing afterwards. The end of a process alone is no
//! resignation, since the process may have gone on with others before it ended.

/// Returns true if those for which `some` is true are a quorum of `members`, which ascend: more
/// than half of those that have not resigned, or just half with the lowest of them.
pub(crate) fn is_quorum<T: Copy>(
    members: &[T],
    has_resigned: impl Fn(T) -> bool,
    some: impl Fn(T) -> bool,
) -> bool {
    let mut electors = members.iter().copied().filter(|&one| !has_resigned(one)).peekable();
    let lowest = electors.peek().is_some_and(|&one| some(one));
    let (mut all, mut count) = (0, 0);
    for one in electors {
        all += 1;
        count += usize::from(some(one));
    }
    2 * count > all || 2 * count == all && lowest
}

/// Returns the number of members, from the lowest on, that are a quorum of `count` members.
pub(crate) fn least(count: usize) -> usize {
    count.div_ceil(2)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn of(set: u32) -> impl Fn(u32) -> bool {
        move |one| set & 1 << one > 0
    }

    /// All pairs of sets of up to five members. A member that has resigned for one party is in no
    /// quorum that decides later, so quorums contain nobody that the other party knows as resigned.
    #[test]
    fn is_quorum__two_of_them_always_meet_whoever_has_resigned() {
        let mut met = 0;
        for count in 1..=5 {
            let members: Vec<u32> = (0..count).collect();
            for (gone, late) in (0..1 << count).flat_map(|a| (0..1 << count).map(move |b| (a, b))) {
                let able: Vec<u32> =
                    (0..1 << count).filter(|set| set & (gone | late) == 0).collect();
                let quorums = |resigned: u32| {
                    let all = able.iter().copied();
                    all.filter(|&set| is_quorum(&members, of(resigned), of(set)))
                        .collect::<Vec<_>>()
                };
                let theirs = quorums(late);
                for ours in quorums(gone) {
                    let apart = theirs.iter().find(|&&set| set & ours == 0);
                    assert_eq!(
                        apart, None,
                        "{members:?}: {ours:b}, resigned {gone:b} and {late:b}"
                    );
                    met += theirs.len();
                }
            }
        }
        assert!(met > 1_000, "{met}");
    }

    #[test]
    fn least__is_a_quorum_and_one_less_is_none() {
        for count in 1..9 {
            let members: Vec<usize> = (0..count).collect();
            let lowest = |least: usize| is_quorum(&members, |_| false, |one| one < least);
            assert!(lowest(least(count)), "{count}");
            assert!(!lowest(least(count) - 1), "{count}");
        }
    }
}
