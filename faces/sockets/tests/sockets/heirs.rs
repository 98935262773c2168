//! Connections that are handed over while bytes wait in their rings: to programs without the
//! library, and past it.
//!
//! The peer computes meanwhile, and calls nothing, so that nobody but its signal handler can help.

use crate::harness::{argument, say, start, Served};
use crate::roles::Server;
use crate::sys;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Runs a case on a connection that shares memory. False if there is none of this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case {
        "heir-exec" => by_exec(server),
        "heir-child" => by_child(server),
        "heir-passed" => by_passing(server),
        "heir-stream" => by_stream(server),
        "heir-leak" => by_leak(server),
        "died" => died(server),
        _ => return false,
    }
    true
}

/// The file by which the test's server ends its computing, and the bytes that wait.
pub fn words() -> (String, usize) {
    let all = argument();
    let mut words = all.split(' ').skip(1);
    (words.next().unwrap().to_string(), words.next().unwrap().parse().unwrap())
}

/// Has bytes wait in both rings, while the server computes.
pub fn both_wait(server: &mut Server) -> usize {
    let (_, n) = words();
    if n < 1 << 20 {
        server.ringed(n);
    } else {
        // The server waits for space, in a call.
        server.get(100);
        server.command(b's', n as u64);
        while sys::queue(&server.stream, libc::FIONREAD) < 50_000 {
            std::thread::yield_now();
        }
    }
    server.command(b'b', 0);
    server.command(b'r', 5000);
    server.put(5000);
    n
}

/// A program without the library, which reads what waits and goes on.
pub fn heir_of(server: &Server, n: usize, fd: i32) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(std::env::args_os().skip(1)).env_remove("LD_PRELOAD");
    command.env(crate::harness::ROLE, "heir");
    let words = format!("{fd} {} {n} {} {}", server.at(), server.sent, self::words().0);
    command.env(crate::harness::ARGUMENT, words);
    command
}

/// The program that has the connection now, or a descriptor that brings it.
pub fn heir() {
    let all = argument();
    let words: Vec<&str> = all.split(' ').collect();
    let stream = match words[0].parse().unwrap() {
        0 => sys::take(&sys::unix_of(0)),
        fd => sys::stream_of(fd),
    };
    let mut server = Server::at_place(stream, words[1].parse().unwrap());
    server.sent = words[3].parse().unwrap();
    goes_on(&mut server, words[2].parse().unwrap(), words[4]);
    say("done");
}

/// Reads what waits, and uses the connection in both directions.
pub fn goes_on(server: &mut Server, n: usize, file: &str) {
    server.read(n);
    std::fs::write(file, "").unwrap();
    server.reads_yes();
    for _ in 0..20 {
        server.get(1000);
        server.command(b'r', 3000);
        server.put(3000);
        server.reads_yes();
    }
}

fn by_exec(server: &mut Server) {
    let n = both_wait(server);
    let fd = server.stream.as_raw_fd();
    sys::keep_at_exec(fd);
    panic!("{}", heir_of(server, n, fd).exec());
}

/// Runs a child until it says that it is done.
fn ends_done(mut command: Command) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.map(Result::unwrap).filter(|line| line.contains("done")).count();
    assert_eq!(said, 1);
    assert!(child.wait().unwrap().success());
}

/// A child becomes the other program; this process leaves the connection alone.
fn by_child(server: &mut Server) {
    let n = both_wait(server);
    let fd = server.stream.as_raw_fd();
    sys::keep_at_exec(fd);
    ends_done(heir_of(server, n, fd));
}

fn by_passing(server: &mut Server) {
    let n = both_wait(server);
    let (one, other) = UnixStream::pair().unwrap();
    let mut command = heir_of(server, n, 0);
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(other)));
    sys::pass(&one, server.stream.as_raw_fd());
    ends_done(command);
}

/// A stream of the C library in this process.
fn by_stream(server: &mut Server) {
    let n = both_wait(server);
    let (file, _) = words();
    let copy = server.stream.try_clone().unwrap();
    server.check(&sys::fread_and_close(copy, n));
    goes_on(server, 0, &file);
}

/// A child has the descriptor and does not know it: this process goes on.
fn by_leak(server: &mut Server) {
    let n = both_wait(server);
    let (file, _) = words();
    sys::keep_at_exec(server.stream.as_raw_fd());
    for _ in 0..3 {
        assert!(Command::new("true").status().unwrap().success());
    }
    goes_on(server, n, &file);
}

/// The peer is killed before it has read all.
fn died(server: &mut Server) {
    let (_, n) = words();
    server.command(b'b', 0);
    server.command(b's', 10);
    // Some more than the server reads ahead.
    server.put(n);
    say("kill");
    let mut buf = [0; 10];
    let error = server.stream.read(&mut buf).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET), "{error}");
    assert_eq!(server.stream.read(&mut buf).unwrap(), 0);
}

/// A file that is not there yet.
pub fn file() -> PathBuf {
    std::env::temp_dir().join(format!("weft-sockets-{:016x}", weft_link::random_u64()))
}

fn case(name: &str, n: usize) {
    let agent = Served::start();
    let file = file();
    let file = file.to_str().unwrap();
    let mut server = agent.with("serve", file);
    let port = server.says();
    let client = agent.with(&format!("try-{name}"), &format!("{port} {file} {n}"));
    client.ends_done();
    server.ends_well();
    assert_eq!(agent.counter("sockets_paired"), 1);
    assert!(agent.counter("sockets_given_back") > 0);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn heir__a_program_after_exec_reads_what_waits_in_the_ring() {
    [1, 9000, 60_000, 8_000_000].into_iter().for_each(|n| case("heir-exec", n));
}

#[test]
fn heir__a_child_reads_what_waits_in_the_ring() {
    [60_000, 8_000_000].into_iter().for_each(|n| case("heir-child", n));
}

#[test]
fn heir__a_process_that_is_passed_the_connection_reads_what_waits() {
    [9000, 60_000].into_iter().for_each(|n| case("heir-passed", n));
}

#[test]
fn heir__a_stream_of_the_c_library_reads_what_waits() {
    [9000, 60_000].into_iter().for_each(|n| case("heir-stream", n));
}

#[test]
fn heir__a_program_that_leaves_the_connection_alone_takes_nothing() {
    [9000, 60_000].into_iter().for_each(|n| case("heir-leak", n));
}

#[test]
fn kill__a_peer_that_has_not_read_all_resets() {
    for with in [true, false] {
        let agent = Served::start();
        let (file, name) = (file(), with.then_some(agent.name.as_str()));
        let file = file.to_str().unwrap();
        let mut server = start("serve", file, name, &[]);
        let port = server.says();
        let role = if with { "try-died" } else { "died-by-tcp" };
        let mut client = start(role, &format!("{port} {file} 1000"), name, &[]);
        assert_eq!(client.says(), "kill");
        sys::kill(server.child.id() as i32);
        client.ends_done();
    }
}

/// Sends to a server that is killed before it has read all, without the library.
pub fn died_by_tcp() {
    let all = argument();
    let mut server = Server::new(crate::harness::dial(all.split(' ').next().unwrap()));
    died(&mut server);
    say("done");
}
