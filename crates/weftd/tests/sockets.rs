//! Ends of socket programs' connections at a real agent: programs that keep the rules, and others.
#![allow(non_snake_case)]

mod common;

use common::Served;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_conformance::{be_user, skip, LatePage};
use weft_streams::message::{Message, Place, MESSAGE_MAX};
use weft_streams::socket_name;
use weft_streams::words::SEGMENT;
use weft_sys::agent::{connect_to, Kind};
use weft_sys::foreign::{Foreign, ANYBODY};
use weft_sys::passing::Received;
use weftd::sys::passing;

/// Limit of every wait; reached only by a fault.
const LIMIT: Duration = Duration::from_secs(100);

/// A program's connection to the agent.
struct Program(OwnedFd);

impl Program {
    fn of(agent: &Served) -> Program {
        Program::at(&agent.name)
    }

    fn at(agent: &str) -> Program {
        Program(connect_to(&socket_name(agent), Kind::Messages).unwrap().0)
    }

    fn say(&self, message: &Message, pass: Option<&OwnedFd>) {
        passing::send(&self.0, &message.encode(), pass.map(AsFd::as_fd)).unwrap();
    }

    fn bytes(&self, bytes: &[u8]) {
        passing::send(&self.0, bytes, None).unwrap();
    }

    /// Returns the next message and its descriptor; `None` if the agent ended the connection.
    fn hears(&self) -> Option<(Message, Option<OwnedFd>)> {
        let (end, mut buf) = (Instant::now() + LIMIT, [0; MESSAGE_MAX]);
        loop {
            match passing::recv(&self.0, &mut buf, ANYBODY).and_then(Received::only) {
                Ok((0, _)) => return None,
                Ok((len, passed)) => {
                    let message = Message::decode(&buf[..len]).unwrap();
                    return Some((message, passed.map(Foreign::into_inner)));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    assert!(Instant::now() < end, "the agent says nothing");
                    std::thread::yield_now();
                }
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("{e}"),
            }
        }
    }

    fn asks(&self, token: u64, socket: &TcpStream) {
        let place = |address: std::net::SocketAddr| match address {
            std::net::SocketAddr::V4(v4) => Place::v4(v4.ip().octets(), v4.port()),
            std::net::SocketAddr::V6(v6) => Place::new(v6.ip().octets(), v6.port()),
        };
        let (local, remote) = (socket.local_addr().unwrap(), socket.peer_addr().unwrap());
        let (local, remote) = (place(local), place(remote));
        self.say(&Message::Ask { token, local, remote }, None);
    }

    fn shows(&self, token: u64, socket: &TcpStream) {
        self.say(&Message::Here(token), Some(&socket.try_clone().unwrap().into()));
    }

    fn is_called(&self, token: u64) {
        assert!(matches!(self.hears(), Some((Message::Call(of), None)) if of == token));
    }

    /// Hears that an end is not paired; returns the reason.
    fn is_refused(&self, token: u64) -> String {
        match self.hears() {
            Some((Message::None { token: of, why }, None)) if of == token => why,
            other => panic!("{other:?}"),
        }
    }
}

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// Returns two programs that have asked for memory, and are called: 1 and 2 are the tokens of the
/// ends.
fn called(agent: &Served) -> [(Program, TcpStream); 2] {
    let (a, b) = (Program::of(agent), Program::of(agent));
    let [one, other] = call(&a, &b);
    [(a, one), (b, other)]
}

/// Returns a connection for whose ends two programs are called, by the tokens 1 and 2.
fn call(a: &Program, b: &Program) -> [TcpStream; 2] {
    let (one, other) = connection();
    a.asks(1, &one);
    b.asks(2, &other);
    a.is_called(1);
    b.is_called(2);
    [one, other]
}

#[test]
fn pair__both_get_sealed_memory_and_the_agent_keeps_no_socket() {
    let agent = Served::start("");
    let [(a, one), (b, mut other)] = called(&agent);
    a.shows(1, &one);
    b.shows(2, &other);
    let (Some((of_a, Some(memory_a))), Some((of_b, Some(memory_b)))) = (a.hears(), b.hears())
    else {
        panic!("no memory");
    };
    let (Message::Pair { token: 1, first, .. }, Message::Pair { token: 2, first: second, .. }) =
        (of_a, of_b)
    else {
        panic!("no pair");
    };
    assert_ne!(first, second);
    let files = [std::fs::File::from(memory_a), std::fs::File::from(memory_b)];
    for file in &files {
        assert_eq!(file.metadata().unwrap().len(), SEGMENT as u64);
        assert!(file.set_len(10).is_err(), "it can shrink");
    }
    use std::os::unix::fs::MetadataExt;
    assert_eq!(files[0].metadata().unwrap().ino(), files[1].metadata().unwrap().ino());
    // Nobody holds a copy of the socket: its end is seen.
    drop(one);
    other.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(other.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!((agent.reports("sockets_paired"), agent.reports("sockets_asking")), (1, 0));
}

#[test]
fn pair__sockets_of_others_are_refused_and_closed() {
    let agent = Served::start("");
    for wrong in 0..3 {
        let [(a, one), (b, _other)] = called(&agent);
        let (strange, mut end) = connection();
        a.shows(1, &one);
        // Another connection; one that is none; a socket of another kind.
        let shown: OwnedFd = match wrong {
            0 => strange.try_clone().unwrap().into(),
            1 => std::fs::File::open("/dev/null").unwrap().into(),
            _ => UdpSocket::bind("127.0.0.1:0").unwrap().into(),
        };
        b.say(&Message::Here(2), Some(&shown));
        let why = b.is_refused(2);
        assert!(why.contains("not the one that was named"), "{why}");
        assert_eq!(a.is_refused(1), why);
        drop((strange, shown));
        end.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(end.read(&mut [0; 1]).unwrap(), 0);
    }
    assert_eq!(agent.reports("sockets_paired"), 0);
}

#[test]
fn pair__an_end_that_does_not_follow_leaves_the_other_tcp() {
    let agent = Served::start("");
    let [(a, one), (b, mut other)] = called(&agent);
    a.shows(1, &one);
    // The agent gives the socket back by itself, in time.
    let why = a.is_refused(1);
    assert!(why.contains("in time"), "{why}");
    drop(one);
    other.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(other.read(&mut [0; 1]).unwrap(), 0);
    let _ = other.write(b"x");
    // A program that ends while it is called.
    let (one, other) = connection();
    a.asks(3, &one);
    b.asks(4, &other);
    a.is_called(3);
    drop(b);
    assert!(a.is_refused(3).contains("closed"));
}

#[test]
fn program__nonsense_ends_its_connection_alone() {
    let agent = Served::start("");
    let good = Program::of(&agent);
    let (one, other) = connection();
    good.asks(1, &one);
    let ask = Message::Here(7).encode();
    let mut version = ask.to_vec();
    version[4] ^= 1;
    for bytes in [&b"hello"[..], &version, &[0; MESSAGE_MAX], &Message::Call(1).encode()] {
        let bad = Program::of(&agent);
        bad.bytes(bytes);
        assert!(bad.hears().is_none());
    }
    // No socket came with it; and a socket that nobody has called for.
    let bad = Program::of(&agent);
    bad.bytes(&ask);
    assert!(bad.hears().is_none());
    let early = Program::of(&agent);
    early.shows(9, &one);
    assert!(early.is_refused(9).contains("too late"));
    let late = Program::of(&agent);
    late.asks(2, &other);
    good.is_called(1);
    late.is_called(2);
}

/// Pairs both ends of a connection.
fn pairs(agent: &Served) {
    let [(a, one), (b, other)] = called(agent);
    a.shows(1, &one);
    b.shows(2, &other);
    for program in [a, b] {
        assert!(matches!(program.hears(), Some((Message::Pair { .. }, Some(_)))));
    }
}

/// Fills a page at the end of a test, also of one that fails.
struct Fills(Arc<LatePage>);

impl Drop for Fills {
    fn drop(&mut self) {
        self.0.fill();
    }
}

/// Shows a socket whose lock a call has that reads the page.
fn hold_socket(a: &Program, b: &Program, page: &Arc<LatePage>) -> Vec<OwnedFd> {
    let [one, other] = call(a, b);
    let (page, socket) = (Arc::clone(page), one.try_clone().unwrap());
    let _sends = std::thread::spawn({
        let page = Arc::clone(&page);
        move || page.send_by(socket.as_fd())
    });
    assert!(page.is_awaited(LIMIT));
    a.shows(1, &one);
    vec![one.into(), other.into()]
}

/// Passes a bell from which a call receives into the page, and rings it.
fn hold_bell(a: &Program, page: &Arc<LatePage>) -> Vec<OwnedFd> {
    let (bell, own) = passing::pair().unwrap();
    passing::send(&own, b"for the program itself", None).unwrap();
    let (page, copy) = (Arc::clone(page), bell.try_clone().unwrap());
    let _receives = std::thread::spawn({
        let page = Arc::clone(&page);
        move || page.receive_by(copy.as_fd())
    });
    assert!(page.is_awaited(LIMIT));
    a.say(&Message::Bell(7), Some(&bell));
    passing::send(&own, &Message::Soon(1).encode(), None).unwrap();
    vec![bell, own]
}

#[test]
fn stranger__calls_that_hold_what_was_passed_hold_no_other_user_up() {
    for holds_socket in [true, false] {
        let page = match LatePage::new() {
            Ok(page) => Arc::new(page),
            Err(why) => return skip(&format!("this user has no page that comes late: {why}")),
        };
        let agent = Served::start("");
        let _fills = Fills(Arc::clone(&page));
        let (ready, is_ready) = channel();
        let (done, is_done) = channel::<()>();
        let name = agent.name.clone();
        let stranger = std::thread::spawn(move || {
            let user = be_user(12_345);
            let (a, b) = (Program::at(&name), Program::at(&name));
            let _kept = match holds_socket {
                true => hold_socket(&a, &b, &page),
                false => hold_bell(&a, &page),
            };
            ready.send(user).unwrap();
            let _ = is_done.recv();
            page.fill();
        });
        if let Err(why) = is_ready.recv().unwrap() {
            skip(&format!("this user cannot become another one: {why}"));
        } else {
            pairs(&agent);
            assert_eq!(agent.reports("sockets_paired"), 1);
        }
        drop(done);
        stranger.join().unwrap();
        // The agent closes what the stranger has passed, and goes on.
        pairs(&agent);
    }
}
