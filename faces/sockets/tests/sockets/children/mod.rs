//! Children by clone(2), clone3(2) and the like, of a process with a connection that shares memory:
//! whatever they close or become, the parent reads all bytes.

pub mod sys;

use crate::harness::Served;
use crate::roles::Server;
use crate::sys as other;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use sys::{Act, Way};

/// The bytes that wait while a child lives.
const N: usize = 9000;

/// Runs a case on a connection that shares memory. False if there is none of this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case.split_once(':') {
        Some(("children", way)) => children(server, Way::of(way)),
        Some(("small", way)) => small(server, way),
        _ => return false,
    }
    true
}

/// Has children of one way, each of which does something.
fn children(server: &mut Server, way: Way) {
    for act in [Act::Nothing, Act::Become, Act::Close] {
        if act == Act::Close && way.shares_descriptors() {
            continue;
        }
        for _ in 0..3 {
            server.ringed(N);
            let child = sys::child(way, act, server.stream.as_raw_fd());
            assert_eq!(other::wait(child), 0, "{act:?}");
            // A connection that is thought to be nobody's gives its place to another one.
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let _far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let _near = listener.accept().unwrap();
            server.read(N);
            server.get(1000);
            server.command(b'r', 20_000);
            server.put(20_000);
            server.reads_yes();
        }
    }
    if way.is_followed() {
        is_shared(server);
    }
}

/// The connection shares memory as before.
fn is_shared(server: &mut Server) {
    let by_memory = |server: &Server| server.at() - other::received(&server.stream);
    let (before, mut rounds) = (by_memory(server), 0);
    while by_memory(server) <= before {
        server.get(1000);
        rounds += 1;
        assert!(rounds < 100_000, "the connection does not share memory any more");
    }
}

/// A child has a small stack, by which it copies a descriptor of another program's and becomes it,
/// while bytes wait.
fn small(server: &mut Server, program: &str) {
    server.ringed(N);
    let fd = server.stream.as_raw_fd();
    other::keep_at_exec(fd);
    for way in ["vfork", "copy"] {
        let act = Act::CopyAndBecome;
        let child = sys::child_of(Way::of(way), act, fd, program, sys::SMALL);
        assert_eq!(other::wait(child), 0, "{way}");
    }
    server.read(N);
    server.get(1000);
}

fn case(name: &str) {
    let agent = Served::start();
    let mut server = agent.with("serve", "");
    let mut client = agent.with(&format!("try-{name}"), &server.says());
    assert_eq!(client.says(), "done", "{name}");
    client.ends_well();
    server.ends_well();
}

#[test]
fn clone__children_take_no_byte_of_their_parent() {
    for way in ["copy", "copy-and-wait", "vfork"] {
        case(&format!("children:{way}"));
    }
}

#[test]
fn clone__children_that_share_memory_or_descriptors_take_no_byte_of_their_parent() {
    for way in ["beside", "files", "files-beside", "files-vfork"] {
        case(&format!("children:{way}"));
    }
}

#[test]
fn clone__children_by_numbers_and_without_handlers_take_no_byte_of_their_parent() {
    for way in ["clone3", "SYS_clone", "_Fork"] {
        case(&format!("children:{way}"));
    }
}

#[test]
fn exec__needs_little_of_a_small_stack() {
    for program in crate::targets::small() {
        case(&format!("small:{program}"));
    }
}
