//! Questions to the kernel about a TCP socket.

use super::real;
use libc::{c_int, c_void, socklen_t};
use std::mem::{size_of, zeroed};
use weft_streams::message::Place;
use weft_streams::sender::Count;

/// Offsets in the kernel's `tcp_info`.
const ACKED: usize = 120;
const RECEIVED: usize = 128;
/// State of a connected socket there.
const ESTABLISHED: u8 = 1;

fn option<const N: usize>(fd: c_int, level: c_int, name: c_int) -> Option<([u8; N], usize)> {
    let (mut value, mut len) = ([0; N], N as socklen_t);
    // SAFETY: `value` is writable for `len` bytes.
    let got = unsafe { real::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut len) };
    (got == 0).then_some((value, len as usize))
}

/// True if it is a TCP socket.
pub fn is_tcp(fd: c_int) -> bool {
    let protocol = option::<4>(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL);
    protocol.is_some_and(|(value, _)| c_int::from_ne_bytes(value) == libc::IPPROTO_TCP)
}

/// True if the descriptor is in non-blocking mode.
pub fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: no memory is passed.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFL, 0) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// True if a read or a write of the kernel would fail or has to be its own: the peer has ended, or
/// there is an error.
pub fn has_ended(fd: c_int) -> bool {
    let mut one = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one pollfd; a zero timeout never waits.
    let ready = unsafe { real::poll(&mut one, 1, 0) };
    ready > 0
}

/// Returns the bytes that the queue of a request of ioctl(2) has.
fn queue(fd: c_int, request: libc::c_ulong) -> Option<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: `bytes` is writable.
    let got = unsafe { real::ioctl(fd, request, (&raw mut bytes).cast::<c_void>()) };
    (got == 0).then(|| u64::try_from(bytes).ok()).flatten()
}

/// Returns the bytes that can be read.
pub fn unread(fd: c_int) -> Option<u64> {
    queue(fd, libc::FIONREAD)
}

/// Looks at a connection that other threads use, before it is left as it is.
const LOOKS: usize = 8;

/// True if the kernel has counted the bytes that this library has, and the connection stands. In a
/// direction where a call is under way the kernel may have counted more.
pub fn has_moved(fd: c_int, read: &Count, sent: &Count) -> bool {
    (0..LOOKS).any(|_| moved(fd, read, sent).unwrap_or(false))
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
    let given = number(ACKED) + queue(fd, libc::TIOCOUTQ)?;
    // The start of a connection counts as a byte where it was asked for.
    let more = given.checked_sub(sent)?;
    Some((taken == read || reads && taken > read) && (more <= 1 || sends))
}

/// True if an option of TCP that is a number is not 0.
pub fn is_set(fd: c_int, name: c_int) -> bool {
    option::<4>(fd, libc::IPPROTO_TCP, name).is_some_and(|(value, _)| value != [0; 4])
}

/// Has small packets sent at once. Else the kernel would wait for acknowledgements of earlier ones,
/// which come late: answers that went by the ring carry none.
pub fn do_not_delay(fd: c_int) {
    let (on, len) = (1 as c_int, size_of::<c_int>() as socklen_t);
    let at = (&raw const on).cast();
    // SAFETY: the option's value, of this length.
    unsafe { real::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, at, len) };
}

type Namer = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut socklen_t) -> c_int;

fn name(fd: c_int, namer: Namer) -> Option<Place> {
    // SAFETY: all-zero is a valid value.
    let mut address: libc::sockaddr_storage = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
    // SAFETY: `address` is writable for `len` bytes.
    if unsafe { namer(fd, (&raw mut address).cast(), &mut len) } != 0 {
        return None;
    }
    match c_int::from(address.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is of this type, for which the storage has room.
            let v4 = unsafe { *(&raw const address).cast::<libc::sockaddr_in>() };
            Some(Place::v4(v4.sin_addr.s_addr.to_ne_bytes(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { *(&raw const address).cast::<libc::sockaddr_in6>() };
            Some(Place::new(v6.sin6_addr.s6_addr, u16::from_be(v6.sin6_port)))
        }
        _ => None,
    }
}

/// Returns the socket's own name and that of its peer.
pub fn names(fd: c_int) -> Option<(Place, Place)> {
    Some((name(fd, libc::getsockname)?, name(fd, libc::getpeername)?))
}
