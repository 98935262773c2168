//! Devices by their names.

use std::net::Ipv4Addr;
use weft_ffi::sys::interfaces::{self, Interface};

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
}
