//! The setting `WEFT_MXOE`: the interface on whose network all hosts are trusted.

use weft_link::ether::{Interface, Interfaces};
use weft_mxoe::node::{Mac, Settings};
use weft_mxoe::Dialect;

/// The interface and the dialect of frames of MX over Ethernet, and the tuning of paper 001,
/// section 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name of the interface.
    pub interface: String,
    /// The dialect of its network.
    pub dialect: Dialect,
    /// The tuning.
    pub tuning: Tuning,
}

/// The tuning of long messages. Lengths of frames are those of all hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Longest payload of a frame of a pull, in bytes; none: what the MTU has room for.
    pub frame: Option<u16>,
    /// Frames of a block, at most 64; none: those of the dialect.
    pub block: Option<u8>,
    /// Blocks that are asked for at a time; none: 4.
    pub depth: Option<u8>,
    /// True if frames are copied together and sent some by one system call; else their bytes are
    /// gathered from the message by the kernel.
    pub copies: bool,
    /// True if a second processor copies what was received, while the first receives more.
    pub overlaps: bool,
}

impl Tuning {
    /// Takes `frame=N`, `block=N`, `depth=N`, `send=copy|gather` or `receive=core|place`.
    fn take(&mut self, text: &str) -> Option<()> {
        let (key, value) = text.split_once('=')?;
        let number = || value.parse::<u8>().ok().filter(|number| *number > 0);
        match (key.trim(), value.trim()) {
            ("frame", value) => {
                self.frame = Some(value.parse().ok().filter(|len| (64..=9000).contains(len))?);
            }
            ("block", _) => self.block = Some(number().filter(|frames| *frames <= 64)?),
            ("depth", _) => self.depth = Some(number()?),
            ("send", "copy") => self.copies = true,
            ("send", "gather") => self.copies = false,
            ("receive", "core") => self.overlaps = true,
            ("receive", "place") => self.overlaps = false,
            _ => return None,
        }
        Some(())
    }

    /// Returns the settings of an endpoint that this tuning makes of the usual ones.
    pub fn apply(self, usual: Settings) -> Settings {
        Settings {
            reply: self.frame.map_or(usual.reply, |frame| frame.min(usual.reply)),
            block: self.block.unwrap_or(usual.block),
            depth: self.depth.unwrap_or(usual.depth),
            ..usual
        }
    }
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

    /// Parses `IFNAME`, `IFNAME:open` or `IFNAME:native`, and the tuning behind a comma.
    fn parse(text: &str) -> Result<Setting, String> {
        let (name, rest) = text.split_once(',').map_or((text, None), |(a, b)| (a, Some(b)));
        let mut tuning = Tuning::default();
        for part in rest.into_iter().flat_map(|rest| rest.split(',')) {
            tuning.take(part).ok_or_else(|| {
                format!(
                    "WEFT_MXOE={text:?}: {part:?} is not understood; use frame=64..9000, \
                     block=1..64, depth=1..255, send=gather or copy, receive=place or core"
                )
            })?;
        }
        let (interface, dialect) = match name.rsplit_once(':') {
            Some((interface, "native")) => (interface, Dialect::Compat),
            Some((interface, "open")) => (interface, Dialect::Native),
            Some(_) => {
                return Err(format!(
                    "WEFT_MXOE={text:?} is not understood; use the name of an interface, alone or \
                     with `:open` (Open-MX, as it is by default) or `:native` (native MX)"
                ));
            }
            None => (name, Dialect::Native),
        };
        Ok(Setting { interface: interface.to_owned(), dialect, tuning })
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
        let tuning = Tuning::default();
        let of =
            |interface: &str, dialect| Ok(Setting { interface: interface.into(), dialect, tuning });
        assert_eq!(Setting::parse("eth0"), of("eth0", Dialect::Native));
        assert_eq!(Setting::parse("eth0:open"), of("eth0", Dialect::Native));
        assert_eq!(Setting::parse("eth0:native"), of("eth0", Dialect::Compat));
        assert!(Setting::parse("eth0:0").is_err());
        let none = of("no-such-if", Dialect::Native).unwrap();
        assert!(none.find().unwrap_err().contains("no-such-if"));
    }

    #[test]
    fn parse__the_tuning_of_long_messages() {
        let text = "eth0:open,frame=4096,block=16,depth=2,send=copy,receive=core";
        let Setting { interface, tuning, .. } = Setting::parse(text).unwrap();
        let (frame, block, depth) = (Some(4096), Some(16), Some(2));
        let expected = Tuning { frame, block, depth, copies: true, overlaps: true };
        assert_eq!((interface.as_str(), tuning), ("eth0", expected));
        let settings = tuning.apply(Settings::of(Dialect::Native, 1500));
        assert_eq!((settings.reply, settings.block, settings.depth), (1468, 16, 2));
        for wrong in ["frame", "frame=9", "block=65", "block=0", "depth=x", "send=x", "x=1", ""] {
            let why = Setting::parse(&format!("eth0,{wrong}")).unwrap_err();
            assert!(why.contains("block=1..64"), "{wrong}: {why}");
        }
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
