//! The engine's inputs and outputs.

use crate::error::{OpError, PeerFailure};
use crate::id::{OpId, PeerId};
use crate::seq::Seq;
use crate::time::Instant;
use crate::wire::{self, HeaderBuf};
use core::time::Duration;

/// The source of a packet's payload: the driver resolves it to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No payload.
    None,
    /// Part of an operation's buffer.
    Op {
        /// The operation.
        op: OpId,
        /// Offset in its buffer.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Part of a registered region.
    Region {
        /// The region's key.
        key: u64,
        /// Offset in the region.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// This endpoint's encoded address.
    Address,
    /// Bytes of zero.
    Padding {
        /// Number of bytes.
        len: u32,
    },
}

impl Payload {
    /// Returns the number of a message's bytes in it.
    #[inline]
    pub fn len(&self) -> u32 {
        match *self {
            Payload::Op { len, .. } | Payload::Region { len, .. } => len,
            Payload::Padding { len } => len,
            Payload::None | Payload::Address => 0,
        }
    }

    /// Returns `bytes` bytes of it from `at` on.
    #[must_use]
    pub fn part(mut self, at: u32, bytes: u32) -> Payload {
        if let Payload::Op { offset, len, .. } | Payload::Region { offset, len, .. } = &mut self {
            *offset += u64::from(at);
            *len = bytes;
        }
        self
    }

    /// Returns true if it has no byte of a message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A packet to send.
#[derive(Clone, Copy)]
pub struct Transmit {
    /// The destination.
    pub peer: PeerId,
    /// Encoded header.
    pub header: HeaderBuf,
    /// The payload after the header.
    pub payload: Payload,
    /// Number of packets: 1, or a run of DATA or EAGER_MORE packets that share `payload` in equal
    /// parts and whose headers differ from `header`, the first one's, in sequence number and offset
    /// ([`wire::advance`]).
    pub packets: u32,
    /// True if it takes the link of bulk data, if that is a link of its own.
    pub bulk: bool,
    /// The stripe of its link that it takes, below [`LinkCaps::stripes`](crate::LinkCaps).
    pub stripe: u8,
    /// Set if it is a part of the packet that `header` belongs to: the link sends the header that
    /// [`Piece::header_of`](wire::Piece::header_of) makes, then `header` and `payload`.
    pub piece: Option<wire::Piece>,
}

impl Transmit {
    /// Returns the bytes of each packet.
    #[inline]
    pub fn packet_len(&self) -> u32 {
        let payload = self.payload.len();
        let each = if self.packets > 1 { payload / self.packets } else { payload };
        let around = if self.piece.is_some() { wire::Piece::LEN as u32 } else { 0 };
        self.header.as_slice().len() as u32 + each + around
    }

    /// Makes one packet.
    pub(crate) fn one(peer: PeerId, header: HeaderBuf, payload: Payload) -> Transmit {
        Transmit { peer, header, payload, packets: 1, bulk: false, stripe: 0, piece: None }
    }

    /// Removes the first `taken` packets of a run, fewer than it has.
    pub fn skip(&mut self, taken: u32) {
        let each = self.payload.len() / self.packets.max(1);
        let bytes = each * taken;
        wire::advance(self.header.as_mut_slice(), taken, u64::from(bytes));
        self.packets -= taken;
        if let Payload::Op { offset, len, .. } | Payload::Region { offset, len, .. } =
            &mut self.payload
        {
            *offset += u64::from(bytes);
            *len -= bytes;
        }
    }
}

/// The driver's action on the payload of a packet just handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Nothing.
    None,
    /// Copy the first `len` bytes into the operation's buffer at `offset`.
    Recv {
        /// The operation.
        op: OpId,
        /// Offset in its buffer.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Copy the first `status.len` bytes into the operation's buffer; the operation is complete.
    Done(Completion),
    /// Copy the first `status.len` bytes to the caller that awaits the message, which is complete.
    Awaited(Awaited),
    /// Copy into the store of unexpected message `id` at `offset`; at offset 0 allocate `total`
    /// bytes.
    Store {
        /// Number of the unexpected message.
        id: u32,
        /// Offset in the message.
        offset: u64,
        /// Length of the message.
        total: u64,
    },
    /// The last part of a stored active message: copy it into the store at `offset`; the message is
    /// then complete, and goes to the client that `tag` names. Its credit stays with it until
    /// `PeerMut::release`.
    ActiveStored {
        /// Number of the stored message.
        id: u32,
        /// Offset of the payload at hand.
        offset: u64,
        /// The sender.
        peer: PeerId,
        /// Number of the client and the message (low 32 bits) and argument (high 32 bits).
        tag: u64,
    },
    /// A whole active message, as of `ActiveStored`.
    Active {
        /// The sender.
        peer: PeerId,
        /// Number of the client and the message (low 32 bits) and argument (high 32 bits).
        tag: u64,
    },
    /// Keep the whole packet under (peer, seq) until `poll_replay` names it.
    Hold {
        /// The sender.
        peer: PeerId,
        /// Its sequence number.
        seq: Seq,
    },
    /// Keep the payload, a part of the packet (peer, seq), until all parts are here; then handle
    /// that packet. Parts of packets before `expected` are no longer needed.
    Piece {
        /// The sender.
        peer: PeerId,
        /// The packet's sequence number.
        seq: Seq,
        /// The next expected sequence number.
        expected: Seq,
        /// The part.
        piece: wire::Piece,
    },
    /// A packet of `size` bytes with this number, from `PeerMut::ask_size`, got through.
    Probed {
        /// The receiver of the packet.
        peer: PeerId,
        /// Its number.
        number: u32,
        /// Bytes.
        size: u32,
    },
    /// Copy into a registered region.
    Region {
        /// The region's key.
        key: u64,
        /// Offset in the region.
        offset: u64,
        /// The sender of the packet.
        peer: PeerId,
        /// Its operation: where there is no such memory any more, the driver says so to
        /// `MemoryMut::handle_put_unmapped`.
        put: u32,
    },
    /// Do an atomic operation on 8 bytes of a region and answer with `handle_atomic_done`.
    Atomic(AtomicRequest),
    /// The payload is the peer's encoded address; connect the link to it unless it is connected.
    Hello {
        /// The peer, possibly new.
        peer: PeerId,
        /// True if it was unknown before.
        new: bool,
    },
}

/// An atomic operation to execute on this endpoint's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The peer that requests it.
    pub peer: PeerId,
    /// The peer's number for the operation.
    pub op: u32,
    /// The region's key.
    pub key: u64,
    /// Offset in the region, a multiple of 8.
    pub offset: u64,
    /// The operation.
    pub code: AtomicCode,
    /// Operand.
    pub operand: u64,
    /// Compared value of compare-and-swap.
    pub compare: u64,
}

/// Atomic operations on 64-bit little-endian integers; all return the old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AtomicCode {
    /// Wrapping addition.
    FetchAdd = 1,
    /// Store the operand if the old value equals `compare`.
    CompareSwap = 2,
    /// Store the operand.
    Swap = 3,
    /// Bitwise and.
    FetchAnd = 4,
    /// Bitwise or.
    FetchOr = 5,
    /// Bitwise exclusive or.
    FetchXor = 6,
    /// Asks the owner's agent for access to the counter in its kernel; changes nothing.
    Client = 7,
}

impl AtomicCode {
    /// Decodes a code of the wire.
    pub fn from_wire(code: u8) -> Option<AtomicCode> {
        Some(match code {
            1 => AtomicCode::FetchAdd,
            2 => AtomicCode::CompareSwap,
            3 => AtomicCode::Swap,
            4 => AtomicCode::FetchAnd,
            5 => AtomicCode::FetchOr,
            6 => AtomicCode::FetchXor,
            7 => AtomicCode::Client,
            _ => return None,
        })
    }

    /// Returns the new value.
    pub fn apply(self, old: u64, operand: u64, compare: u64) -> u64 {
        match self {
            AtomicCode::FetchAdd => old.wrapping_add(operand),
            AtomicCode::CompareSwap if old == compare => operand,
            AtomicCode::CompareSwap => old,
            AtomicCode::Swap => operand,
            AtomicCode::FetchAnd => old & operand,
            AtomicCode::FetchOr => old | operand,
            AtomicCode::FetchXor => old ^ operand,
            AtomicCode::Client => old,
        }
    }
}

/// The type of a finished operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// A send, or an active message.
    Send,
    /// A receive.
    Recv,
    /// A put.
    Put,
    /// A get.
    Get,
    /// An atomic operation.
    Atomic,
}

/// The result of an operation that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The other endpoint.
    pub source: Option<PeerId>,
    /// Match bits of the message.
    pub tag: u64,
    /// Bytes moved.
    pub len: u64,
    /// Completion data of the sender, if any.
    pub data: Option<u64>,
    /// Old value, for atomic operations.
    pub value: u64,
}

/// A message that was received without an operation (see `MatchingMut::await_message`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The message's source, tag and length.
    pub status: Status,
    /// Truncation, if the buffer was too short.
    pub error: Option<OpError>,
}

/// A finished operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation.
    pub op: OpId,
    /// The caller's context.
    pub context: u64,
    /// Its type.
    pub kind: OpKind,
    /// The reason of the failure, if it failed.
    pub error: Option<OpError>,
    /// Source, tag and bytes moved; also of a message that was truncated.
    pub status: Status,
    /// The engine holds no more reference to the buffer. Otherwise `Event::Release` follows.
    pub released: bool,
}

impl Completion {
    /// Returns the status, or the error.
    pub fn result(&self) -> Result<Status, OpError> {
        self.error.map_or(Ok(self.status), Err)
    }
}

/// An event that the driver must act on; events come in the order in which they happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An operation finished.
    Complete(Completion),
    /// The engine is done with the buffer of an operation that completed before.
    Release(OpId),
    /// Copy the first `len` bytes of a stored unexpected message into an operation's buffer, then
    /// free the store.
    CopyStored {
        /// The stored message.
        id: u32,
        /// The receive.
        op: OpId,
        /// Bytes.
        len: u64,
    },
    /// Forget a stored unexpected message.
    FreeStored(u32),
    /// Copy from the peer's memory into the operation's buffer, then call `handle_direct_read`; or
    /// decline this part and the rest by `handle_direct_declined`.
    DirectRead(Direct),
    /// Copy from the operation's buffer into the peer's memory, then call `handle_direct_write`.
    DirectWrite(Direct),
    /// The peer answered: the session is open.
    PeerUp(PeerId),
    /// The peer failed; all operations with it have completed with the error.
    PeerFailed(PeerId, PeerFailure),
    /// An operation waits for a peer that has been silent for this long.
    PeerSlow(PeerId, Duration),
    /// An operation waits for a silent peer whose process the link observes: answer by
    /// `handle_pulse`.
    PeerSilent(PeerId),
    /// There is no room for more unexpected messages of this peer. The numbers: messages that wait,
    /// and their bytes.
    PeerFull(PeerId, u64, u64),
    /// The tables of operations and of stored messages have shrunk to these sizes; tables parallel
    /// to them can shrink too.
    Shrunk {
        /// Entries for operations.
        ops: Option<usize>,
        /// Entries for stored messages.
        stored: Option<usize>,
    },
    /// Packets to this peer were sent again this often in vain, or the peer repeats packets that
    /// have arrived: twice or more. Another path, if there is one, may work.
    PeerStalled(PeerId, u32),
    /// The oldest packet to this peer was sent again several times in vain.
    PeerStuck {
        /// The destination.
        peer: PeerId,
        /// Time since which it is the oldest.
        since: Instant,
        /// True if the packet takes the link of bulk data.
        bulk: bool,
        /// Its length in bytes.
        len: u32,
        /// True if the peer is heard meanwhile: it runs, and other packets get through.
        heard: bool,
    },
}

/// A direct copy to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// The local operation.
    pub op: OpId,
    /// The other process.
    pub peer: PeerId,
    /// Address of the first byte of this part in the other process.
    pub addr: u64,
    /// Offset in the local buffer.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Bytes of the whole message.
    pub total: u64,
    /// For `DirectWrite`: the peer's number for its receive.
    pub recv: u32,
}

/// An operation whose memory was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// True if it continues to read: from a copy of the memory, which the driver makes. Bytes that
    /// it would have written are dropped.
    pub is_read: bool,
    /// The peer that knows the address of the memory: the driver's link must withdraw the address.
    pub known_to: Option<PeerId>,
}

/// A send to start.
#[derive(Clone, Copy, Debug)]
pub struct SendArgs {
    /// The destination.
    pub peer: PeerId,
    /// Match bits; of an active message: handler in the low, argument in the high 32 bits.
    pub tag: u64,
    /// Length of the message.
    pub len: u64,
    /// Completion data for the receiver.
    pub data: Option<u64>,
    /// The caller's context, returned in the completion.
    pub context: u64,
    /// Address of the buffer in this process; 0 if a peer may not read it.
    pub addr: u64,
    /// True if the driver holds a copy: the send completes at once.
    pub inject: bool,
    /// True if the send completes only when the message was matched.
    pub sync: bool,
    /// True if the send completes only when the peer has placed the message, and all sent before
    /// it, in its receive's buffer, or in memory until one is posted. Not for injected messages.
    pub delivered: bool,
    /// True for an active message.
    pub active: bool,
    /// True if matched by source alone, apart from messages with tags; `tag` is 0.
    pub untagged: bool,
}

impl SendArgs {
    /// Describes a message of `len` bytes with a tag, and defaults for the rest.
    #[inline]
    pub fn new(peer: PeerId, tag: u64, len: u64) -> SendArgs {
        SendArgs {
            peer,
            tag,
            len,
            data: None,
            context: 0,
            addr: 0,
            inject: false,
            sync: false,
            delivered: false,
            active: false,
            untagged: false,
        }
    }
}

/// A receive to post.
#[derive(Clone, Copy, Debug)]
pub struct RecvArgs {
    /// The source; `None` accepts any source.
    pub source: Option<PeerId>,
    /// Match bits.
    pub tag: u64,
    /// Bits not compared.
    pub ignore: u64,
    /// Length of the buffer.
    pub len: u64,
    /// Address of the buffer in this process; 0 if a peer may not write it.
    pub addr: u64,
    /// The caller's context, returned in the completion.
    pub context: u64,
    /// True if it takes messages without a tag; `tag` is 0.
    pub untagged: bool,
}

/// The message that a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The sender.
    pub source: PeerId,
    /// Its match bits.
    pub tag: u64,
    /// Its length.
    pub len: u64,
    /// Completion data of the sender.
    pub data: Option<u64>,
}

/// A message taken by a matched probe, to be received with `recv_claimed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub(crate) id: u32,
    pub(crate) source: PeerId,
}

/// The reason why an operation was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Too much is queued: try again after progress (backpressure).
    Busy,
    /// The peer failed.
    Peer(PeerId, PeerFailure),
    /// There is no such peer.
    UnknownPeer,
    /// Longer than an active message may be.
    TooLong,
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refused::Busy => write!(f, "too much is queued: try again after progress"),
            Refused::Peer(peer, why) => write!(f, "{peer} failed: {why}"),
            Refused::UnknownPeer => write!(f, "no such peer"),
            Refused::TooLong => write!(f, "longer than an active message may be"),
        }
    }
}

impl core::error::Error for Refused {}
