//! Addresses of hosts by their names.

use crate::sys::interfaces;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::Path;
use weft::names::{Name, Names, Pick};

/// The names of hosts, as a program finds them.
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

    /// Returns the addresses of a host in the program's file.
    pub fn listed(&self, name: &str) -> Vec<Ipv4Addr> {
        let listed = self.hosts.iter().filter(|(_, names)| names.iter().any(|of| of == name));
        listed.map(|(address, _)| *address).collect()
    }

    /// Returns the addresses of a host: by the program's file, by the system, or by a cluster's
    /// agent. Addresses of this host are those of the interface itself.
    pub fn addresses(&self, name: &str, own: Ipv4Addr) -> Vec<Ipv4Addr> {
        let mut found = self.listed(name);
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
        if found.is_empty() && name == own_name() {
            found.push(own);
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

    /// Returns the name of a host's address: by the program's file, or by the system. An address of
    /// this host that neither knows has the host's own name.
    pub fn name(&self, address: Ipv4Addr) -> Option<String> {
        let listed = self.hosts.iter().find(|(of, _)| *of == address);
        let listed = listed.and_then(|(_, names)| names.first().cloned());
        listed.or_else(|| interfaces::name_of(address)).or_else(|| name_of_own(address))
    }
}

/// Returns the name of this host; empty if the system tells none.
pub fn own_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Returns the name of this host, if it has the address.
fn name_of_own(address: Ipv4Addr) -> Option<String> {
    let is_own = interfaces::list().iter().any(|interface| interface.address == address);
    Some(own_name()).filter(|name| is_own && !name.is_empty())
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
        assert!(service.addresses("no-such-host.invalid", own).is_empty());
        assert!(Service::open(Some(Path::new("/no/such/file"))).is_none());
    }

    #[test]
    fn name__of_an_address_of_this_host_that_nobody_knows_is_its_own() {
        let own = own_name();
        assert!(!own.is_empty());
        for interface in interfaces::list() {
            assert_eq!(name_of_own(interface.address).as_deref(), Some(own.as_str()));
            assert!(Service::default().name(interface.address).is_some());
        }
        // Of documentation alone (RFC 5737).
        assert_eq!(name_of_own(Ipv4Addr::new(192, 0, 2, 77)), None);
        assert!(!Service::default().addresses(&own, Ipv4Addr::LOCALHOST).is_empty());
    }
}
