//! Boards, the network interfaces of this host, and names of hosts.

use crate::wire::names;
use crate::wire::setting::{mac_of, nic_of as nic_of_mac, parse_mac, Setting};
use std::net::Ipv4Addr;
use std::path::Path;
use weft_ffi::hosts::{own_name, Service};
use weft_ffi::sys::interfaces;

/// Numbers of endpoints on a board are below it.
pub const ENDPOINTS: u32 = 256;
/// The first two bytes of the number of a network interface. As an address of Ethernet they say
/// that software has chosen it; the other four bytes are an address of IPv4.
const PREFIX: u64 = 0x0257;

/// Returns the number of the network interface with an address.
pub fn nic_of(host: Ipv4Addr) -> u64 {
    PREFIX << 32 | u64::from(u32::from(host))
}

/// Returns the address of a network interface that weft reaches. `None` if it is none.
pub fn host_of(nic: u64) -> Option<Ipv4Addr> {
    match wired().filter(|board| board.nic == nic) {
        Some(board) => Some(board.address),
        // No host has an address of IPv4 that begins with 0: such a number is that of an interface
        // whose address of Ethernet happens to begin so.
        None => (nic >> 32 == PREFIX && nic as u32 >> 24 != 0).then(|| Ipv4Addr::from(nic as u32)),
    }
}

/// A network interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// Its name.
    pub name: String,
    /// Its address, or that of this host alone if it has none.
    pub address: Ipv4Addr,
    /// Its number.
    pub nic: u64,
}

/// Returns the interface of MXoE, if there is one.
fn wired() -> Option<Board> {
    let setting = Setting::of_environment().ok()??;
    let interface = setting.find().ok()?;
    let of_name = interfaces::list().into_iter().find(|of| of.name == interface.name);
    let address = of_name.map_or(Ipv4Addr::LOCALHOST, |of| of.address);
    Some(Board { name: interface.name, address, nic: nic_of_mac(interface.mac.0) })
}

/// Returns the boards of this host: the interface of MXoE comes first, and those that lead to this
/// host alone come last.
pub fn all() -> Vec<Board> {
    let wired = wired();
    let others = interfaces::list().into_iter().map(|interface| {
        let (name, address) = (interface.name, interface.address);
        Board { name, address, nic: nic_of(address) }
    });
    let is_other = |board: &Board| wired.as_ref().is_none_or(|wired| wired.name != board.name);
    let mut all: Vec<Board> = others.filter(is_other).collect();
    wired.into_iter().for_each(|wired| all.insert(0, wired));
    all
}

/// Returns the names of hosts, with those of the program's file (`WEFT_MX_PEERS`).
fn service() -> Service {
    let file = std::env::var_os("WEFT_MX_PEERS");
    Service::open(file.as_ref().map(Path::new)).unwrap_or_default()
}

/// Splits the name of a board: `host:0`, or `host` for its first board.
fn split(name: &str) -> Option<(&str, usize)> {
    match name.rsplit_once(':') {
        None => Some((name, 0)),
        Some((host, board)) => Some((host, board.parse().ok()?)),
    }
}

/// Finds a network interface by the name of its board.
pub fn find(name: &str) -> Option<u64> {
    let wired = wired();
    if let Some(wired) = &wired {
        let listed = names::listed(std::env::var_os("WEFT_MX_PEERS").as_deref(), name);
        let mac = listed.or_else(|| parse_mac(name.strip_suffix(":0").unwrap_or(name)));
        if let Some(mac) = mac {
            return Some(nic_of_mac(mac));
        }
        let (host, board) = split(name)?;
        let own = service().listed(host).is_empty() && (host == "localhost" || host == own_name());
        let address = service().addresses(host, wired.address).first().copied();
        let there = address.filter(|of| !own && board == 0 && *of != wired.address);
        if let Some(mac) = there.and_then(|of| names::neighbour(of, &wired.name)) {
            return Some(nic_of_mac(mac));
        }
    }
    let (host, board) = split(name)?;
    let service = service();
    let listed = service.listed(host);
    if listed.is_empty() && (host == "localhost" || host == own_name()) {
        return all().get(board).map(|board| board.nic);
    }
    let own = all().first().map_or(Ipv4Addr::LOCALHOST, |board| board.address);
    service.addresses(host, own).get(board).map(|address| nic_of(*address))
}

/// Returns the name of the board of a network interface.
pub fn name_of(nic: u64) -> Option<String> {
    if let Some(board) = all().iter().position(|board| board.nic == nic) {
        return Some(format!("{}:{board}", own_name()));
    }
    let Some(host) = host_of(nic) else {
        let mac = mac_of(nic).filter(|_| wired().is_some())?;
        return Some(names::name_of(std::env::var_os("WEFT_MX_PEERS").as_deref(), mac));
    };
    let name = service().name(host).unwrap_or_else(|| host.to_string());
    Some(format!("{name}:0"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn nic_of__is_taken_apart_again() {
        let host = Ipv4Addr::new(10, 1, 2, 3);
        assert_eq!((nic_of(host), host_of(nic_of(host))), (0x0257_0a01_0203, Some(host)));
        for wrong in [0, 1, u64::MAX, 0x0256_0a01_0203, 0x1_0257_0a01_0203] {
            assert_eq!(host_of(wrong), None, "{wrong:#x}");
        }
    }

    #[test]
    fn split__a_board_is_a_number() {
        assert_eq!(split("host"), Some(("host", 0)));
        assert_eq!(split("host:3"), Some(("host", 3)));
        assert_eq!((split("host:"), split("host:-1"), split("host:x")), (None, None, None));
    }

    #[test]
    fn find__this_host_by_its_names() {
        let first = all().first().map(|board| board.nic);
        assert_eq!((find("localhost"), find("localhost:0")), (first, first));
        assert_eq!(find("localhost:9999"), None);
        let name = name_of(first.unwrap()).unwrap();
        assert_eq!(find(&name), first, "{name}");
    }
}
