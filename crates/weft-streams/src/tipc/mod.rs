//! Sockets of AF_TIPC programs: the messages of library and agent, without I/O.
//!
//! A TIPC socket of a program is one end of a pair of Unix sockets, and the agent has the other end
//! with all state, as the kernel's module has it. So `poll`, `fork`, `dup` and the passing of
//! descriptors are the kernel's. Messages come to the program as records with a
//! [`record::RecordHead`]; a connection of type SOCK_STREAM has bytes and nothing else. Everything
//! else is a [`control::Request`] on a connection of its own, with the socket as its descriptor,
//! and one [`control::Answer`]. Agents send each other a [`packet::Packet`] for each message and
//! each step of a connection.
//!
//! Nothing here trusts its input, and nothing that the library uses allocates.

pub mod address;
pub mod control;
pub mod packet;
pub mod record;

pub use address::{Address, SockAddr};
pub use control::{Answer, Op, Request};
pub use packet::{Packet, What};
pub use record::{Kind, RecordHead};

/// Longest message of a user.
pub const MESSAGE_MAX: usize = 66_000;
/// Bytes of a message that come back with the reason why it was not delivered.
pub const RETURNED_MAX: usize = 1024;
/// The first byte of each record that a program sends on its end of the pair.
pub const SENT: u8 = 1;
/// The beginning of the name of the agent's end of each pair, after a zero byte. The type of the
/// socket follows as one digit.
pub const MARK: &[u8] = b"weft-tipc-";

/// Types of sockets.
pub mod kind {
    /// SOCK_STREAM.
    pub const STREAM: u8 = 1;
    /// SOCK_DGRAM.
    pub const DGRAM: u8 = 2;
    /// SOCK_RDM.
    pub const RDM: u8 = 4;
    /// SOCK_SEQPACKET.
    pub const SEQPACKET: u8 = 5;
}

/// Reasons why a message comes back or a connection ends.
pub mod reason {
    /// Nobody has the name.
    pub const NO_NAME: u32 = 1;
    /// The socket is gone.
    pub const NO_PORT: u32 = 2;
    /// The host is gone.
    pub const NO_NODE: u32 = 3;
    /// The receiver has too much to read.
    pub const OVERLOAD: u32 = 4;
    /// The other end has ended the connection.
    pub const SHUTDOWN: u32 = 5;
}

/// Options of a socket (SOL_TIPC).
pub mod option {
    /// The level of these options.
    pub const LEVEL: i32 = 271;
    /// Importance of messages: 0 to 3.
    pub const IMPORTANCE: u32 = 127;
    /// Messages may be lost before they reach the other host.
    pub const SRC_DROPPABLE: u32 = 128;
    /// Messages that are not delivered do not come back.
    pub const DEST_DROPPABLE: u32 = 129;
    /// Time in ms that a connection may take.
    pub const CONN_TIMEOUT: u32 = 130;
    /// Messages that the host has not given to their programs.
    pub const NODE_RECVQ_DEPTH: u32 = 131;
    /// Messages of this socket that the host has not given to its program.
    pub const SOCK_RECVQ_DEPTH: u32 = 132;
    /// Multicast by broadcast.
    pub const MCAST_BROADCAST: u32 = 133;
    /// Multicast by messages to each receiver.
    pub const MCAST_REPLICAST: u32 = 134;
    /// Joins a group.
    pub const GROUP_JOIN: u32 = 135;
    /// Leaves the group.
    pub const GROUP_LEAVE: u32 = 136;
    /// Bytes that wait for the program.
    pub const SOCK_RECVQ_USED: u32 = 137;
    /// Small messages of a stream are not held back.
    pub const NODELAY: u32 = 138;
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}
