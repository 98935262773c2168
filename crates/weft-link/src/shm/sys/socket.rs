//! Unix sockets that carry descriptors.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use weft_sys::{passing, Foreign};

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The name of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shm) enum Name<'a> {
    /// The abstract name (not in any file system) that is made from a key.
    Key(u64),
    /// A name that people chose: a path, or `@` and an abstract name.
    Text(&'a str),
}

fn address(name: Name<'_>) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let key;
    let (text, is_abstract) = match name {
        Name::Key(number) => {
            key = format!("weft-{number:016x}");
            (key.as_str(), true)
        }
        Name::Text(text) => match text.strip_prefix('@') {
            Some(rest) => (rest, true),
            None => (text, false),
        },
    };
    // SAFETY: all-zero is a valid value.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let at = usize::from(is_abstract);
    // A path ends with a zero byte.
    if text.is_empty() || text.len() + at >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path[at..].iter_mut().zip(text.bytes()) {
        *to = from as libc::c_char;
    }
    let len = size_of::<libc::sa_family_t>() + 1 + text.len();
    Ok((address, len as libc::socklen_t))
}

/// Listens under a name.
pub(in crate::shm) fn listen(name: Name<'_>) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    let (name, len) = address(name)?;
    // SAFETY: `name` is valid for `len` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) })?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::listen(fd.as_raw_fd(), 4096) })?;
    Ok(fd)
}

/// Connects to the listener of a name; never blocks.
pub(in crate::shm) fn connect(name: Name<'_>) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    let (name, len) = address(name)?;
    // SAFETY: `name` is valid for `len` bytes.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const name).cast(), len) })?;
    Ok(fd)
}

/// Returns the next connection, if any.
pub(in crate::shm) fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let null = std::ptr::null_mut();
    // SAFETY: null pointers ask for no address.
    let fd =
        check(unsafe { libc::accept4(listener.as_raw_fd(), null, std::ptr::null_mut(), flags) })?;
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes two sockets that are connected to each other.
pub(in crate::shm) fn pair() -> io::Result<[OwnedFd; 2]> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let mut fds = [-1; 2];
    // SAFETY: `fds` has room for the two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    // SAFETY: new descriptors that nothing else owns.
    Ok(fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// True if the other side has read all that was sent.
pub(in crate::shm) fn all_read(fd: &OwnedFd) -> bool {
    let mut unread: libc::c_int = 0;
    // SAFETY: `unread` is writable.
    let asked = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &mut unread) };
    asked == 0 && unread == 0
}

/// Ends the connection for both sides, even if another process has a copy of the descriptor.
pub(in crate::shm) fn shutdown(fd: &OwnedFd) {
    // SAFETY: no memory is passed.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Sends one message, with a descriptor if given; never blocks.
pub(in crate::shm) fn send(
    fd: &OwnedFd,
    bytes: &[u8],
    pass: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    passing::send(fd, bytes, pass)
}

/// One received message.
#[derive(Debug)]
pub(in crate::shm) struct Received {
    /// Its length; 0 also when the other end is closed.
    pub len: usize,
    /// The descriptor that came with it.
    pub passed: Option<Foreign>,
}

/// Receives one message of a process of `user` into `buf`; never blocks. The error is `InvalidData`
/// if the message is longer than `buf` or has more than one descriptor, and `EMFILE` if this
/// process has no free descriptor for the one in the message.
pub(in crate::shm) fn recv(fd: &OwnedFd, buf: &mut [u8], user: u32) -> io::Result<Received> {
    let (len, passed) = passing::recv(fd, buf, user)?.only()?;
    Ok(Received { len, passed })
}

/// True if the other end is closed; messages sent before may still be unread.
pub(in crate::shm) fn hung_up(fd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one pollfd; a zero timeout never waits.
    let ready = unsafe { libc::poll(&mut poll, 1, 0) };
    ready > 0 && poll.revents & (libc::POLLHUP | libc::POLLERR) != 0
}
