//! Numbers of endpoints on an interface, which each belong to one endpoint of the host, whoever
//! runs it; and the endpoint that speaks for the host.
//!
//! A number is the abstract name of a socket, which the kernel keeps apart for each network
//! namespace and frees when its process ends.

use std::io;
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The hold on a name.
pub struct Claim {
    _socket: UnixDatagram,
}

fn name_of(interface: u32, what: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("weft-mxoe/{interface}/{what}"))
}

impl Claim {
    /// Takes the number of an endpoint on an interface.
    ///
    /// # Errors
    /// `AddrInUse`: another endpoint has it.
    pub fn number(interface: u32, number: u8) -> io::Result<Claim> {
        Claim::take(interface, &number.to_string())
    }

    /// Takes the right to speak for the host. `None` if another endpoint has it.
    pub fn speaker(interface: u32) -> Option<Claim> {
        Claim::take(interface, "speaker").ok()
    }

    fn take(interface: u32, what: &str) -> io::Result<Claim> {
        let socket = UnixDatagram::bind_addr(&name_of(interface, what)?)?;
        // Any process may send there, descriptors too, and to close them may take its time.
        socket.shutdown(Shutdown::Read)?;
        Ok(Claim { _socket: socket })
    }
}

/// True if an endpoint of this host has the number.
pub fn is_taken(interface: u32, number: u8) -> bool {
    let find = || -> io::Result<()> {
        UnixDatagram::unbound()?.connect_addr(&name_of(interface, &number.to_string())?)
    };
    find().is_ok()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn number__is_one_endpoints_until_that_ends() {
        // No interface has such a number.
        let interface = u32::MAX - std::process::id();
        assert!(!is_taken(interface, 3));
        let claim = Claim::number(interface, 3).unwrap();
        assert!(is_taken(interface, 3) && !is_taken(interface, 4));
        let again = Claim::number(interface, 3).err().map(|why| why.kind());
        assert_eq!(again, Some(io::ErrorKind::AddrInUse));
        drop(claim);
        assert!(!is_taken(interface, 3));
        let speaker = Claim::speaker(interface);
        assert!(speaker.is_some() && Claim::speaker(interface).is_none());
    }
}
