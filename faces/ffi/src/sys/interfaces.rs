//! The network interfaces of this host.

use std::ffi::CStr;
use std::net::Ipv4Addr;

/// An interface that is up, and its first address of IPv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// True if it leads to this host alone.
    pub loopback: bool,
}

/// Returns the interfaces, those of this host alone last.
pub fn list() -> Vec<Interface> {
    let mut found: Vec<Interface> = Vec::new();
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the place for the list is there.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return found;
    }
    let mut next = first;
    // SAFETY: the list that the system made, until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let flag = |flag: libc::c_int| entry.ifa_flags & flag as u32 != 0;
        // SAFETY: an address is null or has at least its family.
        let family = unsafe { entry.ifa_addr.as_ref() }.map(|of| i32::from(of.sa_family));
        if family != Some(libc::AF_INET) || !flag(libc::IFF_UP) {
            continue;
        }
        // SAFETY: the family says its type; the name ends with 0.
        let (address, name) = unsafe {
            let address = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
            (address.sin_addr.s_addr, CStr::from_ptr(entry.ifa_name))
        };
        let name = name.to_string_lossy().into_owned();
        let address = Ipv4Addr::from(address.to_ne_bytes());
        if found.iter().all(|other| other.name != name) {
            found.push(Interface { name, address, loopback: flag(libc::IFF_LOOPBACK) });
        }
    }
    // SAFETY: made by `getifaddrs`, once.
    unsafe { libc::freeifaddrs(first) };
    found.sort_by_key(|interface| interface.loopback);
    found
}

/// Returns the name of an address, as the system's resolver knows it.
pub fn name_of(address: Ipv4Addr) -> Option<String> {
    let of = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    };
    let mut name = [0u8; 256];
    // SAFETY: address and place for the name have the lengths that are given.
    let found = unsafe {
        libc::getnameinfo(
            (&raw const of).cast(),
            size_of::<libc::sockaddr_in>() as u32,
            name.as_mut_ptr().cast(),
            name.len() as u32,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    if found != 0 {
        return None;
    }
    CStr::from_bytes_until_nul(&name).ok()?.to_str().ok().map(str::to_owned)
}
