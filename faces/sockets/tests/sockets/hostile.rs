//! Peers that write into shared memory what they like, and agents that answer what they like.

use crate::harness::{argument, dial, say, start, Served};
use crate::sys;
use crate::torture::Random;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weft_streams::message::{example_messages, Message, Other, Place, MESSAGE_MAX};
use weft_streams::socket_name;
use weft_streams::words::{SEGMENT, STRIDE};
use weft_sys::agent::{connect_to, Kind};
use weft_sys::foreign::{Foreign, ANYBODY};
use weftd::sys::passing;

/// Limit of every wait; reached only by a fault.
const LIMIT: Duration = Duration::from_secs(100);

/// Writes and reads until the connection ends: by an error, or by the peer.
pub fn flow() {
    let mut stream = dial(&argument());
    let mut random = Random(7);
    let mut buf = vec![0; 50_000];
    for _ in 0..200_000 {
        let len = random.len().min(buf.len());
        let done = match random.next(4) {
            0 => sys::send(&stream, &buf[..len], libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT),
            1 => sys::recv(&stream, &mut buf[..len], libc::MSG_DONTWAIT),
            2 => sys::recv(&stream, &mut buf[..len], libc::MSG_DONTWAIT | libc::MSG_PEEK),
            _ => {
                sys::poll_in(&stream, 1);
                sys::queue(&stream, libc::FIONREAD);
                stream.write(&[1]).and_then(|_| stream.read(&mut buf[..len]))
            }
        };
        match done {
            Ok(0) => break,
            Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => break,
            _ => {}
        }
    }
    say("done");
}

/// Sends bytes and gets them back.
fn exchange(stream: &mut TcpStream, len: usize) {
    let (sent, mut got) = (vec![7; len], vec![0; len]);
    stream.write_all(&sent).unwrap();
    stream.read_exact(&mut got).unwrap();
    assert!(got == sent);
}

/// Has a connection until the agent has a copy of it, then another descriptor or process has it.
pub fn leaves() {
    let words = argument();
    let (port, way) = words.split_once(' ').unwrap();
    let mut stream = dial(port);
    let mut answer = [0];
    while answer != *b"x" {
        exchange(&mut stream, 10);
        say("asks");
        std::io::stdin().read_exact(&mut answer).unwrap();
    }
    match way {
        "pass" => {
            let (one, other) = UnixStream::pair().unwrap();
            sys::pass(&one, stream.as_raw_fd());
            drop(stream);
            exchange(&mut sys::take(&other), 1000);
        }
        "fork" => {
            let (mut reads, mut writes) = std::io::pipe().unwrap();
            let child = sys::fork(|| {
                reads.read_exact(&mut [0]).unwrap();
                exchange(&mut stream, 1000);
                0
            });
            drop(stream);
            writes.write_all(b"x").unwrap();
            assert_eq!(sys::wait(child), 0);
        }
        other => panic!("{other}"),
    }
    say("done");
}

/// Receives a message, and the descriptor that came with it.
fn heard(program: &OwnedFd, buf: &mut [u8]) -> std::io::Result<(usize, Option<OwnedFd>)> {
    let (len, passed) = passing::recv(program, buf, ANYBODY)?.only()?;
    Ok((len, passed.map(Foreign::into_inner)))
}

fn hears(program: &OwnedFd) -> Option<(Message, Option<OwnedFd>)> {
    let (end, mut buf) = (Instant::now() + LIMIT, [0; MESSAGE_MAX]);
    loop {
        match heard(program, &mut buf) {
            Ok((0, _)) => return None,
            Ok((len, passed)) => return Some((Message::decode(&buf[..len]).ok()?, passed)),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                assert!(Instant::now() < end, "nothing is said");
                std::thread::yield_now();
            }
            Err(_) => return None,
        }
    }
}

fn place(address: std::net::SocketAddr) -> Place {
    match address {
        std::net::SocketAddr::V4(v4) => Place::v4(v4.ip().octets(), v4.port()),
        std::net::SocketAddr::V6(v6) => Place::new(v6.ip().octets(), v6.port()),
    }
}

/// Has the agent join a connection of this process, which has no library; returns the memory.
fn joined(agent: &Served, stream: &TcpStream) -> OwnedFd {
    let (program, _) = connect_to(&socket_name(&agent.name), Kind::Messages).unwrap();
    let (local, remote) = (place(stream.local_addr().unwrap()), place(stream.peer_addr().unwrap()));
    let say = |message: &Message, pass: Option<&OwnedFd>| {
        passing::send(&program, &message.encode(), pass.map(AsFd::as_fd)).unwrap();
    };
    say(&Message::Ask { token: 1, local, remote }, None);
    loop {
        match hears(&program).expect("the agent ended") {
            (Message::Call(1), _) => {
                let socket = stream.try_clone().unwrap().into();
                say(&Message::Here(1), Some(&socket));
            }
            (Message::Pair { token: 1, .. }, Some(memory)) => return memory,
            // The other end was not there in time, and asks again.
            (Message::None { .. }, _) => say(&Message::Ask { token: 1, local, remote }, None),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn peer__any_words_in_shared_memory_end_its_own_connection_at_most() {
    let agent = Served::start();
    for seed in 0..24 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let client = agent.with("flow", &port);
        let stream = listener.accept().unwrap().0;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Bytes by TCP go on meanwhile.
            scope.spawn(|| {
                let mut buf = [0; 4000];
                while !over.load(Ordering::Relaxed) {
                    let n = sys::recv(&stream, &mut buf, libc::MSG_DONTWAIT).unwrap_or(0);
                    let _ = sys::send(&stream, &buf[..n.clamp(1, 10)], libc::MSG_NOSIGNAL);
                    std::thread::yield_now();
                }
            });
            let memory = sys::Mapped::of(&joined(&agent, &stream), SEGMENT);
            let mut random = Random(seed);
            for _ in 0..20_000 {
                // The gate, the switch or the position of a direction.
                let at = random.next(2) as usize * STRIDE + random.next(3) as usize * 128;
                let word = memory.word(at);
                let value = match random.next(5) {
                    0 => random.next(u64::MAX),
                    1 => word.load(Ordering::Relaxed).wrapping_add(random.next(1 << 18)),
                    2 => word.load(Ordering::Relaxed) ^ 1 << random.next(64),
                    3 => 1,
                    _ => word.load(Ordering::Relaxed) | 1,
                };
                word.store(value, Ordering::Relaxed);
            }
            over.store(true, Ordering::Relaxed);
        });
        drop(stream);
        client.ends_done();
    }
}

/// Asks a program for its socket, and keeps that. True once it has it.
fn keeps(programs: &mut Vec<OwnedFd>, kept: &mut Vec<OwnedFd>) -> bool {
    let mut buf = [0; MESSAGE_MAX];
    for program in programs {
        while let Ok((len @ 1.., passed)) = heard(program, &mut buf) {
            match (Message::decode(&buf[..len]), passed) {
                (Ok(Message::Ask { token, .. }), _) => {
                    passing::send(&*program, &Message::Call(token).encode(), None).unwrap();
                }
                (_, passed) => kept.extend(passed),
            }
        }
    }
    kept.iter().any(|fd| passing::facts(fd).is_some())
}

/// A close of the program that asks is no end of a connection that others have.
#[test]
fn close__of_a_connection_that_the_agent_and_others_have() {
    for way in ["pass", "fork"] {
        let name = format!("@weft-sockets-test-{:016x}", weft_link::random_u64());
        let agent = passing::listen(&socket_name(&name)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let words = format!("{} {way}", listener.local_addr().unwrap().port());
        let mut leaves = start("leaves", &words, Some(&name), &[]);
        let echo = std::thread::spawn(move || crate::roles::echo(listener.accept().unwrap().0));
        let (mut programs, mut kept) = (Vec::new(), Vec::new());
        while {
            assert_eq!(leaves.says(), "asks");
            programs.extend(passing::accept(&agent));
            !keeps(&mut programs, &mut kept)
        } {
            leaves.goes_on(b'a');
        }
        leaves.goes_on(b'x');
        assert_eq!(leaves.says(), "done", "{way}");
        leaves.ends_well();
        drop(kept);
        echo.join().unwrap();
    }
}

/// Answers programs with messages of no sense, and with memory that is none.
fn misleads(listener: &OwnedFd, over: &AtomicBool) -> u64 {
    let (mut random, mut programs, mut said) = (Random(3), Vec::new(), 0);
    while !over.load(Ordering::Relaxed) {
        programs.extend(passing::accept(listener));
        let mut buf = [0; MESSAGE_MAX];
        for program in &programs {
            let Ok((len, _)) = heard(program, &mut buf) else { continue };
            let Ok(Message::Ask { token, .. }) = Message::decode(&buf[..len]) else { continue };
            said += 1;
            let first = random.next(2) == 0;
            let memory: OwnedFd = match random.next(4) {
                0 => std::fs::File::open("/dev/zero").unwrap().into(),
                1 => passing::shared_memory(SEGMENT / 2).unwrap(),
                2 => sys::unsealed_memory(SEGMENT),
                _ => std::io::pipe().unwrap().0.into(),
            };
            let _ = match random.next(3) {
                0 => {
                    let pair = Message::Pair { token, first, other: Other::default() }.encode();
                    passing::send(program, &pair, Some(memory.as_fd()))
                }
                1 => {
                    let examples = example_messages();
                    let at = random.next(examples.len() as u64) as usize;
                    let mut bytes = examples[at].clone();
                    let damaged = random.next(bytes.len() as u64) as usize;
                    bytes[damaged] ^= 1 << random.next(8);
                    passing::send(program, &bytes, Some(memory.as_fd()))
                }
                _ => passing::send(
                    program,
                    &Message::Pair { token, first, other: Other::default() }.encode(),
                    None,
                ),
            };
        }
        std::thread::yield_now();
    }
    said
}

#[test]
fn agent__answers_without_sense_leave_connections_tcp() {
    let name = format!("@weft-sockets-test-{:016x}", weft_link::random_u64());
    let (listener, over) = (passing::listen(&socket_name(&name)).unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let said = scope.spawn(|| misleads(&listener, &over));
        for _ in 0..8 {
            let mut echo = start("echo", "", Some(&name), &[]);
            let port = echo.says();
            let mut asks = start("ask", &port, Some(&name), &[]);
            assert_eq!(asks.number(), 0);
            asks.ends_well();
            echo.ends_well();
        }
        over.store(true, Ordering::Relaxed);
        assert!(said.join().unwrap() > 0);
    });
}

#[test]
fn agent__of_a_user_without_a_number_is_told_and_given_nothing() {
    // The kernel shows this process and the program under one number, as it has none for them.
    let mut command = std::process::Command::new("unshare");
    command.arg("--user").stdin(std::process::Stdio::null());
    if !command.arg("true").status().is_ok_and(|status| status.success()) {
        return weft_conformance::skip("no user namespaces");
    }
    let name = format!("@weft-sockets-test-{:016x}", weft_link::random_u64());
    let listener = passing::listen(&socket_name(&name)).unwrap();
    let mut echo = start("echo", "", None, &[]);
    let port = echo.says();
    let mut asks = crate::harness::start_by(&["unshare", "--user"], "ask", &port, Some(&name), &[]);
    assert_eq!(asks.number(), 0);
    asks.ends_well();
    echo.ends_well();
    let mut heard_of = 0;
    while let Ok(program) = passing::accept(&listener) {
        let mut buf = [0; MESSAGE_MAX];
        let said = heard(&program, &mut buf);
        assert!(matches!(said, Ok((0, None))), "{said:?}");
        heard_of += 1;
    }
    assert!(heard_of > 0, "it looked for an agent");
}
