//! `struct sockaddr_tipc`.

use super::u32_at;

/// AF_TIPC.
pub const FAMILY: u16 = 30;
/// Length of an address.
pub const LEN: usize = 16;
/// Names of other hosts see it.
pub const CLUSTER_SCOPE: i8 = 2;
/// Names of this host alone.
pub const NODE_SCOPE: i8 = 3;
/// Types below are reserved.
pub const RESERVED: u32 = 64;
/// The type of hosts.
pub const NODE_STATE: u32 = 0;
/// The topology server.
pub const TOP_SRV: u32 = 1;

const RANGE: u8 = 1;
const SERVICE: u8 = 2;
const SOCKET: u8 = 3;

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// All sockets with an instance of a range of a type.
    Range {
        /// The type.
        kind: u32,
        /// First instance.
        lower: u32,
        /// Last instance.
        upper: u32,
    },
    /// One socket with an instance of a type.
    Service {
        /// The type.
        kind: u32,
        /// The instance.
        instance: u32,
        /// The host that it has to be on; 0: any.
        domain: u32,
    },
    /// A socket.
    Socket {
        /// Its number on its host.
        port: u32,
        /// The number of its host.
        node: u32,
    },
}

/// An address with its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SockAddr {
    /// The address.
    pub address: Address,
    /// The hosts that see the name; negative: it is withdrawn.
    pub scope: i8,
}

impl SockAddr {
    /// The address of a socket.
    pub fn socket(port: u32, node: u32) -> SockAddr {
        SockAddr { address: Address::Socket { port, node }, scope: 0 }
    }

    /// Reads an address. `None`: it is none.
    pub fn decode(bytes: &[u8]) -> Option<SockAddr> {
        let head = bytes.first_chunk::<LEN>()?;
        if u16::from_ne_bytes([head[0], head[1]]) != FAMILY {
            return None;
        }
        let (one, two, three) = (u32_at(head, 4)?, u32_at(head, 8)?, u32_at(head, 12)?);
        let address = match head[2] {
            RANGE => Address::Range { kind: one, lower: two, upper: three },
            SERVICE => Address::Service { kind: one, instance: two, domain: three },
            SOCKET => Address::Socket { port: one, node: two },
            _ => return None,
        };
        Some(SockAddr { address, scope: head[3] as i8 })
    }

    /// Writes it.
    pub fn encode(self) -> [u8; LEN] {
        let (kind, one, two, three) = match self.address {
            Address::Range { kind, lower, upper } => (RANGE, kind, lower, upper),
            Address::Service { kind, instance, domain } => (SERVICE, kind, instance, domain),
            Address::Socket { port, node } => (SOCKET, port, node, 0),
        };
        let mut bytes = [0; LEN];
        bytes[..2].copy_from_slice(&FAMILY.to_ne_bytes());
        (bytes[2], bytes[3]) = (kind, self.scope as u8);
        bytes[4..8].copy_from_slice(&one.to_ne_bytes());
        bytes[8..12].copy_from_slice(&two.to_ne_bytes());
        bytes[12..].copy_from_slice(&three.to_ne_bytes());
        bytes
    }
}
