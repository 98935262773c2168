//! The specification of a lab: hosts, addresses, and the conditions of its network.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Most hosts of a lab: its IPv4 network is a /24.
pub const MAX_HOSTS: usize = 250;

/// Conditions of the lab's network
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Conditions {
    /// MTU of every interface, 68 to 65535
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 1500,
        value_parser = clap::value_parser!(u32).range(68..=65535)
    )]
    pub mtu: u32,
    /// Bits per second of each host's connection, in each direction: 100mbit, 2.5gbit
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// One-way delay between two hosts: 50us, 1.5ms, 0.1s
    #[arg(long, value_name = "TIME", value_parser = parse_delay)]
    pub delay: Option<Duration>,
    /// Share of packets that the network loses: 1%, 0.1%
    #[arg(long, value_name = "PERCENT", value_parser = parse_loss)]
    pub loss: Option<f64>,
    /// Bytes queued for each host at a limited rate [default: 5 ms of the rate, at least 128K]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "rate")]
    pub queue: Option<u64>,
    /// Join two hosts by one cable, without a switch between
    #[arg(long, conflicts_with_all = ["rate", "delay", "loss"])]
    pub direct: bool,
}

/// The properties of a lab that are set before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Number of hosts.
    pub hosts: usize,
    /// MTU of every interface.
    pub mtu: u32,
    /// Bits per second of each host's connection.
    pub rate: Option<u64>,
    /// One-way delay.
    pub delay: Option<Duration>,
    /// Share of packets lost, 0 to 1.
    pub loss: Option<f64>,
    /// Bytes of the queue in front of a limited rate.
    pub queue: u64,
    /// True if two hosts are joined by one cable.
    pub direct: bool,
    /// Number of the lab's networks: `10.99.K.0/24` and `fd99:7765:6674:K::/64`.
    pub subnet: u8,
}

impl Spec {
    /// Returns a lab of these hosts under these conditions, in network number `subnet`.
    ///
    /// # Errors
    /// The name is invalid, there are no or too many hosts, or a cable joins other than two.
    pub fn new(name: &str, hosts: usize, conditions: &Conditions, subnet: u8) -> Result<Spec> {
        check_name(name)?;
        if !(1..=MAX_HOSTS).contains(&hosts) {
            misuse!("{hosts} hosts: a lab has 1 to {MAX_HOSTS}");
        }
        let Conditions { mtu, rate, delay, loss, queue, direct } = conditions.clone();
        if direct && hosts != 2 {
            misuse!("--direct joins two hosts, not {hosts}");
        }
        let queue = queue.unwrap_or_else(|| (rate.unwrap_or(0) / 8 / 200).max(128 << 10));
        Ok(Spec { name: name.into(), hosts, mtu, rate, delay, loss, queue, direct, subnet })
    }

    /// Returns the name of a host, counted from 0.
    pub fn host_name(&self, host: usize) -> String {
        format!("h{}", host + 1)
    }

    /// Returns the index of the host with this name.
    pub fn host_index(&self, name: &str) -> Option<usize> {
        (0..self.hosts).find(|&host| self.host_name(host) == name)
    }

    /// Returns the IPv4 address of a host.
    pub fn v4(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, self.subnet, host as u8 + 1)
    }

    /// Returns the IPv6 address of a host; `None` below the smallest MTU of IPv6 (RFC 8200) and
    /// where the kernel has no IPv6.
    pub fn v6(&self, host: usize) -> Option<Ipv6Addr> {
        if self.mtu < 1280 || !std::path::Path::new("/proc/sys/net/ipv6").exists() {
            return None;
        }
        let subnet = u16::from(self.subnet);
        Some(Ipv6Addr::new(0xfd99, 0x7765, 0x6674, subnet, 0, 0, 0, host as u16 + 1))
    }

    /// Returns the Ethernet address of a host: locally administered.
    pub fn mac(&self, host: usize) -> [u8; 6] {
        [0x02, 0x77, 0x65, 0x66, self.subnet, host as u8 + 1]
    }

    /// Returns the host of an Ethernet address; `None` for unknown and multicast addresses.
    pub fn host_of_mac(&self, mac: &[u8]) -> Option<usize> {
        let [0x02, 0x77, 0x65, 0x66, subnet, number] = *mac else { return None };
        let host = usize::from(number).checked_sub(1)?;
        (subnet == self.subnet && host < self.hosts).then_some(host)
    }

    /// Returns the hosts file of every host.
    pub fn hosts_file(&self) -> String {
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost\n");
        for host in 0..self.hosts {
            let name = self.host_name(host);
            text += &format!("{} {name}\n", self.v4(host));
            text += &self.v6(host).map_or(String::new(), |address| format!("{address} {name}\n"));
        }
        text
    }

    /// Describes the conditions.
    pub fn conditions(&self) -> String {
        let mut words = vec![format!("MTU {}", self.mtu)];
        if let Some(rate) = self.rate {
            words.push(format!("{} each way, queue {} B", show_rate(rate), self.queue));
        }
        if let Some(delay) = self.delay {
            words.push(format!("{delay:?} one way"));
        }
        if let Some(loss) = self.loss {
            words.push(format!("{}% of packets lost", loss * 100.0));
        }
        if self.direct {
            words.push("one cable".into());
        }
        words.join(", ")
    }
}

/// Checks the name of a lab, which is used in the name of a socket and in a command line.
///
/// # Errors
/// The name is invalid.
pub fn check_name(name: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    if name.is_empty() || name.len() > 32 || name.starts_with('-') || !name.bytes().all(plain) {
        misuse!("{name:?} is no name of a lab: 1 to 32 of a-z, 0-9, - and _, not - first");
    }
    Ok(())
}

/// Returns a number, and the text after it in lower case.
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..at].parse::<f64>().ok()?;
    Some((number, text[at..].trim().to_ascii_lowercase()))
}

/// Returns a number times the scale of its unit, behind which a word may stand.
fn scaled(text: &str, word: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = split(text)?;
    let unit = unit.strip_suffix(word).unwrap_or(&unit);
    units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| number * scale)
}

fn parse_rate(text: &str) -> Result<u64, String> {
    let units = [("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9)];
    match scaled(text, "bit", &units) {
        Some(bits) if (8e3..=1e12).contains(&bits) => Ok(bits as u64),
        _ => Err("expected bits a second from 8kbit to 1000gbit, such as 100mbit or 10g".into()),
    }
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    match scaled(text, "", &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]) {
        Some(s) if s > 0.0 && s <= 10.0 => Ok(Duration::from_nanos((s * 1e9).round() as u64)),
        _ => Err("expected a time up to 10 s with its unit, such as 50us or 1.5ms".into()),
    }
}

fn parse_loss(text: &str) -> Result<f64, String> {
    match split(text) {
        Some((percent, unit)) if unit == "%" && percent > 0.0 && percent < 100.0 => {
            Ok(percent / 100.0)
        }
        _ => Err("expected a share in percent below 100, such as 1% or 0.1%".into()),
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    match scaled(text, "", &[("", 1.0), ("k", 1024.0), ("m", 1048576.0)]) {
        Some(bytes) if (1500.0..=1e9).contains(&bytes) => Ok(bytes as u64),
        _ => Err("expected bytes from 1500 to 1000M, such as 64K".into()),
    }
}

fn show_rate(bits: u64) -> String {
    match bits {
        n if n % 1_000_000_000 == 0 => format!("{} Gbit/s", n / 1_000_000_000),
        n if n % 1_000_000 == 0 => format!("{} Mbit/s", n / 1_000_000),
        n => format!("{n} bit/s"),
    }
}

/// Returns the first lab network into which this machine has no route and that no other lab uses.
///
/// # Errors
/// All are in use, or the routes cannot be read.
pub fn free_subnet(taken: &[u8]) -> Result<u8> {
    let v4 = std::fs::read_to_string("/proc/net/route").context("/proc/net/route")?;
    // Without IPv6 there is no such file.
    let v6 = std::fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    (0..=u8::MAX)
        .find(|k| !taken.contains(k) && !in_use_v4(&v4, *k) && !in_use_v6(&v6, *k))
        .context("every network 10.99.K.0/24 is in use on this machine")
}

/// True if a route leads to part of `10.99.K.0/24`; a default route does not count.
fn in_use_v4(routes: &str, subnet: u8) -> bool {
    let own = u32::from(Ipv4Addr::new(10, 99, subnet, 0));
    routes.lines().skip(1).any(|line| {
        let number = |at| {
            let word: &str = line.split_whitespace().nth(at)?;
            // The kernel prints the bytes in the order of memory.
            u32::from_str_radix(word, 16).ok().map(|n| u32::from_be_bytes(n.to_ne_bytes()))
        };
        let (Some(to), Some(mask)) = (number(1), number(7)) else { return false };
        let mask = mask & 0xffff_ff00;
        mask != 0 && to & mask == own & mask
    })
}

fn in_use_v6(routes: &str, subnet: u8) -> bool {
    let own = u128::from(Ipv6Addr::new(0xfd99, 0x7765, 0x6674, subnet.into(), 0, 0, 0, 0));
    routes.lines().any(|line| {
        let mut words = line.split_whitespace();
        let to = words.next().and_then(|word| u128::from_str_radix(word, 16).ok());
        let len = words.next().and_then(|word| u32::from_str_radix(word, 16).ok());
        let (Some(to), Some(len)) = (to, len) else { return false };
        let mask = u128::MAX.checked_shl(128 - len.min(64)).unwrap_or(0);
        mask != 0 && to & mask == own & mask
    })
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn spec(hosts: usize) -> Spec {
        Spec::new("lab", hosts, &Conditions { mtu: 1500, ..Conditions::default() }, 3).unwrap()
    }

    #[test]
    fn parse__reads_the_units_and_refuses_the_rest() {
        assert_eq!(parse_rate("100mbit"), Ok(100_000_000));
        assert_eq!(parse_rate("2.5G"), Ok(2_500_000_000));
        assert_eq!(parse_delay("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse_delay("0.1s"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_loss("1%"), Ok(0.01));
        assert_eq!(parse_bytes("64K"), Ok(65536));
        for bad in ["", "fast", "1", "10tbit", "-1gbit", "1..2g"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
        for bad in ["5", "0us", "11s", "1h", ""] {
            assert!(parse_delay(bad).is_err(), "{bad}");
        }
        for bad in ["1", "100%", "0%", "-3%", ""] {
            assert!(parse_loss(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn new__checks_name_and_number_of_hosts() {
        let conditions = Conditions { mtu: 1500, ..Conditions::default() };
        for bad in ["", "-x", "Lab", "a b", "a'b", "abcdefghijklmnopqrstuvwxyz0123456789"] {
            assert!(Spec::new(bad, 2, &conditions, 0).is_err(), "{bad}");
        }
        assert!(Spec::new("x", 0, &conditions, 0).is_err());
        assert!(Spec::new("x", MAX_HOSTS + 1, &conditions, 0).is_err());
        let direct = Conditions { direct: true, ..conditions };
        assert!(Spec::new("x", 3, &direct, 0).is_err() && Spec::new("x", 2, &direct, 0).is_ok());
    }

    #[test]
    fn hosts__have_names_and_addresses_of_their_own() {
        let spec = spec(MAX_HOSTS);
        for host in 0..MAX_HOSTS {
            assert_eq!(spec.host_index(&spec.host_name(host)), Some(host));
            assert_eq!(spec.host_of_mac(&spec.mac(host)), Some(host));
            assert!(spec.hosts_file().contains(&format!("{} h{}\n", spec.v4(host), host + 1)));
        }
        assert_eq!(spec.host_index("h251"), None);
        assert_eq!(spec.host_index("h01"), None);
        assert_eq!(spec.host_of_mac(&[0xff; 6]), None);
        assert_eq!(spec.host_of_mac(&[2, 0x77, 0x65, 0x66, 3, 0]), None);
        assert_eq!(spec.host_of_mac(&[2, 0x77, 0x65, 0x66, 3, 251]), None);
        let small = Spec { mtu: 1279, ..spec };
        assert!(small.v6(0).is_none() && !small.hosts_file().contains("fd99"));
    }

    #[test]
    fn in_use__sees_routes_that_overlap() {
        let table = |to: [u8; 4], mask: [u8; 4]| {
            let hex = |bytes| format!("{:08X}", u32::from_ne_bytes(bytes));
            format!("Iface Destination\neth0\t{}\t0\t1\t0\t0\t0\t{}\t0\n", hex(to), hex(mask))
        };
        assert!(!in_use_v4(&table([0; 4], [0; 4]), 7), "a default route");
        assert!(in_use_v4(&table([10, 0, 0, 0], [255, 0, 0, 0]), 7), "all of 10");
        assert!(in_use_v4(&table([10, 99, 7, 128], [255, 255, 255, 128]), 7), "a part");
        assert!(!in_use_v4(&table([10, 99, 8, 0], [255, 255, 255, 0]), 7), "the next one");
        let line = "fd997765667400070000000000000000 40 0 00 0 0 0 0 0 eth0\n";
        assert!(in_use_v6(line, 7) && !in_use_v6(line, 8));
        assert!(!in_use_v6("00000000000000000000000000000000 00 0 00 0 0 0 0 0 eth0\n", 7));
    }
}
