//! The things on which the ranks of a collective operation must agree, as a word of 32 bits. Each
//! message of the operation carries the word of its sender as completion data, which costs no byte:
//! every header has room for it.

use super::{Element, Op, Tree};

/// A kind of collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    ReduceScatter,
    BroadcastInto,
    AllgatherInto,
    AlltoallInto,
}

use Kind::{
    Allgather, AllgatherInto, Allreduce, Alltoall, AlltoallInto, Barrier, Broadcast, BroadcastInto,
    Gather, Reduce, ReduceScatter, Scatter,
};

/// Kinds by their numbers.
const KINDS: [Kind; 12] = [
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    ReduceScatter,
    BroadcastInto,
    AllgatherInto,
    AlltoallInto,
];
/// Types of values and their sizes, by their numbers. Any other, of a program, is `OTHER`.
const TYPES: [(&str, u64); 15] = [
    ("i8", 1),
    ("u8", 1),
    ("i16", 2),
    ("u16", 2),
    ("i32", 4),
    ("u32", 4),
    ("i64", 8),
    ("u64", 8),
    ("f32", 4),
    ("f64", 8),
    ("f16", 2),
    ("bf16", 2),
    ("bool", 1),
    ("complex of f32", 8),
    ("complex of f64", 16),
];
const OTHER: u32 = 15;
/// Operations by their numbers, and their names.
const OPS: [(Op, &str); 8] = [
    (Op::Sum, "sum"),
    (Op::Product, "product"),
    (Op::Min, "minimum"),
    (Op::Max, "maximum"),
    (Op::And, "bitwise and"),
    (Op::Or, "bitwise or"),
    (Op::Xor, "bitwise xor"),
    (Op::Average, "average"),
];

/// Bits of the kind.
const KIND: u32 = 15;
/// Position of the tree in a word: 0 for none, else one more than its number.
const TREE: u32 = 4;
/// Positions of type and operation.
const TYPE: u32 = 7;
const OP: u32 = 11;
/// Position of the root, combined with the hash of the list of members.
const ROOT: u32 = 14;
const ROOT_MASK: u32 = u32::MAX >> ROOT;

/// A collective operation, as all its ranks must call it.
#[derive(Clone, Copy, Debug)]
pub(super) struct What {
    kind: Kind,
    tree: Option<Tree>,
    root: usize,
    values: u32,
}

impl What {
    pub fn of(kind: Kind) -> What {
        What { kind, tree: None, root: 0, values: 0 }
    }

    /// Adds the number of values that each rank gets; messages to people do not show it.
    pub fn counts(self, counts: &[usize]) -> What {
        What { root: hash(counts) as usize, ..self }
    }

    pub fn over(self, tree: Tree) -> What {
        What { tree: Some(tree), ..self }
    }

    pub fn root(self, root: usize) -> What {
        What { root, ..self }
    }

    pub fn values<T: Element>(self, op: Op) -> What {
        self.values_of(T::NAME, op)
    }

    /// Adds the operation and the name of the type that it combines.
    pub fn values_of(self, name: &str, op: Op) -> What {
        let kind = TYPES.iter().position(|&(one, _)| one == name).map_or(OTHER, |at| at as u32);
        let op = OPS.iter().position(|&(known, _)| known == op).unwrap_or(0) as u32;
        What { values: kind << TYPE | op << OP, ..self }
    }

    /// Returns the word of this operation in a group whose list of members has this hash.
    pub fn word(self, list: u32) -> u32 {
        let of = |tree| Tree::ALL.iter().position(|&known| known == tree);
        let tree = self.tree.and_then(of).map_or(0, |at| at as u32 + 1);
        let root = (self.root as u32 ^ list) & ROOT_MASK;
        root << ROOT | self.values | tree << TREE | self.kind as u32
    }
}

/// Returns a hash of numbers in their order, such as the members of a group (FNV-1a).
pub(super) fn hash(numbers: &[usize]) -> u32 {
    let bytes = numbers.iter().flat_map(|&number| (number as u32).to_le_bytes());
    let all = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (all ^ all >> 32) as u32
}

/// Returns the kind of the operation with this word, if this build knows it.
fn kind_of(word: u32) -> Option<Kind> {
    KINDS.get((word & KIND) as usize).copied()
}

/// Returns the length of the whole, as far as the first message of an operation with this word
/// shows it; `len` is that of the message, of which `data` is the beginning.
pub(super) fn whole_len(word: u32, len: u64, data: &[u8]) -> Option<u64> {
    match kind_of(word) {
        Some(Reduce | Allreduce) => Some(len),
        Some(Broadcast) => data.first_chunk().map(|raw| u64::from_le_bytes(*raw)),
        _ => None,
    }
}

/// Returns the text for a word of an operation of `bytes`, for messages to people: `size` is the
/// number of ranks and `list` the hash of the members here.
pub(super) fn text(word: u32, bytes: Option<u64>, (size, list): (usize, u32)) -> String {
    let Some(kind) = kind_of(word) else { return "another operation".to_owned() };
    let root = ((word >> ROOT) ^ list) & ROOT_MASK;
    let has_root = matches!(kind, Broadcast | BroadcastInto | Reduce | Gather | Scatter);
    let same_list = match kind {
        ReduceScatter | AllgatherInto => true,
        _ if has_root => (root as usize) < size,
        _ => root == 0,
    };
    let name = match kind {
        Barrier => "a barrier",
        Broadcast => "a broadcast from",
        Reduce => "a reduce to",
        Allreduce => "an allreduce",
        Gather => "a gather to",
        Scatter => "a scatter from",
        Allgather => "an allgather",
        Alltoall => "an alltoall",
        ReduceScatter => "a reduce-scatter by counts",
        BroadcastInto => "a broadcast of known length from",
        AllgatherInto => "an allgather by counts",
        AlltoallInto => "an alltoall by counts",
    };
    let mut text = name.to_owned();
    match (has_root, same_list) {
        (true, true) => text += &format!(" {root}"),
        (true, false) => text += " some rank",
        (false, _) => {}
    }
    if matches!(kind, Reduce | Allreduce | ReduceScatter) {
        let at = (word >> TYPE & 15) as usize;
        let known = TYPES.get(at).copied();
        let values = known.map_or("values of a type of the program", |(name, _)| name);
        let size = known.map(|(_, size)| size);
        let op = OPS.get((word >> OP & 7) as usize).map_or("other", |(_, name)| name);
        let count = bytes.zip(size).map(|(bytes, size)| format!("{} ", bytes / size));
        text += &format!(", {op} of {}{values}", count.unwrap_or_default());
    } else if let Some(bytes) = bytes {
        text += &format!(" of {bytes} bytes");
    }
    if let Some(tree) = (word >> TREE & 7).checked_sub(1).and_then(|at| Tree::ALL.get(at as usize))
    {
        text += &format!(" over the {tree} tree");
    }
    if !same_list {
        text += ", in a group of other members or in another order";
    }
    text
}

/// Returns the text about two ranks that disagree.
pub(super) fn differ((one, its): (usize, &str), (other, others): (usize, &str)) -> String {
    format!(
        "rank {one} is in {its}, rank {other} in {others}: all ranks of a group call the same \
         collective operations, in the same order and with the same arguments"
    )
}

/// Returns the text about two ranks that have disagreed in an operation, or so many before it.
pub(super) fn differed(ago: u32, one: (usize, &str), other: (usize, &str)) -> String {
    let text = differ(one, other);
    match ago {
        0 => text,
        1 => format!("in the operation before this one: {text}"),
        _ => format!("{ago} operations before this one: {text}"),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn word__differs_whenever_anything_does_and_says_it() {
        let list = hash(&[0, 1, 2, 3]);
        let whats = [
            (What::of(Barrier), "a barrier"),
            (What::of(Barrier).over(Tree::Flat), "a barrier over the flat tree"),
            (What::of(Broadcast).root(3), "a broadcast from 3 of 80 bytes"),
            (What::of(Broadcast).root(2), "a broadcast from 2 of 80 bytes"),
            (
                What::of(Broadcast).root(2).over(Tree::Chain),
                "a broadcast from 2 of 80 bytes over the chain tree",
            ),
            (What::of(Reduce).values::<u8>(Op::Xor), "a reduce to 0, bitwise xor of 80 u8"),
            (What::of(Allreduce).values::<f64>(Op::Sum), "an allreduce, sum of 10 f64"),
            (What::of(Allreduce).values::<f64>(Op::Max), "an allreduce, maximum of 10 f64"),
            (What::of(Allreduce).values::<u64>(Op::Max), "an allreduce, maximum of 10 u64"),
            (What::of(Gather).root(1), "a gather to 1 of 80 bytes"),
            (What::of(Scatter).root(1), "a scatter from 1 of 80 bytes"),
            (What::of(Allgather), "an allgather of 80 bytes"),
            (What::of(Alltoall), "an alltoall of 80 bytes"),
        ];
        let mut words = Vec::new();
        for (what, says) in whats {
            let word = what.word(list);
            let bytes = (what.kind != Barrier).then_some(80);
            assert_eq!(text(word, bytes, (4, list)), says);
            let other = hash(&[0, 1, 3, 2]);
            let says = text(what.word(other), bytes, (4, list));
            assert!(says.ends_with("in a group of other members or in another order"), "{says}");
            words.extend([word, what.word(other)]);
        }
        words.sort_unstable();
        assert!(words.windows(2).all(|two| two[0] != two[1]));
    }

    #[test]
    fn word__of_other_counts_is_another() {
        let what = What::of(ReduceScatter).values::<f32>(Op::Min);
        let [one, other] = [[3, 2, 2], [3, 1, 3]].map(|counts| what.counts(&counts).word(7));
        assert_ne!(one, other);
        assert_eq!(text(one, Some(28), (3, 7)), "a reduce-scatter by counts, minimum of 7 f32");
    }

    #[test]
    fn text__of_any_word_is_some_text() {
        for at in 0..1 << 16 {
            text((at as u32).wrapping_mul(0x9e37_79b1), Some(at), (3, 7));
        }
    }
}
