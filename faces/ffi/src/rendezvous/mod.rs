//! The way from a network address to an endpoint, without an agent.
//!
//! A process that waits at an address has a socket in the abstract namespace of its host. The
//! socket's name is a hash of the address under the job's key, so the kernel is the directory: it
//! has no stale entry, and processes with another key find nothing. One who connects there reads
//! the address of the process's endpoint.
//!
//! Processes of other hosts ask over TCP, at one port of the host (`WEFT_MEET_PORT`). One process
//! of the host serves it for all, the gatekeeper: it passes the question on by name. When it ends,
//! another takes over (module `door`).
//!
//! Nothing here is trusted: the endpoints authenticate each other afterwards.

mod door;
mod posts;

pub use posts::{post, Post};

use crate::address::NetAddress;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::time::{Duration, Instant};
use weft_core::config::{within, ConfigError, Key, Table};
use weft_link::secure::{JobKey, Purpose};
use weft_link::Address;

/// The name of an address: a hash.
pub type Name = [u8; 32];

/// Longest wait for an answer of a process of this host, which a thread of its own gives.
const ANSWER: Duration = Duration::from_secs(5);
/// Longest wait for a host, if the program gives no limit.
const HOST: Duration = Duration::from_secs(60);

weft_core::settings! {
    /// Settings of the way to other processes.
    #[derive(Clone, Debug)]
    pub struct Settings {}
    meet_port: u32 = 18_885, "port", within(1, 65_535),
        "TCP port of a host at which processes of others ask for those that wait there.";
}

impl Table for Settings {
    const KEYS: &'static [Key] = Settings::KEYS;

    fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        self.set_field(name, value)
    }

    fn get(&self, name: &str) -> Option<String> {
        self.get_field(name)
    }
}

impl Settings {
    /// Reads the setting from `WEFT_MEET_PORT`.
    ///
    /// # Errors
    /// The value is not understood.
    pub fn from_env() -> Result<Settings, weft::JobError> {
        let mut settings = Settings::default();
        weft::settings::read(&mut settings)?;
        Ok(settings)
    }
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sought {
    /// The endpoint of a process that waits at the address.
    Found(Address),
    /// Nobody waits there.
    Nobody,
    /// No way leads to the host.
    Unreachable,
    /// The time is over.
    Late,
}

/// Returns the name of an address under a key.
pub fn name_of(key: &JobKey, at: &NetAddress) -> Name {
    let mut bytes = Vec::new();
    at.encode(&mut bytes);
    key.derive(Purpose::Meeting, &bytes)
}

fn unix_address(name: &Name) -> io::Result<UnixAddress> {
    let digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    UnixAddress::from_abstract_name(format!("weft-meet-{digits}"))
}

/// True if the system has no descriptor or memory left for now.
fn is_short(error: &io::Error) -> bool {
    let short = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|of| short.contains(&of))
}

/// True if an address of IPv4 is one of this host.
pub fn is_here(host: Ipv4Addr) -> bool {
    host.is_loopback() || UdpSocket::bind((host, 0)).is_ok()
}

/// Asks the processes of this host.
fn ask_here(name: &Name, until: Option<Instant>) -> io::Result<Sought> {
    let mut stream = UnixStream::connect_addr(&unix_address(name)?)?;
    let end = Instant::now() + ANSWER;
    let end = until.map_or(end, |until| until.min(end));
    let mut bytes = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut part = [0; Address::MAX];
        match stream.read(&mut part) {
            // One that ends its wait at this moment says nothing.
            Ok(0) if bytes.is_empty() => return Ok(Sought::Nobody),
            Ok(0) => return Ok(found(&bytes)),
            Ok(len) => bytes.extend_from_slice(&part[..len]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(Sought::Nobody),
            Err(e) => return Err(e),
        }
        if left.is_zero() || bytes.len() > Address::MAX {
            return Ok(Sought::Late);
        }
    }
}

fn found(address: &[u8]) -> Sought {
    // An endpoint of another version has another encoding: no link leads to it.
    Address::decode(address).map_or(Sought::Unreachable, Sought::Found)
}

/// Asks the gatekeeper of another host.
fn ask_there(name: &Name, host: SocketAddr, until: Option<Instant>) -> io::Result<Sought> {
    let end = until.unwrap_or_else(|| Instant::now() + HOST);
    let left = || {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(ErrorKind::TimedOut)
        } else {
            Ok(left)
        }
    };
    let mut stream = TcpStream::connect_timeout(&host, left()?)?;
    stream.write_all(name)?;
    let mut read = |bytes: &mut [u8]| {
        stream.set_read_timeout(Some(left()?))?;
        stream.read_exact(bytes)
    };
    let mut len = [0; 2];
    read(&mut len)?;
    let mut bytes = vec![0; usize::from(u16::from_le_bytes(len)).min(Address::MAX)];
    read(&mut bytes)?;
    Ok(if bytes.is_empty() { Sought::Nobody } else { found(&bytes) })
}

/// Looks for a process that waits at an address, until a time.
pub fn seek(key: &JobKey, at: &NetAddress, until: Option<Instant>) -> Sought {
    let name = name_of(key, at);
    let result = match is_here(at.host) {
        true => ask_here(&name, until),
        false => match Settings::from_env() {
            Ok(settings) => {
                ask_there(&name, SocketAddr::from((at.host, settings.meet_port as u16)), until)
            }
            Err(why) => {
                log::error!("{why}");
                return Sought::Unreachable;
            }
        },
    };
    result.unwrap_or_else(|error| match error.kind() {
        // Nobody waits there; on another host, whatever the address.
        ErrorKind::ConnectionRefused => Sought::Nobody,
        ErrorKind::TimedOut | ErrorKind::WouldBlock if until.is_some() => Sought::Late,
        _ => {
            log::info!("looking for a process at {}: {error}", at.host);
            Sought::Unreachable
        }
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft_core::EndpointId;

    fn key() -> JobKey {
        JobKey::random().unwrap()
    }

    fn at(discriminator: &[u8]) -> NetAddress {
        NetAddress::new(Ipv4Addr::LOCALHOST, discriminator).unwrap()
    }

    fn address() -> Address {
        Address { endpoint: EndpointId(7), host: 9, ..Address::default() }
    }

    #[test]
    fn seek__finds_a_post_until_it_ends() {
        let (key, place) = (key(), at(b"one"));
        assert_eq!(seek(&key, &place, None), Sought::Nobody);
        let first = post(&key, &place, &address()).unwrap();
        assert_eq!(seek(&key, &place, None), Sought::Found(address()));
        assert_eq!(seek(&key, &at(b"other"), None), Sought::Nobody);
        let other = JobKey::from_bytes(&[3; 32]).unwrap();
        assert_eq!(seek(&other, &place, None), Sought::Nobody);
        let taken = post(&key, &place, &address()).err().unwrap();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        drop(first);
        assert_eq!(seek(&key, &place, None), Sought::Nobody);
        post(&key, &place, &address()).unwrap();
    }

    #[test]
    fn seek__asks_a_gatekeeper_over_tcp() {
        let (key, place) = (key(), at(b"far"));
        let _post = post(&key, &place, &address()).unwrap();
        let door = door::Door::open_at(0).unwrap();
        let port = door.port().unwrap();
        let host = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        door::serve(door);
        let until = Some(Instant::now() + Duration::from_secs(60));
        let ask = |place: &NetAddress| ask_there(&name_of(&key, place), host, until).unwrap();
        assert_eq!(ask(&place), Sought::Found(address()));
        assert_eq!(ask(&at(b"nobody")), Sought::Nobody);
        // Connections that say nothing do not keep others out.
        let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(host).unwrap()).collect();
        assert_eq!(ask(&place), Sought::Found(address()));
        drop(silent);
    }
}
