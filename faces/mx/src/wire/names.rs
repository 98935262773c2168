//! Names of hosts and their addresses of Ethernet: by the program's file (`WEFT_MX_PEERS`), or by
//! the system's table of neighbours.

use super::setting::parse_mac;
use std::ffi::OsStr;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};
use weft_mxoe::node::Mac;

/// Longest wait until the system knows a neighbour, and time between looks.
const PATIENCE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);
/// The port of discarded datagrams: one makes the system ask for the neighbour.
const DISCARD: u16 = 9;
/// Flag of a neighbour whose address is known.
const COMPLETE: u32 = 2;

/// Returns the lines of a file that have an address of Ethernet, each with its names.
fn lines(text: &str) -> impl Iterator<Item = (Mac, Vec<&str>)> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let mac = parse_mac(words.next()?)?;
        Some((mac, words.collect()))
    })
}

fn is_name(listed: &str, name: &str) -> bool {
    let first = |name: &str| name.strip_suffix(":0").map(str::to_owned);
    listed == name
        || first(name).as_deref() == Some(listed)
        || first(listed).as_deref() == Some(name)
}

/// Returns the address of a name in the file.
pub fn listed(file: Option<&OsStr>, name: &str) -> Option<Mac> {
    let text = std::fs::read_to_string(file?).ok()?;
    let found = lines(&text).find(|(_, names)| names.iter().any(|of| is_name(of, name)));
    found.map(|(mac, _)| mac)
}

/// Returns the name of an address in the file, or the address as a name.
pub fn name_of(file: Option<&OsStr>, mac: Mac) -> String {
    let text = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    let found = lines(&text).find(|(of, names)| *of == mac && !names.is_empty());
    let name = found
        .map(|(_, names)| names[0].to_owned())
        .unwrap_or_else(|| mac.map(|byte| format!("{byte:02x}")).join("-"));
    if name.contains(':') {
        name
    } else {
        name + ":0"
    }
}

/// Returns the address of Ethernet of a host behind an interface. `None` if none has its address.
pub fn neighbour(host: Ipv4Addr, interface: &str) -> Option<Mac> {
    let end = Instant::now() + PATIENCE;
    let mut asked = false;
    loop {
        let table = std::fs::read_to_string("/proc/net/arp").ok()?;
        if let Some(mac) = known(&table, host, interface) {
            return Some(mac);
        }
        if !asked {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
            socket.send_to(&[], (host, DISCARD)).ok()?;
            asked = true;
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Finds a neighbour in the system's table: address, type, flags, address of Ethernet, mask, and
/// interface.
fn known(table: &str, host: Ipv4Addr, interface: &str) -> Option<Mac> {
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[address, _, flags, mac, _, device] = &words[..] else { return None };
        let flags = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()?;
        let is_it = address.parse() == Ok(host) && device == interface && flags & COMPLETE != 0;
        is_it.then(|| parse_mac(mac)).flatten()
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0x57, 0, 0, 0, 1];

    #[test]
    fn listed__lines_with_an_address_of_ethernet() {
        let text = "10.0.0.1 a\n02:57:00:00:00:01 b b:0 # c\n02:57:00:00:00:02 d:1\n";
        let file = std::env::temp_dir().join(format!("weft-mx-peers-{}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let of = |name| listed(Some(file.as_os_str()), name);
        assert_eq!(
            (of("b"), of("b:0"), of("a"), of("c"), of("d")),
            (Some(MAC), Some(MAC), None, None, None)
        );
        assert_eq!(of("d:1"), Some([2, 0x57, 0, 0, 0, 2]));
        assert_eq!(name_of(Some(file.as_os_str()), MAC), "b:0");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(name_of(None, MAC), "02-57-00-00-00-01:0");
    }

    #[test]
    fn known__a_line_of_the_systems_table() {
        let table = "IP address HW type Flags HW address Mask Device\n\
                     10.0.0.1 0x1 0x0 00:00:00:00:00:00 * eth0\n\
                     10.0.0.2 0x1 0x2 02:57:00:00:00:01 * eth0\n";
        let of = |last, interface| known(table, Ipv4Addr::new(10, 0, 0, last), interface);
        assert_eq!((of(1, "eth0"), of(2, "eth0"), of(2, "eth1")), (None, Some(MAC), None));
    }
}
