//! Random calls, sizes, flags, forks and kills on both ends of a connection, against a model.
//!
//! Each end sends the bytes of one known stream and checks that it receives those of the other, in
//! order. A thread sends, another receives; both choose each call from the seed. A child may take
//! over for some calls. `WEFT_SEEDS=A..B` runs other seeds.

use crate::harness::{argument, byte, bytes, is_by_tcp, say, start, Served};
use crate::roles::JOINED;
use crate::sys;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    /// A length, short ones as likely as long ones.
    pub fn len(&mut self) -> usize {
        let most = 1 << (1 + self.next(17));
        1 + self.next(most) as usize
    }
}

/// Bytes that each end sends.
const TOTAL: u64 = 3_000_000;

/// Has the connection upgraded before the torture. Without it that happens in the middle, or too
/// late.
fn warm_up(stream: &TcpStream, is_first: bool) {
    let (mut all, mut byte) = (0, [0u8; 1]);
    loop {
        if is_first {
            let upgraded = all > sys::received(stream) || is_by_tcp() && all > JOINED as u64;
            sys::send(stream, if upgraded { b"g" } else { b"p" }, 0).unwrap();
            if upgraded {
                return;
            }
        }
        assert_eq!(sys::recv(stream, &mut byte, 0).unwrap(), 1);
        all += 1;
        if !is_first {
            match byte[0] {
                b'g' => return,
                _ => assert_eq!(sys::send(stream, b"p", 0).unwrap(), 1),
            }
        }
    }
}

/// Runs one end. The argument: the port, or 0 where it accepts, the seed, and the bytes after which
/// the process ends itself by a kill, or 0.
pub fn run(stream: TcpStream) {
    let words = argument();
    let mut numbers = words.split_whitespace().map(|w| w.parse::<u64>().unwrap());
    let mut number = || numbers.next().unwrap();
    let (port, seed, kill) = (number(), number(), number());
    if seed.is_multiple_of(2) {
        warm_up(&stream, port > 0);
    }
    sys::set_nonblocking(stream.as_raw_fd(), seed % 4 > 1);
    let sent = AtomicU64::new(0);
    let received = std::thread::scope(|scope| {
        scope.spawn(|| send(&stream, &mut Random(seed), kill, &sent));
        receive(&stream, &mut Random(!seed))
    });
    say(format!("{} {received}", sent.load(Ordering::Relaxed)));
}

fn send(stream: &TcpStream, random: &mut Random, kill: u64, done: &AtomicU64) {
    let mut sent = 0;
    let file = std::env::temp_dir().join(format!("weft-torture-{}", std::process::id()));
    std::fs::write(&file, bytes(0, 70_000)).unwrap();
    let of_file = std::fs::File::open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    while sent < TOTAL {
        if kill > 0 && sent >= kill {
            std::process::abort();
        }
        let len = random.len().min((TOTAL - sent) as usize);
        let what = bytes(sent, len);
        let n = match random.next(12) {
            0..=3 => sys::send(stream, &what, libc::MSG_NOSIGNAL),
            4 => sys::write(stream.as_raw_fd(), &what),
            5 => sys::send(stream, &what, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT),
            6 => sys::send(stream, &what, libc::MSG_NOSIGNAL | libc::MSG_MORE),
            7 | 8 => {
                let at = random.next(len as u64 + 1) as usize;
                let third = random.next((len - at) as u64 + 1) as usize;
                let (one, rest) = what.split_at(at);
                let (two, three) = rest.split_at(third);
                sys::sendmsg(stream, &[one, &[], two, three], libc::MSG_NOSIGNAL)
            }
            // The stream repeats after 2^24 bytes; the file has its first ones.
            9 if sent + (len as u64) <= 70_000 && sent == 0 => sys::sendfile(stream, &of_file, len),
            10 if random.next(8) == 0 => {
                // A child sends, and its exit tells if all went.
                let child = sys::fork(|| {
                    let mut left = &what[..];
                    while !left.is_empty() {
                        match sys::send(stream, left, libc::MSG_NOSIGNAL) {
                            Ok(n) => left = &left[n..],
                            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                            Err(_) => return 1,
                        }
                    }
                    0
                });
                match sys::wait(child) {
                    0 => Ok(len),
                    _ => return,
                }
            }
            _ => {
                for _ in 0..random.next(20) {
                    std::thread::yield_now();
                }
                Ok(0)
            }
        };
        match n {
            Ok(n) => sent += n as u64,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
            // The peer has ended.
            Err(_) => return,
        }
        done.store(sent, Ordering::Relaxed);
    }
    let _ = stream.shutdown(Shutdown::Write);
}

/// A set that has the connection now and then.
struct Set {
    epoll: sys::Epoll,
    has_it: bool,
}

impl Set {
    /// Waits for bytes by a registration that was there, is changed or made anew.
    fn wait(&mut self, stream: &TcpStream, random: &mut Random) {
        let fd = stream.as_raw_fd();
        if self.has_it && random.next(3) == 0 {
            self.epoll.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLOUT, 2);
            if random.next(2) == 0 {
                std::thread::yield_now();
            }
            self.epoll.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN, 3);
        }
        if !std::mem::replace(&mut self.has_it, true) {
            self.epoll.add(stream, libc::EPOLLIN, 1);
        }
        assert_eq!(self.epoll.wait(-1).len(), 1);
        if random.next(3) == 0 {
            self.epoll.remove(fd);
            self.has_it = false;
        }
    }
}

/// One call that receives.
fn take(
    stream: &TcpStream,
    random: &mut Random,
    set: &mut Set,
    buf: &mut [u8],
) -> std::io::Result<usize> {
    let fd: RawFd = stream.as_raw_fd();
    let len = buf.len();
    match random.next(12) {
        0..=2 => sys::recv(stream, buf, 0),
        3 => sys::read(fd, buf),
        4 => sys::recv(stream, buf, libc::MSG_WAITALL),
        5 => sys::recv(stream, buf, libc::MSG_DONTWAIT),
        6 => {
            sys::poll_in(stream, -1);
            sys::recv(stream, buf, libc::MSG_DONTWAIT)
        }
        7 => {
            let epoll = sys::Epoll::new();
            let edge = if random.next(2) == 0 { libc::EPOLLET } else { 0 };
            epoll.add(stream, libc::EPOLLIN | edge, 1);
            assert_eq!(epoll.wait(-1).len(), 1);
            sys::recv(stream, buf, libc::MSG_DONTWAIT)
        }
        8 => {
            let (one, rest) = buf.split_at_mut(random.next(len as u64 + 1) as usize);
            sys::recvmsg(stream, &mut [one, &mut [], rest], 0)
        }
        9 | 10 => {
            set.wait(stream, random);
            sys::recv(stream, buf, libc::MSG_DONTWAIT)
        }
        _ => {
            assert!(sys::select_in(stream));
            let mut peeked = vec![0; len];
            let n = sys::recv(stream, &mut peeked, libc::MSG_PEEK)?;
            let got = sys::recv(stream, &mut buf[..n.max(1)], 0)?;
            assert!(peeked[..n.min(got)] == buf[..n.min(got)], "peeked other bytes");
            assert!(got >= n.min(1), "peeked bytes that did not come");
            Ok(got)
        }
    }
}

/// Asks how many bytes there are, and receives at least these in one call, in any kind of it.
fn take_all(stream: &TcpStream, random: &mut Random, buf: &mut Vec<u8>) -> std::io::Result<usize> {
    let unread = usize::try_from(sys::queue(stream, libc::FIONREAD)).unwrap();
    buf.resize(unread + 1 + random.next(100) as usize, 0);
    let flags = [0, libc::MSG_DONTWAIT, libc::MSG_PEEK][random.next(3) as usize];
    let flags = if unread > 0 { flags } else { libc::MSG_DONTWAIT };
    let got = sys::recv(stream, buf, flags)?;
    assert!(got >= unread, "{got} of {unread} bytes in one call, flags {flags}");
    if flags & libc::MSG_PEEK == 0 {
        return Ok(got);
    }
    let peeked = std::mem::replace(buf, vec![0; got]);
    let again = sys::recv(stream, buf, 0)?;
    assert_eq!((again, &buf[..again]), (got, &peeked[..again]), "peeked other bytes");
    Ok(again)
}

fn receive(stream: &TcpStream, random: &mut Random) -> u64 {
    let mut read = 0;
    let mut set = Set { epoll: sys::Epoll::new(), has_it: false };
    loop {
        let mut buf = vec![0; random.len()];
        let taken = match random.next(20) {
            0 => take_all(stream, random, &mut buf),
            _ => take(stream, random, &mut set, &mut buf),
        };
        match taken {
            Ok(0) => return read,
            Ok(n) => {
                let wrong = (read..).zip(&buf[..n]).find(|(at, b)| **b != byte(*at));
                assert!(wrong.is_none(), "wrong byte at {}", wrong.unwrap().0);
                read += n as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
            // The peer was killed with bytes of ours unread.
            Err(_) => return read,
        }
    }
}

/// The settings of a seed.
fn settings(seed: u64) -> [(&'static str, &'static str); 1] {
    [("WEFT_SOCKETS_SPIN_US", if seed.is_multiple_of(3) { "0" } else { "20" })]
}

/// The bytes that an end has sent and received.
fn moved(line: &str) -> (u64, u64) {
    let (sent, received) = line.split_once(' ').unwrap();
    (sent.parse().unwrap(), received.parse().unwrap())
}

/// Runs the end that accepts; `says` is told its port. The other end is killed after so many bytes,
/// unless after none.
pub fn accept(
    agent: Option<&str>,
    seed: u64,
    kill: u64,
    settings: &[(&str, &str)],
    says: impl FnOnce(String),
) {
    let mut end = start("torture-accept", &format!("0 {seed} 0"), agent, settings);
    says(end.says());
    let of_end = moved(&end.says());
    match kill {
        0 => assert_eq!(of_end, (TOTAL, TOTAL)),
        _ => assert!(of_end.1 <= TOTAL, "{of_end:?}"),
    }
    end.ends_well();
}

/// Runs the end that connects to this port, and is killed after so many bytes, unless after none.
pub fn dial(agent: Option<&str>, port: &str, seed: u64, kill: u64, settings: &[(&str, &str)]) {
    let words = format!("{port} {} {kill}", seed ^ 0x5550);
    let mut end = start("torture-dial", &words, agent, settings);
    if kill > 0 {
        assert!(!end.end().success());
        return;
    }
    assert_eq!(moved(&end.says()), (TOTAL, TOTAL));
    end.ends_well();
}

/// Runs both ends of a seed, whose agent has this name.
fn both(agent: &str, seed: u64, kill: u64) {
    let (says, said) = channel::<String>();
    let settings = settings(seed);
    std::thread::scope(|scope| {
        scope.spawn(|| accept(Some(agent), seed, kill, &settings, |port| says.send(port).unwrap()));
        dial(Some(agent), &said.recv().unwrap(), seed, kill, &settings);
    });
}

pub fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("WEFT_SEEDS").unwrap_or("0..6".into());
    let (from, to) = text.split_once("..").expect("WEFT_SEEDS=A..B");
    from.parse().unwrap()..to.parse().unwrap()
}

#[test]
fn torture__random_calls_move_every_byte_once_and_in_order() {
    let agent = Served::start();
    for seed in seeds() {
        eprintln!("seed {seed}: WEFT_SEEDS={seed}..{} repeats it", seed + 1);
        both(&agent.name, seed, 0);
    }
    assert!(agent.counter("sockets_paired") > 0);
}

#[test]
fn torture__an_end_that_is_killed_leaves_what_it_sent() {
    let agent = Served::start();
    for seed in seeds() {
        eprintln!("seed {seed}: WEFT_SEEDS={seed}..{} repeats it", seed + 1);
        let kill = 1 + Random(seed).next(TOTAL / 2);
        both(&agent.name, seed, kill);
    }
}
