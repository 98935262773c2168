//! Questions to the kernel about a TCP socket.

use crate::sys::calls::{self, is_nonblocking, poll_one};
use crate::sys::real;
use crate::sys::socket::{self, names, option, queue, Queue};
use crate::why::Why;
use libc::c_int;
use weft_streams::count::Count;

/// Offsets in the kernel's `tcp_info`.
const ACKED: usize = 120;
const RECEIVED: usize = 128;
/// State of a connected socket there.
const ESTABLISHED: u8 = 1;

/// True if it is a TCP socket.
pub fn is_tcp(fd: c_int) -> bool {
    let protocol = option::<4>(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL);
    protocol.is_some_and(|(value, _)| c_int::from_ne_bytes(value) == libc::IPPROTO_TCP)
}

/// True if it is a TCP socket that may still be connected.
pub fn is_unconnected(fd: c_int) -> bool {
    let listens = option::<4>(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN);
    is_tcp(fd) && listens.is_some_and(|(value, _)| value == [0; 4]) && names(fd).is_none()
}

/// True if a read or a write of the kernel would fail or has to be its own: the peer has ended, or
/// there is an error.
pub fn has_ended(fd: c_int) -> bool {
    poll_one(fd, libc::POLLRDHUP, 0) != 0
}

/// True if a descriptor can be read, or has an error to tell.
pub fn has_input(fd: c_int) -> bool {
    poll_one(fd, libc::POLLIN, 0) != 0
}

/// True if urgent data waits.
pub fn has_urgent(fd: c_int) -> bool {
    poll_one(fd, libc::POLLPRI, 0) & libc::POLLPRI != 0
}

/// True if a pipe takes `PIPE_BUF` bytes now, or has an error to tell.
pub fn has_space(pipe: c_int) -> bool {
    poll_one(pipe, libc::POLLOUT, 0) != 0
}

/// Waits until a pipe takes bytes. False if it is in non-blocking mode, or a signal came.
pub fn drains(pipe: c_int) -> bool {
    if is_nonblocking(pipe) {
        return real::fail(libc::EAGAIN) == 0;
    }
    poll_one(pipe, libc::POLLOUT, -1) != 0
}

/// Returns the bytes that can be read, or 0 if a read would wait. `None`: it has ended, or has an
/// error to tell.
pub fn look(fd: c_int) -> Option<u64> {
    match poll_one(fd, libc::POLLIN | libc::POLLRDHUP, 0) {
        0 => Some(0),
        libc::POLLIN => unread(fd).filter(|&bytes| bytes > 0),
        _ => None,
    }
}

/// Returns the bytes that can be read.
pub fn unread(fd: c_int) -> Option<u64> {
    queue(fd, Queue::Unread)
}

/// True if the next byte that TCP has is an urgent one.
pub fn is_at_mark(fd: c_int) -> bool {
    queue(fd, Queue::Mark).is_some_and(|mark| mark != 0)
}

/// Checks of a connection that other threads use, before it is left as it is.
const CHECKS: usize = 8;

/// True if the kernel has counted the bytes that this library has, and the connection stands. In a
/// direction where a call is under way the kernel may have counted more.
pub fn has_moved(fd: c_int, read: &Count, sent: &Count) -> bool {
    (0..CHECKS).any(|_| moved(fd, read, sent).unwrap_or(false))
}

fn moved(fd: c_int, read: &Count, sent: &Count) -> Option<bool> {
    let busy = |count: &Count| count.calls() > 0;
    let (reads, sends) = (busy(read), busy(sent));
    let (read, sent) = (read.bytes(), sent.bytes());
    let (info, len) = option::<256>(fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    let number = |at: usize| info[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
    if len < RECEIVED + 8 || info[0] != ESTABLISHED {
        return None;
    }
    let taken = number(RECEIVED).checked_sub(unread(fd)?)?;
    let given = number(ACKED) + queue(fd, Queue::Unsent)?;
    // The start of a connection counts as a byte where it was asked for.
    let more = given.checked_sub(sent)?;
    Some((taken == read || reads && taken > read) && (more <= 1 || sends))
}

/// Returns the number of bytes that were read from a connection by nobody who counts, while no
/// call is under way, nothing waits to be read, and no urgent byte is near: that is not counted.
pub fn taken_past(fd: c_int, read: &Count) -> Option<u64> {
    let (counted, calls) = (read.bytes(), read.calls());
    if poll_one(fd, libc::POLLIN | libc::POLLPRI, 0) != 0 {
        return None;
    }
    let (info, len) = option::<256>(fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    let received = info.get(RECEIVED..RECEIVED + 8).filter(|_| len >= RECEIVED + 8)?;
    let received = received.try_into().map_or(0, u64::from_ne_bytes);
    let past = received.checked_sub(counted)?;
    (past > 0 && calls == 0 && read.bytes() == counted).then_some(past)
}

/// True if an option of TCP that is a number is not 0.
pub fn is_set(fd: c_int, name: c_int) -> bool {
    option::<4>(fd, libc::IPPROTO_TCP, name).is_some_and(|(value, _)| value != [0; 4])
}

/// Options of a socket by which the kernel's bytes come otherwise than a ring's.
const OF_SOCKET: [c_int; 9] = [
    libc::SO_OOBINLINE,
    libc::SO_TIMESTAMP,
    libc::SO_TIMESTAMPNS,
    libc::SO_TIMESTAMPING,
    // The three of them with times of 64 bits.
    63,
    64,
    65,
    libc::SO_RCVLOWAT,
    libc::SO_PEEK_OFF,
];

/// Such options of TCP. A repaired socket and one with a protocol above TCP are not read as a
/// stream.
const OF_TCP: [c_int; 2] = [libc::TCP_ULP, libc::TCP_REPAIR];

/// Returns the reason why a connection with this option is not to be upgraded, if there is one.
pub fn odd(level: c_int, name: c_int) -> Option<Why> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => Some(Why::Least),
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => Some(Why::Peek),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => Some(Why::Urgent),
        (libc::SOL_SOCKET, name) if OF_SOCKET.contains(&name) => Some(Why::Times),
        (libc::IPPROTO_TCP, name) if OF_TCP.contains(&name) => Some(Why::Above),
        _ => None,
    }
}

/// Returns the reason why a socket is not to be upgraded, if it has an option that keeps it from
/// that: one may have been set before the connection was made, or was inherited from the listener.
pub fn oddity(fd: c_int) -> Option<Why> {
    let usual = |name: c_int| match name {
        libc::SO_RCVLOWAT => 1,
        libc::SO_PEEK_OFF => -1,
        _ => 0,
    };
    let is_odd = |name: &c_int| {
        let value = option::<4>(fd, libc::SOL_SOCKET, *name);
        value.is_some_and(|(value, _)| c_int::from_ne_bytes(value) != usual(*name))
    };
    if let Some(name) = OF_SOCKET.into_iter().find(is_odd) {
        return odd(libc::SOL_SOCKET, name);
    }
    let above = option::<16>(fd, libc::IPPROTO_TCP, libc::TCP_ULP).is_some_and(|(_, len)| len > 0);
    let signals = (calls::flags(fd) & libc::O_ASYNC != 0).then_some(Why::Signals);
    above.then_some(Why::Above).or(signals)
}

/// Bytes that wait to be sent by TCP while memory is shared.
const WAITING: c_int = 128 << 10;

fn set(fd: c_int, name: c_int, value: c_int) {
    socket::set_option(fd, libc::IPPROTO_TCP, name, &[value]);
}

/// Has small packets sent at once. Else the kernel would wait for acknowledgements of earlier ones,
/// which come late: answers that went by the ring carry none.
pub fn do_not_delay(fd: c_int) {
    set(fd, libc::TCP_NODELAY, 1);
}

/// Lets few bytes wait for the peer: it has to take them all before it takes one of the ring.
pub fn keep_few(fd: c_int) {
    set(fd, libc::TCP_NOTSENT_LOWAT, WAITING);
}

/// The program has given the socket more space for bytes that wait. They fill it all, so that a
/// send that waits for space goes on.
pub fn keep_more(fd: c_int) {
    let space = option::<4>(fd, libc::SOL_SOCKET, libc::SO_SNDBUF);
    let space = space.map_or(0, |(value, _)| c_int::from_ne_bytes(value));
    set(fd, libc::TCP_NOTSENT_LOWAT, space.max(WAITING));
}
