//! The numbers of a session.

use crate::seq::Seq;

/// Packets to and from a peer over a trusted network since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub sent: Seq,
    pub expected: Seq,
}

/// The numbers that packets of a session contain.
pub(crate) struct Session {
    /// Number that the peer puts into packets to this endpoint.
    pub number_in: u32,
    /// Number that this endpoint puts into packets to the peer; 0 until known.
    pub number_out: u32,
    /// Counts of packets if both sides trust the network, where none is kept.
    pub trusted: Option<Count>,
}

impl Session {
    pub fn new(number_in: u32) -> Session {
        Session { number_in, number_out: 0, trusted: None }
    }
}
