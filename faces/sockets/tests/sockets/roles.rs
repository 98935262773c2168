//! The roles that processes of the tests play.

use crate::harness::{address, argument, byte, bytes, dial, is_by_tcp, say, Served};
use crate::sys;
use crate::torture;
use crate::{field, heirs};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Longest wait of a read; reached only by a fault.
const PATIENCE: Duration = Duration::from_secs(100);

/// Exchanges after which a connection to another host is known as one.
pub const JOINED: usize = 20;

/// Runs a role.
pub fn run(name: &str) {
    match name {
        "echo" => echo(accept()),
        "ask" => ask(dial(&argument())),
        "ask-time" => {
            let mut stream = dial(&argument());
            (0..4000).fold(0, |at, _| at + exchange(&mut stream, at, 100));
            say(sys::processor_ms());
        }
        "ask-bare" => {
            let port = argument();
            sys::clear_environment();
            ask(TcpStream::connect(format!("127.0.0.1:{port}")).unwrap());
        }
        "answer-at-end" => answer_at_end(),
        "end-early" => end_early(),
        "confined" => crate::confined::asks(),
        "unasked" => crate::confined::unasked(),
        "crowd-serve" => crate::crowd::serve(),
        "crowd-ask" => crate::crowd::ask(),
        "ask-on" => crate::networks::ask_on(),
        "serve" => serve(accept()),
        "orphans" => orphans(dial(&argument())),
        "after-exec" => field::after_exec(),
        "heir" => heirs::heir(),
        "serve-and-handle" => crate::execs::serve_and_handle(),
        "serve-and-block" => crate::execs::serve_and_block("serve"),
        "serve-and-hold" => crate::execs::serve_and_block("serve-held"),
        "serve-held" => crate::execs::serve_held(),
        "mark-by-tcp" => crate::marks::mark_by_tcp(),
        "deaf-by-tcp" => crate::marks::by_tcp("deaf"),
        "reset-read-by-tcp" => crate::marks::by_tcp("reset-read"),
        "reset-option-by-tcp" => crate::marks::by_tcp("reset-option"),
        "died-by-tcp" => heirs::died_by_tcp(),
        "waiters" => field::waiters(),
        "serve-in-turn" => field::serves_in_turn(),
        "sleepers" => field::sleepers(),
        "listener" => field::listener(),
        "both" => field::both(),
        "space" => crate::options::space(),
        "stays" => crate::options::stays(),
        "left-early" => crate::options::left_early(),
        "prefork" => field::prefork(),
        "serve-many" => field::serve_many(),
        "reuse" => field::reuse(),
        "short" => field::short(),
        "early" => field::early(),
        "switch" => field::switch(),
        "flow" => crate::hostile::flow(),
        "leaves" => crate::hostile::leaves(),
        "odd" => field::odd(),
        "poor" => field::poor(),
        "torture-accept" => torture::run(accept()),
        "torture-dial" => {
            let words = argument();
            let port = words.split_whitespace().next().unwrap();
            torture::run(dial(port));
        }
        other => match other.strip_prefix("try-") {
            Some(case) => attempt(case, dial(argument().split(' ').next().unwrap())),
            None => panic!("no role {other}"),
        },
    }
}

/// Listens, says the port, and accepts.
pub fn accept() -> TcpStream {
    let port = argument().parse().unwrap_or(0);
    let listener = TcpListener::bind((address(), port)).unwrap();
    say(listener.local_addr().unwrap().port());
    listener.accept().unwrap().0
}

/// Sends back what comes.
pub fn echo(mut stream: TcpStream) {
    let mut buf = vec![0; 1 << 16];
    loop {
        let n = stream.read(&mut buf).unwrap();
        if n == 0 {
            return;
        }
        stream.write_all(&buf[..n]).unwrap();
    }
}

/// Sends messages and reads the answers; says how many bytes came past TCP.
pub fn ask(mut stream: TcpStream) {
    let mut at = 0;
    for i in 0..400u64 {
        let len = 1 + (i * 7919 % 3000) as usize;
        at += exchange(&mut stream, at, len);
    }
    // More than the ring, in one piece.
    at += exchange(&mut stream, at, 200_000);
    // On a busy machine the ends are seldom awake together.
    for _ in 0..1000 {
        if at > sys::received(&stream) {
            break;
        }
        at += exchange(&mut stream, at, 100);
    }
    say(at - sys::received(&stream));
}

/// Connections of a role that ends its sending direction early, and the bytes that come after that.
const EARLY: (usize, usize) = (20, 300_000);

/// Echoes bytes, one at a time; after the last one it sends its own bytes in short pieces.
fn answer_at_end() {
    let listener = TcpListener::bind((address(), 0)).unwrap();
    say(listener.local_addr().unwrap().port());
    for _ in 0..EARLY.0 {
        let (mut stream, mut byte) = (listener.accept().unwrap().0, [0; 1]);
        while stream.read(&mut byte).unwrap() == 1 {
            stream.write_all(&byte).unwrap();
        }
        let all = bytes(0, EARLY.1);
        all.chunks(1000).for_each(|piece| stream.write_all(piece).unwrap());
    }
}

/// Ends its sending direction as soon as the agent has joined the ends, of which this end hears in
/// a later call.
fn end_early() {
    let words = argument();
    let (port, agent) = words.split_once(' ').unwrap();
    let agent = Served::of_other(agent);
    for _ in 0..EARLY.0 {
        let (mut stream, mut byte) = (dial(port), [0; 1]);
        let before = agent.counter("sockets_paired");
        while agent.counter("sockets_paired") == before {
            stream.write_all(&byte).unwrap();
            stream.read_exact(&mut byte).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
        let mut got = vec![0; 100];
        got.chunks_mut(1).for_each(|one| stream.read_exact(one).unwrap());
        // The peer writes to a ring that nobody reads meanwhile.
        let has_ended = || sys::poll_for(&stream, libc::POLLRDHUP, 0) & libc::POLLRDHUP != 0;
        while sys::queue(&stream, libc::FIONREAD) < 30_000 && !has_ended() {
            std::thread::yield_now();
        }
        stream.read_to_end(&mut got).unwrap();
        assert!(got == bytes(0, EARLY.1), "{} bytes", got.len());
    }
    say("done");
}

/// Sends bytes of the stream while it reads them back.
pub fn exchange(stream: &mut TcpStream, at: u64, len: usize) -> u64 {
    let sent = bytes(at, len);
    let mut other = stream.try_clone().unwrap();
    let copy = sent.clone();
    let sender =
        (len > 16_000).then(|| std::thread::spawn(move || other.write_all(&copy).unwrap()));
    if sender.is_none() {
        stream.write_all(&sent).unwrap();
    }
    let mut got = vec![0; len];
    stream.read_exact(&mut got).unwrap();
    assert!(got == sent, "bytes differ");
    if let Some(sender) = sender {
        sender.join().unwrap();
    }
    len as u64
}

/// Serves the commands of a client, each a letter and a number of 8 bytes:
/// `s` sends so many bytes of the stream, each write as a call of its own and after a pause if the
/// receiver may sleep; `r` reads so many and says if they were right; `f` ends its sending
/// direction; `l` does what `s` does, after a while; `d` does both at once by edges
/// (`field::both_ways`); `u` sends so many, an urgent byte and so many more; `w` does what `r`
/// does, and `o` what `s` does, by one call; `k` ends the process; `c` closes.
pub fn serve(mut stream: TcpStream) {
    // Longer than a look, so that the other end sleeps.
    const LATE_MS: i32 = 5;
    let (mut sent, mut read) = (0u64, 0u64);
    loop {
        let mut command = [0; 9];
        if stream.read_exact(&mut command).is_err() {
            return;
        }
        let n = u64::from_le_bytes(command[1..].try_into().unwrap());
        match command[0] {
            b's' | b'l' => {
                if command[0] == b'l' {
                    // Nothing comes meanwhile.
                    assert_eq!(sys::poll_in(&stream, LATE_MS), 0);
                }
                stream.write_all(&bytes(sent, n as usize)).unwrap();
                sent += n;
            }
            b'r' => {
                let mut buf = vec![0; n as usize];
                stream.read_exact(&mut buf).unwrap();
                let right = (read..).zip(&buf).all(|(at, b)| *b == byte(at));
                read += n;
                assert!(right, "wrong bytes");
                // A direction that was ended takes no answer.
                let _ = stream.write_all(b"y");
            }
            // The process computes, and calls nothing of a socket, until a file of the test is
            // there.
            b'b' => {
                while !std::path::Path::new(&argument()).exists() {
                    std::hint::spin_loop();
                }
            }
            b'f' => stream.shutdown(Shutdown::Write).unwrap(),
            b'u' => {
                stream.write_all(&bytes(sent, n as usize)).unwrap();
                sys::send(&stream, b"!", libc::MSG_OOB).unwrap();
                stream.write_all(&bytes(sent + n, n as usize)).unwrap();
                sent += 2 * n;
            }
            b'd' => field::both_ways(&mut stream, [&mut sent, &mut read], n),
            b'w' => {
                let mut buf = vec![0; n as usize];
                let got = sys::recv(&stream, &mut buf, libc::MSG_WAITALL).unwrap();
                assert_eq!(got as u64, n, "one receive of all");
                assert!((read..).zip(&buf).all(|(at, b)| *b == byte(at)), "wrong bytes");
                read += n;
                stream.write_all(b"y").unwrap();
            }
            b'o' => {
                let went = sys::send(&stream, &bytes(sent, n as usize), 0).unwrap();
                assert_eq!(went as u64, n, "one send of all");
                sent += n;
            }
            b'k' => std::process::abort(),
            b'c' => return,
            other => panic!("command {other}"),
        }
    }
}

/// The client's end of a server.
pub struct Server {
    pub stream: TcpStream,
    at: u64,
    /// Bytes that the server was asked to read.
    pub sent: u64,
}

impl Server {
    pub fn new(stream: TcpStream) -> Server {
        Server::at_place(stream, 0)
    }

    /// The server has sent bytes already.
    pub fn at_place(stream: TcpStream, at: u64) -> Server {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Server { stream, at, sent: 0 }
    }

    /// Both ends send and read so many bytes at once.
    pub fn both_ways(&mut self, n: u64) {
        self.command(b'd', n);
        field::both_ways(&mut self.stream, [&mut self.sent, &mut self.at], n);
    }

    pub fn at(&self) -> u64 {
        self.at
    }

    pub fn command(&mut self, letter: u8, n: u64) {
        let mut command = [letter; 9];
        command[1..].copy_from_slice(&n.to_le_bytes());
        self.stream.write_all(&command).unwrap();
    }

    /// Asks for bytes and reads them.
    pub fn get(&mut self, n: usize) {
        self.command(b's', n as u64);
        self.read(n);
    }

    /// Reads bytes that were asked for.
    pub fn read(&mut self, n: usize) {
        let mut buf = vec![0; n];
        self.stream.read_exact(&mut buf).unwrap();
        self.check(&buf);
    }

    /// Checks bytes that follow those read before.
    pub fn check(&mut self, got: &[u8]) {
        assert!(got == bytes(self.at, got.len()), "wrong bytes at {}", self.at);
        self.at += got.len() as u64;
    }

    /// Has the connection upgraded: bytes go both ways until some come past TCP, or for a while on
    /// one that leads to another host.
    pub fn upgraded(stream: TcpStream) -> Server {
        let mut server = Server::new(stream);
        if is_by_tcp() {
            (0..JOINED).for_each(|_| server.get(1000));
            return server;
        }
        let mut rounds = 0;
        while server.at == sys::received(&server.stream) {
            server.get(1000);
            rounds += 1;
            assert!(rounds < 1_000_000, "the connection is not upgraded");
        }
        server
    }

    /// Has `n` bytes lie in the ring, unread.
    pub fn ringed(&mut self, n: usize) {
        // The server writes them while this end is awake, between two of its calls.
        self.get(100);
        self.command(b's', n as u64);
        while sys::queue(&self.stream, libc::FIONREAD) < n as i32 {
            std::thread::yield_now();
        }
    }

    /// Sends bytes of the stream to the server, which was asked to read them.
    pub fn put(&mut self, n: usize) {
        self.stream.write_all(&bytes(self.sent, n)).unwrap();
        self.sent += n as u64;
    }

    /// The server has read what it was asked to.
    pub fn reads_yes(&mut self) {
        let mut answer = [0; 1];
        self.stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"y");
    }
}

/// Has children that end, or become other programs, before the connection is upgraded.
fn orphans(stream: TcpStream) {
    for _ in 0..100 {
        assert_eq!(sys::wait(sys::fork(|| 0)), 0);
    }
    let mut other = sys::spawn("sleep", "1000");
    let mut server = Server::upgraded(stream);
    // More while it is.
    for _ in 0..100 {
        assert_eq!(sys::wait(sys::fork(|| 0)), 0);
    }
    let _ = other.kill();
    let _ = other.wait();
    server.ringed(100);
    say("done");
}

/// Tries a behaviour.
fn attempt(case: &str, stream: TcpStream) {
    let mut server = Server::upgraded(stream);
    match case {
        "idle" => {
            say("joined");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        "looks" => looks(&mut server),
        "peek" => peek(&mut server),
        "all" => all(&mut server),
        "count" => count(&mut server),
        "half" => half(&mut server),
        "killed" => killed(&mut server),
        "wait" => wait(&mut server),
        "nested" => nested(&mut server),
        "edge" => edge(&mut server),
        "once" => once(&mut server),
        "fork" => fork(&mut server),
        "dup" => dup(&mut server),
        "fly" => fly(&mut server),
        "reset" => reset(&mut server),
        "closed" => closed(&mut server),
        "closeall" => close_all(&mut server),
        "mode" => mode(&mut server),
        "urgent" => urgent(&mut server),
        "interrupt" => interrupt(&mut server),
        "ended" => ended(&mut server),
        "anew" => anew(&mut server),
        "broken" => broken(&mut server),
        other => {
            let known = field::attempt(other, &mut server)
                || heirs::attempt(other, &mut server)
                || crate::execs::attempt(other, &mut server)
                || crate::children::attempt(other, &mut server)
                || crate::ends::attempt(other, &mut server)
                || crate::marks::attempt(other, &mut server)
                || crate::numbers::attempt(other, &mut server)
                || crate::faults::attempt(other, &mut server)
                || crate::options::attempt(other, &mut server)
                || crate::symbols::attempt(other, &mut server);
            assert!(known, "no case {other}");
        }
    }
    say("done");
}

/// Waits for bytes in each way. It pauses after some waits, and goes to the next way, or does the
/// same again for an `a`.
fn looks(server: &mut Server) {
    let set = sys::Epoll::new();
    set.add(&server.stream, libc::EPOLLIN, 1);
    let (mut ways, mut answer) = (["recv", "poll", "select", "epoll"].iter(), [0]);
    let mut next = ways.next();
    while let Some(way) = next.copied() {
        for _ in 0..100 {
            server.command(b's', 10);
            match way {
                "poll" => assert_eq!(sys::poll_in(&server.stream, -1), libc::POLLIN),
                "select" => assert!(sys::select_in(&server.stream)),
                "epoll" => assert_eq!(set.wait(-1), [(libc::EPOLLIN, 1)]),
                _ => {}
            }
            server.read(10);
        }
        say(way);
        std::io::stdin().read_exact(&mut answer).unwrap();
        if answer != *b"a" {
            next = ways.next();
        }
    }
}

fn peek(server: &mut Server) {
    for n in [1, 100, 5000] {
        server.ringed(n);
        for part in [1, n / 2 + 1, n] {
            let mut buf = vec![0; part];
            let got = sys::recv(&server.stream, &mut buf, libc::MSG_PEEK).unwrap();
            assert_eq!(got, part);
            assert!(buf == bytes(server.at, part));
        }
        let mut buf = vec![0; n];
        server.stream.read_exact(&mut buf).unwrap();
        server.check(&buf);
    }
    server.command(b'f', 0);
    let mut buf = [0; 10];
    for _ in 0..2 {
        assert_eq!(sys::recv(&server.stream, &mut buf, libc::MSG_PEEK).unwrap(), 0);
    }
    assert_eq!(server.stream.read(&mut buf).unwrap(), 0);
}

fn all(server: &mut Server) {
    for _ in 0..20 {
        for n in [10, 3000, 100_000] {
            server.command(b's', n / 2);
            server.command(b's', n - n / 2);
            let mut buf = vec![0; n as usize];
            let got = sys::recv(&server.stream, &mut buf, libc::MSG_WAITALL).unwrap();
            assert_eq!(got, n as usize);
            server.check(&buf);
        }
        let none = sys::recv(&server.stream, &mut [0; 10], libc::MSG_DONTWAIT).unwrap_err();
        assert_eq!(none.kind(), std::io::ErrorKind::WouldBlock);
        // In many small parts.
        server.command(b's', 5000);
        let mut parts = vec![[0u8; 50]; 100];
        let mut list: Vec<&mut [u8]> = parts.iter_mut().map(|p| &mut p[..]).collect();
        let got = sys::recvmsg(&server.stream, &mut list, libc::MSG_WAITALL).unwrap();
        assert_eq!(got, 5000);
        server.check(&parts.concat());
    }
}

fn count(server: &mut Server) {
    server.ringed(300);
    assert_eq!(sys::queue(&server.stream, libc::FIONREAD), 300);
    let mut buf = [0; 100];
    assert_eq!(server.stream.read(&mut buf).unwrap(), 100);
    server.check(&buf);
    assert_eq!(sys::queue(&server.stream, libc::FIONREAD), 200);
    let mut rest = [0; 200];
    // Thrown away in the kernel's way.
    assert_eq!(sys::recv(&server.stream, &mut rest[..150], libc::MSG_TRUNC).unwrap(), 150);
    server.at += 150;
    assert_eq!(server.stream.read(&mut rest).unwrap(), 50);
    server.check(&rest[..50]);
    // By a pipe.
    server.ringed(500);
    let (mut out, into) = sys::pipe();
    let mut piped = 0;
    while piped < 500 {
        piped += sys::splice(&server.stream, &into, 300).unwrap();
    }
    let mut buf = [0; 500];
    out.read_exact(&mut buf).unwrap();
    server.check(&buf);
}

/// Reads what waits in the ring when a command ends the server's direction.
fn reads_to_the_end(server: &mut Server, n: usize, command: u8) {
    server.ringed(n);
    server.command(command, 0);
    let mut buf = Vec::new();
    server.stream.read_to_end(&mut buf).unwrap();
    assert_eq!(buf.len(), n);
    server.check(&buf);
}

fn half(server: &mut Server) {
    reads_to_the_end(server, 5000, b'f');
    // The other direction goes on.
    server.command(b'r', 70_000);
    server.stream.write_all(&bytes(0, 70_000)).unwrap();
    server.stream.shutdown(Shutdown::Write).unwrap();
    assert!(server.stream.write(b"x").is_err());
}

fn killed(server: &mut Server) {
    reads_to_the_end(server, 9000, b'k');
}

fn wait(server: &mut Server) {
    let epoll = sys::Epoll::new();
    epoll.add(&server.stream, libc::EPOLLIN, 7);
    for round in 0..50 {
        for n in [1, 100, 40_000] {
            server.command(b's', n);
            let mut left = n as usize;
            while left > 0 {
                match round % 3 {
                    0 => assert_eq!(sys::poll_in(&server.stream, -1), libc::POLLIN),
                    1 => assert!(sys::select_in(&server.stream)),
                    _ => assert_eq!(epoll.wait(-1), [(libc::EPOLLIN, 7)]),
                }
                let mut buf = vec![0; left.min(1 + left / 2)];
                let got = server.stream.read(&mut buf).unwrap();
                server.check(&buf[..got]);
                left -= got;
            }
        }
        assert_eq!(sys::poll_in(&server.stream, 0), 0);
        assert_eq!(epoll.wait(0), []);
    }
    // Nothing is asked for: no event.
    server.ringed(10);
    assert_eq!(sys::poll_for(&server.stream, 0, 0), 0);
    assert_eq!(sys::poll_for(&server.stream, libc::POLLOUT, -1), libc::POLLOUT);
}

fn nested(server: &mut Server) {
    server.ringed(10);
    let (inner, outer) = (sys::Epoll::new(), sys::Epoll::new());
    inner.add(&server.stream, libc::EPOLLIN, 1);
    outer.add(&inner, libc::EPOLLIN, 2);
    for n in [10, 1, 100, 40_000] {
        if n != 10 {
            server.command(b's', n);
        }
        let mut left = n as usize;
        while left > 0 {
            assert_eq!(outer.wait(-1), [(libc::EPOLLIN, 2)]);
            assert_eq!(sys::poll_in(&outer, -1), libc::POLLIN);
            assert_eq!(inner.wait(-1), [(libc::EPOLLIN, 1)]);
            let mut buf = vec![0; left];
            let got = server.stream.read(&mut buf).unwrap();
            server.check(&buf[..got]);
            left -= got;
        }
    }
}

fn edge(server: &mut Server) {
    let events = libc::EPOLLIN | libc::EPOLLET;
    server.ringed(100);
    let epoll = sys::Epoll::new();
    epoll.add(&server.stream, events, 1);
    sys::set_nonblocking(server.stream.as_raw_fd(), true);
    // Bytes that were there before make an event, and one only.
    assert_eq!(epoll.wait(-1), [(libc::EPOLLIN, 1)]);
    assert_eq!(epoll.wait(0), []);
    for n in [1, 3000, 40_000] {
        // Bytes that arrive make another event, though the old ones were not read.
        server.command(b's', n);
        let mut left = n as usize + 100;
        while left > 0 {
            let told = epoll.wait(-1);
            assert_eq!(told, [(libc::EPOLLIN, 1)]);
            loop {
                let mut buf = vec![0; 1000];
                match server.stream.read(&mut buf) {
                    Ok(got) => {
                        server.check(&buf[..got]);
                        left -= got;
                    }
                    Err(e) => {
                        assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock);
                        break;
                    }
                }
            }
        }
        server.command(b's', 100);
        assert_eq!(epoll.wait(-1), [(libc::EPOLLIN, 1)]);
    }
    // Bytes in the ring that arrive behind bytes of TCP, of which the kernel has told, make one as
    // well.
    let mut left = 100;
    for _ in 0..100 {
        // This wait sleeps before its bytes come, which so take TCP.
        server.command(b'l', 100);
        assert_eq!(epoll.wait(30_000), [(libc::EPOLLIN, 1)]);
        server.command(b's', 100);
        assert_eq!(epoll.wait(30_000), [(libc::EPOLLIN, 1)]);
        left += 200;
        while left > 0 {
            let mut buf = [0; 1000];
            match server.stream.read(&mut buf) {
                Ok(got) => {
                    server.check(&buf[..got]);
                    left -= got;
                }
                // The rest is on its way, or makes another event.
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
    }
}

fn once(server: &mut Server) {
    let events = libc::EPOLLIN | libc::EPOLLONESHOT;
    server.ringed(100);
    let epoll = sys::Epoll::new();
    epoll.add(&server.stream, events, 1);
    for _ in 0..20 {
        assert_eq!(epoll.wait(-1), [(libc::EPOLLIN, 1)]);
        assert_eq!(epoll.wait(0), []);
        let mut buf = [0; 100];
        server.stream.read_exact(&mut buf).unwrap();
        server.check(&buf);
        server.command(b's', 100);
        assert_eq!(epoll.wait(0), []);
        epoll.control(libc::EPOLL_CTL_MOD, server.stream.as_raw_fd(), events, 1);
    }
}

fn fork(server: &mut Server) {
    for _ in 0..10 {
        server.ringed(200);
        // The child reads half of what is in the ring, and more that comes after.
        let at = server.at;
        let child = sys::fork(|| {
            let mut buf = [0; 100];
            let good = server.stream.read_exact(&mut buf).is_ok() && buf[..] == bytes(at, 100);
            server.at += 200;
            i32::from(!good)
        });
        assert_eq!(sys::wait(child), 0);
        server.at = at + 100;
        let mut buf = [0; 100];
        server.stream.read_exact(&mut buf).unwrap();
        server.check(&buf);
        // Both write, one after the other.
        server.command(b'r', 0);
        let child = sys::fork(|| i32::from(sys::write(server.stream.as_raw_fd(), &[]).is_err()));
        assert_eq!(sys::wait(child), 0);
        let mut answer = [0; 1];
        server.stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"y");
    }
}

fn dup(server: &mut Server) {
    server.ringed(1000);
    let copy = server.stream.try_clone().unwrap();
    let old = std::mem::replace(&mut server.stream, copy);
    // A copy goes, the connection stays.
    drop(old);
    let mut buf = [0; 1000];
    server.stream.read_exact(&mut buf).unwrap();
    server.check(&buf);
    server.get(50_000);
}

/// A descriptor that another thread reads is replaced by another connection.
fn fly(server: &mut Server) {
    let fd = server.stream.as_raw_fd();
    let blocked = std::thread::spawn(move || sys::read(fd, &mut [0; 10]).map(|n| n as u64));
    std::thread::yield_now();
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let keep = server.stream.try_clone().unwrap();
    sys::dup2(one.as_raw_fd(), fd);
    // The number is another file now.
    (&other).write_all(b"hello").unwrap();
    // The thread may have begun to read before or after the change.
    let number = std::mem::replace(&mut server.stream, keep);
    server.command(b's', 5);
    assert_eq!(blocked.join().unwrap().unwrap(), 5);
    drop(number);
}

fn reset(server: &mut Server) {
    // The peer closes with unread bytes of ours.
    server.command(b'c', 0);
    let mut total = 0;
    let error = loop {
        match server.stream.write(&[0; 4000]) {
            Ok(n) => total += n,
            Err(e) => break e.kind(),
        }
        assert!(total < 1 << 30);
    };
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    assert!(matches!(error, BrokenPipe | ConnectionReset), "{error}");
}

fn closed(server: &mut Server) {
    // The connection is closed while bytes are in the ring: the peer is told by a reset, which ends
    // its process without a panic, as it only reads.
    server.ringed(100);
}

/// A program that closes all descriptors, as daemons do: the library's own among them.
fn close_all(server: &mut Server) {
    for fd in 3..2000 {
        if fd != server.stream.as_raw_fd() {
            sys::close(fd);
        }
    }
    server.get(50_000);
}

fn mode(server: &mut Server) {
    sys::set_nonblocking(server.stream.as_raw_fd(), true);
    let early = server.stream.read(&mut [0; 10]).unwrap_err();
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
    // A peer that does not read: the ring and TCP fill up, and that is no error of theirs.
    server.stream.set_nonblocking(true).unwrap();
    server.command(b'r', 30_000_000);
    let mut sent = 0u64;
    while sent < 30_000_000 {
        let len = (30_000_000 - sent).min(100_000) as usize;
        match server.stream.write(&bytes(sent, len)) {
            Ok(n) => sent += n as u64,
            Err(e) => {
                assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock);
                std::thread::yield_now();
            }
        }
    }
    sys::set_nonblocking(server.stream.as_raw_fd(), false);
    let mut answer = [0; 1];
    server.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"y");
    server.get(10);
}

fn urgent(server: &mut Server) {
    server.command(b'r', 100);
    assert_eq!(sys::send(&server.stream, &bytes(0, 50), 0).unwrap(), 50);
    assert_eq!(sys::send(&server.stream, b"!", libc::MSG_OOB).unwrap(), 1);
    assert_eq!(sys::send(&server.stream, &bytes(50, 50), 0).unwrap(), 50);
    let mut answer = [0; 1];
    server.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"y");
    server.get(1000);
}

/// A wait ends with a timeout, and with a signal.
fn interrupt(server: &mut Server) {
    server.stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let late = server.stream.read(&mut [0; 10]).unwrap_err();
    assert_eq!(late.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(sys::poll_in(&server.stream, 20), 0);
    let epoll = sys::Epoll::new();
    epoll.add(&server.stream, libc::EPOLLIN, 1);
    assert_eq!(epoll.wait(20), []);
    server.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    server.get(100);
}

/// The agent ends.
fn ended(server: &mut Server) {
    say("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    server.get(100_000);
    server.ringed(100);
}

/// A client that registers the connection anew for each step of a request. Bytes come past TCP all
/// the same.
fn anew(server: &mut Server) {
    let fd = server.stream.as_raw_fd();
    sys::set_nonblocking(fd, true);
    let set = sys::Epoll::new();
    let (from, mut rounds) = (server.at - sys::received(&server.stream), 0);
    while server.at - sys::received(&server.stream) < from + 1000 {
        set.add(&server.stream, libc::EPOLLOUT, 1);
        assert_eq!(set.wait(-1), [(libc::EPOLLOUT, 1)]);
        set.remove(fd);
        set.add(&server.stream, libc::EPOLLIN, 2);
        server.command(b's', 10);
        let mut left = 10;
        while left > 0 {
            // The answer comes before the wait, so that nothing depends on a look of this end.
            while sys::queue(&server.stream, libc::FIONREAD) < left {
                std::thread::yield_now();
            }
            assert_eq!(set.wait(-1), [(libc::EPOLLIN, 2)]);
            let mut buf = [0; 10];
            let got = server.stream.read(&mut buf[..left as usize]).unwrap();
            server.check(&buf[..got]);
            left -= got as i32;
        }
        set.remove(fd);
        rounds += 1;
        assert!(rounds < 100_000, "all bytes come by TCP");
    }
}

/// A reset is told, by an error, to a reader that does not wait.
fn broken(server: &mut Server) {
    server.ringed(100);
    sys::set_nonblocking(server.stream.as_raw_fd(), true);
    // The peer closes with bytes of this end unread.
    let mut command = [b'c'; 109];
    command[1..9].copy_from_slice(&0u64.to_le_bytes());
    server.stream.write_all(&command).unwrap();
    let mut all = 0;
    loop {
        let mut buf = [0; 30];
        match server.stream.read(&mut buf) {
            Ok(0) => panic!("the end instead of a reset"),
            Ok(n) => {
                server.check(&buf[..n]);
                all += n;
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                sys::poll_in(&server.stream, -1);
            }
            Err(e) => break assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    assert_eq!(all, 100);
}
