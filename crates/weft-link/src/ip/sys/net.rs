//! The kernel's interfaces and routes.

use super::{check, get, local, open, set_discovery, SockAddr};
use crate::ether::{is_live, speed};
use crate::ip::Route;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

/// An address of a local network interface that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The address.
    pub ip: IpAddr,
    /// Number of leading bits that all addresses on the attached network share.
    pub prefix: u32,
    /// The interface's index.
    pub index: u32,
    /// The speed that its driver reports, Mbit/s; 0 if it reports none.
    pub speed: u32,
}

/// Lists the addresses of all interfaces that are up and have a carrier, in the kernel's order.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is writable.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut out = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: the list is valid until freed; its addresses are null or as long as their family
        // demands.
        let (entry, addr, mask) = unsafe {
            let entry = &*at;
            (entry, SockAddr::from_kernel(entry.ifa_addr), SockAddr::from_kernel(entry.ifa_netmask))
        };
        at = entry.ifa_next;
        let Some(addr) = addr.filter(|_| is_live(entry.ifa_flags)) else { continue };
        let prefix = mask.map_or(u32::MAX, |m| ones(m.ip()));
        // SAFETY: the name is a string that lives as long as the list.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
        // SAFETY: as above.
        let index = unsafe { libc::if_nametoindex(entry.ifa_name) };
        out.push(Interface { ip: addr.ip(), prefix, index, speed: speed(name.to_bytes()) });
    }
    // SAFETY: `list` came from getifaddrs and nothing borrows it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(out)
}

/// Returns the name of the interface with this index, if there is one.
pub fn name_of(index: u32) -> Option<String> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: `name` is writable for the length that the call demands.
    if unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) }.is_null() {
        return None;
    }
    let name = std::ffi::CStr::from_bytes_until_nul(&name).ok()?;
    Some(name.to_string_lossy().into_owned())
}

fn ones(mask: IpAddr) -> u32 {
    match mask {
        IpAddr::V4(m) => u32::from(m).leading_ones(),
        IpAddr::V6(m) => u128::from(m).leading_ones(),
    }
}

/// Looks up the route to `to` without sending anything, by connecting a temporary socket.
pub fn route_to(to: SocketAddr) -> io::Result<Route> {
    let v6 = to.is_ipv6();
    let fd = open(v6)?;
    let raw = fd.as_raw_fd();
    set_discovery(raw, v6, true)?;
    let name = SockAddr::new(to);
    // SAFETY: `name` is readable for its length.
    check(unsafe { libc::connect(raw, name.as_ptr(), name.len()) })?;
    let mtu = match v6 {
        true => get(raw, libc::IPPROTO_IPV6, libc::IPV6_MTU)?,
        false => get(raw, libc::IPPROTO_IP, libc::IP_MTU)?,
    };
    Ok(Route { source: local(raw)?.ip(), mtu: mtu.max(0) as u32 })
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn route_to__loopback_is_local_and_wide() {
        let route = route_to("127.0.0.1:9".parse().unwrap()).unwrap();
        assert!(route.source.is_loopback() && route.mtu >= 1500, "{route:?}");
    }

    #[test]
    fn name_of__of_an_index() {
        let all = interfaces().unwrap();
        let loopback = all.iter().find(|i| i.ip.is_loopback()).unwrap();
        assert_eq!(name_of(loopback.index).as_deref(), Some("lo"));
        assert_eq!(name_of(u32::MAX), None);
    }

    #[test]
    fn interfaces__has_loopback() {
        let all = interfaces().unwrap();
        assert!(all.iter().any(|i| i.ip.is_loopback() && i.prefix >= 8), "{all:?}");
    }
}
