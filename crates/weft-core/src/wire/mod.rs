//! The wire format, version 1: every packet as bytes and as a typed form.
//!
//! `PROTOCOL.md` is the definition; a test keeps its tables and this module equal. A packet is a
//! header (the common part of 24 bytes, then a fixed part per type, all little-endian) followed by
//! the payload. One file per packet family declares its fields once with `packet!` (header.rs),
//! which generates the typed form, the field constants, [`emit`], [`parse`], [`View`] and the
//! one-line display.
//!
//! Nothing here trusts its input: [`parse`] and [`View::new_checked`] refuse headers that are
//! short, unknown or have reserved bits set, and never panic.

#[macro_use]
mod header;
mod ack;
mod atomic;
mod control;
mod eager;
mod hello;
mod multicast;
mod piece;
mod pull;
mod rendezvous;
mod rma;
#[cfg(test)]
mod tests;
mod view;

pub use ack::Ack;
pub use atomic::{code, question, Atomic, Reply};
pub use control::{reason, Bye, Nop};
pub use eager::{Eager, EagerFirst, EagerMore};
pub use header::{
    advance, field, flags, patch_ack, session_generation, session_index, session_number,
    session_of, Common, FieldInfo, HeaderBuf, Scalar, WireError, COMMON_FIELDS, COMMON_LEN,
    HEADER_MAX, VERSION,
};
pub use hello::{Hello, TRUSTS, VERSION_MAX, VERSION_MIN};
pub use multicast::{member, Grant, Mcast};
pub use piece::{Piece, Probe, PIECES_MAX, PIECE_UNIT};
pub use pull::{Data, DirectDone, Pull};
pub use rendezvous::{status, Fin, Rts};
pub use rma::{Get, Put};
pub use view::{Field, Line, View};

use core::fmt;

/// Most unanswered puts, gets, atomic operations and messages with a receipt of one sender; more
/// wait.
pub const REQUESTS_MAX: u32 = 4096;

/// Declares the packet types once: number, name on screen and in `PROTOCOL.md`, and true if
/// sequenced.
macro_rules! packets {
    ($( $(#[$doc:meta])* $name:ident = $number:literal, $text:literal, $sequenced:literal; )*) => {
        /// Type of a packet: byte 1 of its header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum PacketType { $( $(#[$doc])* $name = $number, )* }

        impl PacketType {
            /// Every type, in order of number.
            pub const ALL: &'static [PacketType] = &[$( PacketType::$name, )*];

            /// Returns the name as in `PROTOCOL.md`: `EAGER`, `EAGER_FIRST`, ...
            pub const fn name(self) -> &'static str {
                match self { $( PacketType::$name => $text, )* }
            }

            /// Returns the header length in bytes, common part included.
            #[inline]
            pub const fn header_len(self) -> usize {
                match self { $( PacketType::$name => $name::LEN, )* }
            }

            /// Returns true if packets of this type take a sequence number and are retransmitted
            /// until acknowledged.
            #[inline]
            pub const fn is_sequenced(self) -> bool {
                match self { $( PacketType::$name => $sequenced, )* }
            }

            /// Returns the fields after the common header; the pad, if there is one, comes last.
            pub const fn fields(self) -> &'static [FieldInfo] {
                match self { $( PacketType::$name => $name::FIELDS, )* }
            }
        }

        impl TryFrom<u8> for PacketType {
            type Error = WireError;
            #[inline]
            fn try_from(number: u8) -> Result<PacketType, WireError> {
                match number {
                    $( $number => Ok(PacketType::$name), )*
                    found => Err(WireError::Type { found }),
                }
            }
        }

        /// The part of a header that belongs to its type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Packet { $( $(#[$doc])* $name($name), )* }

        impl Packet {
            /// Returns its type.
            #[inline]
            pub const fn packet_type(&self) -> PacketType {
                match self { $( Packet::$name(_) => PacketType::$name, )* }
            }

            #[inline]
            fn write(&self, out: &mut [u8; HEADER_MAX]) {
                match self { $( Packet::$name(p) => p.write(out), )* }
            }

            fn read(kind: PacketType, bytes: &[u8]) -> Result<Packet, WireError> {
                Ok(match kind {
                    $( PacketType::$name => {
                        let header = bytes.first_chunk::<{ $name::LEN }>().ok_or(WireError::Short)?;
                        $name::check(header)?;
                        Packet::$name($name::read(header))
                    } )*
                })
            }
        }

        impl fmt::Display for Packet {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $( Packet::$name(p) => p.fmt(f), )* }
            }
        }
    };
}

packets! {
    /// Opens a session, or answers.
    Hello = 1, "HELLO", false;
    /// Cumulative and selective acknowledgement, credit.
    Ack = 2, "ACK", false;
    /// A whole message.
    Eager = 3, "EAGER", true;
    /// First fragment of an eager message.
    EagerFirst = 4, "EAGER_FIRST", true;
    /// Further fragment of an eager message.
    EagerMore = 5, "EAGER_MORE", true;
    /// Announces a message: request to send.
    Rts = 6, "RTS", true;
    /// Asks for part of an announced message.
    Pull = 7, "PULL", true;
    /// A part of the data that PULL or GET requested.
    Data = 8, "DATA", true;
    /// The data that PULL requested was written by a remote copy.
    DirectDone = 9, "DIRECT_DONE", true;
    /// The receiver has the announced message.
    Fin = 10, "FIN", true;
    /// Writes to a registered region.
    Put = 11, "PUT", true;
    /// Reads from a registered region.
    Get = 12, "GET", true;
    /// Atomic operation on a word of a registered region.
    Atomic = 13, "ATOMIC", true;
    /// Result of PUT, GET or ATOMIC.
    Reply = 14, "REPLY", true;
    /// Empty: forces an acknowledgement.
    Nop = 15, "NOP", true;
    /// Closes a session.
    Bye = 16, "BYE", false;
    /// A packet of a multicast group, between agents.
    Mcast = 17, "MCAST", true;
    /// Credit in a multicast group, between agents.
    Grant = 18, "GRANT", true;
    /// Asks if a packet of its length gets through, or answers.
    Probe = 19, "PROBE", false;
    /// Part of a packet that has its number: see [`Piece`].
    Piece = 20, "PIECE", false;
}

impl Packet {
    /// Returns the header length in bytes, common part included.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.packet_type().header_len()
    }

    /// Returns true if it takes a sequence number and is retransmitted until acknowledged.
    #[inline]
    pub const fn is_sequenced(&self) -> bool {
        self.packet_type().is_sequenced()
    }
}

/// Encodes a header. EAGER, the latency path, compiles to plain stores.
#[inline]
pub fn emit(common: &Common, packet: &Packet) -> HeaderBuf {
    if let Packet::Eager(eager) = packet {
        // A separate buffer: one shared with the call below would be copied out of the stack.
        let mut out = HeaderBuf::new();
        emit_eager(common, eager, &mut out);
        return out;
    }
    let mut out = HeaderBuf::new();
    emit_other(common, packet, &mut out);
    out
}

/// Encodes a header over whatever `out` held.
#[inline]
pub fn emit_into(common: &Common, packet: &Packet, out: &mut HeaderBuf) {
    match packet {
        Packet::Eager(eager) => emit_eager(common, eager, out),
        _ => emit_other(common, packet, out),
    }
}

#[inline(always)]
fn emit_eager(common: &Common, eager: &Eager, out: &mut HeaderBuf) {
    common.write(PacketType::Eager, &mut out.bytes);
    eager.write(&mut out.bytes);
    out.len = Eager::LEN as u8;
}

fn emit_other(common: &Common, packet: &Packet, out: &mut HeaderBuf) {
    common.write(packet.packet_type(), &mut out.bytes);
    packet.write(&mut out.bytes);
    out.len = packet.header_len() as u8;
}

/// Decodes the header at the start of `bytes`; returns its two parts and its length in bytes. The
/// payload follows.
///
/// # Errors
/// Refuses headers that are short, of an unknown version or type, with reserved bits or pads set,
/// or with a field outside its domain. The packet must then be dropped and counted.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<(Common, Packet, usize), WireError> {
    if let Some(header) = bytes.first_chunk::<{ Eager::LEN }>() {
        if header[field::VERSION] == VERSION && header[field::TYPE] == PacketType::Eager as u8 {
            let common = Common::read(header);
            if common.flags & flags::RESERVED == 0 {
                return Ok((common, Packet::Eager(Eager::read(header)), Eager::LEN));
            }
        }
    }
    parse_other(bytes)
}

/// Decodes the header of a message of one packet with the flags `kind` and no others, except
/// completion data and the request for an acknowledgement. `kind` is 0 for a message that matches
/// by its tag, `ACTIVE` for a packet of the packet interface. Returns `None` for all others,
/// malformed ones included: [`parse`] handles those.
#[inline]
pub fn parse_message(header: &[u8], kind: u16) -> Option<(Common, Eager)> {
    let header: &[u8; Eager::LEN] = header.try_into().ok()?;
    let common = Common::read(header);
    let plain = header[field::VERSION] == VERSION
        && header[field::TYPE] == PacketType::Eager as u8
        && common.flags & !(flags::DATA64 | flags::ACKNOW) == kind;
    plain.then(|| (common, Eager::read(header)))
}

fn parse_other(bytes: &[u8]) -> Result<(Common, Packet, usize), WireError> {
    let version = *bytes.first().ok_or(WireError::Short)?;
    if version != VERSION {
        return Err(WireError::Version { found: version });
    }
    let header = bytes.first_chunk::<COMMON_LEN>().ok_or(WireError::Short)?;
    let kind = PacketType::try_from(header[field::TYPE])?;
    let common = Common::read(header);
    if common.flags & flags::RESERVED != 0 {
        return Err(WireError::Pad);
    }
    let packet = Packet::read(kind, bytes)?;
    Ok((common, packet, kind.header_len()))
}
