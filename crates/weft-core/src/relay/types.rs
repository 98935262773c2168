//! Types of the relay's interface.

#[cfg(doc)]
use super::{Relay, Shares, LINKS_MAX};
use crate::id::PeerId;
use crate::seq::Seq;
use crate::wire::{HeaderBuf, PacketType, Piece};

/// A payload that the caller keeps, as a number of the caller's; 0 for none.
pub type Handle = u32;

/// One of the caller's links to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTo {
    /// The caller's number for it.
    pub link: u8,
    /// Delay in nanoseconds: all but bulk data takes the link of the lowest.
    pub latency_ns: u32,
    /// Rate in bytes per microsecond: if packets queue, they take the link of the highest.
    pub bytes_per_us: u32,
    /// Longest packet that it carries, in bytes.
    pub mtu: u32,
}

/// The caller's action on a packet from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// None: it was for the relay, is a duplicate, or cannot be accepted.
    Drop,
    /// Pass it to the rank now; with its peer, if the rank has connected to it.
    Deliver(Option<PeerId>),
    /// Keep it until [`Relay::next_held`] names it.
    Hold(PeerId, Seq),
    /// Part of the packet with the first number; the second is the next expected one. Keep it until
    /// all parts are here, then pass that packet to [`Relay::from_wire`].
    Piece(PeerId, [Seq; 2], Piece),
}

/// The caller's room for packets from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerRoom {
    /// For a packet that goes to the rank.
    pub deliver: bool,
    /// For a packet that is held after a gap.
    pub hold: bool,
}

impl CallerRoom {
    /// For both.
    pub const ANY: CallerRoom = CallerRoom { deliver: true, hold: true };
    /// For neither.
    pub const NONE: CallerRoom = CallerRoom { deliver: false, hold: false };
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    /// The destination.
    pub peer: PeerId,
    /// The caller's link.
    pub link: u8,
    /// The header.
    pub header: HeaderBuf,
    /// Its payload, if any.
    pub payload: Handle,
    /// Zeros to send in place of a payload, in bytes.
    pub padding: u32,
    /// Longest packet that is known to get through, in bytes: the caller sends a longer one with a
    /// number in pieces.
    pub fits: u32,
    /// True if the payload is no longer needed after this.
    pub last: bool,
}

impl Out {
    /// Makes a packet without payload, of any length.
    pub(super) fn bare(peer: PeerId, link: u8, header: HeaderBuf) -> Out {
        Out { peer, link, header, payload: 0, padding: 0, fits: u32::MAX, last: false }
    }
}

/// An event that the caller reports to the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayEvent {
    /// A peer was silent for so many milliseconds and was given up.
    Lost(PeerId, u32),
    /// A peer is heard, but packets to it did not get through for so many milliseconds; the oldest
    /// has this type and this payload. The caller forgets the peer.
    Stuck(PeerId, u32, PacketType, Handle),
    /// This number of packets of the rank to a peer, counted from its first, no longer waits: see
    /// [`Shares::on_left`].
    Left(PeerId, u32),
    /// [`Relay::inject`] was refused, and has room now.
    Room,
    /// Packets of at most so many bytes get through to a peer from now on.
    Path(PeerId, u32),
}
