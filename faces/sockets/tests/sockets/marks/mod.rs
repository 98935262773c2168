//! Places of a stream that TCP knows: the mark of urgent bytes, and the end of a peer that was
//! killed.

mod sys;

use crate::harness::{start, Served};
use crate::roles::Server;
use crate::sys as calls;
use std::io::Read;

/// Its number on all machines that these tests run on.
const SIOCATMARK: libc::c_ulong = 0x8905;
/// Bytes before an urgent one, and after it.
const N: usize = 50;

/// Runs a case on a connection that is joined. False if there is none of this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case {
        "mark" => mark(server),
        "deserted" => deserted(server),
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

#[test]
fn send__to_a_peer_that_was_killed_fails_soon() {
    let agent = Served::start();
    let mut server = agent.with("serve", "");
    let mut client = agent.with("try-deserted", &server.says());
    assert_eq!(client.says(), "done");
    client.ends_well();
    assert!(!server.end().success());
}

/// A read ends at TCP's mark, with the library and without it.
#[test]
fn urgent__a_read_ends_at_the_mark() {
    let agent = Served::start();
    for with in [Some(agent.name.as_str()), None] {
        let mut server = start("serve", "", with, &[]);
        let role = if with.is_some() { "try-mark" } else { "mark-by-tcp" };
        let mut client = start(role, &server.says(), with, &[]);
        assert_eq!(client.says(), "done");
        client.ends_well();
        server.ends_well();
    }
}

/// Reads to an urgent byte, takes it, and reads on, without the library.
pub fn mark_by_tcp() {
    mark(&mut Server::new(crate::harness::dial(&crate::harness::argument())));
    crate::harness::say("done");
}
