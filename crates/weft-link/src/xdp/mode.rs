//! The attachment of the XDP program, and the side that copies frames.

use std::fmt;
use std::str::FromStr;

/// The place of the program and the copies of frames, best case first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, which receives directly into the link's memory.
    ZeroCopy,
    /// In the driver; frames are copied.
    Native,
    /// In the network stack, before any protocol; frames are copied. Works on every interface.
    Generic,
}

impl XdpMode {
    /// True if the program runs in the driver.
    pub fn is_native(self) -> bool {
        self != XdpMode::Generic
    }

    /// Lists the modes to try on an interface of this driver, in order, if the user chose none. For
    /// veth, generic mode is first: veth makes a packet buffer for every frame anyway, and native
    /// mode only adds to it.
    pub(super) fn candidates(driver: &str) -> &'static [XdpMode] {
        match driver {
            "veth" => &[XdpMode::Generic, XdpMode::Native],
            _ => &[XdpMode::ZeroCopy, XdpMode::Native, XdpMode::Generic],
        }
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpMode::ZeroCopy => "zerocopy",
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        })
    }
}

/// The error for the name of a mode that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMode(String);

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode {:?} is not understood; use zerocopy, native or generic", self.0)
    }
}

impl std::error::Error for UnknownMode {}

impl FromStr for XdpMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<XdpMode, UnknownMode> {
        let all = [XdpMode::ZeroCopy, XdpMode::Native, XdpMode::Generic];
        let named = all.into_iter().find(|mode| mode.to_string() == text);
        named.ok_or_else(|| UnknownMode(text.to_string()))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn from_str__reads_what_display_writes() {
        for mode in [XdpMode::ZeroCopy, XdpMode::Native, XdpMode::Generic] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "fast".parse::<XdpMode>().unwrap_err().to_string();
        assert!(error.contains("\"fast\"") && error.contains("native"), "{error}");
    }

    #[test]
    fn candidates__every_driver_ends_with_a_copying_mode() {
        for driver in ["veth", "mlx5_core", ""] {
            assert_ne!(XdpMode::candidates(driver).last(), Some(&XdpMode::ZeroCopy));
        }
    }
}
