//! Communication patterns of collective operations, as arithmetic on ranks.
//!
//! Ranks run from 0 to `size - 1`. A rank or root outside that range has no parent, no children and
//! no partners.

pub use crate::choices::Tree;

/// Returns the parent of `rank` in the tree from `root`; None for the root.
pub fn parent(tree: Tree, root: usize, rank: usize, size: usize) -> Option<usize> {
    let place = place(root, rank, size)?;
    if place == 0 {
        return None;
    }
    let above = match tree {
        Tree::Flat => 0,
        Tree::Chain => place - 1,
        Tree::Binary => (place - 1) / 2,
        Tree::Binomial => place & (place - 1),
    };
    Some(add(root, above, size))
}

/// Returns the children of `rank` in the tree from `root`, the one with the deepest subtree first.
pub fn children(tree: Tree, root: usize, rank: usize, size: usize) -> Children {
    let Some(place) = place(root, rank, size) else {
        return Children { next: None, tree, root, place: 0, size };
    };
    let first = match tree {
        Tree::Flat => (place == 0).then_some(1),
        Tree::Chain => Some(place + 1),
        Tree::Binary => place.checked_mul(2).map(|p| p + 1),
        Tree::Binomial => {
            // A child adds one bit below this one, inside the group: the highest bit comes first.
            let bits = if place == 0 { usize::BITS } else { place.trailing_zeros() };
            let room = (size - 1 - place).checked_ilog2();
            match (bits.checked_sub(1), room) {
                (Some(bit), Some(room)) => Some(place + (1 << bit.min(room))),
                _ => None,
            }
        }
    };
    Children { next: first.filter(|&p| p < size), tree, root, place, size }
}

/// Iterator over [`children`].
#[derive(Clone, Copy, Debug)]
pub struct Children {
    /// Distance of the next child from the root.
    next: Option<usize>,
    tree: Tree,
    root: usize,
    place: usize,
    size: usize,
}

impl Iterator for Children {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let child = self.next?;
        let sibling = match self.tree {
            Tree::Flat => Some(child + 1),
            Tree::Chain => None,
            Tree::Binary => (child % 2 == 1).then_some(child + 1),
            Tree::Binomial => {
                let step = (child - self.place) / 2;
                (step > 0).then_some(self.place + step)
            }
        };
        self.next = sibling.filter(|&p| p < self.size);
        Some(add(self.root, child, self.size))
    }
}

/// Partners in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partners {
    /// The rank to send to.
    pub to: usize,
    /// The rank to receive from.
    pub from: usize,
}

/// Number of ranks that exchange in one round of dissemination.
const RADIX: usize = 4;

/// Returns the partners of `rank` in a round of a dissemination barrier, until a round has none:
/// after the last round every rank has heard from every other. In each round a rank sends to three
/// others (n-way dissemination: Hoefler, Mehlan, Mietke, Rehm 2006): messages that do not wait for
/// one another are cheaper than a further round.
pub fn dissemination(
    rank: usize,
    size: usize,
    round: u32,
) -> impl Iterator<Item = Partners> + Clone {
    let step = RADIX.checked_pow(round).filter(|_| rank < size).unwrap_or(usize::MAX);
    (1..RADIX)
        .map_while(move |digit| step.checked_mul(digit).filter(|&step| step < size))
        .map(move |step| Partners { to: add(rank, step, size), from: add(rank, size - step, size) })
}

/// Part of a rank in recursive doubling (Thakur, Rabenseifner, Gropp 2005), or in recursive
/// multiplying (Ruefenacht, Bull, Booth 2017), where more than two ranks exchange in a round.
///
/// Ranks beyond a power of two are folded in first: such a rank sends its value to a neighbour,
/// which takes part for both and returns the result. The values stay in rank order, so an operation
/// that is only associative may be used if the value of the lower rank is taken as the left
/// operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubling {
    /// Sends its value to `proxy`, then receives the result from it.
    Folded {
        /// The rank that takes part for both, one above.
        proxy: usize,
    },
    /// Takes part.
    Active {
        /// The folded rank, one below, whose value it receives first and to which it sends the
        /// result.
        folded: Option<usize>,
        /// Number among the active ranks.
        number: usize,
        /// Rounds in which it exchanges with one rank: the logarithm of the active ranks to base 2.
        rounds: u32,
        /// Ranks folded in the whole group.
        pairs: usize,
    },
}

impl Doubling {
    /// Returns the part of `rank` among `size`; None if `rank` is outside.
    pub fn new(rank: usize, size: usize) -> Option<Doubling> {
        if rank >= size {
            return None;
        }
        let rounds = size.ilog2();
        let pairs = size - (1 << rounds);
        Some(if rank >= 2 * pairs {
            Doubling::Active { folded: None, number: rank - pairs, rounds, pairs }
        } else if rank.is_multiple_of(2) {
            Doubling::Folded { proxy: rank + 1 }
        } else {
            Doubling::Active { folded: Some(rank - 1), number: rank / 2, rounds, pairs }
        })
    }

    /// Returns the ranks that exchange their values in `round`, this one among them, in the order
    /// of their values; none when there is no such round, or when folded. They are 2 to the power
    /// of `bits` (1 to 63), fewer in the last round if the number of active ranks is no such power.
    pub fn exchange(&self, round: u32, bits: u32) -> impl Iterator<Item = usize> + Clone {
        let (number, rounds, pairs) = match *self {
            Doubling::Active { number, rounds, pairs, .. } => (number, rounds, pairs),
            Doubling::Folded { .. } => (0, 0, 0),
        };
        let done = round.saturating_mul(bits).min(rounds);
        let bits = (rounds - done).min(bits);
        let first = number & !(((1 << bits) - 1) << done);
        let members = if bits == 0 { 0 } else { 1_usize << bits };
        (0..members).map(move |member| {
            let number = first | member << done;
            if number < pairs {
                2 * number + 1
            } else {
                number + pairs
            }
        })
    }
}

/// Returns the distance of `rank` from the root, upwards around the ring of ranks.
fn place(root: usize, rank: usize, size: usize) -> Option<usize> {
    (root < size && rank < size).then(|| add(rank, size - root, size))
}

/// Returns `a + b` around the ring, for `a < size` and `b <= size`, without overflow.
fn add(a: usize, b: usize, size: usize) -> usize {
    if b >= size - a {
        b - (size - a)
    } else {
        a + b
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn children__span_every_rank_once_and_agree_with_parent() {
        for &tree in Tree::ALL {
            for size in 1..=70 {
                for root in 0..size {
                    let mut reached = vec![root];
                    let mut at = 0;
                    while at < reached.len() {
                        let rank = reached[at];
                        for child in children(tree, root, rank, size) {
                            assert_eq!(parent(tree, root, child, size), Some(rank));
                            reached.push(child);
                        }
                        at += 1;
                    }
                    assert_eq!(parent(tree, root, root, size), None);
                    reached.sort_unstable();
                    assert!(reached.into_iter().eq(0..size), "{tree} {size} {root}");
                }
            }
        }
    }

    #[test]
    fn children__shapes() {
        let of = |tree, rank| children(tree, 0, rank, 16).collect::<Vec<_>>();
        assert!(of(Tree::Flat, 0).into_iter().eq(1..16));
        assert_eq!(of(Tree::Chain, 4), [5]);
        assert_eq!(of(Tree::Binary, 3), [7, 8]);
        assert_eq!(of(Tree::Binomial, 0), [8, 4, 2, 1]);
        assert_eq!(of(Tree::Binomial, 8), [12, 10, 9]);
        assert_eq!(children(Tree::Binomial, 3, 3, 5).collect::<Vec<_>>(), [2, 0, 4]);
    }

    #[test]
    fn tree__outside_the_group_has_no_one() {
        for &tree in Tree::ALL {
            for (root, rank, size) in [(0, 0, 0), (3, 0, 3), (0, 3, 3), (usize::MAX, 1, 2)] {
                assert_eq!(parent(tree, root, rank, size), None);
                assert_eq!(children(tree, root, rank, size).count(), 0);
            }
            let last = usize::MAX - 1;
            assert!(parent(tree, 7, last, usize::MAX).is_some());
            assert!(children(tree, 7, 0, usize::MAX).take(100).all(|rank| rank < usize::MAX));
        }
        for (rank, size, round) in [(0, 0, 0), (2, 2, 0), (0, 2, 1), (0, 2, u32::MAX), (0, 1, 0)] {
            assert_eq!(dissemination(rank, size, round).count(), 0);
        }
        assert_eq!(Doubling::new(0, 0), None);
    }

    #[test]
    fn dissemination__everyone_gets_a_message_from_everyone() {
        for size in 1..=70 {
            let mut heard: Vec<u128> = (0..size).map(|rank| 1 << rank).collect();
            let mut rounds = 0;
            while dissemination(0, size, rounds).next().is_some() {
                let before = heard.clone();
                for (rank, heard) in heard.iter_mut().enumerate() {
                    for Partners { to, from } in dissemination(rank, size, rounds) {
                        assert!(dissemination(to, size, rounds).any(|p| p.from == rank));
                        *heard |= before[from];
                    }
                }
                rounds += 1;
            }
            assert_eq!(rounds, [0, 1, 2, 3, 4][[1, 4, 16, 64, 256].partition_point(|&n| n < size)]);
            assert!(heard.iter().all(|&h| h == (1 << size) - 1), "{size}");
        }
    }

    #[test]
    fn doubling__keeps_values_in_rank_order() {
        for (size, bits) in (1..=70).flat_map(|size| [1, 2, 3].map(|bits| (size, bits))) {
            // Each value is the range of ranks it covers; only neighbours may be joined.
            let mut value: Vec<(usize, usize)> = (0..size).map(|rank| (rank, rank + 1)).collect();
            let join = |a: (usize, usize), b: (usize, usize)| {
                let (low, high) = if a < b { (a, b) } else { (b, a) };
                assert_eq!(low.1, high.0, "{size}");
                (low.0, high.1)
            };
            let parts: Vec<_> = (0..size).map(|rank| Doubling::new(rank, size).unwrap()).collect();
            for rank in 0..size {
                match parts[rank] {
                    Doubling::Folded { proxy } => value[proxy] = join(value[rank], value[proxy]),
                    Doubling::Active { folded: Some(below), .. } => {
                        assert_eq!(parts[below], Doubling::Folded { proxy: rank });
                    }
                    Doubling::Active { .. } => {}
                }
            }
            for round in 0..size.ilog2().div_ceil(bits) {
                let before = value.clone();
                for rank in 0..size {
                    let ranks = parts[rank].exchange(round, bits);
                    for other in ranks.clone() {
                        assert!(parts[other].exchange(round, bits).eq(ranks.clone()));
                    }
                    if let Some(all) = ranks.map(|rank| before[rank]).reduce(join) {
                        value[rank] = all;
                    }
                }
            }
            for rank in 0..size {
                if let Doubling::Active { .. } = parts[rank] {
                    assert_eq!(value[rank], (0, size));
                }
                assert_eq!(parts[rank].exchange(size.ilog2().div_ceil(bits), bits).count(), 0);
            }
        }
    }
}
