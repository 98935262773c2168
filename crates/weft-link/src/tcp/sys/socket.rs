//! Non-blocking TCP sockets.

use crate::ip::sys::{check, get, local, set, SockAddr};
use std::io::{self, IoSlice};
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Settings of every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kernel ends a connection on which bytes stay unacknowledged for this time.
    pub silence: Duration,
    /// The kernel asks on a connection that has been quiet for this time if the other side is
    /// there.
    pub keepalive: Duration,
    /// Bytes that are not sent yet, from which on the socket takes no more.
    pub unsent: u32,
}

/// A socket that takes connections.
pub struct Listener {
    fd: OwnedFd,
    local: SocketAddr,
}

/// The result of accepting.
pub enum Accepted {
    /// A connection, and where it comes from.
    Socket(Socket, SocketAddr),
    /// None waits.
    Nothing,
    /// There is no descriptor for it.
    NoDescriptor,
}

/// One end of a connection.
pub struct Socket {
    fd: OwnedFd,
}

fn open(v6: bool) -> io::Result<OwnedFd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed; a non-negative result is a descriptor that nothing else owns.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::socket(family, kind, 0))?)) }
}

/// Opens a socket that takes connections at `addr`.
pub fn listen(addr: SocketAddr) -> io::Result<Listener> {
    let fd = open(addr.is_ipv6())?;
    let (raw, name) = (fd.as_raw_fd(), SockAddr::new(addr));
    if addr.is_ipv6() {
        set(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    if addr.port() != 0 {
        // Connections of a process that ended shortly before may still hold the port.
        set(raw, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    }
    // SAFETY: `name` is readable for its length.
    check(unsafe { libc::bind(raw, name.as_ptr(), name.len()) })?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::listen(raw, BACKLOG) })?;
    let local = local(raw)?;
    Ok(Listener { fd, local })
}

/// Returns the number of descriptors that this process may have.
pub fn descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => limit.rlim_cur,
        _ => 256,
    }
}

impl Listener {
    /// Returns the address at which it takes connections.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the descriptor.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Takes the next connection.
    pub fn accept(&self) -> Accepted {
        let mut from = SockAddr::empty();
        let mut len = from.len();
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: `from` is writable for `len` bytes.
        let fd = unsafe { libc::accept4(self.raw(), from.as_mut_ptr(), &raw mut len, flags) };
        if fd < 0 {
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    Accepted::NoDescriptor
                }
                // One that ended before it was taken leaves an error in its place.
                _ => Accepted::Nothing,
            };
        }
        // SAFETY: the kernel just returned this descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        match from.get() {
            Some(from) => Accepted::Socket(Socket { fd }, from),
            None => Accepted::Nothing,
        }
    }
}

impl Socket {
    /// Begins to connect to `addr`, without waiting for the other side.
    pub fn connect(addr: SocketAddr) -> io::Result<Socket> {
        let socket = Socket { fd: open(addr.is_ipv6())? };
        let name = SockAddr::new(addr);
        // SAFETY: `name` is readable for its length.
        match check(unsafe { libc::connect(socket.raw(), name.as_ptr(), name.len()) }) {
            Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
            _ => Ok(socket),
        }
    }

    /// Returns the descriptor.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Applies settings. A kernel that lacks one goes on without it.
    pub fn set_options(&self, options: &Options) {
        let millis = |d: Duration| i32::try_from(d.as_millis()).unwrap_or(i32::MAX);
        let seconds = (millis(options.keepalive) / 1000).max(1);
        let tcp = [
            (libc::TCP_NODELAY, 1),
            (libc::TCP_USER_TIMEOUT, millis(options.silence)),
            (libc::TCP_KEEPIDLE, seconds),
            (libc::TCP_KEEPINTVL, (seconds / 3).max(1)),
            (libc::TCP_KEEPCNT, 3),
            (libc::TCP_NOTSENT_LOWAT, i32::try_from(options.unsent).unwrap_or(i32::MAX)),
        ];
        for (name, value) in tcp {
            let _ = set(self.raw(), libc::IPPROTO_TCP, name, value);
        }
        let _ = set(self.raw(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    }

    /// Takes the error of the connection, if it has one.
    pub fn error(&self) -> Option<io::Error> {
        match get(self.raw(), libc::SOL_SOCKET, libc::SO_ERROR) {
            Ok(0) => None,
            Ok(code) => Some(io::Error::from_raw_os_error(code)),
            Err(e) => Some(e),
        }
    }

    /// Sends bytes from several places, as many as there is room for; returns their number.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        // SAFETY: all-zero is a valid msghdr.
        let mut msg: libc::msghdr = unsafe { mem::zeroed() };
        // An `IoSlice` has the layout of an iovec.
        msg.msg_iov = parts.as_ptr().cast_mut().cast();
        msg.msg_iovlen = parts.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: every part is readable for its length; the kernel only reads.
        let sent = unsafe { libc::sendmsg(self.raw(), &raw const msg, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Receives into two places, one after the other; returns the number of bytes, 0 at the end of
    /// the stream.
    pub fn recv(&self, first: &mut [u8], second: &mut [u8]) -> io::Result<usize> {
        let mut parts = [&mut *first, second]
            .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
        // SAFETY: all-zero is a valid msghdr.
        let mut msg: libc::msghdr = unsafe { mem::zeroed() };
        msg.msg_iov = parts.as_mut_ptr();
        msg.msg_iovlen = parts.len() as _;
        // SAFETY: both parts are writable for their lengths, and borrowed for the call.
        let got = unsafe { libc::recvmsg(self.raw(), &raw mut msg, libc::MSG_DONTWAIT) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    /// Sends the end of the stream behind the bytes that were sent.
    pub fn finish(&self) {
        // SAFETY: no memory is passed.
        unsafe { libc::shutdown(self.raw(), libc::SHUT_WR) };
    }
}
