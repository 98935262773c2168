//! The address of an endpoint: everything a peer needs to reach it over any link.

use std::net::SocketAddr;
use weft_core::EndpointId;

/// Address of an endpoint. Encodes to at most [`Address::MAX`] bytes; exchanged at start-up
/// (PMI, PMIx) and carried in HELLO packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// Identity and incarnation.
    pub endpoint: EndpointId,
    /// Hash of the kernel's boot id and the network namespace: equal means shared memory may work.
    /// Zero when the endpoint offers none.
    pub host: u64,
    /// Key of the shared-memory listener (an abstract Unix socket); zero when there is none.
    pub shm: u64,
    /// UDP sockets, best first.
    pub udp: Vec<SocketAddr>,
    /// Address in the simulated network, when simulated.
    pub sim: Option<u32>,
}

impl Address {
    /// Longest encoding.
    pub const MAX: usize = 160;
}
