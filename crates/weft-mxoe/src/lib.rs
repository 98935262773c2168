//! The wire format of Myrinet Express over Ethernet (MXoE): every packet type in both dialects.
//!
//! A frame is an Ethernet header of type [`ETHERTYPE`], the receiver's index of the sender, and a
//! packet, in network byte order. [`View`] checks received bytes and [`Frame::encode`] makes a
//! header. Both follow one list of fields for each packet type (`layout`). The format has no
//! version: two hosts must be set to the same [`Dialect`]. It has no authentication either.
//! [`node`] is an endpoint that speaks it.
//!
//! ```
//! use weft_mxoe::{Dialect, Ends, Frame, Message, Packet, View};
//!
//! let ends = Ends { to: 3, from: 1, generation: 0 };
//! let message = Message { ends, len: 2, seq: 1, match_bits: 7, session: 9, ..Message::default() };
//! let frame = Frame::new(5, Packet::Tiny(message));
//! let mut bytes = frame.encode(Dialect::Native).unwrap().to_vec();
//! bytes.extend_from_slice(b"hi");
//! let view = View::new_checked(Dialect::Native, &bytes).unwrap();
//! assert_eq!((view.frame(), view.payload()), (&frame, &b"hi"[..]));
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod layout;
pub mod node;
mod packet;
#[cfg(test)]
mod tests;

use core::fmt;
pub use packet::{
    Ack, ConnectReply, ConnectRequest, Ends, Host, Medium, Message, NackLib, NackMcp, Notify,
    Packet, Pull, PullReply, Refusal, Rendezvous, Window, MEDIUM_MAX, SMALL_MAX, TINY_MAX,
};

/// The type of Ethernet frames that carry MXoE.
pub const ETHERTYPE: u16 = 0x86DF;
/// Length of the longest header, without that of Ethernet.
pub const HEADER_MAX: usize = 46;
/// Flag in the byte of the packet type: the receiver's card should interrupt at once.
const URGENT: u8 = 0x80;

/// The form of the format that the hosts of a network use. No field tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The form of native MX: fragments of 4 KiB, 8 replies for each block of a pull.
    Compat,
    /// The form of Open-MX by default: lengths of 32 bits, fragments of 8 KiB, 32 replies for each
    /// block.
    Native,
}

impl Dialect {
    /// Length of the longest fragment of a medium message.
    pub const fn fragment_max(self) -> u16 {
        match self {
            Dialect::Compat => 4096,
            Dialect::Native => 8192,
        }
    }

    /// Length of the longest payload of a pull's reply: in the native dialect, a frame of 9000
    /// bytes without headers.
    pub const fn reply_max(self) -> u16 {
        match self {
            Dialect::Compat => 4096,
            Dialect::Native => 9000 - 16 - 16,
        }
    }

    /// Number of replies to one block of a pull.
    pub const fn replies_per_block(self) -> u32 {
        match self {
            Dialect::Compat => 8,
            Dialect::Native => 32,
        }
    }
}

/// Everything before the payload, after the header of Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The receiver's index of the sender, which it told when it connected.
    pub peer_index: u16,
    /// True if the receiver's card should interrupt at once.
    pub urgent: bool,
    /// The packet.
    pub packet: Packet,
}

impl Frame {
    /// Makes a frame that asks for no interrupt.
    pub fn new(peer_index: u16, packet: Packet) -> Frame {
        Frame { peer_index, urgent: false, packet }
    }

    /// Encodes the header; the payload follows it on the wire.
    ///
    /// # Errors
    /// A number is too wide for its field in this dialect.
    pub fn encode(&self, dialect: Dialect) -> Result<Header, TooWide> {
        let mut writer = layout::Writer::new();
        let flag = if self.urgent { URGENT } else { 0 };
        let mut frame = self.clone();
        layout::Walk::u16(&mut writer, &mut frame.peer_index);
        layout::Walk::u8(&mut writer, &mut (frame.packet.code() | flag));
        layout::packet(&mut frame.packet, dialect, &mut writer);
        writer.finish()
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urgent = if self.urgent { " urgent" } else { "" };
        write!(f, "mxoe peer {}{urgent} {:?}", self.peer_index, self.packet)
    }
}

/// An encoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; HEADER_MAX],
    len: usize,
}

impl core::ops::Deref for Header {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A number is too wide for its field in the dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooWide;

impl fmt::Display for TooWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number is too wide for its field in this dialect of MXoE")
    }
}

/// The reason why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than the header of its type.
    Short,
    /// A type without a meaning here.
    Type(u8),
    /// Content of an unknown kind in a packet of this type.
    Content(u8),
    /// A payload length that its type does not have, or that exceeds the frame or the message.
    Length(u32),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Short => f.write_str("shorter than its header"),
            Malformed::Type(code) => write!(f, "packet type {code} has no meaning"),
            Malformed::Content(code) => write!(f, "content of kind {code} is unknown"),
            Malformed::Length(len) => write!(f, "a length of {len} bytes is wrong"),
        }
    }
}

/// A received frame whose every field was checked against the bytes that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View<'a> {
    frame: Frame,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks the bytes after the header of Ethernet. More bytes than the packet states are the
    /// padding of a short Ethernet frame.
    ///
    /// # Errors
    /// The bytes are no packet of the dialect.
    pub fn new_checked(dialect: Dialect, bytes: &'a [u8]) -> Result<View<'a>, Malformed> {
        if bytes.len() < 3 {
            return Err(Malformed::Short);
        }
        let mut reader = layout::Reader::new(bytes);
        let (mut peer_index, mut code) = (0, 0);
        layout::Walk::u16(&mut reader, &mut peer_index);
        layout::Walk::u8(&mut reader, &mut code);
        let mut packet = layout::empty(code & !URGENT, bytes)?;
        layout::packet(&mut packet, dialect, &mut reader);
        let rest = reader.finish()?;
        let len = packet.payload_len(dialect)?;
        let payload = rest.get(..len).ok_or(Malformed::Length(len as u32))?;
        let frame = Frame { peer_index, urgent: code & URGENT != 0, packet };
        Ok(View { frame, payload })
    }

    /// Returns the header.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Returns the bytes of the message that the packet carries, or a host's name.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl fmt::Display for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} payload {}", self.frame, self.payload.len())
    }
}
