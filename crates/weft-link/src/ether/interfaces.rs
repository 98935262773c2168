//! The Ethernet interfaces that can be used, and those that reach a peer.

use super::{sys, EtherAddr, Mac};
use std::fmt;
use std::io;
use std::net::IpAddr;

/// Highest number of interfaces that an endpoint uses, and of a peer's interfaces that it tries.
pub const PATHS_MAX: usize = 4;

/// A network interface of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number of the interface.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its MAC address; zero if it has none.
    pub mac: Mac,
    /// Largest Ethernet payload, bytes.
    pub mtu: u32,
    /// Flags (`IFF_*`).
    pub flags: u32,
    /// Hardware type (`ARPHRD_*`).
    pub hardware: u16,
    /// Number of the bridge or bond it belongs to; zero for none.
    pub master: u32,
    /// Addresses and lengths of the networks' prefixes.
    pub ips: Vec<(IpAddr, u8)>,
}

/// The reason why weft cannot use an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unusable {
    /// The loopback interface: inside a host, shared memory is used.
    Loopback,
    /// Not Ethernet, or point-to-point.
    NotEthernet,
    /// The interface is switched off or has no carrier.
    Down,
    /// The interface belongs to a bridge or bond, which takes its frames. The bridge or bond can be
    /// used.
    Enslaved,
    /// Its MTU is too small.
    Narrow,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unusable::Loopback => "loopback",
            Unusable::NotEthernet => "not an Ethernet interface",
            Unusable::Down => "down or without carrier: `ip link set NAME up`, check the cable",
            Unusable::Enslaved => "part of a bridge or bond: use the bridge or bond",
            Unusable::Narrow => "its MTU is below 576",
        })
    }
}

/// The carrier is present (netdevice(7)). `IFF_RUNNING` follows a moment later.
const IFF_LOWER_UP: i32 = 1 << 16;

/// Returns true if the flags (`IFF_*`) of an interface say that it is up and has a carrier: the
/// rule of all links. `IFF_RUNNING` is not part of it, as it also waits for a state that other
/// programs set (RFC 2863, dormant), while packets pass already.
pub fn is_live(flags: u32) -> bool {
    let wanted = (libc::IFF_UP | IFF_LOWER_UP) as u32;
    flags & wanted == wanted
}

/// A frame must have room for every fixed part of the protocol.
const MTU_MIN: u32 = 576;

impl Interface {
    /// Returns the reason if frames cannot be sent and received there now.
    pub fn usable(&self) -> Result<(), Unusable> {
        let has = |flag: i32| self.flags & flag as u32 != 0;
        if has(libc::IFF_LOOPBACK) {
            return Err(Unusable::Loopback);
        }
        if self.hardware != libc::ARPHRD_ETHER || !self.mac.is_station() {
            return Err(Unusable::NotEthernet);
        }
        if !has(libc::IFF_BROADCAST) || has(libc::IFF_NOARP) {
            return Err(Unusable::NotEthernet);
        }
        if self.master != 0 {
            return Err(Unusable::Enslaved);
        }
        if !is_live(self.flags) {
            return Err(Unusable::Down);
        }
        if self.mtu < MTU_MIN {
            return Err(Unusable::Narrow);
        }
        Ok(())
    }

    /// Returns the address for peers that send to `slot` on this interface.
    pub fn address(&self, slot: u16) -> EtherAddr {
        let mtu = u16::try_from(self.mtu).unwrap_or(u16::MAX);
        EtherAddr { mac: self.mac, slot, train: EtherAddr::NONE, mtu, net: self.hint() }
    }

    /// Returns [`network_hint`] of its first address that is not link-local, IPv4 before IPv6.
    pub fn hint(&self) -> u32 {
        let first = |v6| self.ips.iter().find(|(ip, _)| ip.is_ipv6() == v6 && is_global(*ip));
        first(false).or_else(|| first(true)).map_or(0, |&(ip, prefix)| network_hint(ip, prefix))
    }
}

fn is_global(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(a) => !a.is_link_local() && !a.is_loopback(),
        IpAddr::V6(a) => a.segments()[0] & 0xffc0 != 0xfe80 && !a.is_loopback(),
    }
}

/// Returns a number, never zero, that is the same for all addresses of one IP network: FNV-1a of
/// family, prefix length and prefix.
pub fn network_hint(ip: IpAddr, prefix: u8) -> u32 {
    let (family, bits, width) = match ip {
        IpAddr::V4(a) => (4, u128::from(u32::from(a)) << 96, 32),
        IpAddr::V6(a) => (6, u128::from(a), 128),
    };
    let prefix = prefix.min(width);
    let kept = bits & u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    let bytes = [family, prefix].into_iter().chain(kept.to_be_bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// A path to a peer: from an interface of ours to an interface of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Index of our interface in the list given to [`Path::find`].
    pub ours: usize,
    /// Address of the peer's interface.
    pub to: EtherAddr,
    /// Largest Ethernet payload that both ends take.
    pub mtu: u32,
}

/// The interfaces of this network namespace.
#[derive(Clone, Debug, Default)]
pub struct Interfaces(pub Vec<Interface>);

impl Interfaces {
    /// Lists all interfaces of now, in the kernel's order.
    ///
    /// # Errors
    /// The error of rtnetlink.
    pub fn list() -> io::Result<Interfaces> {
        sys::list().map(Interfaces)
    }

    /// Chooses the interfaces that can be used, those with an IP network first, at most
    /// [`PATHS_MAX`]. `only` restricts the choice to these names.
    ///
    /// # Errors
    /// A text that names every interface and why it cannot be used.
    pub fn usable(&self, only: Option<&[String]>) -> Result<Vec<Interface>, String> {
        let mut why = Vec::new();
        let mut found = Vec::new();
        let wanted = |name: &String| only.is_none_or(|list| list.contains(name));
        for one in self.0.iter().filter(|i| wanted(&i.name)) {
            match one.usable() {
                Ok(()) => found.push(one.clone()),
                Err(reason) => why.push(format!("{}: {reason}", one.name)),
            }
        }
        for name in only.into_iter().flatten() {
            if !self.0.iter().any(|i| i.name == *name) {
                why.push(format!("{name}: no such interface"));
            }
        }
        if found.is_empty() {
            let list = if why.is_empty() { "there is none".into() } else { why.join("; ") };
            return Err(format!("no usable Ethernet interface: {list}"));
        }
        found.sort_by_key(|i| i.hint() == 0);
        found.truncate(PATHS_MAX);
        Ok(found)
    }
}

impl Path {
    /// Finds the paths from `ours` to a peer's interfaces, best first: those on one IP network;
    /// then those where one side has no IP network, so that only a try can tell. Different IP
    /// networks are assumed to be different Ethernets. An interface of ours cannot reach itself.
    ///
    /// # Errors
    /// A text that names every address and why it cannot be reached.
    pub fn find(ours: &[Interface], theirs: &[EtherAddr]) -> Result<Vec<Path>, String> {
        let mut found: Vec<(bool, Path)> = Vec::new();
        let mut why = Vec::new();
        for to in theirs.iter().take(PATHS_MAX) {
            if ours.iter().any(|i| i.mac == to.mac) {
                why.push(format!("{to}: belongs to this host"));
                continue;
            }
            let before = found.len();
            for (at, one) in ours.iter().enumerate() {
                let (a, b) = (one.hint(), to.net);
                if a == b || a == 0 || b == 0 {
                    let mtu = one.mtu.min(u32::from(to.mtu)).max(MTU_MIN);
                    found.push((a != b || a == 0, Path { ours: at, to: *to, mtu }));
                }
            }
            if found.len() == before {
                why.push(format!("{to}: on another network than our interfaces"));
            }
        }
        if found.is_empty() {
            return Err(match why.is_empty() {
                true => "the peer has no Ethernet address for this link".into(),
                false => why.join("; "),
            });
        }
        found.sort_by_key(|&(unsure, _)| unsure);
        found.truncate(PATHS_MAX * PATHS_MAX);
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn interface(index: u32, ip: &str) -> Interface {
        let ips = ip.split_once('/').map(|(a, p)| (a.parse().unwrap(), p.parse().unwrap()));
        Interface {
            index,
            name: format!("e{index}"),
            mac: Mac([2, 0, 0, 0, 0, index as u8]),
            mtu: 1500,
            flags: (libc::IFF_UP | IFF_LOWER_UP | libc::IFF_BROADCAST) as u32,
            hardware: libc::ARPHRD_ETHER,
            master: 0,
            ips: ips.into_iter().collect(),
        }
    }

    #[test]
    fn usable__names_each_reason() {
        let good = interface(1, "");
        assert_eq!(good.usable(), Ok(()));
        let flags = good.flags;
        let cases = [
            (Interface { flags: flags | libc::IFF_LOOPBACK as u32, ..good.clone() }, "loopback"),
            (Interface { hardware: 772, ..good.clone() }, "not an Ethernet"),
            (Interface { mac: Mac::default(), ..good.clone() }, "not an Ethernet"),
            (Interface { flags: flags & !(IFF_LOWER_UP as u32), ..good.clone() }, "carrier"),
            (Interface { master: 7, ..good.clone() }, "bridge"),
            (Interface { mtu: 500, ..good.clone() }, "MTU"),
        ];
        for (one, text) in cases {
            let why = one.usable().unwrap_err().to_string();
            assert!(why.contains(text), "{why}");
        }
    }

    #[test]
    fn usable__networks_first_and_names_what_is_missing() {
        let all = Interfaces(vec![interface(1, ""), interface(2, "10.0.0.1/24")]);
        let names: Vec<_> = all.usable(None).unwrap().into_iter().map(|i| i.name).collect();
        assert_eq!(names, ["e2", "e1"]);
        let why = all.usable(Some(&["e9".into()])).unwrap_err();
        assert!(why.contains("e9: no such interface"), "{why}");
    }

    #[test]
    fn network_hint__same_for_one_network_only() {
        let hint = |text: &str, p| network_hint(text.parse().unwrap(), p);
        assert_eq!(hint("10.0.0.1", 24), hint("10.0.0.200", 24));
        assert_ne!(hint("10.0.0.1", 24), hint("10.0.1.1", 24));
        assert_ne!(hint("10.0.0.1", 24), hint("10.0.0.1", 16));
        assert_eq!(hint("2001:db8::1", 64), hint("2001:db8::ffff", 64));
        assert_ne!(hint("0.0.0.0", 0), 0);
    }

    #[test]
    fn find__one_network_before_unknown_and_never_another() {
        let ours = [interface(1, ""), interface(2, "10.0.0.1/24")];
        let same = interface(7, "10.0.0.9/24").address(3);
        let other = interface(8, "10.9.0.9/24").address(3);
        let paths = Path::find(&ours, &[other, same]).unwrap();
        let list: Vec<_> = paths.iter().map(|p| (p.ours, p.to.mac)).collect();
        assert_eq!(list, [(1, same.mac), (0, other.mac), (0, same.mac)]);
        let why = Path::find(&ours[1..], &[other]).unwrap_err();
        assert!(why.contains("another network"), "{why}");
        let why = Path::find(&ours, &[ours[1].address(1)]).unwrap_err();
        assert!(why.contains("belongs to this host"), "{why}");
        assert!(Path::find(&ours, &[]).unwrap_err().contains("no Ethernet address"));
    }

    #[test]
    fn find__mtu_is_what_both_take() {
        let wide = Interface { mtu: 9000, ..interface(1, "") };
        let paths = Path::find(&[wide], &[interface(2, "").address(0)]).unwrap();
        assert_eq!(paths[0].mtu, 1500);
    }
}
