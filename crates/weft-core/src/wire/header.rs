//! The common header, and the macro that declares each packet's fixed part.

use super::PacketType;
use crate::Seq;
use core::fmt;
use core::ops::Range;

/// Version of the protocol this module encodes: byte 0 of every packet.
pub const VERSION: u8 = 1;
/// Length of the common header in bytes.
pub const COMMON_LEN: usize = 24;
/// Length of the longest header in bytes (ATOMIC).
pub const HEADER_MAX: usize = 64;

/// Offsets of the common fields.
pub mod field {
    use super::Range;
    /// Protocol version, one byte.
    pub const VERSION: usize = 0;
    /// Packet type, one byte.
    pub const TYPE: usize = 1;
    /// Flags.
    pub const FLAGS: Range<usize> = 2..4;
    /// Session number: names the sender to the receiver.
    pub const SESSION: Range<usize> = 4..8;
    /// Sequence number.
    pub const SEQ: Range<usize> = 8..12;
    /// Cumulative acknowledgement.
    pub const ACK: Range<usize> = 12..16;
    /// Cumulative credit.
    pub const CREDIT: Range<usize> = 16..20;
    /// Meaning depends on the type.
    pub const IMM: Range<usize> = 20..24;
}

/// Bits of [`Common::flags`].
pub mod flags {
    /// The sender completes only when the receiver has matched; demands a rendezvous. In ACK: the
    /// packet expected next has arrived, and waits for room at an agent.
    pub const SYNC: u16 = 1 << 0;
    /// An active message: the low half of the tag is the handler's number, the high half its
    /// argument.
    pub const ACTIVE: u16 = 1 << 1;
    /// In ACK: a gap was seen, go back to `ack`.
    pub const NACK: u16 = 1 << 2;
    /// In HELLO: this is an answer.
    pub const REPLY: u16 = 1 << 3;
    /// In PULL: asks for a direct copy of the range to `addr`. In ATOMIC: the rank shall execute
    /// it, not its agent.
    pub const DIRECT: u16 = 1 << 4;
    /// The last packet of a PUT.
    pub const LAST: u16 = 1 << 5;
    /// The receiver should acknowledge at once.
    pub const ACKNOW: u16 = 1 << 6;
    /// `imm` carries remote completion data.
    pub const DATA64: u16 = 1 << 7;
    /// The message is matched apart from those with tags, by its source alone.
    pub const APART: u16 = 1 << 8;
    /// Bits no version 1 packet sets; refused on receipt.
    pub const RESERVED: u16 = 0xfe00;

    /// Names of the bits, bit 0 first.
    pub const NAMES: [&str; 9] =
        ["SYNC", "ACTIVE", "NACK", "REPLY", "DIRECT", "LAST", "ACKNOW", "DATA64", "APART"];
}

/// Name, offset and size in bytes of one field of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Name as in `PROTOCOL.md`; reserved bytes are called `pad`.
    pub name: &'static str,
    /// Offset from the start of the packet, bytes.
    pub offset: usize,
    /// Size, bytes.
    pub size: usize,
}

impl FieldInfo {
    pub(super) const fn at(name: &'static str, range: Range<usize>) -> FieldInfo {
        FieldInfo { name, offset: range.start, size: range.end - range.start }
    }
}

/// The fields of the common header, in order of offset.
pub const COMMON_FIELDS: &[FieldInfo] = &[
    FieldInfo::at("version", field::VERSION..field::VERSION + 1),
    FieldInfo::at("type", field::TYPE..field::TYPE + 1),
    FieldInfo::at("flags", field::FLAGS),
    FieldInfo::at("session", field::SESSION),
    FieldInfo::at("seq", field::SEQ),
    FieldInfo::at("ack", field::ACK),
    FieldInfo::at("credit", field::CREDIT),
    FieldInfo::at("imm", field::IMM),
];

/// The common header, without version and type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// Bits of [`flags`].
    pub flags: u16,
    /// Number the receiver of this packet gave to its sender; 0 in a HELLO request.
    pub session: u32,
    /// Sequence number; 0 in unsequenced packets.
    pub seq: Seq,
    /// The next sequence number that the sender of this packet expects from its receiver.
    pub ack: Seq,
    /// Eager credit granted since the session began, units of 64 bytes, modulo 2^32.
    pub credit: u32,
    /// Meaning depends on the type: completion data or the number of a message, receive or
    /// operation.
    pub imm: u32,
}

impl Common {
    /// Writes whole words: a link that reads words need not wait for smaller stores to merge.
    #[inline(always)]
    pub(super) fn write(&self, kind: PacketType, out: &mut [u8; HEADER_MAX]) {
        let kinds = u64::from(VERSION) | (kind as u64) << 8 | u64::from(self.flags) << 16;
        let words = [
            kinds | u64::from(self.session) << 32,
            u64::from(self.seq.0) | u64::from(self.ack.0) << 32,
            u64::from(self.credit) | u64::from(self.imm) << 32,
        ];
        for (out, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *out = word.to_le_bytes();
        }
    }

    /// Reads the common header; `N` is at least [`COMMON_LEN`].
    #[inline(always)]
    pub(super) fn read<const N: usize>(bytes: &[u8; N]) -> Common {
        const { assert!(N >= COMMON_LEN) };
        Common {
            flags: u16::get(bytes, field::FLAGS.start),
            session: u32::get(bytes, field::SESSION.start),
            seq: Seq(u32::get(bytes, field::SEQ.start)),
            ack: Seq(u32::get(bytes, field::ACK.start)),
            credit: u32::get(bytes, field::CREDIT.start),
            imm: u32::get(bytes, field::IMM.start),
        }
    }
}

/// An encoded header, inline.
#[derive(Clone, Copy)]
pub struct HeaderBuf {
    pub(super) len: u8,
    pub(super) bytes: [u8; HEADER_MAX],
}

impl HeaderBuf {
    /// Makes an empty one.
    #[inline]
    pub const fn new() -> HeaderBuf {
        HeaderBuf { len: 0, bytes: [0; HEADER_MAX] }
    }

    /// Copies an encoded header, cut to the longest length.
    pub fn copy_of(header: &[u8]) -> HeaderBuf {
        let mut copy = HeaderBuf::new();
        let len = header.len().min(HEADER_MAX);
        copy.bytes[..len].copy_from_slice(&header[..len]);
        copy.len = len as u8;
        copy
    }

    /// Returns the encoded bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns the encoded bytes, to be changed.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.len)]
    }
}

impl Default for HeaderBuf {
    fn default() -> HeaderBuf {
        HeaderBuf::new()
    }
}

impl PartialEq for HeaderBuf {
    fn eq(&self, other: &HeaderBuf) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for HeaderBuf {}

impl fmt::Debug for HeaderBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeaderBuf({:02x?})", self.as_slice())
    }
}

/// Updates the acknowledgement and the credit of an encoded header, as a retransmission needs.
#[inline]
pub fn patch_ack(header: &mut HeaderBuf, ack: Seq, credit: u32) {
    header.bytes[field::ACK].copy_from_slice(&ack.0.to_le_bytes());
    header.bytes[field::CREDIT].copy_from_slice(&credit.to_le_bytes());
}

/// Returns the session number of a packet of this version, without decoding the rest: for links
/// that name the peer by it. `None` if there are too few bytes or the version differs.
#[inline]
pub fn session_of(bytes: &[u8]) -> Option<u32> {
    let head = bytes.first_chunk::<8>()?;
    (head[field::VERSION] == VERSION).then(|| u32::get(head, field::SESSION.start))
}

/// Changes the header of a DATA or EAGER_MORE packet into that of the packet `packets` and `bytes`
/// further on in its run.
#[inline]
pub fn advance(header: &mut [u8], packets: u32, bytes: u64) {
    if let Some(seq) = header.get_mut(field::SEQ).and_then(|s| s.first_chunk_mut()) {
        *seq = u32::from_le_bytes(*seq).wrapping_add(packets).to_le_bytes();
    }
    if let Some(at) = header.get_mut(super::Data::OFFSET.range()).and_then(|s| s.first_chunk_mut())
    {
        *at = u64::from_le_bytes(*at).wrapping_add(bytes).to_le_bytes();
    }
}

const _: () = assert!(
    super::Data::OFFSET.range().start == super::EagerMore::OFFSET.range().start
        && super::Data::LEN == super::EagerMore::LEN,
    "both kinds of runs look the same"
);

/// Bits of a session number that hold the index.
const INDEX_BITS: u32 = 20;

/// Returns the session number of a table index (low 20 bits) and a generation (high 12 bits).
/// Number 0 means "none", so an allocator starts generations at 1.
pub const fn session_number(index: u32, generation: u32) -> u32 {
    (generation << INDEX_BITS) | (index & ((1 << INDEX_BITS) - 1))
}

/// Returns the table index in a session number.
#[inline]
pub const fn session_index(session: u32) -> u32 {
    session & ((1 << INDEX_BITS) - 1)
}

/// Returns the generation in a session number.
#[inline]
pub const fn session_generation(session: u32) -> u32 {
    session >> INDEX_BITS
}

/// The reason why a header was refused. The packet is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer bytes than the header of its type needs.
    Short,
    /// Another version of the protocol.
    Version {
        /// The version byte found.
        found: u8,
    },
    /// A type this version does not define.
    Type {
        /// The type byte found.
        found: u8,
    },
    /// Reserved bits or bytes are not zero.
    Pad,
    /// A field holds a value outside its domain.
    Field,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Short => write!(
                f,
                "packet shorter than its header: check that every host on the path uses the same \
                 MTU"
            ),
            WireError::Version { found } => write!(
                f,
                "packet of protocol version {found}, this build speaks {VERSION}: \
                 run the same release of weft on every host"
            ),
            WireError::Type { found } => write!(
                f,
                "unknown packet type {found}: something else sends to this port, or the peer is \
                 newer"
            ),
            WireError::Pad => {
                write!(f, "reserved bits are set: corrupted packet, or a peer that is newer")
            }
            WireError::Field => {
                write!(f, "a header field is outside its domain: corrupted packet or a faulty peer")
            }
        }
    }
}

impl core::error::Error for WireError {}

/// A little-endian value of fixed size in a header.
pub trait Scalar: Copy {
    /// Size in bytes.
    const SIZE: usize;
    /// Reads it at `at`; the caller has checked that it lies inside `bytes`.
    fn get(bytes: &[u8], at: usize) -> Self;
    /// Writes it at `at`; the caller has checked that it lies inside `bytes`.
    fn put(self, bytes: &mut [u8], at: usize);
}

macro_rules! scalar {
    ($($ty:ty)*) => { $(
        impl Scalar for $ty {
            const SIZE: usize = size_of::<$ty>();
            #[inline(always)]
            fn get(bytes: &[u8], at: usize) -> $ty {
                let mut raw = [0; size_of::<$ty>()];
                raw.copy_from_slice(&bytes[at..at + size_of::<$ty>()]);
                <$ty>::from_le_bytes(raw)
            }
            #[inline(always)]
            fn put(self, bytes: &mut [u8], at: usize) {
                bytes[at..at + size_of::<$ty>()].copy_from_slice(&self.to_le_bytes());
            }
        }
    )* };
}

scalar! { u8 u16 u32 u64 }

impl Scalar for [u64; 4] {
    const SIZE: usize = 32;
    #[inline(always)]
    fn get(bytes: &[u8], at: usize) -> [u64; 4] {
        core::array::from_fn(|i| u64::get(bytes, at + 8 * i))
    }
    #[inline(always)]
    fn put(self, bytes: &mut [u8], at: usize) {
        for (i, word) in self.into_iter().enumerate() {
            word.put(bytes, at + 8 * i);
        }
    }
}

/// Declares one packet type from its field table.
///
/// `Name, header length; pad from..to; { field / CONSTANT: type = offset, "format"; }`. It
/// generates: the typed form, a [`Field`](super::Field) constant per field, `LEN`, `FIELDS`,
/// encoding, decoding (after a check that the pad is zero and that the optional `valid` holds) and
/// the display.
macro_rules! packet {
    (
        $(#[$doc:meta])*
        $name:ident, $len:literal;
        $( pad $pad:literal .. $pad_end:literal; )?
        $( valid $valid:path; )?
        {
            $(
                $(#[$fdoc:meta])*
                $field:ident / $konst:ident: $ty:ty = $at:literal, $show:literal;
            )+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $( $(#[$fdoc])* pub $field: $ty, )+ }

        impl $name {
            /// Header length in bytes, common part included.
            pub const LEN: usize = $len;

            $(
                #[doc = concat!("Where `", stringify!($field), "` lies in the header.")]
                pub const $konst: $crate::wire::Field<$ty> = $crate::wire::Field::new(
                    $crate::wire::PacketType::$name,
                    $at,
                );
            )+

            pub(super) const FIELDS: &'static [$crate::wire::FieldInfo] = &[
                $( $crate::wire::FieldInfo::at(
                    stringify!($field),
                    $at..$at + <$ty as $crate::wire::Scalar>::SIZE,
                ), )+
                $( $crate::wire::FieldInfo::at("pad", $pad..$pad_end), )?
            ];

            #[inline(always)]
            pub(super) fn write(&self, out: &mut [u8; $crate::wire::HEADER_MAX]) {
                $( $crate::wire::Scalar::put(self.$field, out, $at); )+
                $( out[$pad..$pad_end].fill(0); )?
            }

            #[inline(always)]
            pub(super) fn check(_header: &[u8; $len]) -> Result<(), $crate::wire::WireError> {
                $(
                    if _header[$pad..$pad_end].iter().any(|b| *b != 0) {
                        return Err($crate::wire::WireError::Pad);
                    }
                )?
                $(
                    if !$valid(&Self::read(_header)) {
                        return Err($crate::wire::WireError::Field);
                    }
                )?
                Ok(())
            }

            #[inline(always)]
            pub(super) fn read(header: &[u8; $len]) -> $name {
                $name { $( $field: <$ty as $crate::wire::Scalar>::get(header, $at), )+ }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $( write!(f, concat!(" ", stringify!($field), " ", $show), self.$field)?; )+
                Ok(())
            }
        }
    };
}
