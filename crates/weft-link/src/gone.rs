//! Evidence inside a host that an endpoint has ended: its sockets are gone.
//!
//! The kernel lists the sockets of a network namespace in `/proc/net`. While an endpoint in the
//! same namespace (its card has the same [`Address::host`]) lives, it listens under the name of its
//! shared memory, or has the UDP or TCP ports of its card. A process that is stopped or that
//! computes has them still, so their absence proves the end, whatever the links to it are.

use crate::Address;
use std::fs::read_to_string;

/// The state of a TCP socket that accepts connections, as `/proc/net/tcp` shows it.
const TAKES_CONNECTIONS: &str = "0A";
/// The flag of a Unix socket that accepts connections, as `/proc/net/unix` shows it.
const LISTENS: &str = "00010000";

/// True if the endpoint of this address ran in this host, by its hash as in [`Address::host`], and
/// its sockets are gone. False where there is no evidence.
pub fn is_gone(address: &Address, host: u64) -> bool {
    if address.host == 0 || address.host != host {
        return false;
    }
    if address.shm != 0 {
        let listed = read_to_string("/proc/net/unix");
        return listed.is_ok_and(|list| !listens(&list, address.shm));
    }
    let (sockets, kind) = match address.udp.is_empty() {
        true => (&address.tcp, "tcp"),
        false => (&address.udp, "udp"),
    };
    let v4 = read_to_string(format!("/proc/net/{kind}"));
    // A host without IPv6 has no such file.
    let v6 = read_to_string(format!("/proc/net/{kind}6")).unwrap_or_default();
    let state = (kind == "tcp").then_some(TAKES_CONNECTIONS);
    let bound = |list: &str| sockets.iter().any(|socket| has_port(list, socket.port(), state));
    !sockets.is_empty() && v4.is_ok_and(|v4| !bound(&v4) && !bound(&v6))
}

/// True if a list as of `/proc/net/unix` has the listener of an endpoint's shared memory.
fn listens(list: &str, key: u64) -> bool {
    let name = format!("@weft-{key:016x}");
    list.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.nth(3) == Some(LISTENS) && words.next_back() == Some(&name)
    })
}

/// True if a list as of `/proc/net/udp` has a socket that is bound to a port, in this state if one
/// is named.
fn has_port(list: &str, port: u16, state: Option<&str>) -> bool {
    let end = format!(":{port:04X}");
    list.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().is_some_and(|local| local.ends_with(&end));
        local && state.is_none_or(|state| words.nth(1) == Some(state))
    })
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::{shm, Link, ShmConfig, ShmLink};
    use weft_core::EndpointId;

    #[test]
    fn is_gone__of_one_that_shares_memory() {
        let host = shm::host().unwrap();
        let link = ShmLink::new(ShmConfig::new(EndpointId(1))).unwrap();
        let mut address = Address::default();
        link.advertise(&mut address);
        assert!(!is_gone(&address, host));
        drop(link);
        assert!(is_gone(&address, host));
        assert!(!is_gone(&address, host ^ 1), "nothing is known of another host");
        assert!(!is_gone(&Address::default(), 0));
    }

    #[test]
    fn is_gone__of_one_with_udp_sockets_alone() {
        let host = shm::host().unwrap();
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let udp = vec![socket.local_addr().unwrap()];
        let address = Address { host, udp, ..Address::default() };
        assert!(!is_gone(&address, host));
        drop(socket);
        assert!(is_gone(&address, host));
        assert!(!is_gone(&Address { udp: Vec::new(), ..address }, host), "no evidence");
    }

    #[test]
    fn is_gone__of_one_with_tcp_sockets_alone() {
        let host = shm::host().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let address = Address { host, tcp: vec![at], ..Address::default() };
        assert!(!is_gone(&address, host));
        let _connection = std::net::TcpStream::connect(at).unwrap();
        drop(listener);
        assert!(is_gone(&address, host), "a connection is no listener");
    }

    #[test]
    fn listens__not_a_connection_that_was_accepted() {
        let line = |flags: &str, state: &str| {
            format!(
                "Num RefCount ...\n00: 02 00000000 {flags} 0005 {state} 7 @weft-000000000000000b"
            )
        };
        assert!(listens(&line(LISTENS, "01"), 11));
        assert!(!listens(&line("00000000", "03"), 11) && !listens(&line(LISTENS, "01"), 12));
    }

    #[test]
    fn has_port__of_a_local_address_alone() {
        let list = "sl local_address rem_address\n 1: 00000000:9C40 0100007F:0035 07";
        assert!(has_port(list, 40_000, None) && !has_port(list, 53, None));
        assert!(has_port(list, 40_000, Some("07")));
        assert!(!has_port(list, 40_000, Some(TAKES_CONNECTIONS)));
    }
}
