//! Children by clone(2), clone3(2) and the like, of a process with a connection that shares memory:
//! whatever they close or become, the parent reads all bytes.

pub mod sys;

use crate::harness::Served;
use crate::roles::Server;
use crate::sys as other;
use std::io::{Read, Write};
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
        Some(("accepts", _)) => accepts(server),
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

/// While a thread waits for a child that it makes, another one accepts connections, which share
/// memory, and makes a child.
fn accepts(server: &mut Server) {
    let (mut near, says) = std::io::pipe().unwrap();
    let (hears, mut far) = std::io::pipe().unwrap();
    std::thread::scope(|scope| {
        let makes =
            scope.spawn(|| sys::child_that_is_waited_for(says.as_raw_fd(), hears.as_raw_fd()));
        near.read_exact(&mut [0]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _near = listener.accept().unwrap();
        assert_eq!(other::wait(other::fork(|| 0)), 0);
        far.write_all(b"x").unwrap();
        assert_eq!(other::wait(makes.join().unwrap()), 0);
    });
    assert_eq!(other::wait(other::fork(|| 0)), 0);
    server.ringed(N);
    server.read(N);
    is_shared(server);
}

fn case(name: &str) {
    let agent = Served::start();
    let (server, mut client) = agent.serves(&format!("try-{name}"));
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

/// The kernel has such a child begin where its stack says.
#[cfg(target_arch = "x86_64")]
#[test]
fn clone__a_child_by_number_on_a_stack_of_its_own_takes_no_byte_of_its_parent() {
    case("children:SYS_clone-on-stack");
}

#[test]
fn clone__a_thread_that_waits_for_its_child_holds_up_no_other() {
    case("accepts:");
}

#[test]
fn exec__needs_little_of_a_small_stack() {
    for program in crate::targets::small() {
        case(&format!("small:{program}"));
    }
}
