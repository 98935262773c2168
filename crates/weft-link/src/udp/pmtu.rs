//! Packet sizes of paths.

use std::net::IpAddr;

/// Largest UDP payload over IPv4 (RFC 768, RFC 791). IPv6 allows slightly more, which is not used.
pub const DATAGRAM_MAX: usize = 65_507;
const IPV4_AND_UDP: u32 = 20 + 8;
const IPV6_AND_UDP: u32 = 40 + 8;
/// Every IPv6 path carries packets of this size (RFC 8200).
const IPV6_MTU_MIN: u32 = 1280;
/// Every IPv4 host accepts packets of this size (RFC 791). Paths with a smaller MTU are not
/// supported.
const IPV4_MTU_MIN: u32 = 576;
/// Larger packets are not cheaper, and the loss of one costs more.
const LARGE: u32 = 32_700;

/// Returns the largest datagram for a path of this IP MTU. Above 16 KiB (loopback) the size is
/// reduced so that two datagrams fit into one train.
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
