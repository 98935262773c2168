//! The messages between agents: each as bytes, as a typed form and as a checked view.
//!
//! `PROTOCOL.md`, section Names, is the definition; a test keeps its tables and this module equal.
//! A message is a head of 32 bytes, the fixed fields of its type, and a list of items, which may be
//! empty. [`parse`] checks all of it, every item of the list included, before anything acts upon
//! it; the list stays in the datagram and is read item by item. Nothing here trusts its input, and
//! nothing allocates more than the datagram is long.

#[macro_use]
mod codec;
mod items;
mod messages;

pub use codec::{CheckedBytes, FieldInfo, List, ListIter, Reader, Value, WireError, Writer};
pub use items::{Change, Entry, Have, Nothing, Publication, ALIAS_MAX, NONE};
pub use messages::{
    emit, parse, Answer, Ask, Evict, Head, Join, Members, Message, MessageType, Ops, Probe, Pulse,
    Snapshot, Summary, Suspect, Sync, Vouch, Want, Welcome, HEAD_LEN, VERSION,
};

/// Verdicts of ANSWER.
pub mod verdict {
    /// The name is the asker's to publish.
    pub const GRANTED: u32 = 1;
    /// The name has an owner.
    pub const TAKEN: u32 = 2;
    /// Ask again: the arbiter does not know all yet, or is another.
    pub const LATER: u32 = 3;
}

/// Buckets of the digest.
pub const BUCKETS: usize = 64;
