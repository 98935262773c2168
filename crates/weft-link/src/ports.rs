//! The range of ports to which sockets are bound. A firewall can open exactly this range.

use std::fmt;
use std::io;
use std::str::FromStr;

/// Name of the setting.
pub const VARIABLE: &str = "WEFT_UDP_PORTS";
/// Name of the setting for sockets that take TCP connections.
pub const TCP: &str = "WEFT_TCP_PORTS";

/// A range of ports, or any port that the system chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// First and last port; 0 for any.
    range: (u16, u16),
}

impl Ports {
    /// Any port that the system chooses.
    pub const ANY: Ports = Ports { range: (0, 0) };

    /// Makes a range of this single port; 0 for any.
    pub const fn one(port: u16) -> Ports {
        Ports { range: (port, port) }
    }

    /// Returns first and last port; `None` for any.
    pub fn range(self) -> Option<(u16, u16)> {
        (self.range.0 > 0).then_some(self.range)
    }

    /// Returns the number of ports; `None` for any port of the system.
    pub fn count(self) -> Option<usize> {
        self.range().map(|(first, last)| usize::from(last - first) + 1)
    }

    /// Binds to a free port by calling `bind` with one port after the other, first with `preferred`
    /// if that is in the range.
    ///
    /// # Errors
    /// The error of the call; `AddrInUse` if every port is taken.
    pub fn bind<T>(
        self,
        preferred: Option<u16>,
        bind: impl Fn(u16) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some((first, last)) = self.range() else {
            return match preferred.map(&bind) {
                Some(Ok(bound)) => Ok(bound),
                _ => bind(0),
            };
        };
        // Start at a random port, because processes that start together would else try the same
        // ports.
        let count = u32::from(last - first) + 1;
        let start = crate::random_u64() as u32 % count;
        let ports = (0..count).map(|at| first + ((start + at) % count) as u16);
        for port in preferred.into_iter().filter(|p| (first..=last).contains(p)).chain(ports) {
            match bind(port) {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                other => return other,
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range {
            (0, _) => f.write_str("any"),
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// The error for text that is not a range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPorts;

impl fmt::Display for NoPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a port (1 to 65535), a range of ports (50000-50999) or any")
    }
}

impl std::error::Error for NoPorts {}

impl FromStr for Ports {
    type Err = NoPorts;

    /// Parses `50000-50999`, `50000` or `any`.
    fn from_str(text: &str) -> Result<Ports, NoPorts> {
        if text.trim() == "any" {
            return Ok(Ports::ANY);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|&port| port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Ports { range: (first, last) }),
            _ => Err(NoPorts),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn from_str__reads_ranges_and_refuses_the_rest() {
        for text in ["any", "50000-50999", "7", "65535-65535"] {
            let ports: Ports = text.parse().unwrap();
            assert_eq!(ports.to_string().parse::<Ports>().unwrap(), ports);
        }
        assert_eq!("50000-50999".parse::<Ports>().unwrap().count(), Some(1000));
        for text in ["", "0", "0-5", "9-5", "a-b", "1-65536", "1-2-3", "-5"] {
            assert_eq!(text.parse::<Ports>(), Err(NoPorts), "{text}");
        }
    }

    #[test]
    fn bind__tries_every_port_once_and_the_preferred_first() {
        let ports: Ports = "50000-50009".parse().unwrap();
        let tried = RefCell::new(Vec::new());
        let bound = ports.bind(Some(50_004), |port| -> io::Result<()> {
            tried.borrow_mut().push(port);
            Err(io::ErrorKind::AddrInUse.into())
        });
        assert_eq!(bound.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let mut tried = tried.take();
        assert_eq!(tried.remove(0), 50_004);
        tried.sort_unstable();
        assert_eq!(tried, Vec::from_iter(50_000..=50_009));
        assert_eq!(ports.bind(None, |port| Ok(port == 50_007)).map(|_| ()).ok(), Some(()));
        assert_eq!(Ports::ANY.bind(Some(9), Ok).unwrap(), 9);
    }
}
