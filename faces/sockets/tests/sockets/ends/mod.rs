//! Ends of waits that look: by a signal, by a thread that closes the set, by wrong arguments, and
//! the time that is left.

mod sys;

use crate::harness::{start, Served, LOOKS};
use crate::roles::Server;
use crate::sys as calls;
use std::os::fd::AsRawFd;
use std::time::Duration;
use sys::Phase;

/// Runs a case on a connection that is joined, or leads to another host. False if there is none of
/// this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case {
        "signalled" => signalled(server),
        "left" => left(server),
        "wrong" => wrong(server),
        "gone" => gone(server),
        "bulk" => bulk(server),
        "poor" => poor(server),
        _ => return false,
    }
    true
}

/// Signals of each kind that end a call.
const SIGNALS: usize = 3;
/// Calls until these have come; reached only by a fault.
const TRIES: usize = 10_000;

/// A set with the connection.
fn set_of(server: &Server) -> calls::Epoll {
    let set = calls::Epoll::new();
    set.add(&server.stream, libc::EPOLLIN, 1);
    set
}

/// Has looks of a kind of wait pay.
fn heat(server: &mut Server, set: &calls::Epoll, way: &str) {
    for _ in 0..20 {
        server.command(b's', 1);
        if !["recv", "read"].contains(&way) {
            assert_eq!(sys::wait(way, server.stream.as_raw_fd(), set.as_raw_fd()), Ok(1));
        }
        server.read(1);
    }
}

/// A signal that comes during a look ends the wait, as one does that comes during a sleep.
fn signalled(server: &mut Server) {
    sys::handle_alarms();
    let set = set_of(server);
    // A set that nobody has waited for would keep the bytes by TCP, and calls from a look.
    assert_eq!(set.wait(0), []);
    server.stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for way in ["recv", "read", "poll", "select", "epoll"] {
        for phase in [Phase::Look, Phase::Sleep] {
            let (mut known, mut tries) = (0, 0);
            while known < SIGNALS {
                heat(server, &set, way);
                let alarm = sys::Alarm::begin(phase);
                let waited = sys::wait(way, server.stream.as_raw_fd(), set.as_raw_fd());
                if alarm.end() {
                    assert_eq!(waited, Err(libc::EINTR), "{way}, {phase:?}");
                    known += 1;
                }
                tries += 1;
                assert!(tries < TRIES, "{way}: no signal during {phase:?}");
            }
        }
    }
}

/// select(2) lessens its time if a look has found the bytes, too.
fn left(server: &mut Server) {
    let set = set_of(server);
    heat(server, &set, "select");
    let untouched = (0..100).filter(|_| {
        server.command(b's', 1);
        let left = sys::select_left(server.stream.as_raw_fd());
        server.read(1);
        assert!(left <= 5_000_000);
        left == 5_000_000
    });
    let untouched = untouched.count();
    // Bytes may be there before a call, on a busy host before most calls.
    assert!(untouched < 100, "{untouched} of 100 calls left the time as it was");
}

fn wrong(server: &mut Server) {
    let set = set_of(server);
    heat(server, &set, "epoll");
    server.command(b's', 1);
    while calls::queue(&server.stream, libc::FIONREAD) < 1 {
        std::thread::yield_now();
    }
    sys::end_in(60);
    let errors = sys::wrong_waits(server.stream.as_raw_fd(), set.as_raw_fd());
    assert_eq!(errors, [Err(libc::EINVAL); 3]);
    sys::end_in(0);
    server.read(1);
}

/// Long sends to another host are not delayed, which the program does not see.
fn bulk(server: &mut Server) {
    let fd = server.stream.as_raw_fd();
    assert!(!sys::nodelay(fd) && !server.stream.nodelay().unwrap());
    server.command(b'r', 300_000);
    server.put(300_000);
    server.reads_yes();
    assert!(sys::nodelay(fd) && !server.stream.nodelay().unwrap());
    for is_set in [true, false] {
        server.stream.set_nodelay(is_set).unwrap();
        assert_eq!(server.stream.nodelay().unwrap(), is_set);
        assert!(sys::nodelay(fd));
    }
}

/// Another thread closes the set in a wait, which ends by its time.
fn gone(server: &mut Server) {
    sys::end_in(100);
    for round in 0..20 {
        let set = set_of(server);
        heat(server, &set, "epoll");
        let fd = set.as_raw_fd();
        let waits = std::thread::spawn(move || sys::wait("epoll", fd, fd));
        (0..round * 50).for_each(|_| std::hint::spin_loop());
        drop(set);
        // A byte ends waits whose set was closed too late.
        server.command(b's', 1);
        let waited = waits.join().unwrap();
        assert!(matches!(waited, Ok(0..=1) | Err(libc::EBADF | libc::EINVAL)), "{waited:?}");
        server.read(1);
    }
    sys::end_in(0);
}

/// Looks that another thread can follow.
const LONG: (&str, &str) = (LOOKS.0, "10000");

/// A connection with bytes in its ring is added to a set while a thread sleeps in a wait for the
/// set, and this process gets no descriptors.
fn poor(server: &mut Server) {
    for _ in 0..5 {
        server.ringed(10);
        let set = calls::Epoll::new();
        std::thread::scope(|scope| {
            let (says, hears) = std::sync::mpsc::channel();
            let set = &set;
            let waits = scope.spawn(move || {
                says.send(sys::this_task()).unwrap();
                set.wait(-1)
            });
            let task = hears.recv().unwrap();
            while !sys::task(task).is_asleep() {
                std::thread::yield_now();
            }
            let most = calls::most_descriptors();
            calls::allow_descriptors(1);
            set.add(&server.stream, libc::EPOLLIN, 3);
            calls::allow_descriptors(most);
            assert_eq!(waits.join().unwrap(), [(libc::EPOLLIN, 3)]);
        });
        server.read(10);
    }
}

#[test]
fn wait__ends_by_signals_and_errors_that_come_during_a_look() {
    let agent = Served::start();
    for case in ["signalled", "wrong"] {
        eprintln!("case {case}");
        let mut server = start("serve", "", Some(&agent.name), &[LONG]);
        let role = format!("try-{case}");
        let client = start(&role, &server.says(), Some(&agent.name), &[LONG]);
        client.ends_done();
        server.ends_well();
    }
}
