//! Devices, and names of hosts.

use crate::sys::interfaces::{self, Interface};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::Path;
use weft::names::{Name, Names, Pick};

/// A network interface that a program opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its address.
    pub host: Ipv4Addr,
    /// True if it has protection tags.
    pub tagged: bool,
}

/// Prefixes of names whose rest is the number of an interface.
const NUMBERED: [&str; 6] = ["VINIC", "/dev/clanvi", "/dev/via", "clanvi", "via", "nic"];
/// Prefixes of names whose rest is the name of an interface.
const NAMED: [&str; 2] = ["/dev/via_", ""];
/// Devices of cLAN had no protection tags, and programs written for them give none.
const UNTAGGED: &str = "clanvi";

/// Returns the device of a name: `VINIC0` and others with a number, `/dev/via_eth0` and others with
/// the name of an interface.
pub fn device(name: &str) -> Option<Device> {
    device_of(name, &interfaces::list())
}

fn device_of(name: &str, all: &[Interface]) -> Option<Device> {
    let numbered = NUMBERED.iter().find_map(|prefix| {
        let digits = name.strip_prefix(prefix)?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        all.get(digits.parse::<usize>().ok().filter(|_| plain)?)
    });
    let named = || {
        let rests = NAMED.iter().filter_map(|prefix| name.strip_prefix(prefix));
        rests.flat_map(|rest| all.iter().filter(move |i| i.name == rest)).next()
    };
    let interface = numbered.or_else(named)?;
    Some(Device { host: interface.address, tagged: !name.contains(UNTAGGED) })
}

/// The name service of a program: `VipNSInit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Hosts of the program's file.
    hosts: Vec<(Ipv4Addr, Vec<String>)>,
}

impl Service {
    /// Opens the service, with a file in the form of hosts(5) if one is given. `None` if the file
    /// cannot be read.
    pub fn open(file: Option<&Path>) -> Option<Service> {
        let Some(file) = file else { return Some(Service::default()) };
        match std::fs::read_to_string(file) {
            Ok(text) => Some(Service { hosts: hosts_of(&text) }),
            Err(why) => {
                log::warn!("names of hosts in {}: {why}", file.display());
                None
            }
        }
    }

    /// Returns the addresses of the program's file.
    pub fn hosts(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.hosts.iter().map(|(address, _)| *address)
    }

    /// Returns the addresses of a host: by the program's file, by the system, or by a cluster's
    /// agent. Addresses of this host are those of the interface itself.
    pub fn addresses(&self, name: &str, own: Ipv4Addr) -> Vec<Ipv4Addr> {
        let listed = self.hosts.iter().filter(|(_, names)| names.iter().any(|of| of == name));
        let mut found: Vec<Ipv4Addr> = listed.map(|(address, _)| *address).collect();
        if found.is_empty() {
            let resolved = (name, 0).to_socket_addrs().into_iter().flatten();
            found.extend(resolved.filter_map(|socket| match socket.ip() {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            }));
        }
        if found.is_empty() {
            found.extend(claimed(name));
        }
        let here = |address: &Ipv4Addr| address.is_loopback();
        found.iter_mut().filter(|address| here(address)).for_each(|address| *address = own);
        let mut each = Vec::new();
        found.retain(|address| {
            !each.contains(address) && {
                each.push(*address);
                true
            }
        });
        found
    }

    /// Returns the name of a host's address.
    pub fn name(&self, address: Ipv4Addr) -> Option<String> {
        let listed = self.hosts.iter().find(|(of, _)| *of == address);
        let listed = listed.and_then(|(_, names)| names.first().cloned());
        listed.or_else(|| interfaces::name_of(address))
    }
}

/// Returns the addresses that programs of a cluster have claimed a name for.
fn claimed(name: &str) -> Option<Ipv4Addr> {
    let name: Name = name.parse().ok()?;
    let mut names = Names::connect().ok()?;
    let binding = names.resolve(&name, Pick::Nearest).ok()??;
    match binding.name.address?.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// Reads lines of an address and names.
fn hosts_of(text: &str) -> Vec<(Ipv4Addr, Vec<String>)> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = words.next()?.parse().ok()?;
            Some((address, words.map(str::to_owned).collect()))
        })
        .collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn all() -> Vec<Interface> {
        let of = |name: &str, address: [u8; 4], loopback| Interface {
            name: name.into(),
            address: address.into(),
            loopback,
        };
        vec![
            of("eth0", [10, 0, 0, 1], false),
            of("eth1", [10, 0, 1, 1], false),
            of("lo", [127, 0, 0, 1], true),
        ]
    }

    #[test]
    fn device__names_of_the_providers_of_the_time() {
        let of = |name| device_of(name, &all()).map(|d| (d.host.octets()[2], d.tagged));
        assert_eq!(of("VINIC0"), Some((0, true)));
        assert_eq!(of("VINIC1"), Some((1, true)));
        assert_eq!(of("/dev/clanvi0"), Some((0, false)));
        assert_eq!(of("/dev/via_eth1"), Some((1, true)));
        assert_eq!((of("eth1"), of("nic0")), (Some((1, true)), Some((0, true))));
        assert_eq!(device_of("/dev/via_lo", &all()).unwrap().host, Ipv4Addr::LOCALHOST);
        for wrong in ["", "VINIC", "VINIC3", "VINIC+1", "VINIC-1", "eth9", "/dev/via_", "lo "] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn addresses__of_the_programs_file_come_first() {
        let own = Ipv4Addr::new(10, 9, 9, 9);
        let text = "10.0.0.5 five v # a comment\n\n127.0.0.1 here\nnonsense x\n10.0.0.6 five\n";
        let service = Service { hosts: hosts_of(text) };
        let five = [[10, 0, 0, 5], [10, 0, 0, 6]].map(Ipv4Addr::from);
        assert_eq!(service.addresses("five", own), five);
        assert_eq!(service.addresses("here", own), [own]);
        assert_eq!(service.name(five[0]).as_deref(), Some("five"));
        assert_eq!(service.addresses("10.1.2.3", own), [Ipv4Addr::new(10, 1, 2, 3)]);
        assert_eq!(service.addresses("localhost", own), [own]);
        assert!(Service::open(Some(Path::new("/no/such/file"))).is_none());
    }
}
