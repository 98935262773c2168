//! The faults that users of other libraries of this kind met, and programs that do what is rare.
//!
//! | fault elsewhere | here |
//! | --- | --- |
//! | epoll in epoll never fires | `wait__a_set_in_a_set_sees_the_ring` |
//! | a second set gets ENOMEM | `wait__any_number_of_sets_has_a_connection` |
//! | a change of a registration fails after the way back | `wait__registrations_*` |
//! | waiters stay on the old queue at a switch | `wait__a_thread_waits_while_*` |
//! | a wait that spins ignores signals | `wait__signals_end_every_wait` |
//! | accept is not woken by a shutdown | `accept__ends_when_the_listener_is_shut_down` |
//! | all of a processor after reconnects | spins that do not pay become rare (`history`); `reuse` |
//! | the kernel's files starve | `wait__other_files_get_their_turn` |
//! | fork and exec with an open socket | `fork__*`, `exec__*` |
//! | functions looked up, or memory taken, in calls | all are looked up at the start (`real`) |
//! | a child hangs in a lock | `lock` takes locks of the dead; `torture` forks under threads |
//! | hang-up is told though nothing was asked | `wait__poll_select_and_epoll_see_the_ring` |
//! | keepalive ends as an end of the stream | every sleep and its error is the kernel's |
//! | errors of accept and getpeername | these calls are the kernel's |
//! | I/O while a connect is under way | it is the kernel's; `wait__a_set_knows_*` |
//! | select above 1024 | `wait__select_above_1024` |
//! | accepted sockets inherit modes; a thread talks to itself | the kernel's; `pair__both_ends_*` |
//! | the kernel is asked about descriptors that it has not | all descriptors are the kernel's |
//! | close waits for the peer | it waits for nobody; `send__a_peer_that_is_stopped_for_a_while` |
//! | a cancelled thread keeps a lock or a count | `cancel__a_thread_in_a_read` |
//! | closefrom closes the library's files | `close__all_*` |
//! | dup2 under a thread that reads | `dup2__under_a_thread_that_reads` |
//! | a registration by another thread comes late | `wait__a_connection_that_is_added_*` |
//! | sockets and connects at once lock up | `pair__both_ends_in_one_process_and_in_one_thread` |
//! | a removal with a bad event, edges, F_GETFD | `wait__registrations_*`, `wait__edges_*` |
//! | reload under load; fcntl64 | `pair__children_of_a_listener`; hooked |
//! | vfork changes the parent | `vfork__a_child_closes_what_it_has` |
//! | inherited listeners; no library in a child | the kernel's; `exec__a_shell_*` |
//! | a child's close ends the parent's socket | `fork__a_child_that_leaves_closes_nothing` |
//! | MSG_PEEK twice at the end | `recv__peeks_across_the_ring_and_at_the_end` |
//! | the end hides bytes before it | `shutdown__*`, `kill__the_reader_gets_all_bytes_*` |
//! | short connections pay | `tcp__short_connections_do_not_ask_the_agent` |

use crate::harness::{argument, bytes, dial, say};
use crate::roles::Server;
use crate::sys;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::time::Duration;

/// Sends and reads so many bytes by edges. A call that moves fewer bytes than it was given is the
/// last before a wait (epoll(7), question 9).
pub fn both_ways(stream: &mut TcpStream, [sent, read]: [&mut u64; 2], n: u64) {
    let (to_send, to_read) = (*sent + n, *read + n);
    sys::set_nonblocking(stream.as_raw_fd(), true);
    let (epoll, pause) = (sys::Epoll::new(), sys::Epoll::new());
    epoll.add(stream, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET, 1);
    let (mut can_send, mut can_read, mut turn) = (true, true, *sent);
    let would_block = |result: std::io::Result<usize>| match result {
        Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
        result => result.unwrap(),
    };
    while *sent < to_send || *read < to_read {
        turn = turn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let len = [100, 5000, 70_000][(turn >> 33) as usize % 3];
        if can_read && *read < to_read {
            let mut buf = vec![0; len.min((to_read - *read) as usize)];
            let got = would_block(stream.read(&mut buf));
            assert!(buf[..got] == bytes(*read, got), "wrong bytes at {read}");
            *read += got as u64;
            can_read = got == buf.len();
            if turn >> 60 == 0 {
                // The ring fills while this end is awake.
                pause.wait(2);
            }
        }
        for _ in 0..10 {
            if !can_send || *sent == to_send {
                break;
            }
            let len = len.min((to_send - *sent) as usize);
            let went = would_block(stream.write(&bytes(*sent, len)));
            *sent += went as u64;
            can_send = went == len;
        }
        let ends_done = *sent == to_send && *read == to_read;
        let works = can_send && *sent < to_send || can_read && *read < to_read;
        let told = epoll.wait(if works || ends_done { 0 } else { 10_000 });
        assert!(works || ends_done || !told.is_empty(), "no event: {sent} sent, {read} read");
        for (events, _) in told {
            can_send |= events & libc::EPOLLOUT != 0;
            can_read |= events & libc::EPOLLIN != 0;
        }
    }
    sys::set_nonblocking(stream.as_raw_fd(), false);
}

/// Calls that move less than they could wait for edges.
fn partly(server: &mut Server) {
    for _ in 0..8 {
        server.both_ways(2_000_000);
    }
    server.get(1000);
}

/// A peek and the read after it see the same bytes, wherever these are.
fn seen(server: &mut Server) {
    for i in 0..300 {
        // Long answers overflow into TCP, short ones follow in the ring.
        let lens = [10 + i % 50, 40_000, 7, 100];
        lens.iter().for_each(|len| server.command(b's', *len));
        let mut left = lens.iter().sum::<u64>() as usize;
        while left > 0 {
            let mut buf = vec![0; left];
            let seen = sys::recv(&server.stream, &mut buf, libc::MSG_PEEK).unwrap();
            let got = sys::recv(&server.stream, &mut buf[..seen], 0).unwrap();
            assert_eq!(got, seen, "a read after a peek of as many bytes");
            server.check(&buf[..got]);
            left -= got;
        }
    }
}

/// A peer fills the ring, sends the rest by TCP, and ends its direction. Programs that know of the
/// end take a read of fewer bytes than they asked for as the last one.
fn last(server: &mut Server) {
    let by_tcp = sys::received(&server.stream);
    server.ringed(40_000);
    server.command(b'f', 0);
    while sys::poll_for(&server.stream, libc::POLLRDHUP, 0) & libc::POLLRDHUP == 0 {
        std::thread::yield_now();
    }
    let by_tcp = sys::received(&server.stream) - by_tcp;
    assert!((1..40_000).contains(&by_tcp), "{by_tcp} of 40,000 bytes came by TCP");
    let mut buf = vec![0; 60_000];
    let got = sys::recv(&server.stream, &mut buf, libc::MSG_DONTWAIT).unwrap();
    server.check(&buf[..got]);
    assert_eq!(got, 40_000);
    assert_eq!(sys::recv(&server.stream, &mut buf, libc::MSG_DONTWAIT).unwrap(), 0);
}

/// Bytes lie in TCP, then in the ring, then in TCP again: one call, also one that takes none,
/// returns all that FIONREAD counts.
fn around(server: &mut Server) {
    let (mut buf, mut by_both, mut round) = (vec![0; 60_000], 0, 0);
    // The time of a read decides where bytes come.
    while round < 40 || by_both == 0 {
        assert!(round < 5000, "no bytes in both places");
        round += 1;
        // A wait that sleeps has the next bytes come by TCP; a read of one of them ends that.
        server.get(100);
        sys::poll_in(&server.stream, 1);
        let before = sys::received(&server.stream);
        server.command(b's', 1000);
        server.read(1);
        let by_tcp = sys::received(&server.stream) - before == 1000;
        server.command(b's', 50_000);
        while sys::queue(&server.stream, libc::FIONREAD) < 50_999 {
            std::thread::yield_now();
        }
        let arrived = sys::received(&server.stream) - before;
        by_both += usize::from(by_tcp && (1001..51_000).contains(&arrived));
        if round % 2 == 0 {
            let seen = sys::recv(&server.stream, &mut buf, libc::MSG_PEEK).unwrap();
            assert_eq!((seen, &buf[..seen]), (50_999, &bytes(server.at(), seen)[..]));
        }
        let got = sys::recv(&server.stream, &mut buf, 0).unwrap();
        server.check(&buf[..got]);
        assert_eq!(got, 50_999);
    }
}

/// Reads of no bytes wait, and take none.
fn none(server: &mut Server) {
    server.ringed(100);
    let mut nothing = [0; 0];
    assert_eq!(sys::recv(&server.stream, &mut nothing, 0).unwrap(), 0);
    assert_eq!(sys::recvmsg(&server.stream, &mut [&mut nothing], 0).unwrap(), 0);
    server.read(100);
    let e = sys::recv(&server.stream, &mut nothing, libc::MSG_DONTWAIT).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::WouldBlock);
    server.command(b's', 10);
    assert_eq!(sys::recv(&server.stream, &mut nothing, 0).unwrap(), 0);
    server.read(10);
}

/// Runs a case on a connection that shares memory. False if there is none of this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case {
        "sets" => sets(server),
        "partly" => partly(server),
        "seen" => seen(server),
        "none" => none(server),
        "last" => last(server),
        "around" => around(server),
        "back" => back(server),
        "signal" => signal(server),
        "mask" => mask(server),
        "turns" => turns(server),
        "exec" => exec(server),
        "shell" => shell(server),
        "print" => print(server),
        "stdio" => stdio(server),
        "vector" => vector(server),
        "wide" => wide(server),
        "cancel" => cancel(server),
        "closefrom" => close_from(server),
        "later" => later(server),
        "vfork" => vfork(server),
        "leaver" => leaver(server),
        "passed" => passed(server),
        "pipe" => full_pipe(server),
        "stopped" => stopped(server),
        "messages" => messages(server),
        "told" => told(server),
        _ => return false,
    }
    true
}

/// A connection in many sets: each tells.
fn sets(server: &mut Server) {
    let sets: Vec<sys::Epoll> = (0..8).map(|_| sys::Epoll::new()).collect();
    for n in 1..=sets.len() {
        let events = if n % 2 == 0 { libc::EPOLLIN } else { libc::EPOLLIN | libc::EPOLLET };
        sets[n - 1].add(&server.stream, events, n as u64);
        for _ in 0..20 {
            server.command(b's', 10);
            for (i, set) in sets[..n].iter().enumerate() {
                assert_eq!(set.wait(-1), [(libc::EPOLLIN, i as u64 + 1)]);
            }
            server.read(10);
        }
    }
}

/// Registrations stay when the connection goes back to TCP, and are changed after that.
fn back(server: &mut Server) {
    let set = sys::Epoll::new();
    set.add(&server.stream, libc::EPOLLIN, 1);
    server.command(b'r', 20);
    server.stream.write_all(&bytes(0, 10)).unwrap();
    assert_eq!(sys::send(&server.stream, b"!", libc::MSG_OOB).unwrap(), 1);
    server.stream.write_all(&bytes(10, 10)).unwrap();
    assert_eq!(set.wait(-1), [(libc::EPOLLIN, 1)]);
    let mut answer = [0; 1];
    server.stream.read_exact(&mut answer).unwrap();
    let fd = server.stream.as_raw_fd();
    for data in 2..10 {
        set.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN, data);
        server.command(b's', 100);
        assert_eq!(set.wait(-1), [(libc::EPOLLIN, data)]);
        server.read(100);
    }
    // A removal needs no event.
    set.remove(fd);
    server.command(b's', 100);
    assert_eq!(sys::poll_in(&server.stream, -1), libc::POLLIN);
    assert_eq!(set.wait(0), []);
}

/// A signal ends every wait.
fn signal(server: &mut Server) {
    sys::ignore_with_a_handler(libc::SIGUSR1);
    let (thread, over) = (sys::this_thread(), AtomicBool::new(false));
    let set = sys::Epoll::new();
    set.add(&server.stream, libc::EPOLLIN, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                sys::signal_thread(thread, libc::SIGUSR1);
                std::thread::yield_now();
            }
        });
        for _ in 0..16 {
            assert_eq!(set.try_wait(-1).unwrap_err().kind(), ErrorKind::Interrupted);
            assert_eq!(sys::try_poll_in(&server.stream, -1), Err(libc::EINTR));
            let early = sys::recv(&server.stream, &mut [0; 10], 0).unwrap_err();
            // A time limit of the socket keeps the call from being restarted.
            assert_eq!(early.kind(), ErrorKind::Interrupted);
        }
        over.store(true, Ordering::Relaxed);
    });
    server.get(1000);
}

/// A signal that waits for the mask of a call ends that call.
fn mask(server: &mut Server) {
    sys::ignore_with_a_handler(libc::SIGUSR1);
    let set = sys::Epoll::new();
    set.add(&server.stream, libc::EPOLLIN, 1);
    for _ in 0..16 {
        // The connection is awake, and known to the set.
        server.command(b's', 100);
        assert_eq!(set.wait(-1), [(libc::EPOLLIN, 1)]);
        server.read(100);
        sys::block(libc::SIGUSR1);
        sys::signal_thread(sys::this_thread(), libc::SIGUSR1);
        assert!(set.is_interrupted_without_mask());
        sys::signal_thread(sys::this_thread(), libc::SIGUSR1);
        assert!(sys::is_poll_interrupted_without_mask(&server.stream));
    }
}

/// A set whose ring always has bytes tells of other files, too.
fn turns(server: &mut Server) {
    let set = sys::Epoll::new();
    set.add(&server.stream, libc::EPOLLIN, 1);
    let (out, mut into) = sys::pipe();
    set.add(&out, libc::EPOLLIN, 2);
    server.ringed(100);
    into.write_all(b"x").unwrap();
    let mut seen = [false; 2];
    for _ in 0..20 {
        let told = set.wait_for(1);
        assert_eq!(told.len(), 1);
        seen[told[0].1 as usize - 1] = true;
    }
    assert_eq!(seen, [true; 2]);
    assert_eq!(set.wait(-1).len(), 2);
}

/// This process becomes another program, which goes on with the connection.
fn exec(server: &mut Server) {
    let fd = server.stream.as_raw_fd();
    sys::keep_at_exec(fd);
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(program);
    command.args(std::env::args_os().skip(1));
    command.env(crate::harness::ROLE, "after-exec");
    command.env(crate::harness::ARGUMENT, format!("{fd} {}", server.at()));
    panic!("{}", command.exec());
}

/// The program after `exec`.
pub fn after_exec() {
    let words = argument();
    let (fd, at) = words.split_once(' ').unwrap();
    let stream = sys::stream_of(fd.parse().unwrap());
    let mut server = Server::at_place(stream, at.parse().unwrap());
    for _ in 0..16 {
        server.get(1000);
    }
    say("done");
}

/// A shell that has the descriptor writes to it, between bytes of this process.
fn shell(server: &mut Server) {
    let fd = server.stream.as_raw_fd();
    sys::keep_at_exec(fd);
    server.command(b'r', 60);
    server.stream.write_all(&bytes(0, 20)).unwrap();
    let octal: String = bytes(20, 20).iter().map(|b| format!("\\{b:03o}")).collect();
    let script = format!("printf '{octal}' >&{fd}");
    assert_eq!(sys::wait(sys::fork(|| sys::execl("/bin/sh", "sh", "-c", &script))), 0);
    server.stream.write_all(&bytes(40, 20)).unwrap();
    server.reads_yes();
    server.get(50_000);
}

/// The C library prints to the descriptor.
fn print(server: &mut Server) {
    server.command(b'r', 40);
    server.stream.write_all(&bytes(0, 10)).unwrap();
    sys::dprintf_ten(server.stream.as_raw_fd(), &bytes(10, 10));
    server.stream.write_all(&bytes(20, 20)).unwrap();
    server.reads_yes();
    server.get(50_000);
}

/// A stream of the C library writes to the descriptor, and closes it.
fn stdio(server: &mut Server) {
    let copy = server.stream.try_clone().unwrap();
    server.command(b'r', 40);
    server.stream.write_all(&bytes(0, 10)).unwrap();
    sys::fwrite_and_close(copy, &bytes(10, 20));
    server.stream.write_all(&bytes(30, 10)).unwrap();
    server.reads_yes();
    server.get(50_000);
}

/// Parts.
fn vector(server: &mut Server) {
    for _ in 0..16 {
        server.command(b'r', 500);
        let sent = bytes(server.sent, 500);
        let (one, two) = sent.split_at(77);
        assert_eq!(sys::writev(&server.stream, &[one, &[], two]).unwrap(), 500);
        server.sent += 500;
        server.reads_yes();
        server.command(b's', 500);
        let (mut one, mut two) = ([0; 33], [0; 467]);
        let mut got = 0;
        while got < 33 {
            got += sys::readv(&server.stream, &mut [&mut one[got..], &mut two]).unwrap();
        }
        server.stream.read_exact(&mut two[got - 33..]).unwrap();
        server.check(&[&one[..], &two].concat());
        server.command(b'r', 100);
        assert_eq!(sys::pwritev2(&server.stream, &bytes(server.sent, 100)).unwrap(), 100);
        server.sent += 100;
        server.reads_yes();
        server.ringed(100);
        let mut all = [0; 100];
        assert_eq!(sys::preadv2(&server.stream, &mut all).unwrap(), 100);
        server.check(&all);
    }
}

/// select(2) with a number above those of an `fd_set`.
fn wide(server: &mut Server) {
    sys::allow_descriptors(4096);
    let high = sys::dup_from(server.stream.as_raw_fd(), 2500);
    for n in [1, 100, 5000] {
        server.ringed(n);
        assert!(sys::select_wide(high));
        server.read(n);
    }
    sys::close(high);
}

/// A thread is cancelled in a read: the connection goes on, in the ring, too.
fn cancel(server: &mut Server) {
    for _ in 0..10 {
        sys::cancel_a_reader(server.stream.as_raw_fd());
        server.ringed(100);
        server.read(100);
    }
}

/// A program that closes all descriptors above its own.
fn close_from(server: &mut Server) {
    let fd = server.stream.as_raw_fd();
    sys::close_range(fd + 1, i32::MAX);
    sys::close_from(fd + 1);
    server.get(50_000);
    server.ringed(100);
}

/// A connection is put into a set in which a thread sleeps.
fn later(server: &mut Server) {
    for _ in 0..20 {
        server.ringed(10);
        let set = sys::Epoll::new();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| set.wait(-1));
            std::thread::yield_now();
            set.add(&server.stream, libc::EPOLLIN, 3);
            assert_eq!(waits.join().unwrap(), [(libc::EPOLLIN, 3)]);
        });
        server.read(10);
    }
}

/// A child by vfork(2), which closes what it has.
fn vfork(server: &mut Server) {
    for _ in 0..20 {
        server.ringed(10);
        assert_eq!(sys::wait(sys::vfork_and_close(server.stream.as_raw_fd())), 0);
        server.read(10);
    }
    // The parent waits until the child is another program, and sees what the child wrote.
    server.ringed(100);
    server.command(b'r', 60);
    server.stream.write_all(&bytes(0, 20)).unwrap();
    let octal: String = bytes(20, 20).iter().map(|b| format!("\\{b:03o}")).collect();
    let fd = server.stream.as_raw_fd();
    let (child, seen) = sys::vfork_and_become(fd, &format!("printf '{octal}'"), 7);
    assert_eq!((sys::wait(child), seen), (0, 7));
    server.stream.write_all(&bytes(40, 20)).unwrap();
    server.read(100);
    server.reads_yes();
    server.get(50_000);
}

/// A child closes its descriptor, or shuts nothing down by its end.
fn leaver(server: &mut Server) {
    for i in 0..20 {
        server.ringed(10);
        let fd = server.stream.as_raw_fd();
        let child = sys::fork(|| if i % 2 == 0 { i32::from(!sys::close(fd)) } else { 0 });
        assert_eq!(sys::wait(child), 0);
        server.read(10);
    }
}

/// The descriptor goes to another process and comes back under another number.
fn passed(server: &mut Server) {
    let (one, other) = UnixStream::pair().unwrap();
    sys::pass(&one, server.stream.as_raw_fd());
    let stream = sys::take(&other);
    let old = std::mem::replace(&mut server.stream, stream);
    server.get(1000);
    drop(old);
    server.get(50_000);
}

/// splice(2) to a pipe that is full does not wait where it is not to.
fn full_pipe(server: &mut Server) {
    let (mut out, mut into) = sys::pipe();
    let space = sys::fill(&mut into);
    for _ in 0..5 {
        server.ringed(9000);
        let full = sys::splice_with(&server.stream, &into, 9000, libc::SPLICE_F_NONBLOCK);
        assert_eq!(full.unwrap_err().kind(), ErrorKind::WouldBlock);
        // A splice that waits goes on once the pipe is emptied.
        let piped = std::thread::scope(|scope| {
            let piped = scope.spawn(|| sys::splice(&server.stream, &into, 9000).unwrap());
            out.read_exact(&mut vec![0; space]).unwrap();
            piped.join().unwrap()
        });
        let mut got = vec![0; piped];
        out.read_exact(&mut got).unwrap();
        server.check(&got);
        server.read(9000 - piped);
        assert_eq!(sys::fill(&mut into), space);
    }
}

/// The peer is stopped while everything between is full.
fn stopped(server: &mut Server) {
    server.command(b'r', 20_000_000);
    say("stop");
    assert_eq!(std::io::stdin().read(&mut [0; 1]).unwrap(), 1);
    server.stream.set_nonblocking(true).unwrap();
    let (mut sent, mut said) = (0u64, false);
    while sent < 20_000_000 {
        let len = (20_000_000 - sent).min(100_000) as usize;
        match server.stream.write(&bytes(sent, len)) {
            Ok(n) => sent += n as u64,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock);
                if !said {
                    said = true;
                    say("full");
                }
                std::thread::yield_now();
            }
        }
    }
    server.stream.set_nonblocking(false).unwrap();
    server.reads_yes();
}

/// recvmmsg(2) and sendmmsg(2).
fn messages(server: &mut Server) {
    for _ in 0..20 {
        server.command(b'r', 300);
        let sent = bytes(server.sent, 300);
        let (one, two) = sent.split_at(100);
        assert_eq!(sys::sendmmsg(&server.stream, &[one, two]).unwrap(), 2);
        server.sent += 300;
        server.reads_yes();
        server.command(b's', 300);
        let mut got = Vec::new();
        while got.len() < 300 {
            got.extend(sys::recvmmsg(&server.stream, 2, 100, libc::MSG_WAITFORONE).unwrap());
        }
        server.check(&got);
    }
}

/// The connection is by TCP for good, and its test looks at that.
fn told(server: &mut Server) {
    sys::set_option(server.stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, 2);
    say("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// The test turns the use of weft off in both programs: all bytes come by TCP after a while.
pub fn switch() {
    let mut server = Server::upgraded(dial(&argument()));
    say("upgraded");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // The receiver sleeps, and is not woken up again.
    assert_eq!(sys::poll_in(&server.stream, 1), 0);
    server.get(1000);
    let (at, received) = (server.at(), sys::received(&server.stream));
    for _ in 0..100 {
        server.get(1000);
    }
    assert_eq!(sys::received(&server.stream) - received, server.at() - at);
    say("done");
}

/// Passes on what is read until the end, each time after a wait.
fn pass_on(mut reader: TcpStream, told: &Sender<Vec<u8>>, wait: impl Fn()) {
    let mut buf = [0; 4000];
    loop {
        wait();
        let n = reader.read(&mut buf).unwrap();
        if n == 0 || told.send(buf[..n].to_vec()).is_err() {
            return;
        }
    }
}

/// Another thread waits while the connection is upgraded: it misses nothing.
pub fn waiters() {
    let stream = dial(&argument());
    let mut server = Server::new(stream.try_clone().unwrap());
    let (reader, set) = (stream, sys::Epoll::new());
    set.add(&reader, libc::EPOLLIN, 1);
    let (told, is_told) = channel();
    std::thread::scope(|scope| {
        let comes = move || {
            let came = set.wait(-1);
            assert!(matches!(came[..], [(events, 1)] if events & libc::EPOLLIN != 0), "{came:?}");
        };
        scope.spawn(move || pass_on(reader, &told, comes));
        for _ in 0..2000 {
            server.command(b's', 100);
            let mut left = 100;
            while left > 0 {
                let got = is_told.recv().unwrap();
                server.check(&got);
                left -= got.len();
            }
        }
        server.stream.shutdown(Shutdown::Write).unwrap();
    });
    say("done");
}

/// Connections that are upgraded in turn, each once.
const CONNECTIONS: usize = 20;

/// Serves them.
pub fn serves_in_turn() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    say(listener.local_addr().unwrap().port());
    (0..CONNECTIONS).for_each(|_| crate::roles::serve(listener.accept().unwrap().0));
}

/// Another thread sleeps in a read while the connection is upgraded, and while this one looks if
/// there are bytes: none come where the other one does not see them.
pub fn sleepers() {
    let port = argument();
    for _ in 0..CONNECTIONS {
        let reader = dial(&port);
        let mut server = Server::new(reader.try_clone().unwrap());
        let (told, is_told) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || pass_on(reader, &told, || ()));
            for _ in 0..16 {
                server.command(b's', 100);
                sys::poll_in(&server.stream, 1);
                let mut left = 100;
                while left > 0 {
                    let got = is_told.recv_timeout(Duration::from_secs(10)).unwrap();
                    server.check(&got);
                    left -= got.len();
                }
            }
            server.stream.shutdown(Shutdown::Write).unwrap();
        });
    }
    say("done");
}

/// A thread waits for connections until the listener is shut down.
pub fn listener() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    std::thread::scope(|scope| {
        let accepts = scope.spawn(|| listener.accept().map(|_| ()));
        std::thread::yield_now();
        sys::shutdown(&listener);
        assert!(accepts.join().unwrap().is_err());
    });
    say("done");
}

/// Both ends of many connections are in one process, which makes them at once.
pub fn both() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| crate::roles::echo(listener.accept().unwrap().0));
            scope.spawn(|| {
                let mut stream = dial(&port);
                for i in 0..2000u64 {
                    let sent = bytes(i, 1 + (i % 900) as usize);
                    stream.write_all(&sent).unwrap();
                    let mut got = vec![0; sent.len()];
                    stream.read_exact(&mut got).unwrap();
                    assert!(got == sent);
                }
            });
        }
    });
    // One thread, for both.
    let mut one = dial(&port);
    let mut two = listener.accept().unwrap().0;
    for i in 0..2000u64 {
        let sent = bytes(i, 1 + (i % 20_000) as usize);
        for _ in 0..2 {
            one.write_all(&sent).unwrap();
            let mut got = vec![0; sent.len()];
            two.read_exact(&mut got).unwrap();
            assert!(got == sent);
            std::mem::swap(&mut one, &mut two);
        }
    }
    say("done");
}

/// A listener's children accept; each serves one connection.
pub fn prefork() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let children: Vec<i32> = (0..3)
        .map(|_| {
            sys::fork(|| {
                crate::roles::echo(listener.accept().unwrap().0);
                0
            })
        })
        .collect();
    say(listener.local_addr().unwrap().port());
    children.into_iter().for_each(|child| assert_eq!(sys::wait(child), 0));
}

/// Serves connections, one after the other, until one ends before it says anything.
pub fn serve_many() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    say(listener.local_addr().unwrap().port());
    loop {
        let (stream, _) = listener.accept().unwrap();
        if stream.peek(&mut [0; 1]).is_ok_and(|n| n == 0) {
            return;
        }
        crate::roles::serve(stream);
    }
}

/// Uses the same names again at once, after a reset.
pub fn reuse() {
    let port: u16 = argument().parse().unwrap();
    for _ in 0..20 {
        let stream = sys::dial_from_one_port(port);
        let mut server = Server::upgraded(stream);
        server.ringed(1000);
        // Unread bytes: it ends by a reset.
    }
    drop(dial(&argument()));
    say("done");
}

/// Many connections of one request each.
pub fn short() {
    for _ in 0..500 {
        Server::new(dial(&argument())).get(100);
    }
    drop(dial(&argument()));
    say("done");
}

/// A set that knows the socket before it is connected.
pub fn early() {
    let set = sys::Epoll::new();
    let (events, kind) = (libc::EPOLLIN | libc::EPOLLET, libc::SOCK_NONBLOCK);
    let stream = sys::dial_in_steps(argument().parse().unwrap(), kind, |fd| {
        set.control(libc::EPOLL_CTL_ADD, fd, events, 5);
    });
    sys::set_nonblocking(stream.as_raw_fd(), false);
    // A set that nobody waits for is taken for one that is waited for past the library.
    set.wait(0);
    let mut server = Server::upgraded(stream);
    for _ in 0..200 {
        server.ringed(10);
        assert_eq!(set.wait(-1), [(libc::EPOLLIN, 5)]);
        server.read(10);
        server.command(b's', 100);
        assert_eq!(set.wait(-1), [(libc::EPOLLIN, 5)]);
        server.read(100);
    }
    say("done");
}

/// Asks, by a socket with an option that is set before it is connected.
pub fn odd() {
    let stream = sys::dial_in_steps(argument().parse().unwrap(), 0, |fd| {
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1);
    });
    crate::roles::ask(stream);
}

/// Asks, with no descriptor left for a way to the agent.
pub fn poor() {
    sys::allow_descriptors(40);
    crate::roles::ask(dial(&argument()));
}
