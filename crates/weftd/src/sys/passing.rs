//! Unix sockets of messages, shared memory, and what a TCP socket says of itself. Of what somebody
//! passed only the socket's options are asked for: the kernel answers, whatever it is. Of a socket
//! whose lock a call of its program has, it answers after that call: facts are asked for by threads
//! that serve no other user.

use super::check;
use std::ffi::c_void;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;
use weft_streams::message::Place;
pub use weft_streams::pairing::Facts;
pub use weft_sys::passing::{awaits, recv, send};

const KIND: libc::c_int = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

/// States of a connected socket in `tcp_info`.
const ESTABLISHED: u8 = 1;
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const CLOSE_WAIT: u8 = 8;

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: the call made the descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns a socket, and the address of a name: a path, or `@` and an abstract name.
fn named(name: &str) -> io::Result<(OwnedFd, libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: no memory is passed.
    let socket = owned(unsafe { libc::socket(libc::AF_UNIX, KIND, 0) })?;
    // SAFETY: all-zero is a valid value.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let (text, at) = match name.strip_prefix('@') {
        Some(rest) => (rest, 1),
        None => (name, 0),
    };
    if text.is_empty() || text.len() + at >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path[at..].iter_mut().zip(text.bytes()) {
        *to = from as libc::c_char;
    }
    let len = size_of::<libc::sa_family_t>() + 1 + text.len();
    Ok((socket, address, len as libc::socklen_t))
}

/// Listens under a name: a path, or `@` and an abstract name.
///
/// # Errors
/// Another process has it.
pub fn listen(name: &str) -> io::Result<OwnedFd> {
    let (socket, address, len) = named(name)?;
    // SAFETY: `address` is valid for `len` bytes.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::listen(socket.as_raw_fd(), 1024) })?;
    Ok(socket)
}

/// Returns the next connection.
///
/// # Errors
/// There is none.
pub fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let null = std::ptr::null_mut();
    // SAFETY: null pointers ask for no address.
    owned(unsafe { libc::accept4(listener.as_raw_fd(), null, std::ptr::null_mut(), flags) })
}

/// Makes shared memory of `len` zero bytes that can neither shrink nor grow.
///
/// # Errors
/// The system has no room.
pub fn shared_memory(len: usize) -> io::Result<OwnedFd> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let fd = owned(unsafe { libc::memfd_create(c"weft-sockets".as_ptr(), flags) })?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) })?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(fd)
}

/// Fills `value` with an option of a socket. `None` if it has no such option.
fn option<T: Copy>(
    fd: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    mut value: T,
) -> Option<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let to = (&raw mut value).cast::<c_void>();
    // SAFETY: `value` is writable for `len` bytes, and any bytes are a valid value of the integers
    // that callers ask for.
    let got = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, to, &mut len) };
    (got == 0 && len as usize == size_of::<T>()).then_some(value)
}

/// Converts the name of an internet socket.
fn place(address: &libc::sockaddr_storage) -> Option<Place> {
    match libc::c_int::from(address.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is of this type, for which the storage has room.
            let v4 = unsafe { *(&raw const *address).cast::<libc::sockaddr_in>() };
            Some(Place::v4(v4.sin_addr.s_addr.to_ne_bytes(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { *(&raw const *address).cast::<libc::sockaddr_in6>() };
            Some(Place::new(v6.sin6_addr.s6_addr, u16::from_be(v6.sin6_port)))
        }
        _ => None,
    }
}

type Namer =
    unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn name(fd: &OwnedFd, namer: Namer) -> Option<Place> {
    // SAFETY: all-zero is a valid value.
    let mut address: libc::sockaddr_storage = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: `address` is writable for `len` bytes.
    let got = unsafe { namer(fd.as_raw_fd(), (&raw mut address).cast(), &mut len) };
    (got == 0).then(|| place(&address)).flatten()
}

/// Returns the number of a socket's network namespace. A Unix socket that was accepted has that of
/// its peer.
pub fn namespace(fd: &impl AsRawFd) -> Option<u64> {
    option(fd, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, 0u64)
}

/// A UDP socket as it describes itself.
#[derive(Clone, Copy, Debug)]
pub struct PathFacts {
    /// Number of its network namespace.
    pub namespace: u64,
    /// Its name.
    pub place: Place,
}

/// True if it is an internet socket of a type and a protocol. The kernel says it whoever has the
/// socket's lock.
fn is_internet(fd: &OwnedFd, kind: libc::c_int, protocol: libc::c_int) -> bool {
    let is = |name| option(fd, libc::SOL_SOCKET, name, 0 as libc::c_int);
    matches!(is(libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
        && (is(libc::SO_TYPE), is(libc::SO_PROTOCOL)) == (Some(kind), Some(protocol))
}

/// Returns what a UDP socket says of itself.
pub fn facts_of_path(fd: &OwnedFd) -> Option<PathFacts> {
    is_internet(fd, libc::SOCK_DGRAM, libc::IPPROTO_UDP).then_some(())?;
    Some(PathFacts { namespace: namespace(fd)?, place: name(fd, libc::getsockname)? })
}

/// Sends a datagram by a UDP socket; never waits.
pub fn send_to(fd: &OwnedFd, to: Place, bytes: &[u8]) {
    // SAFETY: all-zero is a valid value; the family says which of both the storage has.
    unsafe {
        let mut address: libc::sockaddr_storage = zeroed();
        let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        let at = (&raw mut address).cast::<libc::sockaddr>();
        if libc::getsockname(fd.as_raw_fd(), at, &mut len) != 0 {
            return;
        }
        if (*at).sa_family == libc::AF_INET as libc::sa_family_t {
            let v4 = &mut *at.cast::<libc::sockaddr_in>();
            v4.sin_port = to.port().to_be();
            v4.sin_addr.s_addr = u32::from_ne_bytes([
                to.address()[12],
                to.address()[13],
                to.address()[14],
                to.address()[15],
            ]);
        } else {
            let v6 = &mut *at.cast::<libc::sockaddr_in6>();
            v6.sin6_port = to.port().to_be();
            v6.sin6_addr.s6_addr = to.address();
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::sendto(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags, at, len);
    }
}

/// Returns what a socket that somebody passed says of itself. `None` if it is no TCP socket that is
/// connected, or if the kernel does not number namespaces.
pub fn facts(fd: &OwnedFd) -> Option<Facts> {
    facts_in(fd, &[ESTABLISHED])
}

/// Returns the facts of a connection whose directions may have ended.
pub fn facts_of_any(fd: &OwnedFd) -> Option<Facts> {
    facts_in(fd, &[ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT])
}

/// Returns the facts of a connection whose sending direction has not ended.
pub fn facts_of_sender(fd: &OwnedFd) -> Option<Facts> {
    facts_in(fd, &[ESTABLISHED, CLOSE_WAIT])
}

fn facts_in(fd: &OwnedFd, states: &[u8]) -> Option<Facts> {
    is_internet(fd, libc::SOCK_STREAM, libc::IPPROTO_TCP).then_some(())?;
    // The first byte of `tcp_info` is the state.
    let state = option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, [0u8; 8])?[0];
    states.contains(&state).then_some(())?;
    Some(Facts {
        namespace: namespace(fd)?,
        cookie: option(fd, libc::SOL_SOCKET, libc::SO_COOKIE, 0u64)?,
        local: name(fd, libc::getsockname)?,
        remote: name(fd, libc::getpeername)?,
    })
}

/// Returns two sockets that are connected to each other, of the kind of this module.
///
/// # Errors
/// The system has no descriptors left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, KIND, 0, ends.as_mut_ptr()) })?;
    Ok((owned(ends[0])?, owned(ends[1])?))
}

fn queue(fd: &OwnedFd, request: libc::c_ulong) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: these requests write a number.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request as _, &raw mut bytes) })?;
    Ok(bytes.max(0) as usize)
}

/// Returns the bytes that can be read.
///
/// # Errors
/// The descriptor is no socket.
pub fn unread(fd: &OwnedFd) -> io::Result<usize> {
    queue(fd, libc::FIONREAD)
}

/// Returns the bytes that a peer has sent, or has given to its system to be sent, and that were not
/// read: what one end of a connection has written, less those read at the other. The peer sends
/// nothing meanwhile.
///
/// # Errors
/// One of both is no TCP socket, or the system does not count these bytes.
pub fn outstanding(reader: &OwnedFd, peer: &OwnedFd) -> io::Result<u64> {
    let none = || io::Error::from(io::ErrorKind::Unsupported);
    let written = info(peer).and_then(|info| info.written()).ok_or_else(none)?;
    loop {
        // More may arrive between both questions.
        let before = unread(reader)?;
        let received = info(reader).and_then(|info| info.large(RECEIVED)).ok_or_else(none)?;
        if before == unread(reader)? {
            let read = received.checked_sub(before as u64).ok_or_else(none)?;
            return written.checked_sub(read).ok_or_else(none);
        }
    }
}

/// Places in the kernel's `tcp_info`.
const RECEIVED: usize = 128;
const NOT_SENT: usize = 144;
const SENT: usize = 200;
const SENT_AGAIN: usize = 208;

/// The kernel's `tcp_info`.
struct Info([u8; 216]);

fn info(fd: &OwnedFd) -> Option<Info> {
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, [0u8; 216]).map(Info)
}

impl Info {
    fn large(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    /// Bytes that the program has ever written to the socket.
    fn written(&self) -> Option<u64> {
        let waits = u32::from_ne_bytes(*self.0.get(NOT_SENT..)?.first_chunk()?);
        let sent = self.large(SENT)?.checked_sub(self.large(SENT_AGAIN)?)?;
        sent.checked_add(waits.into())
    }
}

/// Returns the bytes that were sent and that the peer's system has not acknowledged.
///
/// # Errors
/// The descriptor is no socket.
pub fn unacknowledged(fd: &OwnedFd) -> io::Result<usize> {
    queue(fd, libc::TIOCOUTQ)
}

/// Has what was received be acknowledged at once.
pub fn acknowledge(fd: &OwnedFd) {
    let (on, len) = (1 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    let at = (&raw const on).cast();
    // SAFETY: the option's value, of this length.
    unsafe { libc::setsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_QUICKACK, at, len) };
}

/// Takes what can be read, at most this much; never waits.
///
/// # Errors
/// The connection has one.
pub fn take(fd: &OwnedFd, to: &mut Vec<u8>, most: usize) -> io::Result<()> {
    let mut buf = [0u8; 1 << 16];
    while to.len() < most {
        let (at, room) = (buf.as_mut_ptr().cast(), buf.len().min(most - to.len()));
        // SAFETY: room for so many bytes.
        match unsafe { libc::recv(fd.as_raw_fd(), at, room, libc::MSG_DONTWAIT) } {
            0 => return Ok(()),
            n @ 1.. => to.extend_from_slice(&buf[..n as usize]),
            _ => {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                }
            }
        }
    }
    Ok(())
}

/// True if a record waits in a socket.
pub fn has_record(socket: &OwnedFd) -> bool {
    let (mut byte, flags) = (0u8, libc::MSG_PEEK | libc::MSG_DONTWAIT);
    // SAFETY: room for one byte.
    unsafe { libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, flags) > 0 }
}

/// Returns the room that the kernel has for bytes of a socket that are not read.
pub fn room(fd: &OwnedFd) -> usize {
    let room = option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 0 as libc::c_int);
    room.and_then(|room| usize::try_from(room).ok()).unwrap_or(0)
}

/// Sends as many bytes as go now; returns their number.
///
/// # Errors
/// The connection has ended.
pub fn put_now(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: readable for its length.
    match unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) } {
        n @ 0.. => Ok(n as usize),
        _ => {
            let error = io::Error::last_os_error();
            let is_early =
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            if is_early {
                Ok(0)
            } else {
                Err(error)
            }
        }
    }
}

/// Waits until a socket takes bytes, or for this time.
pub fn awaits_room(fd: &OwnedFd, most: Duration) {
    let mut one = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let ms = most.as_millis().try_into().unwrap_or(libc::c_int::MAX);
    // SAFETY: one pollfd.
    unsafe { libc::poll(&mut one, 1, ms) };
}

/// Sends all bytes, however long that takes.
///
/// # Errors
/// The connection has ended.
pub fn put(fd: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        match put_now(fd, left)? {
            0 => awaits_room(fd, Duration::from_secs(1)),
            n => left = &left[n..],
        }
    }
    Ok(())
}

/// Ends a connection by an error at both ends.
pub fn reset(fd: &OwnedFd) {
    // SAFETY: all-zero is a valid value: no family.
    unsafe {
        let none: libc::sockaddr = zeroed();
        let len = size_of::<libc::sockaddr>() as libc::socklen_t;
        libc::connect(fd.as_raw_fd(), &none, len);
    }
}

/// Receives a datagram of a UDP socket; never waits. Returns its length, at most that of `to`.
pub fn recv_datagram(fd: &OwnedFd, to: &mut [u8]) -> Option<usize> {
    let (at, len) = (to.as_mut_ptr().cast(), to.len());
    // SAFETY: room for so many bytes.
    let n = unsafe { libc::recv(fd.as_raw_fd(), at, len, libc::MSG_DONTWAIT) };
    usize::try_from(n).ok()
}
