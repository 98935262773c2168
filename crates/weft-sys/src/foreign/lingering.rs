//! A descriptor that is slow to close. Tests of agents include this file.

use rustix::net::sockopt::set_socket_linger;
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Returns a socket whose last close waits until the other one is closed.
pub fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    one.set_nonblocking(true).unwrap();
    loop {
        match (&one).write(&[0; 65_536]) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) => panic!("{e}"),
        }
    }
    set_socket_linger(&one, Some(Duration::from_secs(3600))).unwrap();
    (one, other)
}
