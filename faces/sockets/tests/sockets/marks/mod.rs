//! Places of a stream that TCP knows: the mark of urgent bytes, and the end of a peer that was
//! killed.

mod sys;

use crate::harness::{start, Served};
use crate::roles::Server;
use crate::sys as calls;
use std::io::Read;
use std::os::fd::AsRawFd;

/// Its number on all machines that these tests run on.
const SIOCATMARK: libc::c_ulong = 0x8905;
/// Bytes before an urgent one, and after it.
const N: usize = 50;

/// Runs a case on a connection that is joined. False if there is none of this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case {
        "mark" => mark(server),
        "deserted" => deserted(server),
        "deaf" => deaf(server),
        "reset-read" => reset_once(server, false),
        "reset-option" => reset_once(server, true),
        "whole-receive" => whole(server, true),
        "whole-send" => whole(server, false),
        _ => return false,
    }
    true
}

/// Reads to an urgent byte, takes it, and reads on.
fn mark(server: &mut Server) {
    let is_at_mark = |server: &Server| {
        let mark = sys::is_at_mark(&server.stream);
        assert_eq!(calls::queue(&server.stream, SIOCATMARK), i32::from(mark));
        mark
    };
    server.get(100);
    assert!(!is_at_mark(server));
    let before = calls::received(&server.stream);
    server.command(b'u', N as u64);
    // The urgent byte and those after it have come by TCP.
    while calls::received(&server.stream) < before + 1 + N as u64
        || calls::queue(&server.stream, libc::FIONREAD) < N as i32
        || calls::poll_for(&server.stream, libc::POLLPRI, 0) & libc::POLLPRI == 0
    {
        std::thread::yield_now();
    }
    let mut seen = [0; 1000];
    let got = calls::recv(&server.stream, &mut seen, libc::MSG_PEEK).unwrap();
    assert_eq!(got, N, "a look beyond the mark");
    let mut got = 0;
    while !is_at_mark(server) {
        let mut buf = [0; 1000];
        let n = server.stream.read(&mut buf).unwrap();
        server.check(&buf[..n]);
        got += n;
    }
    assert_eq!(got, N, "bytes before the mark");
    let mut urgent = [0; 1];
    assert_eq!(calls::recv(&server.stream, &mut urgent, libc::MSG_OOB).unwrap(), 1);
    assert_eq!(urgent, *b"!");
    server.read(N);
    server.get(1000);
}

/// The peer is killed while it is awake: sends fail soon, as they do by TCP.
fn deserted(server: &mut Server) {
    server.get(100);
    server.command(b'k', 0);
    while calls::poll_for(&server.stream, libc::POLLRDHUP, 0) & libc::POLLRDHUP == 0 {
        std::thread::yield_now();
    }
    let mut sent = 0;
    let error = loop {
        match calls::send(&server.stream, b"lost", libc::MSG_NOSIGNAL) {
            Ok(_) => sent += 1,
            Err(e) => break e,
        }
        assert!(sent < 3, "{sent} sends to a peer that was killed");
    };
    assert_eq!(error.raw_os_error(), Some(libc::EPIPE), "{error}");
    assert_eq!(server.stream.read(&mut [0; 10]).unwrap(), 0);
}

/// Has the server go on that waits for a file, which the argument names.
fn let_go() {
    let words = crate::harness::argument();
    std::fs::write(words.split(' ').nth(1).unwrap(), b"").unwrap();
}

/// The peer closes before it has read all: one call tells of the reset, and the next ones of the
/// end.
fn reset_once(server: &mut Server, by_option: bool) {
    server.get(100);
    server.command(b'b', 0);
    server.command(b'c', 0);
    server.put(500);
    let_go();
    while calls::poll_for(&server.stream, libc::POLLRDHUP, 100) & libc::POLLRDHUP == 0 {}
    let reset = match by_option {
        true => server.stream.take_error().unwrap(),
        false => server.stream.read(&mut [0; N]).err(),
    };
    assert_eq!(reset.and_then(|e| e.raw_os_error()), Some(libc::ECONNRESET));
    assert_eq!(server.stream.read(&mut [0; N]).unwrap(), 0);
    assert_eq!(server.stream.take_error().unwrap().map(|e| e.to_string()), None);
    let error = calls::send(&server.stream, b"lost", libc::MSG_NOSIGNAL).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
}

#[test]
fn reset__is_told_once() {
    for way in ["reset-read", "reset-option"] {
        with_file(way, &format!("{way}-by-tcp"));
    }
}

/// A program that ends its receiving direction goes on to send, also while the peer does not read.
fn deaf(server: &mut Server) {
    server.get(100);
    server.command(b'b', 0);
    for n in [100, 50, 50] {
        server.command(b'r', n);
        server.put(n as usize);
        if n == 100 {
            server.stream.shutdown(std::net::Shutdown::Read).unwrap();
        }
        assert_eq!(server.stream.read(&mut [0; 10]).unwrap(), 0, "it is none of the peer's ends");
    }
    // The bytes are at the peer, which need not have read them (TIOCOUTQ).
    while calls::queue(&server.stream, libc::TIOCOUTQ) > 0 {
        std::thread::yield_now();
    }
    let_go();
    // The kernel takes what comes all the same.
    for _ in 0..3 {
        while calls::queue(&server.stream, libc::FIONREAD) == 0 {
            std::thread::yield_now();
        }
        server.reads_yes();
    }
}

/// Tries a behaviour against a server that waits for a file, with the library and without.
fn with_file(with_library: &str, without: &str) {
    let agent = Served::start();
    for with in [Some(agent.name.as_str()), None] {
        let name = format!("weft-sockets-test-{:016x}", weft_link::random_u64());
        let file = std::env::temp_dir().join(name);
        let mut server = start("serve", file.to_str().unwrap(), with, &[]);
        let words = format!("{} {}", server.says(), file.display());
        let role = with.map_or(without.into(), |_| format!("try-{with_library}"));
        let client = start(&role, &words, with, &[]);
        client.ends_done();
        server.ends_well();
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn shutdown__of_the_receiving_direction_is_no_end_of_the_other_one() {
    with_file("deaf", "deaf-by-tcp");
}

/// The client over TCP alone.
pub fn by_tcp(case: &str) {
    let words = crate::harness::argument();
    let port = words.split(' ').next().unwrap();
    assert!(attempt(case, &mut Server::new(crate::harness::dial(port))));
    crate::harness::say("done");
}

/// The peer is in a call that moves many bytes, when the bell asks it for its socket: bytes that
/// wait here go back to TCP, as another program begins.
fn whole(server: &mut Server, receives: bool) {
    let begins = |server: &Server| {
        // The client is in its call by then, most of the times.
        calls::poll_for(&server.stream, libc::POLLPRI, 20);
        calls::keep_at_exec(server.stream.as_raw_fd());
        assert!(std::process::Command::new("true").status().unwrap().success());
    };
    server.ringed(500);
    if receives {
        server.command(b'w', 20_000);
        server.put(7_000);
        begins(server);
        server.put(13_000);
        server.read(500);
        server.reads_yes();
    } else {
        server.command(b'o', 4_000_000);
        begins(server);
        server.read(500);
        server.read(4_000_000);
    }
    server.get(100);
}

#[test]
fn call__the_bell_ends_none_that_has_moved_some_bytes() {
    let agent = Served::start();
    for way in ["whole-receive", "whole-send"] {
        for _ in 0..4 {
            let (server, client) = agent.serves(&format!("try-{way}"));
            client.ends_done();
            server.ends_well();
        }
    }
}

#[test]
fn send__to_a_peer_that_was_killed_fails_soon() {
    let agent = Served::start();
    let (mut server, client) = agent.serves("try-deserted");
    client.ends_done();
    assert!(!server.end().success());
}

/// A read ends at TCP's mark, with the library and without it.
#[test]
fn urgent__a_read_ends_at_the_mark() {
    let agent = Served::start();
    for with in [Some(agent.name.as_str()), None] {
        let mut server = start("serve", "", with, &[]);
        let role = if with.is_some() { "try-mark" } else { "mark-by-tcp" };
        let client = start(role, &server.says(), with, &[]);
        client.ends_done();
        server.ends_well();
    }
}

/// Reads to an urgent byte, takes it, and reads on, without the library.
pub fn mark_by_tcp() {
    mark(&mut Server::new(crate::harness::dial(&crate::harness::argument())));
    crate::harness::say("done");
}
