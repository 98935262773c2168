//! Pairs of Unix sockets, one of which a program has as a socket of its own.

use super::check;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Makes a pair of a type: the agent's end, which has a name, and the program's.
///
/// # Errors
/// The system has no descriptors left.
pub fn pair(is_stream: bool, name: &[u8]) -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = if is_stream { libc::SOCK_STREAM } else { libc::SOCK_SEQPACKET };
    let mut fds = [-1; 2];
    // SAFETY: `fds` has room for two descriptors.
    check(unsafe {
        libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr())
    })?;
    // SAFETY: the call made the descriptors, and nobody else has them.
    let (own, other) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
    // SAFETY: no memory is passed.
    check(unsafe { libc::fcntl(own.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
    // SAFETY: all-zero is a valid value.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let len = (size_of::<libc::sa_family_t>() + 1 + name.len()) as libc::socklen_t;
    // SAFETY: `address` is valid for `len` bytes.
    check(unsafe { libc::bind(own.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok((own, other))
}

/// Returns the number by which the kernel tells a socket from all others.
pub fn cookie(socket: &OwnedFd) -> Option<u64> {
    let mut value = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    let (fd, at) = (socket.as_raw_fd(), (&raw mut value).cast());
    // SAFETY: `value` is writable for `len` bytes.
    let got = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, at, &mut len) };
    (got == 0).then_some(value)
}

/// Writes as much as goes now.
///
/// # Errors
/// Nothing goes now, or the other side has ended.
pub fn write(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the buffer is readable for its length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Ends what this side sends; the other side reads what was written. Its own end is still seen.
pub fn end(socket: &OwnedFd) {
    // SAFETY: no memory is passed.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_WR) };
}
