//! Options of sockets whose meaning this library keeps, and what polls tell at an end.

mod sys;

use crate::harness::{dial, say, Served};
use crate::roles::Server;
use crate::sys as other;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use weft_run::lists::State;

/// Runs a case on a connection that shares memory. False if there is none of this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case {
        "left" => left(server),
        "killed-unread" => killed_unread(server),
        _ => return false,
    }
    true
}

/// A program that is told with each receive what is left, as those of gRPC are, before the
/// connection shares memory and after that.
fn left(server: &mut Server) {
    other::set_option(server.stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INQ, 1);
    for n in [1, 99, 5000] {
        server.ringed(n + 10);
        let (bytes, left) = sys::recv_and_left(&server.stream, 10).unwrap();
        server.check(&bytes);
        assert_eq!((bytes.len(), left), (10, Some(n as i32)));
        let (bytes, left) = sys::recv_and_left(&server.stream, n).unwrap();
        server.check(&bytes);
        assert_eq!((bytes.len(), left), (n, Some(0)));
    }
    // After the end it is one, so that the program goes on to read.
    server.command(b'f', 0);
    while other::poll_for(&server.stream, libc::POLLRDHUP, 0) & libc::POLLRDHUP == 0 {
        std::thread::yield_now();
    }
    assert_eq!(sys::recv_and_left(&server.stream, 10).unwrap(), (vec![], Some(1)));
}

/// The option is set before bytes go; the connection is joined all the same.
pub fn left_early() {
    let stream = dial(&crate::harness::argument());
    other::set_option(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INQ, 1);
    left(&mut Server::upgraded(stream));
    say("done");
}

/// The peer is killed while it has bytes unread: polls tell of it as TCP's reset does.
fn killed_unread(server: &mut Server) {
    server.get(100);
    let mut last = [0; 109];
    last[0] = b'k';
    server.stream.write_all(&last).unwrap();
    let asked = libc::POLLIN | libc::POLLRDHUP;
    let told = other::poll_for(&server.stream, asked, -1);
    assert_eq!(told, asked | libc::POLLERR | libc::POLLHUP);
    let e = server.stream.read(&mut [0; 10]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ConnectionReset);
    let told = other::poll_for(&server.stream, asked, -1);
    assert_eq!(told, asked | libc::POLLHUP);
    assert_eq!(server.stream.read(&mut [0; 10]).unwrap(), 0);
}

/// Fills a connection that shares memory, and has a thread wait for space in it; then the program
/// gives the socket more.
pub fn space() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut one = dial(&listener.local_addr().unwrap().port().to_string());
    let mut two = listener.accept().unwrap().0;
    let mut sent = 0u64;
    while sent == other::received(&two) {
        for (from, to) in [(&one, &two), (&two, &one)] {
            (&mut &*from).write_all(b"x").unwrap();
            (&mut &*to).read_exact(&mut [0]).unwrap();
        }
        sent += 1;
    }
    one.set_nonblocking(true).unwrap();
    let mut refused = 0;
    while refused < 100 {
        // The kernel may have moved bytes to the peer meanwhile.
        match one.write(&[0; 10_000]) {
            Ok(sent) => {
                assert!(sent > 0);
                refused = 0;
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock);
                refused += 1;
            }
        }
    }
    one.set_nonblocking(false).unwrap();
    std::thread::scope(|scope| {
        let sends = scope.spawn(|| (&mut &one).write_all(&[0; 20_000]));
        other::set_option(one.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, 1 << 22);
        sends.join().unwrap().unwrap();
    });
    two.set_nonblocking(true).unwrap();
    assert!(two.read(&mut [0; 10]).unwrap() > 0);
    say("done");
}

/// Makes a connection TCP's in a way, exchanges bytes, and waits to be looked at.
pub fn stays() {
    let words = crate::harness::argument();
    let (port, way) = words.split_once(' ').unwrap();
    let stream = dial(port);
    let fd = stream.as_raw_fd();
    match way {
        "least" => other::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 2),
        "times" => other::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMP, 1),
        "urgent" => _ = other::send(&stream, b"!", libc::MSG_OOB).unwrap(),
        way => panic!("no way {way}"),
    }
    let mut server = Server::new(stream);
    (0..20).for_each(|_| server.get(1000));
    say("done");
    std::io::stdin().read_exact(&mut [0]).unwrap();
}

#[test]
fn status__says_why_a_connection_did_not_ask() {
    let ways = [("least", "SO_RCVLOWAT"), ("times", "times of arrival"), ("urgent", "urgent")];
    for (way, reason) in ways {
        let agent = Served::start();
        let mut server = agent.with("serve", "");
        let mut client = agent.with("stays", &format!("{} {way}", server.says()));
        assert_eq!(client.says(), "done");
        let programs = weft_run::lists::programs(&agent.name).unwrap();
        let of_client = programs.iter().find(|one| one.process == u64::from(client.child.id()));
        let connections =
            &of_client.unwrap_or_else(|| panic!("{way}: not shown")).shows.connections;
        let [one] = &connections[..] else { panic!("{way}: {connections:?}") };
        let State::Stays(why) = &one.state else { panic!("{way}: {one:?}") };
        assert!(why.contains(reason), "{way}: {why}");
        client.goes_on(b'x');
        client.ends_well();
        server.ends_well();
    }
}
