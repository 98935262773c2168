//! TCP connections between two hosts: find the addresses of the other host at which connections are
//! taken.
//!
//! A question is `weft-tcp`, and is answered by the same bytes in the same connection.

use crate::reachability;
use crate::threads::Threads;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_link::Ports;

const MAGIC: &[u8; 8] = b"weft-tcp";
/// Longest time until a thread notices that it must end.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Longest time for the bytes of a connection that was made.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Sockets that take connections and answer a question in each.
pub struct TcpCheck {
    listeners: Vec<TcpListener>,
    /// End with this value.
    _threads: Threads,
}

fn open(ip: IpAddr, ports: Ports) -> io::Result<TcpListener> {
    let listener = ports.bind(None, |port| TcpListener::bind((ip, port)))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Sends or answers the bytes of a connection.
fn exchange(mut stream: TcpStream, asks: bool) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    if asks {
        stream.write_all(MAGIC)?;
    }
    let mut got = [0; MAGIC.len()];
    stream.read_exact(&mut got)?;
    match got == *MAGIC {
        true if asks => Ok(()),
        true => stream.write_all(MAGIC),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "another program answers there")),
    }
}

/// Takes connections until the end.
fn serve(listener: &TcpListener, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        match listener.accept() {
            // A connection that says nothing ends by its own time, and stops no other.
            Ok((stream, _)) => drop(std::thread::spawn(|| exchange(stream, false))),
            Err(_) => std::thread::sleep(POLL_EVERY),
        }
    }
}

impl TcpCheck {
    /// Opens a socket of each address family that there is, at ports of this range.
    ///
    /// # Errors
    /// The error of the first family, if none opens.
    pub fn open(ports: Ports) -> io::Result<TcpCheck> {
        let mut listeners: Vec<TcpListener> = Vec::new();
        let mut failed = None;
        // Where the range has one port only, the socket of IPv4 has it.
        for ip in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            match open(ip, ports) {
                Ok(listener) => listeners.push(listener),
                Err(e) => _ = failed.get_or_insert(e),
            }
        }
        if let (true, Some(e)) = (listeners.is_empty(), failed) {
            return Err(e);
        }
        let mut threads = Threads::default();
        for listener in &listeners {
            let (listener, end) = (listener.try_clone()?, Arc::clone(&threads.end));
            threads.all.push(std::thread::spawn(move || serve(&listener, &end)));
        }
        Ok(TcpCheck { listeners, _threads: threads })
    }

    /// Returns the addresses at which connections are taken, at most 64.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let port = |ip: IpAddr| {
            let local = self.listeners.iter().filter_map(|l| l.local_addr().ok());
            let own = local.into_iter().find(|own| own.is_ipv6() == ip.is_ipv6())?;
            Some(SocketAddr::new(ip, own.port()))
        };
        reachability::far_addresses().into_iter().filter_map(port).take(64).collect()
    }
}

/// Connects to all of these addresses at once; returns the time that each connection took, or the
/// reason why it was not made or not answered.
pub fn connect(to: &[SocketAddr], patience: Duration) -> Vec<Result<Duration, String>> {
    let one = |to: &SocketAddr| {
        let begun = Instant::now();
        let stream = TcpStream::connect_timeout(to, patience)?;
        // The kernel there has answered; its program may be slower.
        let took = begun.elapsed();
        exchange(stream, true).map(|()| took)
    };
    let said = |e: io::Error| match e.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer".to_string(),
        _ => e.to_string().split(" (os error").next().unwrap_or_default().to_lowercase(),
    };
    std::thread::scope(|scope| {
        let asked: Vec<_> = to.iter().map(|to| scope.spawn(move || one(to))).collect();
        let end = |thread: std::thread::ScopedJoinHandle<'_, io::Result<Duration>>| {
            thread.join().map_or_else(|_| Err("no answer".to_string()), |done| done.map_err(said))
        };
        asked.into_iter().map(end).collect()
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn connect__a_listener_answers_and_a_closed_port_says_why() {
        let door = TcpCheck::open(Ports::ANY).unwrap();
        let port = door.listeners[0].local_addr().unwrap().port();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let there = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let silent = TcpStream::connect(there).unwrap();
        let said = connect(&[there, closed], Duration::from_secs(60));
        assert!(said[0].is_ok(), "{said:?}");
        assert_eq!(said[1], Err("connection refused".to_string()));
        drop(silent);
    }
}
