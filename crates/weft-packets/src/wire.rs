//! Headers of the packets of the packet interface.
//!
//! A packet is a message of the port's client [`CLIENT`]. Bits 0 to 15 of its number are the
//! handler, bits 16 to 23 the kind; its argument is the program's. Packets of kind 0 carry only the
//! program's bytes; packets of other kinds begin with one of the headers below. All integers are
//! little-endian.

/// The number of the packet interface among the clients of the port.
pub const CLIENT: u8 = weft::port::WEFT;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A packet of the program.
    User = 0,
    /// A multicast packet that goes down a tree.
    Multicast = 1,
    /// Credit of an edge of a tree, from child to parent.
    Credit = 2,
    /// The parent lacks credit and asks the child for it.
    Ask = 3,
    /// A member of a group failed.
    Failed = 4,
    /// A part of a remote-memory copy, to a page whose translation the sender lacks.
    Redirect = 5,
    /// The translation of a page, or a refusal.
    Map = 6,
    /// Translations of a region are no longer valid.
    Invalidate = 7,
    /// The peer has forgotten the translations of a region.
    Invalidated = 8,
    /// The root of a tree asks a member to join it at its agent, or the member answers.
    Join = 9,
    /// A peer that adds to a counter asks for its place in memory.
    Where = 10,
    /// The place of a counter in memory that both share.
    Place = 11,
}

impl Kind {
    const ALL: [Kind; 12] = [
        Kind::User,
        Kind::Multicast,
        Kind::Credit,
        Kind::Ask,
        Kind::Failed,
        Kind::Redirect,
        Kind::Map,
        Kind::Invalidate,
        Kind::Invalidated,
        Kind::Join,
        Kind::Where,
        Kind::Place,
    ];
}

/// The number and the argument of a packet.
pub type Name = (u32, u32);

/// Returns the number and the argument of a packet.
#[inline]
pub const fn name(kind: Kind, handler: u16, argument: u32) -> Name {
    ((kind as u32) << 16 | handler as u32, argument)
}

/// Returns the kind and the handler of a number. `None` if there is no such kind.
#[inline]
pub fn parse_number(number: u32) -> Option<(Kind, u16)> {
    let kind = *Kind::ALL.get((number >> 16) as usize)?;
    Some((kind, number as u16))
}

macro_rules! header {
    (
        $(#[$about:meta])* $name:ident, $len:literal;
        $($(#[$field_about:meta])* $field:ident: $ty:ty = $at:literal,)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_about])* pub $field: $ty,)*
        }

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = $len;

            /// Writes the header to the start of `out`, which must be at least [`Self::LEN`] long.
            pub fn write(&self, out: &mut [u8]) {
                $(
                    let bytes = self.$field.to_le_bytes();
                    out[$at..$at + bytes.len()].copy_from_slice(&bytes);
                )*
            }

            /// Returns the header and the bytes behind it. `None` if there are too few bytes.
            pub fn parse(bytes: &[u8]) -> Option<($name, &[u8])> {
                let (head, rest) = bytes.split_at_checked($len)?;
                let parsed = $name {
                    $($field: <$ty>::from_le_bytes(
                        head[$at..$at + size_of::<$ty>()].try_into().ok()?,
                    ),)*
                };
                Some((parsed, rest))
            }

            /// Returns the header's bytes.
            pub fn encode(&self) -> [u8; $len] {
                let mut out = [0; $len];
                self.write(&mut out);
                out
            }
        }
    };
}

header! {
    /// Header of MULTICAST; the program's bytes follow. Number and argument of the packet carry the
    /// handler and the program's argument.
    Multicast, 12;
    /// The group.
    group: u16 = 0,
    /// Rank of the member that sent the packet first.
    root: u16 = 2,
    /// The packet's number among the root's packets to this group.
    seq: u32 = 4,
    /// Code of the tree that the packet takes.
    tree: u8 = 8,
    /// Generation of the group's number.
    generation: u8 = 9,
    /// 0.
    zeros: u16 = 10,
}

header! {
    /// Header of CREDIT (from child to parent) and ASK (from parent to child).
    Credit, 12;
    /// The group.
    group: u16 = 0,
    /// Root of the tree.
    root: u16 = 2,
    /// Of CREDIT: packets that came over the edge since the group began and whose memory is free
    /// again. Of ASK: packets sent over the edge since then.
    count: u32 = 4,
    /// Code of the tree.
    tree: u8 = 8,
    /// Generation of the group's number.
    generation: u8 = 9,
    /// 0.
    zeros: u16 = 10,
}

header! {
    /// Header of JOIN.
    Join, 12;
    /// The group.
    group: u16 = 0,
    /// Root of the tree.
    root: u16 = 2,
    /// Code of the tree.
    tree: u8 = 4,
    /// From the root, 255: a request to join. From the member, 0: joined; otherwise the reason why
    /// not.
    status: u8 = 5,
    /// Generation of the group's number.
    generation: u8 = 6,
    /// 0.
    zero: u8 = 7,
    /// 0.
    zeros: u32 = 8,
}

header! {
    /// Header of FAILED.
    Failed, 8;
    /// The group.
    group: u16 = 0,
    /// The member that failed.
    rank: u16 = 2,
    /// Generation of the group's number.
    generation: u8 = 4,
    /// 0.
    zero: u8 = 5,
    /// 0.
    zeros: u16 = 6,
}

/// A group: its number, and from bit 16 on the generation, by which groups that follow each other
/// under one number are told apart.
pub(super) type GroupId = u32;

/// Returns the number and the generation of a group.
pub(super) const fn split_group(id: GroupId) -> (u16, u8) {
    (id as u16, (id >> 16) as u8)
}

/// Returns the group of a number and a generation.
pub(super) const fn group_id(number: u16, generation: u8) -> GroupId {
    (generation as u32) << 16 | number as u32
}

header! {
    /// Header of REDIRECT; the bytes to copy follow.
    Redirect, 24;
    /// Key of the region.
    key: u64 = 0,
    /// Offset of the bytes in the region.
    offset: u64 = 8,
    /// Number of the copy.
    copy: u32 = 16,
    /// 1: the last packet of its page, which the receiver answers with MAP.
    last: u32 = 20,
}

header! {
    /// Header of MAP.
    Map, 40;
    /// Key of the region.
    key: u64 = 0,
    /// Number of the page in the region.
    page: u64 = 8,
    /// Address of the page in the process that answers.
    addr: u64 = 16,
    /// Number of the copy.
    copy: u32 = 24,
    /// 0: mapped. 1: refused, since key, bounds or rights are wrong. 5: unmapped.
    status: u32 = 28,
    /// Bytes of the page that lie in the region.
    len: u32 = 32,
    /// 0.
    zero: u32 = 36,
}

header! {
    /// Header of INVALIDATE, INVALIDATED and WHERE.
    Invalidate, 8;
    /// Key of the region, or of the counter.
    key: u64 = 0,
}

header! {
    /// Header of PLACE.
    Place, 16;
    /// Key of the counter.
    key: u64 = 0,
    /// Address of its word in the process that answers; 0: it is reached by messages.
    addr: u64 = 8,
}

/// Parses bytes as every header: no parser may panic, and a parsed header must encode to the same
/// bytes. For fuzzing.
///
/// # Panics
/// A parsed header encodes to other bytes.
pub fn check(bytes: &[u8]) {
    macro_rules! same {
        ($($name:ident),*) => {
            $(if let Some((head, rest)) = $name::parse(bytes) {
                assert_eq!(head.encode(), bytes[..$name::LEN]);
                assert_eq!(rest.len() + $name::LEN, bytes.len());
            })*
        };
    }
    same!(Multicast, Credit, Join, Failed, Redirect, Map, Invalidate, Place);
    if let Some((head, _)) = bytes.split_first_chunk() {
        let number = u32::from_le_bytes(*head);
        if let Some((kind, handler)) = parse_number(number) {
            assert_eq!(name(kind, handler, 7), (number, 7));
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn name__round_trip_and_unknown_kinds() {
        for kind in Kind::ALL {
            let (number, argument) = name(kind, 0xfffe, 0x89ab_cdef);
            assert!(number < weft::port::NUMBERS);
            assert_eq!((parse_number(number), argument), (Some((kind, 0xfffe)), 0x89ab_cdef));
        }
        assert_eq!(parse_number(12 << 16), None);
        assert_eq!(parse_number(0xff << 16), None);
    }

    #[test]
    fn headers__round_trip_and_refuse_what_is_short() {
        let multicast = Multicast { group: 1, root: 2, seq: 3, tree: 4, ..Multicast::default() };
        assert_eq!(Multicast::parse(&multicast.encode()), Some((multicast, &[][..])));
        let map = Map { key: u64::MAX, page: 7, addr: 9, copy: 11, status: 1, len: 5, zero: 0 };
        assert_eq!(Map::parse(&map.encode()), Some((map, &[][..])));
        let redirect = Redirect { key: 1, offset: 2, copy: 3, last: 1 };
        let mut bytes = redirect.encode().to_vec();
        bytes.push(5);
        assert_eq!(Redirect::parse(&bytes), Some((redirect, &[5][..])));
        for len in 0..Credit::LEN {
            assert_eq!(Credit::parse(&[0; 12][..len]), None);
        }
        (0..64).for_each(|len| check(&[0xa5; 64][..len]));
        assert_eq!(Failed::parse(&[0; 3]), None);
        assert_eq!(Invalidate::parse(&[0; 7]), None);
    }
}
