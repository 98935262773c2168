//! The headers of packets beside the program's bytes.
//!
//! A packet is a message of the port's client [`CLIENT`]. Bits 0 to 15 of its number are the number
//! of the handler, bits 16 to 23 the kind; its argument is the program's. Packets of kind 0 carry
//! the program's bytes and nothing else; those of other kinds begin with one of the headers below,
//! all integers in little-endian order.

/// The number of the packet interface among the clients of the port.
pub const CLIENT: u8 = weft::port::WEFT;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The program's.
    User = 0,
    /// A multicast packet on its way down a tree.
    Multicast = 1,
    /// Credit of an edge of a tree.
    Credit = 2,
    /// The parent lacks credit and asks for it.
    Ask = 3,
    /// A member failed.
    Failed = 4,
    /// Remote-memory copy to a page whose translation the sender lacks.
    Redirect = 5,
    /// The translation of a page, or a refusal.
    Map = 6,
    /// Translations of a region are no longer valid.
    Invalidate = 7,
    /// They are forgotten.
    Invalidated = 8,
    /// The root of a tree asks a member to join it at its agent, or the member answers.
    Join = 9,
}

impl Kind {
    const ALL: [Kind; 10] = [
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
    ];
}

/// Number and argument of a packet.
pub type Name = (u32, u32);

/// The name of a packet.
#[inline]
pub const fn name(kind: Kind, handler: u16, argument: u32) -> Name {
    ((kind as u32) << 16 | handler as u32, argument)
}

/// Kind and handler of a number; `None`: there is no such kind.
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
            /// Bytes.
            pub const LEN: usize = $len;

            /// Writes it to the start of `out`, which is at least that long.
            pub fn write(&self, out: &mut [u8]) {
                $(
                    let bytes = self.$field.to_le_bytes();
                    out[$at..$at + bytes.len()].copy_from_slice(&bytes);
                )*
            }

            /// The header and what follows it; `None` when there are too few bytes.
            pub fn parse(bytes: &[u8]) -> Option<($name, &[u8])> {
                let (head, rest) = bytes.split_at_checked($len)?;
                let parsed = $name {
                    $($field: <$ty>::from_le_bytes(
                        head[$at..$at + size_of::<$ty>()].try_into().ok()?,
                    ),)*
                };
                Some((parsed, rest))
            }

            /// Its bytes.
            pub fn encode(&self) -> [u8; $len] {
                let mut out = [0; $len];
                self.write(&mut out);
                out
            }
        }
    };
}

header! {
    /// Of a multicast packet; the program's bytes follow. The tag has handler and argument.
    Multicast, 12;
    /// The group.
    group: u16 = 0,
    /// Member that sent it first.
    root: u16 = 2,
    /// Its number among those of the root to this group.
    seq: u32 = 4,
    /// Code of the tree it takes.
    tree: u8 = 8,
    /// 0.
    zero: u8 = 9,
    /// 0.
    zeros: u16 = 10,
}

header! {
    /// Of CREDIT (from child to parent) and ASK (from parent to child).
    Credit, 12;
    /// The group.
    group: u16 = 0,
    /// Root of the tree.
    root: u16 = 2,
    /// Packets that came over the edge and whose memory is free again, since the group began; of
    /// ASK, those sent.
    count: u32 = 4,
    /// Code of the tree.
    tree: u8 = 8,
    /// 0.
    zero: u8 = 9,
    /// 0.
    zeros: u16 = 10,
}

header! {
    /// Of JOIN.
    Join, 12;
    /// The group.
    group: u16 = 0,
    /// Root of the tree.
    root: u16 = 2,
    /// Code of the tree.
    tree: u8 = 4,
    /// 255: please join; from the member, 0: joined, otherwise why not.
    status: u8 = 5,
    /// 0.
    zero: u16 = 6,
    /// 0.
    zeros: u32 = 8,
}

header! {
    /// Of FAILED.
    Failed, 4;
    /// The group.
    group: u16 = 0,
    /// The member that failed.
    rank: u16 = 2,
}

header! {
    /// Of REDIRECT; the bytes to be placed follow.
    Redirect, 24;
    /// Key of the region.
    key: u64 = 0,
    /// Where in the region they go.
    offset: u64 = 8,
    /// Number of the copy.
    copy: u32 = 16,
    /// 1: the last packet for its page, to be answered with MAP.
    last: u32 = 20,
}

header! {
    /// Of MAP.
    Map, 40;
    /// Key of the region.
    key: u64 = 0,
    /// Number of the page in the region.
    page: u64 = 8,
    /// Address of the page in the memory of the process that answers.
    addr: u64 = 16,
    /// Number of the copy.
    copy: u32 = 24,
    /// 0: mapped; 1: refused, key, bounds or rights are wrong.
    status: u32 = 28,
    /// Bytes of the page that the region has.
    len: u32 = 32,
    /// 0.
    zero: u32 = 36,
}

header! {
    /// Of INVALIDATE and INVALIDATED.
    Invalidate, 8;
    /// Key of the region.
    key: u64 = 0,
}

/// Reads bytes as every header there is: none panics, and what parses encodes to the same bytes.
/// For fuzzing.
///
/// # Panics
/// That does not hold.
pub fn check(bytes: &[u8]) {
    macro_rules! same {
        ($($name:ident),*) => {
            $(if let Some((head, rest)) = $name::parse(bytes) {
                assert_eq!(head.encode(), bytes[..$name::LEN]);
                assert_eq!(rest.len() + $name::LEN, bytes.len());
            })*
        };
    }
    same!(Multicast, Credit, Join, Failed, Redirect, Map, Invalidate);
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
        assert_eq!(parse_number(10 << 16), None);
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
