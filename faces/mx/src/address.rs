//! Addresses of endpoints: `mx_endpoint_addr_t`.
//!
//! The first word names the endpoint: network interface (48 bits) and number (16). The second one
//! names it among the peers of a local endpoint: slot (8 bits) and generation (16) of that, the
//! number of the connection (8) and the peer (32). So an address can be taken apart without a
//! table, and a wrong one is refused.

use weft::PeerId;
use weft_mxoe::node::PeerIndex;

/// An address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addr(pub [u64; 2]);

/// The local endpoint of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Its slot.
    pub slot: u8,
    /// The low bits of its generation.
    pub generation: u16,
}

impl Local {
    /// Makes one of a whole generation.
    pub fn new(slot: u8, generation: u32) -> Local {
        Local { slot, generation: generation as u16 }
    }
}

impl Addr {
    /// Makes an address.
    pub fn new(local: Local, nic: u64, number: u32, connection: u8, peer: PeerId) -> Addr {
        let of = u64::from(local.slot) << 56
            | u64::from(local.generation) << 40
            | u64::from(connection) << 32
            | u64::from(peer.0);
        Addr([nic << 16 | u64::from(number as u16), of])
    }

    /// Returns the network interface and the number of the endpoint.
    pub fn endpoint(self) -> (u64, u32) {
        (self.0[0] >> 16, self.0[0] as u32 & 0xffff)
    }

    /// Returns the local endpoint that made the address.
    pub fn local(self) -> Local {
        Local { slot: (self.0[1] >> 56) as u8, generation: (self.0[1] >> 40) as u16 }
    }

    /// Returns the number of the connection, and the peer.
    pub fn peer(self) -> (u8, PeerId) {
        ((self.0[1] >> 32) as u8, PeerId(self.0[1] as u32))
    }
}

/// The bit of a peer's number that says that it is reached by MXoE.
const WIRED: u32 = 1 << 31;

/// Returns the number of a peer that is reached by MXoE.
pub fn peer_id(peer: PeerIndex) -> PeerId {
    PeerId(WIRED | u32::from(peer.0))
}

/// Returns the peer, if it is reached by MXoE.
pub fn wired(peer: PeerId) -> Option<PeerIndex> {
    (peer.0 & WIRED != 0).then_some(PeerIndex(peer.0 as u16))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn addr__its_parts_come_back() {
        let local = Local::new(63, 0xab_cdef);
        let addr = Addr::new(local, 0x0257_0a00_0001, 255, 7, PeerId(u32::MAX));
        assert_eq!(addr.endpoint(), (0x0257_0a00_0001, 255));
        assert_eq!((addr.local(), addr.peer()), (local, (7, PeerId(u32::MAX))));
        assert_eq!(local.generation, 0xcdef);
    }
}
