//! Evidence inside a host that an endpoint has ended: its sockets are gone.
//!
//! While an endpoint in the same network namespace (its card has the same [`Address::host`]) lives,
//! it listens under the name of its shared memory, or has the UDP or TCP ports of its card. A
//! process that is stopped or that computes has them still, so their absence proves the end,
//! whatever the links to it are. A name or a port can be taken exactly if nobody has it, so it is
//! taken for a moment. The lists of sockets in `/proc/net` prove nothing: a list that is read while
//! other sockets close may leave out one that is there.

use crate::{shm, Address};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

/// True if the endpoint of this address ran in this host, by its hash as in [`Address::host`], and
/// its sockets are gone. False where there is no evidence.
pub fn is_gone(address: &Address, host: u64) -> bool {
    if address.host == 0 || address.host != host {
        return false;
    }
    if address.shm != 0 {
        return shm::is_free(address.shm);
    }
    let (sockets, is_free): (_, fn(&SocketAddr) -> io::Result<()>) = match address.udp.is_empty() {
        true => (&address.tcp, |at| TcpListener::bind(at).map(drop)),
        false => (&address.udp, |at| UdpSocket::bind(at).map(drop)),
    };
    !sockets.is_empty() && sockets.iter().all(|at| is_free(at).is_ok())
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::{shm, Link, ShmConfig, ShmLink};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::UnixDatagram;
    use std::time::{Duration, Instant};
    use weft_core::EndpointId;

    /// Waits until it is gone: a process that another test has started may have a copy of its
    /// sockets for a moment.
    fn goes(address: &Address, host: u64) {
        let from = Instant::now();
        while !is_gone(address, host) {
            assert!(from.elapsed() < Duration::from_secs(10), "{address:?} is there");
            std::thread::yield_now();
        }
    }

    /// Returns the number of this host, and a link with its address.
    fn sharing() -> (u64, ShmLink, Address) {
        let link = ShmLink::new(ShmConfig::new(EndpointId(1))).unwrap();
        let mut address = Address::default();
        link.advertise(&mut address);
        (shm::host().unwrap(), link, address)
    }

    #[test]
    fn is_gone__of_one_that_shares_memory() {
        let (host, link, address) = sharing();
        assert!(!is_gone(&address, host));
        drop(link);
        goes(&address, host);
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
        goes(&address, host);
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
        // A connection is no listener.
        goes(&address, host);
    }

    /// Lists of the kernel leave out sockets where others close meanwhile.
    #[test]
    fn is_gone__never_of_one_that_lives_while_others_come_and_go() {
        let (host, _link, address) = sharing();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let of_udp = Address { host, udp: vec![udp.local_addr().unwrap()], ..Address::default() };
        let many = |round: u32| {
            let named = (0..200).map(move |at| {
                let name = format!("weft-gone-{}-{round}-{at}", std::process::id());
                let name = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
                let bound = UnixDatagram::bind_addr(&name).unwrap();
                (bound, UdpSocket::bind("127.0.0.1:0").unwrap())
            });
            drop(named.collect::<Vec<_>>());
        };
        let until = Instant::now() + Duration::from_millis(300);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..).take_while(|_| Instant::now() < until).for_each(many);
            });
            while Instant::now() < until {
                assert!(!is_gone(&address, host) && !is_gone(&of_udp, host));
            }
        });
    }
}
