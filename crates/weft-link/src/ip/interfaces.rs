//! Chooses the addresses to advertise, and the addresses of a peer to use: by route and
//! reachability, never by the name or the order of interfaces.

use super::sys::Interface;
use super::Route;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Highest number of addresses that are advertised or tried.
pub const ADDRESSES_MAX: usize = 6;

/// An address of a peer to which the kernel has a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address.
    pub addr: SocketAddr,
    /// The IP MTU of the path.
    pub ip_mtu: u32,
    /// Index of the interface over which it is reached; 0 if it belongs to this host or is not
    /// known.
    pub device: u32,
    /// Speed of that interface, Mbit/s; 0 if not known.
    pub speed: u32,
    /// The local address from which packets to it are sent.
    pub source: IpAddr,
}

/// Tells if the peer runs in this host and network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearness {
    /// The hashes of both hosts are equal.
    SameHost,
    /// The hashes of both hosts differ.
    OtherHost,
    /// One host hash is missing.
    Unknown,
}

impl Nearness {
    /// Compares the two host hashes; zero means a missing hash.
    pub fn of(ours: u64, theirs: u64) -> Nearness {
        match (ours, theirs) {
            (0, _) | (_, 0) => Nearness::Unknown,
            (a, b) if a == b => Nearness::SameHost,
            _ => Nearness::OtherHost,
        }
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.segments()[0] & 0xffc0 == 0xfe80,
    }
}

/// Lists our addresses that others may reach, best first: source addresses of default routes, other
/// global addresses, IPv4 link-local ones, loopback. IPv6 link-local addresses mean nothing without
/// the name of a local interface and are left out. Sorting is stable, so the kernel's order decides
/// only among equals.
pub fn advertised(all: &[Interface], defaults: &[IpAddr]) -> Vec<IpAddr> {
    let rank = |ip: &IpAddr| match *ip {
        ip if ip.is_loopback() => 3,
        ip if is_link_local(ip) => 2,
        ip if defaults.contains(&ip) => 0,
        _ => 1,
    };
    let mut out: Vec<IpAddr> = Vec::new();
    for ip in all.iter().map(|i| i.ip) {
        let useless = ip.is_unspecified() || ip.is_ipv6() && is_link_local(ip);
        if !useless && !out.contains(&ip) {
            out.push(ip);
        }
    }
    out.sort_by_key(rank);
    out
}

/// Lists a peer's addresses that can be tried, best first: local addresses if the peer runs on this
/// host, then those on an attached network, then routed ones. Left out are addresses that cannot
/// work: no socket of that family, no route, a loopback address or an own address although the peer
/// is on another host (two hosts may have the same bridge address). The error lists every address
/// and the reason.
pub fn candidates(
    theirs: &[SocketAddr],
    ours: &[Interface],
    near: Nearness,
    has_family: impl Fn(bool) -> bool,
    route_to: impl Fn(SocketAddr) -> io::Result<Route>,
) -> Result<Vec<Candidate>, String> {
    let mut found: Vec<(u32, Candidate)> = Vec::new();
    let mut why = Vec::new();
    for &addr in theirs.iter().take(ADDRESSES_MAX) {
        let ip = addr.ip();
        let local = ip.is_loopback() || ours.iter().any(|i| i.ip == ip);
        let rank = match near {
            _ if !has_family(addr.is_ipv6()) => Err("no socket of this family".to_string()),
            Nearness::OtherHost if local => Err("belongs to this host".to_string()),
            Nearness::SameHost if local => Ok(0),
            _ if local => Ok(4),
            _ if is_link_local(ip) => Ok(3),
            _ if ours.iter().any(|i| on_network(ip, i)) => Ok(1),
            _ => Ok(2),
        };
        match rank.and_then(|r| route_to(addr).map(|route| (r, route)).map_err(|e| e.to_string())) {
            Ok((rank, route)) => {
                let over = ours.iter().find(|i| i.ip == route.source && !local);
                let (device, speed) = over.map_or((0, 0), |i| (i.index, i.speed));
                let (ip_mtu, source) = (route.mtu, route.source);
                found.push((rank, Candidate { addr, ip_mtu, device, speed, source }));
            }
            Err(reason) => why.push(format!("{addr}: {reason}")),
        }
    }
    if found.is_empty() {
        return Err(if why.is_empty() {
            "the peer has no address for it".into()
        } else {
            why.join("; ")
        });
    }
    found.sort_by_key(|&(rank, _)| rank);
    Ok(found.into_iter().map(|(_, c)| c).collect())
}

fn on_network(ip: IpAddr, interface: &Interface) -> bool {
    match (ip, interface.ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let shift = 32u32.saturating_sub(interface.prefix);
            shift < 32 && u32::from(a) >> shift == u32::from(b) >> shift
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let shift = 128u32.saturating_sub(interface.prefix);
            shift < 128 && u128::from(a) >> shift == u128::from(b) >> shift
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn interface(ip: &str, prefix: u32) -> Interface {
        Interface { ip: ip.parse().unwrap(), prefix, index: 2, speed: 0 }
    }

    fn ours() -> Vec<Interface> {
        vec![
            interface("127.0.0.1", 8),
            interface("169.254.3.4", 16),
            interface("172.17.0.1", 16),
            interface("fe80::1", 64),
            interface("10.1.0.5", 24),
            interface("2001:db8::5", 64),
        ]
    }

    fn pick(theirs: &[&str], near: Nearness) -> Result<Vec<String>, String> {
        let theirs: Vec<SocketAddr> = theirs.iter().map(|t| t.parse().unwrap()).collect();
        let route = |to: SocketAddr| match to.ip().to_string().starts_with("203.") {
            true => Err(io::ErrorKind::NetworkUnreachable.into()),
            false => Ok(Route { source: "10.1.0.5".parse().unwrap(), mtu: 1500 }),
        };
        let found = candidates(&theirs, &ours(), near, |v6| !v6, route)?;
        Ok(found.iter().map(|c| c.addr.to_string()).collect())
    }

    #[test]
    fn advertised__default_route_first_loopback_last() {
        let got = advertised(&ours(), &["10.1.0.5".parse().unwrap()]);
        let got: Vec<String> = got.iter().map(|ip| ip.to_string()).collect();
        assert_eq!(got, ["10.1.0.5", "172.17.0.1", "2001:db8::5", "169.254.3.4", "127.0.0.1"]);
    }

    #[test]
    fn candidates__attached_network_before_routed() {
        let got = pick(&["8.8.8.8:1", "10.1.0.9:1"], Nearness::OtherHost).unwrap();
        assert_eq!(got, ["10.1.0.9:1", "8.8.8.8:1"]);
    }

    #[test]
    fn candidates__own_bridge_address_of_another_host_is_left_out() {
        let got =
            pick(&["172.17.0.1:1", "10.1.0.9:1", "127.0.0.1:1"], Nearness::OtherHost).unwrap();
        assert_eq!(got, ["10.1.0.9:1"]);
    }

    #[test]
    fn candidates__same_host_prefers_local() {
        let got = pick(&["10.1.0.9:1", "10.1.0.5:1", "127.0.0.1:1"], Nearness::SameHost).unwrap();
        assert_eq!(got, ["10.1.0.5:1", "127.0.0.1:1", "10.1.0.9:1"]);
    }

    #[test]
    fn candidates__none_names_every_reason() {
        let why =
            pick(&["203.0.113.1:1", "[::2]:1", "127.0.0.1:1"], Nearness::OtherHost).unwrap_err();
        for part in ["203.0.113.1:1: ", "[::2]:1: no socket", "127.0.0.1:1: belongs"] {
            assert!(why.contains(part), "{why}");
        }
        assert!(pick(&[], Nearness::Unknown).unwrap_err().contains("no address for it"));
    }
}
