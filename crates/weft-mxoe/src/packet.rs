//! The packet types.

use crate::{Dialect, Malformed};

/// Length of the longest payload of a tiny message.
pub const TINY_MAX: u16 = 32;
/// Length of the longest payload of a small message.
pub const SMALL_MAX: u16 = 128;
/// Length of the longest message in fragments; longer ones are pulled.
pub const MEDIUM_MAX: u32 = 32768;

/// The endpoints of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Number of the receiving endpoint on its host.
    pub to: u8,
    /// Number of the sending endpoint on its host.
    pub from: u8,
    /// Generation of the sending endpoint.
    pub generation: u8,
}

/// The fields that all packets of messages have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The endpoints.
    pub ends: Ends,
    /// Length of the whole message; of a rendezvous, that of the data behind its header (8).
    pub len: u32,
    /// Checksum of the payload, 0 if there is none. A medium message has its own instead.
    pub checksum: u16,
    /// Sequence number: 14 bits, and 2 of the session.
    pub seq: u16,
    /// Acknowledgement of the other direction.
    pub ack: u16,
    /// Match bits.
    pub match_bits: u64,
    /// Session of the receiver, which it told when it connected.
    pub session: u32,
}

/// One fragment of a medium message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Medium {
    /// The message; its checksum field is not on the wire.
    pub message: Message,
    /// Length of the fragment.
    pub fragment_len: u16,
    /// Number of the fragment in its message.
    pub fragment: u8,
    /// Binary logarithm of the fragments' length (12); only in the compatible dialect.
    pub pipeline: u8,
    /// Checksum of the fragment, 0 if there is none.
    pub checksum: u16,
}

/// Memory of the sender that the receiver pulls from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Number of the window; 8 bits, but 32 in a pull of the native dialect.
    pub id: u32,
    /// Number of the window's use.
    pub seq: u8,
    /// Offset in the first page; 16 bits, but 32 in a pull of the native dialect.
    pub offset: u32,
}

/// Announcement of a message that is to be pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rendezvous {
    /// The message; its length is that of the announcement's data, 8.
    pub message: Message,
    /// Length of the announced message.
    pub len: u32,
    /// The memory that has it.
    pub window: Window,
}

/// Request for a block of an announced message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pull {
    /// The endpoints.
    pub ends: Ends,
    /// Session of the receiver of this packet.
    pub session: u32,
    /// Length of the whole pull.
    pub total: u32,
    /// Memory to pull from.
    pub window: Window,
    /// The puller's handle: an index of 10 bits and a generation of 22.
    pub handle: u32,
    /// The puller's magic number.
    pub magic: u32,
    /// Offset in the first frame of the block.
    pub first_offset: u32,
    /// Length of the block.
    pub block_len: u32,
    /// Number of the block's first frame.
    pub frame_index: u32,
}

/// One frame of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullReply {
    /// Number of the frame, modulo 256.
    pub seq: u8,
    /// Length of the payload.
    pub len: u16,
    /// Offset of the payload in the message.
    pub offset: u32,
    /// The puller's handle.
    pub handle: u32,
    /// The puller's magic number.
    pub magic: u32,
}

/// The end of a pull.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notify {
    /// The endpoints.
    pub ends: Ends,
    /// Session of the receiver of this packet.
    pub session: u32,
    /// Length of the whole pull.
    pub total: u32,
    /// Number of the pulled window: 8 bits.
    pub window: u8,
    /// Number of the window's use.
    pub window_seq: u8,
    /// Sequence number.
    pub seq: u16,
    /// Acknowledgement of the other direction.
    pub ack: u16,
}

/// Request to connect two endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The endpoints.
    pub ends: Ends,
    /// Sequence number.
    pub seq: u16,
    /// The sender's index of the receiver, for the head of later frames.
    pub peer_index: u16,
    /// Session of the sender.
    pub session: u32,
    /// Key that the receiver compares with its own.
    pub key: u32,
    /// Sequence number that the sender expects next.
    pub recv_start: u16,
    /// Number of this request.
    pub connect_seq: u8,
}

/// Answer to a request to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectReply {
    /// The endpoints.
    pub ends: Ends,
    /// Sequence number.
    pub seq: u16,
    /// The sender's index of the receiver, for the head of later frames.
    pub peer_index: u16,
    /// Session of the endpoint that asked.
    pub asking_session: u32,
    /// Session of the endpoint that answers.
    pub session: u32,
    /// Sequence number that the sender expects next.
    pub recv_start: u16,
    /// Number of the answered request.
    pub connect_seq: u8,
    /// 0, or 11 for a wrong key.
    pub status: u8,
}

/// An acknowledgement that no message carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The endpoints.
    pub ends: Ends,
    /// Session of the receiver of this packet.
    pub session: u32,
    /// The acknowledgement.
    pub seq: u16,
    /// Session that is acknowledged.
    pub acked_session: u32,
    /// Number of this acknowledgement.
    pub number: u32,
    /// Sequence number that the sender sends next.
    pub send_seq: u16,
    /// True if it was sent because of a resent packet: nonzero.
    pub resent: u8,
}

/// A question for a host's name, or the answer; the name is the answer's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The asking host's index of the other.
    pub peer_index: u16,
    /// Number that the answer repeats.
    pub magic: u32,
    /// Length of the name; 0 in a question.
    pub name_len: u8,
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// There is no such endpoint.
    #[default]
    BadEndpoint = 1,
    /// The endpoint is closed.
    Closed = 2,
    /// The session is another one.
    BadSession = 3,
    /// There is no such window.
    BadWindow = 4,
}

impl Refusal {
    pub(crate) fn of(code: u8) -> Option<Refusal> {
        let all = [Refusal::BadEndpoint, Refusal::Closed, Refusal::BadSession, Refusal::BadWindow];
        all.into_iter().find(|refusal| *refusal as u8 == code)
    }
}

/// Refusal of a message or a request to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NackLib {
    /// Number of the refusing endpoint.
    pub from: u8,
    /// Generation of the refusing endpoint.
    pub generation: u8,
    /// The reason.
    pub refusal: Refusal,
    /// Number of the refused endpoint.
    pub to: u8,
    /// The refusing host's index of the other.
    pub peer_index: u16,
    /// Sequence number of the refused packet.
    pub seq: u16,
}

/// Refusal of a pull.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NackMcp {
    /// Number of the refusing endpoint.
    pub from: u8,
    /// Generation of the refusing endpoint.
    pub generation: u8,
    /// The reason.
    pub refusal: Refusal,
    /// The puller's handle.
    pub handle: u32,
    /// The puller's magic number.
    pub magic: u32,
}

/// A packet. Types 1, 2, 32, 33 and 34 (raw, the mapper's, and Ethernet over Myrinet) have no
/// layout here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The types' own documentation says it.
pub enum Packet {
    HostQuery(Host),
    HostReply(Host),
    Ack(Ack),
    ConnectRequest(ConnectRequest),
    ConnectReply(ConnectReply),
    Tiny(Message),
    Small(Message),
    Medium(Medium),
    Rendezvous(Rendezvous),
    Pull(Pull),
    PullReply(PullReply),
    Notify(Notify),
    NackLib(NackLib),
    NackMcp(NackMcp),
}

impl Packet {
    /// Returns the number of the packet's type.
    pub fn code(&self) -> u8 {
        match self {
            Packet::HostQuery(_) => 3,
            Packet::HostReply(_) => 4,
            Packet::Ack(_) => 35,
            Packet::ConnectRequest(_) | Packet::ConnectReply(_) => 36,
            Packet::Tiny(_) => 37,
            Packet::Small(_) => 38,
            Packet::Medium(_) => 39,
            Packet::Rendezvous(_) => 40,
            Packet::Pull(_) => 41,
            Packet::PullReply(_) => 42,
            Packet::Notify(_) => 43,
            Packet::NackLib(_) => 44,
            Packet::NackMcp(_) => 45,
        }
    }

    /// Returns the number of bytes that follow the header.
    ///
    /// # Errors
    /// The type has no such payload, or its fragment lies outside of its message.
    pub fn payload_len(&self, dialect: Dialect) -> Result<usize, Malformed> {
        let within = |len: u32, max: u32| match len <= max {
            true => Ok(len as usize),
            false => Err(Malformed::Length(len)),
        };
        match self {
            Packet::Tiny(message) => within(message.len, TINY_MAX.into()),
            Packet::Small(message) => within(message.len, SMALL_MAX.into()),
            Packet::Medium(medium) => {
                within(medium.message.len, MEDIUM_MAX)?;
                let each = match dialect {
                    Dialect::Compat if medium.pipeline <= 12 => 1 << medium.pipeline,
                    Dialect::Compat => return Err(Malformed::Length(medium.fragment_len.into())),
                    // Fragments of frames of 1500 bytes are shorter; a sender's MTU is not told.
                    Dialect::Native => 0,
                };
                let before = u32::from(medium.fragment) * each;
                let left = medium.message.len.saturating_sub(before);
                within(medium.fragment_len.into(), left.min(dialect.fragment_max().into()))
            }
            Packet::PullReply(reply) => within(reply.len.into(), dialect.reply_max().into()),
            Packet::HostReply(host) => Ok(host.name_len.into()),
            Packet::Rendezvous(rendezvous) if rendezvous.message.len != 8 => {
                Err(Malformed::Length(rendezvous.message.len))
            }
            _ => Ok(0),
        }
    }
}
