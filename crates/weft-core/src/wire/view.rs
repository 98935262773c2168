//! A checked view of an encoded packet, and the one-line display.

use super::{flags, parse, Common, Packet, PacketType, Scalar, WireError};
use core::fmt;
use core::marker::PhantomData;

/// Names one field of one packet type: `Eager::TAG`, `Rts::TOTAL`, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<T> {
    kind: PacketType,
    offset: usize,
    value: PhantomData<T>,
}

impl<T: Scalar> Field<T> {
    pub(super) const fn new(kind: PacketType, offset: usize) -> Field<T> {
        assert!(offset >= super::COMMON_LEN && offset + T::SIZE <= super::HEADER_MAX);
        Field { kind, offset, value: PhantomData }
    }

    /// Returns the packet type it belongs to.
    pub const fn packet_type(self) -> PacketType {
        self.kind
    }

    /// Returns its range, bytes from the start of the packet.
    pub const fn range(self) -> core::ops::Range<usize> {
        self.offset..self.offset + T::SIZE
    }
}

/// A packet whose header has been checked; fields are read in place.
#[derive(Clone, Copy)]
pub struct View<'a> {
    bytes: &'a [u8],
    kind: PacketType,
}

impl<'a> View<'a> {
    /// Checks the header at the start of `bytes`, exactly as [`parse`] does.
    ///
    /// # Errors
    /// Returns the errors of [`parse`].
    pub fn new_checked(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (_, packet, _) = parse(bytes)?;
        Ok(View { bytes, kind: packet.packet_type() })
    }

    /// Returns the packet type.
    pub fn packet_type(&self) -> PacketType {
        self.kind
    }

    /// Returns the flags: bits of [`flags`].
    pub fn flags(&self) -> u16 {
        u16::get(self.bytes, super::field::FLAGS.start)
    }

    /// Returns the session number.
    pub fn session(&self) -> u32 {
        u32::get(self.bytes, super::field::SESSION.start)
    }

    /// Returns the sequence number; 0 in unsequenced packets.
    pub fn seq(&self) -> crate::Seq {
        crate::Seq(u32::get(self.bytes, super::field::SEQ.start))
    }

    /// Returns the cumulative acknowledgement.
    pub fn ack(&self) -> crate::Seq {
        crate::Seq(u32::get(self.bytes, super::field::ACK.start))
    }

    /// Returns the cumulative credit, units of 64 bytes.
    pub fn credit(&self) -> u32 {
        u32::get(self.bytes, super::field::CREDIT.start)
    }

    /// Returns the word whose meaning depends on the type.
    pub fn imm(&self) -> u32 {
        u32::get(self.bytes, super::field::IMM.start)
    }

    /// Returns a field of the fixed part; `None` if the packet is of another type than the field.
    pub fn get<T: Scalar>(&self, field: Field<T>) -> Option<T> {
        (field.kind == self.kind).then(|| T::get(self.bytes, field.offset))
    }

    /// Returns the encoded header.
    pub fn header(&self) -> &'a [u8] {
        &self.bytes[..self.kind.header_len()]
    }

    /// Returns the payload.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.kind.header_len()..]
    }
}

impl fmt::Display for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (common, packet, _) = parse(self.bytes).map_err(|_| fmt::Error)?;
        write!(f, "{} len {}", Line(&common, &packet), self.payload().len())
    }
}

/// Displays a packet in one line: `EAGER #5 ack #3 session 0x100007 ... tag 0x2a`.
#[derive(Clone, Copy)]
pub struct Line<'a>(pub &'a Common, pub &'a Packet);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line(common, packet) = self;
        f.write_str(packet.packet_type().name())?;
        for (bit, name) in flags::NAMES.iter().enumerate() {
            if common.flags & (1 << bit) != 0 {
                write!(f, "|{name}")?;
            }
        }
        if packet.is_sequenced() {
            write!(f, " {}", common.seq)?;
        }
        write!(
            f,
            " ack {} session {:#x} credit {} imm {}{packet}",
            common.ack, common.session, common.credit, common.imm
        )
    }
}
