//! Errors of operations.

use crate::id::PeerId;
use crate::wire::PacketType;
use core::fmt;

/// The reason why a peer is no longer usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerFailure {
    /// Nothing was heard from it for the configured time.
    Silent {
        /// Time that this endpoint waited, in milliseconds.
        after_ms: u32,
    },
    /// The peer never answered the first packet.
    Unreachable {
        /// Time that this endpoint waited, in milliseconds.
        after_ms: u32,
    },
    /// Its process was stopped for the longest allowed silence, as the link observed.
    Stopped {
        /// Time it was stopped, in milliseconds.
        after_ms: u32,
    },
    /// The link noticed the end of its process.
    Gone,
    /// The agent of this host, its only connection, has ended.
    AgentGone,
    /// Its process refused the connection.
    Refused,
    /// No link leads to it.
    NoLink,
    /// The peer closed its endpoint.
    Closed,
    /// The peer speaks another version of the protocol.
    Version {
        /// The version it offered.
        theirs: u8,
    },
    /// The session was ended because one side broke the protocol.
    Protocol,
    /// A packet was lost or overtaken on a network that both sides were told to trust.
    Lost,
    /// The peer is heard, but no copy of a packet to it got there for the configured time:
    /// something on the route drops packets of this type or length.
    Stuck {
        /// Time without success, in milliseconds.
        after_ms: u32,
        /// The packet's type.
        kind: PacketType,
        /// The packet's length in bytes, header and payload.
        len: u32,
    },
    /// This process is a copy (by fork) of the one that opened the endpoint, which still has its
    /// peers.
    Copied,
    /// The peer found that none of this endpoint's packets get through to it, and has ended the
    /// session.
    Unheard,
    /// Messages that no receive takes fill the room for them: none after them gets through.
    Flooded {
        /// Number of messages that wait, arrived or announced.
        messages: u64,
        /// Their total length in bytes.
        bytes: u64,
    },
    /// Another rank reports that it failed, and has ended an operation of all because of that.
    Reported,
}

impl PeerFailure {
    /// Returns the next step for the user; empty where the text of the failure says it.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            PeerFailure::Silent { .. } => {
                "`weft top` on its host tells whether it runs, `weft doctor` on both whether the \
                 network works; WEFT_PEER_TIMEOUT_MS is how long it may be silent"
            }
            PeerFailure::Unreachable { .. } => {
                "`weft doctor` on both hosts tells whether the network between them works; \
                 WEFT_CONNECT_TIMEOUT_MS is how long it may take"
            }
            PeerFailure::Stopped { .. } => {
                "a signal stopped it, as SIGSTOP and control-Z do, and SIGCONT lets it go on; \
                 WEFT_PEER_TIMEOUT_MS is how long it may be stopped, WEFT_CONNECT_TIMEOUT_MS \
                 before its first answer"
            }
            PeerFailure::Gone => "its own last messages and its launcher say why",
            PeerFailure::AgentGone => {
                "the rank itself may live; start weftd again for new programs, or run without it"
            }
            PeerFailure::Closed => "it did not wait for the messages still to be exchanged with it",
            PeerFailure::Version { .. } => "start every rank from the same build of weft",
            PeerFailure::Protocol => {
                "its messages say more; WEFT_TRACE=1 WEFT_LOG=debug logs every packet"
            }
            PeerFailure::Stuck { .. } => {
                "something on the way (a switch, a tunnel, a filter) drops such packets: compare \
                 the MTU of all that lies between, `weft doctor` on both hosts says those of their \
                 interfaces; WEFT_MTU makes packets shorter"
            }
            PeerFailure::Unheard => {
                "its own messages name the type and the length of the packets that do not arrive"
            }
            PeerFailure::Copied => "open another endpoint here; fork before weft is used",
            PeerFailure::Flooded { .. } => {
                "receive messages in the order in which they are sent, or send fewer ahead; \
                 WEFT_UNEXPECTED_MAX is the memory that a rank has for those that it has not \
                 received, of which one peer may take half"
            }
            PeerFailure::Refused
            | PeerFailure::NoLink
            | PeerFailure::Lost
            | PeerFailure::Reported => "",
        }
    }
}

/// The reason why an operation failed. `Debug` gives the text, too.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpError {
    /// The message was longer than the buffer; the buffer holds the first part.
    Truncated {
        /// Length of the message that was sent, in bytes.
        sent: u64,
    },
    /// The operation was cancelled before it matched.
    Cancelled,
    /// The peer failed.
    Peer {
        /// The peer; `u32::MAX` where there is none: no link leads to it, or the endpoint itself
        /// has ended.
        peer: PeerId,
        /// The reason.
        failure: PeerFailure,
    },
    /// The remote side refused a remote-memory operation: unknown key, out of bounds or no right.
    Refused,
    /// The remote side registered the memory, but has unmapped it, or does not permit writes to it.
    Unmapped,
    /// The remote side has no handler with that number.
    NoHandler,
    /// The group has no such rank.
    NoRank {
        /// The rank asked for.
        rank: u32,
        /// Ranks in the group.
        size: u32,
    },
    /// A collective operation got a list of a wrong length.
    Count {
        /// Entries it needs: one for each rank.
        wanted: u32,
        /// Entries given.
        given: u32,
    },
    /// The vectors of a reduction differ in length.
    Uneven {
        /// Another rank of the group.
        rank: u32,
        /// Bytes that it gave.
        given: u64,
        /// Bytes that this rank gave.
        wanted: u64,
    },
    /// A rank takes part in another collective operation than this one, or with other arguments
    /// that all ranks give alike; or it has noticed that of a third rank.
    Mismatch {
        /// The rank of the group.
        rank: u32,
    },
    /// Values of the type cannot be combined by the operation, such as floating-point numbers by
    /// operations on bits.
    NoSuchOp,
    /// Too much is queued for the peer: try again after progress (backpressure).
    Busy,
}

impl fmt::Display for PeerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerFailure::Silent { after_ms } => write!(f, "nothing heard for {after_ms} ms"),
            PeerFailure::Unreachable { after_ms } => {
                write!(f, "no answer to the first packet within {after_ms} ms")
            }
            PeerFailure::Stopped { after_ms } => {
                write!(f, "its process has been stopped for {after_ms} ms")
            }
            PeerFailure::Gone => write!(f, "its process ended"),
            PeerFailure::AgentGone => write!(f, "the agent that reached it has ended"),
            PeerFailure::Refused => write!(f, "it refused the connection"),
            PeerFailure::NoLink => write!(f, "no link leads to it (`weft doctor` says why)"),
            PeerFailure::Closed => write!(f, "it closed its endpoint"),
            PeerFailure::Version { theirs } => {
                write!(f, "it speaks protocol version {theirs}, this build speaks another")
            }
            PeerFailure::Protocol => write!(f, "the protocol was broken"),
            PeerFailure::Stuck { after_ms, kind, len } => write!(
                f,
                "it is heard, but for {after_ms} ms no {} packet of {len} bytes got through to it",
                kind.name()
            ),
            PeerFailure::Copied => write!(
                f,
                "this process is a copy (a fork, or a restored snapshot) of the one that opened \
                 the endpoint"
            ),
            PeerFailure::Unheard => {
                write!(f, "it gave up, as what it sends does not get through to this side")
            }
            PeerFailure::Flooded { messages, bytes } => write!(
                f,
                "{messages} messages of {bytes} bytes that no receive takes fill the room for \
                 them (WEFT_UNEXPECTED_MAX)"
            ),
            PeerFailure::Reported => write!(f, "another rank reports that it failed"),
            PeerFailure::Lost => write!(
                f,
                "a packet was lost although WEFT_RELIABILITY=none trusts the network; use host"
            ),
        }
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpError::Truncated { sent } => {
                write!(f, "message of {sent} bytes is longer than the buffer")
            }
            OpError::Cancelled => write!(f, "cancelled"),
            OpError::Peer { failure: failure @ PeerFailure::Copied, .. } => write!(f, "{failure}"),
            OpError::Peer { peer: PeerId(u32::MAX), failure } => write!(f, "a rank: {failure}"),
            OpError::Peer { peer, failure } => write!(f, "{peer} failed: {failure}"),
            OpError::Refused => write!(f, "refused by the remote side: key, bounds or rights"),
            OpError::Unmapped => write!(
                f,
                "the remote side exported this memory, but has unmapped it or made it read-only"
            ),
            OpError::NoRank { rank, size } => {
                write!(f, "there is no rank {rank}: the group has {size}, numbered from 0")
            }
            OpError::Count { wanted, given } => {
                write!(f, "{given} messages given, the group needs {wanted}: one a rank")
            }
            OpError::Uneven { rank, given, wanted } => write!(
                f,
                "rank {rank} gave a vector of {given} bytes, this rank one of {wanted}: all ranks \
                 give as many values of the same type"
            ),
            OpError::Mismatch { rank } => write!(
                f,
                "rank {rank} takes part in another collective operation than this rank, or with \
                 other arguments"
            ),
            OpError::NoSuchOp => write!(
                f,
                "values of this type cannot be combined by this operation: those on bits take \
                 integers and truth values, averages take floating-point and complex numbers, and \
                 complex numbers have no order"
            ),
            OpError::Busy => write!(f, "too much is queued for the peer: try again after progress"),
            OpError::NoHandler => write!(f, "the remote side has no such handler"),
        }
    }
}

impl fmt::Debug for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for OpError {}
