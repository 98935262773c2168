//! Arguments that the kernel refuses: addresses of nothing, and times that are none.

mod sys;

use crate::harness::{library, start, Served};
use crate::roles::Server;
use crate::sys as other;
use std::os::fd::AsRawFd;
use sys::{Call, InHandler};
use weft_conformance::skip;

/// Runs a case on a connection that shares memory. False if there is none of this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case {
        "addresses" => addresses(server),
        "addresses-held" => addresses_held(server),
        "handlers" => handlers(server),
        "addresses-in-handlers" => addresses_in_handlers(server),
        "times" => times(server),
        _ => return false,
    }
    true
}

/// Calls with an address of nothing get EFAULT, and take no byte.
fn addresses(server: &mut Server) {
    let (fd, bad) = (server.stream.as_raw_fd(), sys::half_a_map());
    let set = other::Epoll::new();
    set.add(&server.stream, libc::EPOLLIN, 1);
    let calls = [
        Call::Recv,
        Call::Readv,
        Call::ReadvList,
        Call::Recvmsg,
        Call::Send,
        Call::WritevList,
        Call::Sendmsg,
        Call::Poll,
        Call::Select,
        Call::Epoll(set.as_raw_fd()),
    ];
    for address in [bad, 8] {
        for call in calls {
            server.ringed(100);
            assert_eq!(sys::error_of(call, fd, address), Some(libc::EFAULT), "{call:?}");
            server.read(100);
        }
    }
    // Lengths of control messages that are none: too small, beyond the end, beyond all memory.
    for len in [0, 15, 25, 1 << 40, usize::MAX] {
        assert_eq!(sys::pass_with_length(len), Some(libc::EINVAL), "{len}");
    }
    // The kernel moves all that is asked for from one place, or nothing.
    server.ringed(64);
    assert_eq!(sys::recv_over_the_end(fd, bad, 10), -1);
    server.read(64);
    server.get(10_000);
}

/// Calls with bad addresses in a thread that holds all signals back, and in one that it has made.
fn addresses_held(server: &mut Server) {
    let mut in_thread = |by_number: bool| {
        std::thread::scope(|scope| {
            let blocks = scope.spawn(|| {
                sys::block_all(by_number);
                addresses(server);
                std::thread::scope(|scope| scope.spawn(|| addresses(server)).join().unwrap());
            });
            blocks.join().unwrap();
        });
    };
    in_thread(false);
    in_thread(true);
    // This one holds nothing back, and goes on without.
    addresses(server);
}

/// Calls with bad addresses in handlers that run while the signals of faults are held back.
fn addresses_in_handlers(server: &mut Server) {
    let (fd, bad) = (server.stream.as_raw_fd(), sys::half_a_map());
    for way in [InHandler::Mask, InHandler::Number, InHandler::Wait, InHandler::Fault] {
        server.ringed(100);
        let child = other::fork(|| {
            // This thread is known to hold nothing back, as others do.
            std::thread::spawn(|| sys::block_all(false)).join().unwrap();
            let before = sys::error_of(Call::Recv, fd, bad);
            let within = sys::error_in_handler(way, fd, bad);
            let after = sys::error_of(Call::Recv, fd, bad);
            let errors = [before, within, after].map(|one| one == Some(libc::EFAULT));
            i32::from(errors != [true; 3])
        });
        assert_eq!(other::wait(child), 0, "{way:?}");
        server.read(100);
    }
    server.get(1000);
}

/// Handlers of the program see its own faults, and it reads them back.
fn handlers(server: &mut Server) {
    let (fd, bad) = (server.stream.as_raw_fd(), sys::half_a_map());
    for by_signal in [false, true] {
        let status = other::wait(other::fork(|| {
            sys::exit_at_a_fault(by_signal);
            if sys::error_of(Call::Send, fd, bad) != Some(libc::EFAULT) {
                return 1;
            }
            sys::read(bad);
            2
        }));
        assert_eq!(libc::WEXITSTATUS(status), 7);
    }
    let child = other::fork(|| {
        sys::die_at_a_fault();
        if sys::error_of(Call::Send, fd, bad) == Some(libc::EFAULT) {
            sys::read(bad);
        }
        2
    });
    assert_eq!(libc::WTERMSIG(other::wait(child)), libc::SIGSEGV);
}

/// A time that is none is refused, and what is left of one is told.
fn times(server: &mut Server) {
    let fd = server.stream.as_raw_fd();
    for wrong in [[-1, -1], [0, 1_000_000_000], [-1, 0]] {
        assert_eq!(sys::recvmmsg(fd, wrong).0, Some(libc::EINVAL));
    }
    server.ringed(1);
    let (error, left) = sys::recvmmsg(fd, [100, 0]);
    assert!(error.is_none() && left[0] < 100, "{error:?} {left:?}");
    server.check(&crate::harness::bytes(server.at(), 1));
}

/// A library before the C library's clock has it stand still: spins and waits end all the same.
#[test]
fn clock__that_stands_still() {
    let machine = std::env::consts::ARCH;
    let faked = format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketime.so.1");
    if !std::path::Path::new(&faked).is_file() {
        return skip(&format!("there is no {faked} (faketime)"));
    }
    let agent = Served::start();
    let both = format!("{}:{faked}", library().display());
    let settings = [("LD_PRELOAD", both.as_str()), ("FAKETIME", "2020-01-01 00:00:00")];
    let with = Some(agent.name.as_str());
    let mut server = start("echo", "", with, &settings);
    let port = server.says();
    let mut client = start("ask", &port, with, &settings);
    assert!(client.number() > 0);
    client.ends_well();
    server.ends_well();
    assert_eq!(agent.counter("sockets_paired"), 1);
}
