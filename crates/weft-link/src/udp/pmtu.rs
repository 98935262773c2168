//! How large a packet a path carries.

use std::net::IpAddr;

/// How the kernel would reach an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The local address it would send from.
    pub source: IpAddr,
    /// Largest IP packet of the path, as far as the kernel knows.
    pub mtu: u32,
}

/// Largest UDP payload over IPv4 (RFC 768, RFC 791); IPv6 allows a little more, which is not used.
pub const DATAGRAM_MAX: usize = 65_507;
const IPV4_AND_UDP: u32 = 20 + 8;
const IPV6_AND_UDP: u32 = 40 + 8;
/// Every IPv6 path carries this (RFC 8200).
const IPV6_MTU_MIN: u32 = 1280;
/// Every IPv4 host takes this (RFC 791); paths that carry less are not worth supporting.
const IPV4_MTU_MIN: u32 = 576;
/// Packets beyond this do not get cheaper, and losing one costs more.
const LARGE: u32 = 32_700;

/// Largest datagram for a path of this IP MTU. Above 16 KiB (loopback) the size is cut so that two
/// fit into one train.
pub fn datagram_len(to: IpAddr, ip_mtu: u32) -> u32 {
    let (headers, least) = match to.is_ipv6() {
        true => (IPV6_AND_UDP, IPV6_MTU_MIN),
        false => (IPV4_AND_UDP, IPV4_MTU_MIN),
    };
    (ip_mtu.max(least) - headers).min(LARGE)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn datagram_len__ethernet_jumbo_loopback_and_nonsense() {
        let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "::1".parse().unwrap());
        assert_eq!((datagram_len(v4, 1500), datagram_len(v6, 1500)), (1472, 1452));
        assert_eq!(datagram_len(v4, 9000), 8972);
        assert!(2 * datagram_len(v4, 65_536) as usize <= DATAGRAM_MAX);
        assert_eq!((datagram_len(v4, 0), datagram_len(v6, 0)), (548, 1232));
    }
}
