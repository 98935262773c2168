//! The setting `WEFT_MXOE`: the interface on whose network all hosts are trusted.

use weft_link::ether::{Interface, Interfaces};
use weft_mxoe::node::Mac;
use weft_mxoe::Dialect;

/// The interface and the dialect of frames of MX over Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name of the interface.
    pub interface: String,
    /// The dialect of its network.
    pub dialect: Dialect,
}

impl Setting {
    /// Reads `WEFT_MXOE`. `None` if it is not set.
    ///
    /// # Errors
    /// The text says what is wrong with it.
    pub fn of_environment() -> Result<Option<Setting>, String> {
        match std::env::var("WEFT_MXOE") {
            Ok(text) if !text.trim().is_empty() => Setting::parse(text.trim()).map(Some),
            _ => Ok(None),
        }
    }

    /// Parses `IFNAME`, `IFNAME:open` or `IFNAME:native`.
    fn parse(text: &str) -> Result<Setting, String> {
        let (interface, dialect) = match text.rsplit_once(':') {
            Some((interface, "native")) => (interface, Dialect::Compat),
            Some((interface, "open")) => (interface, Dialect::Native),
            Some(_) => {
                return Err(format!(
                    "WEFT_MXOE={text:?} is not understood; use the name of an interface, alone or \
                     with `:open` (Open-MX, as it is by default) or `:native` (native MX)"
                ));
            }
            None => (text, Dialect::Native),
        };
        Ok(Setting { interface: interface.to_owned(), dialect })
    }

    /// Returns the interface.
    ///
    /// # Errors
    /// There is none of this name, or it cannot carry frames.
    pub fn find(&self) -> Result<Interface, String> {
        let name = &self.interface;
        let all = Interfaces::list().map_err(|why| format!("the network interfaces: {why}"))?;
        let found = all.0.into_iter().find(|interface| interface.name == *name);
        let found = found.ok_or_else(|| format!("WEFT_MXOE: there is no interface {name}"))?;
        found.usable().map_err(|why| format!("WEFT_MXOE: the interface {name}: {why}"))?;
        Ok(found)
    }
}

/// Returns the number of a network interface with an address of Ethernet.
pub fn nic_of(mac: Mac) -> u64 {
    mac.iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Returns the address of Ethernet of a network interface. `None` if it is none.
pub fn mac_of(nic: u64) -> Option<Mac> {
    let [0, 0, mac @ ..] = nic.to_be_bytes() else { return None };
    (mac[0] & 1 == 0 && mac != [0; 6]).then_some(mac)
}

/// Parses an address of Ethernet, its parts joined by `:` or `-`.
pub fn parse_mac(text: &str) -> Option<Mac> {
    let mut mac = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__an_interface_and_a_dialect() {
        let of = |interface: &str, dialect| Ok(Setting { interface: interface.into(), dialect });
        assert_eq!(Setting::parse("eth0"), of("eth0", Dialect::Native));
        assert_eq!(Setting::parse("eth0:open"), of("eth0", Dialect::Native));
        assert_eq!(Setting::parse("eth0:native"), of("eth0", Dialect::Compat));
        assert!(Setting::parse("eth0:0").is_err());
        let none = Setting { interface: "no-such-if".into(), dialect: Dialect::Native };
        assert!(none.find().unwrap_err().contains("no-such-if"));
    }

    #[test]
    fn mac_of__stations_alone() {
        let mac = [2, 0x57, 0, 0, 0, 0xfe];
        assert_eq!((mac_of(nic_of(mac)), parse_mac("02:57:00:00:00:fe")), (Some(mac), Some(mac)));
        assert_eq!(parse_mac("02-57-00-00-00-fe"), Some(mac));
        for wrong in ["", "02:57:00:00:00", "02:57:00:00:00:fe:1", "2:57:0:0:0:fe", "10.0.0.1"] {
            assert_eq!(parse_mac(wrong), None, "{wrong}");
        }
        assert_eq!((mac_of(0), mac_of(1 << 40), mac_of(1 << 48 | 2)), (None, None, None));
    }
}
