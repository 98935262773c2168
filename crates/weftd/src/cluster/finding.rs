//! Finding other agents: places that were given, and calls on the local network.

use super::options::Place;
use crate::sys;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::Duration;
use weft_core::Instant;

/// The group of agents on the local network (RFC 2365, site-local).
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 71, 17);
/// Time between two calls of an agent that knows no other, at first.
const CALL: Duration = Duration::from_secs(1);
/// Time between two calls of an agent that knows others: two parts of a cluster find each other so.
const CALL_RARELY: Duration = Duration::from_secs(30);
/// Times between two look-ups of names and files, at first and later.
const LOOK_UP: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(30)];
/// Look-ups at the shorter time.
const OFTEN: u32 = 15;
/// Most addresses that are tried.
const ADDRESSES_MAX: usize = 4096;
/// Most bytes of a file of hosts.
const FILE_MAX: u64 = 1 << 20;

/// Looks for other agents.
pub struct Finder {
    places: Vec<Place>,
    port: u16,
    found: Option<Receiver<BTreeSet<SocketAddr>>>,
    given: BTreeSet<SocketAddr>,
    known: BTreeSet<SocketAddr>,
    /// Addresses of interfaces on which the group was joined.
    interfaces: Vec<Ipv4Addr>,
    call_at: Instant,
    calls: u32,
}

/// Returns the addresses of a place.
///
/// # Errors
/// There is none; the reason.
fn look_up(place: &Place, port: u16, depth: u32) -> Result<Vec<SocketAddr>, String> {
    match place {
        Place::Address(address) => Ok(vec![*address]),
        Place::Host(name, port) => {
            let found = (name.as_str(), *port).to_socket_addrs();
            found.map(|all| all.take(ADDRESSES_MAX).collect()).map_err(|e| format!("{name}: {e}"))
        }
        Place::File(_) if depth > 0 => Err("a file of hosts names another file".into()),
        Place::File(path) => {
            let said = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
            let text = read_hosts(path).map_err(|e| said(&e))?;
            let mut all = Vec::new();
            for line in text.lines() {
                let line = line.split('#').next().unwrap_or_default().trim();
                for place in Place::list(line, port).map_err(|e| said(&e))? {
                    all.extend(look_up(&place, port, 1)?);
                }
            }
            Ok(all)
        }
    }
}

/// Reads a file of hosts. Neither a pipe that nobody writes nor a file without end holds the agent
/// up.
///
/// # Errors
/// The file cannot be read, is no text, or is too long.
fn read_hosts(path: &Path) -> io::Result<String> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut text = String::new();
    match file.take(FILE_MAX + 1).read_to_string(&mut text)? as u64 > FILE_MAX {
        true => Err(io::Error::other(format!("a file of hosts has at most {FILE_MAX} bytes"))),
        false => Ok(text),
    }
}

fn look_up_all(places: &[Place], port: u16, is_loud: bool) -> BTreeSet<SocketAddr> {
    let mut all = BTreeSet::new();
    for place in places {
        match look_up(place, port, 0) {
            Ok(found) => all.extend(found),
            Err(why) if is_loud => log::warn!("--join: {why}; it is tried again"),
            Err(_) => {}
        }
    }
    all.into_iter().take(ADDRESSES_MAX).collect()
}

/// Looks names and files up until nobody listens any more: their addresses may change.
fn keep_looking(places: &[Place], port: u16, to: &Sender<BTreeSet<SocketAddr>>) {
    for round in 0.. {
        std::thread::sleep(LOOK_UP[usize::from(round >= OFTEN)]);
        if to.send(look_up_all(places, port, false)).is_err() {
            return;
        }
    }
}

impl Finder {
    /// Looks the places up, once.
    pub fn new(places: &[Place], port: u16, now: Instant) -> Finder {
        Finder {
            places: places.to_vec(),
            port,
            found: None,
            given: look_up_all(places, port, true),
            known: BTreeSet::new(),
            interfaces: Vec::new(),
            call_at: now,
            calls: 0,
        }
    }

    /// Returns the addresses that were found first.
    pub fn given(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.given.iter().copied()
    }

    /// Joins the group on all interfaces, so that calls of others come here.
    pub fn listen(&mut self, socket: &UdpSocket) {
        for address in weft_link::own_addresses() {
            let IpAddr::V4(address) = address else { continue };
            if socket.join_multicast_v4(&GROUP, &address).is_ok() {
                self.interfaces.push(address);
            }
        }
    }

    /// Returns addresses that are new. Names and files are looked up by a thread of their own, as
    /// that may take seconds; it starts here, after the process gave up its rights.
    pub fn news(&mut self) -> Vec<SocketAddr> {
        if self.found.is_none() {
            let (to, from) = channel();
            self.found = Some(from);
            if self.places.iter().any(|p| !matches!(p, Place::Address(_))) {
                let (places, port) = (self.places.clone(), self.port);
                let thread = std::thread::Builder::new().name("weft-join".into());
                if let Err(e) = thread.spawn(move || keep_looking(&places, port, &to)) {
                    log::warn!("the names of --join are not looked up again: {e}");
                }
            }
        }
        if let Some(found) = self.found.as_ref().and_then(|from| from.try_iter().last()) {
            self.given = found;
        }
        if self.given.is_empty() {
            return Vec::new();
        }
        let news: Vec<SocketAddr> =
            std::mem::take(&mut self.given).difference(&self.known).copied().collect();
        self.known.extend(&news);
        news
    }

    /// Returns the time of the next call.
    pub fn next_timeout(&self) -> Option<Instant> {
        (!self.interfaces.is_empty()).then_some(self.call_at)
    }

    /// Calls all agents on the local network, if it is time for that.
    pub fn call(
        &mut self,
        now: Instant,
        socket: &UdpSocket,
        is_alone: bool,
        make: impl FnOnce() -> Vec<u8>,
    ) {
        if self.interfaces.is_empty() || now < self.call_at {
            return;
        }
        let pause = if is_alone { CALL * 2u32.pow(self.calls.min(5)) } else { CALL_RARELY };
        self.calls = self.calls.saturating_add(1);
        self.call_at = now + pause.min(CALL_RARELY);
        let (call, to) = (make(), SocketAddr::from((GROUP, self.port)));
        for address in &self.interfaces {
            // An interface may be gone: then others are called.
            if sys::send_multicast_from(socket, *address).is_ok() {
                let _ = socket.send_to(&call, to);
            }
        }
    }
}

/// Returns the local address from which the kernel would send to another.
fn source(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

/// Chooses the address at which others reach this agent: that of the route to the first place that
/// is not this host, otherwise the first of this host's addresses.
pub fn own_address(given: &BTreeSet<SocketAddr>) -> IpAddr {
    let sources: Vec<IpAddr> = given.iter().filter_map(|to| source(*to)).collect();
    let outward = sources.iter().find(|ip| !ip.is_loopback()).copied();
    outward
        .or_else(|| sources.first().copied())
        .or_else(|| weft_link::own_addresses().first().copied())
        .unwrap_or(Ipv4Addr::LOCALHOST.into())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("weftd-hosts-{}-{name}", std::process::id()))
    }

    #[test]
    fn look_up__a_file_of_hosts_is_bounded() {
        let path = file("long");
        let hosts = "127.0.0.1\n# nothing\n".to_string();
        let found = |text: &str| {
            std::fs::write(&path, text).unwrap();
            look_up(&Place::File(path.clone()), 7, 0)
        };
        assert_eq!(found(&hosts).unwrap(), ["127.0.0.1:7".parse().unwrap()]);
        let longer = hosts + &"#".repeat(FILE_MAX as usize);
        assert!(found(&longer).unwrap_err().contains("at most 1048576 bytes"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn look_up__a_pipe_that_nobody_writes_has_no_hosts() {
        let path = file("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (to, found) = channel();
        let place = Place::File(path.clone());
        std::thread::spawn(move || to.send(look_up(&place, 7, 0)));
        let found = found.recv_timeout(Duration::from_secs(60)).expect("no wait for a writer");
        assert_eq!(found.unwrap(), []);
        std::fs::remove_file(&path).unwrap();
    }
}
