//! Calls of the kernel on sockets, behind a safe interface.

use super::calls::close;
use super::real;
use libc::{c_int, c_void, iovec, socklen_t};
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;
use weft_streams::message::Place;

/// A socket of this library for messages, which never waits.
const OWN: c_int = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

/// Returns an option of a socket, and its length.
pub fn option<const N: usize>(fd: RawFd, level: c_int, name: c_int) -> Option<([u8; N], usize)> {
    let (mut value, mut len) = ([0; N], N as socklen_t);
    // SAFETY: `value` is writable for `len` bytes.
    let got = unsafe { real::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut len) };
    (got == 0).then_some((value, len as usize))
}

/// Sets an option of a socket.
pub fn set_option(fd: RawFd, level: c_int, name: c_int, value: &[c_int]) {
    let len = size_of_val(value) as socklen_t;
    // SAFETY: the option's value, of this length.
    unsafe { real::setsockopt(fd, level, name, value.as_ptr().cast(), len) };
}

/// Number of SIOCATMARK on all machines that this library is built for.
pub const SIOCATMARK: libc::c_ulong = 0x8905;

/// A number that the kernel tells of a socket's queues.
#[derive(Clone, Copy, Debug)]
pub enum Queue {
    /// Bytes that can be read.
    Unread,
    /// Bytes that are not acknowledged.
    Unsent,
    /// 1 if the next byte is an urgent one.
    Mark,
}

/// Returns such a number.
pub fn queue(fd: RawFd, of: Queue) -> Option<u64> {
    let request = match of {
        Queue::Unread => libc::FIONREAD,
        Queue::Unsent => libc::TIOCOUTQ,
        Queue::Mark => SIOCATMARK,
    };
    let mut bytes: c_int = 0;
    // SAFETY: these requests write a number.
    let got = unsafe { real::ioctl(fd, request, (&raw mut bytes).cast::<c_void>()) };
    (got == 0).then(|| u64::try_from(bytes).ok()).flatten()
}

type Namer = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut socklen_t) -> c_int;

fn name(fd: RawFd, namer: Namer) -> Option<Place> {
    // SAFETY: all-zero is a valid value.
    let mut address: libc::sockaddr_storage = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
    // SAFETY: `address` is writable for `len` bytes.
    if unsafe { namer(fd, (&raw mut address).cast(), &mut len) } != 0 {
        return None;
    }
    match c_int::from(address.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is of this type, for which the storage has space.
            let v4 = unsafe { *(&raw const address).cast::<libc::sockaddr_in>() };
            Some(Place::v4(v4.sin_addr.s_addr.to_ne_bytes(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is of this type, for which the storage has space.
            let v6 = unsafe { *(&raw const address).cast::<libc::sockaddr_in6>() };
            Some(Place::new(v6.sin6_addr.s6_addr, u16::from_be(v6.sin6_port)))
        }
        _ => None,
    }
}

/// Returns the socket's own name and that of its peer.
pub fn names(fd: RawFd) -> Option<(Place, Place)> {
    Some((name(fd, libc::getsockname)?, name(fd, libc::getpeername)?))
}

/// Returns a UDP socket at the address of a TCP socket.
pub fn path(fd: RawFd) -> Option<RawFd> {
    // SAFETY: all-zero is a valid value, with space for the name of any internet socket, whose port
    // is in the same place for both families.
    unsafe {
        let mut address: libc::sockaddr_in6 = zeroed();
        let mut len = size_of::<libc::sockaddr_in6>() as socklen_t;
        let at = (&raw mut address).cast::<libc::sockaddr>();
        if libc::getsockname(fd, at, &mut len) != 0 {
            return None;
        }
        (*at.cast::<libc::sockaddr_in6>()).sin6_port = 0;
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let path = libc::socket((*at).sa_family.into(), kind, 0);
        if path >= 0 && libc::bind(path, at, len) == 0 {
            return Some(path);
        }
        close(path);
    }
    None
}

/// Ends a connection by an error, which both ends are told.
pub fn reset(fd: RawFd) {
    // SAFETY: all-zero is a valid value: no family.
    unsafe {
        let none: libc::sockaddr = zeroed();
        real::connect(fd, &none, size_of::<libc::sockaddr>() as socklen_t);
    }
}

/// Returns the name of the peer of a Unix socket, with the zeros behind it.
pub fn unix_peer(fd: RawFd) -> Option<[u8; 108]> {
    // SAFETY: all-zero is a valid value, written for its size.
    let (address, len) = unsafe {
        let mut address: libc::sockaddr_un = zeroed();
        let mut len = size_of::<libc::sockaddr_un>() as socklen_t;
        let got = real::getpeername(fd, (&raw mut address).cast(), &mut len);
        if got != 0 || c_int::from(address.sun_family) != libc::AF_UNIX {
            return None;
        }
        (address, len as usize - size_of::<libc::sa_family_t>())
    };
    let mut name = [0u8; 108];
    for (to, from) in name.iter_mut().zip(address.sun_path).take(len) {
        *to = from as u8;
    }
    Some(name)
}

/// Connects to a Unix socket for messages, whose name is in parts; a name that begins with `@` is
/// an abstract one. The socket never waits.
pub fn connect(name: &[&[u8]]) -> Option<RawFd> {
    // SAFETY: all-zero is a valid value.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let mut len = 0;
    for byte in name.iter().copied().flatten() {
        *address.sun_path.get_mut(len)? = *byte as libc::c_char;
        len += 1;
    }
    if len + 1 >= address.sun_path.len() {
        return None;
    }
    let is_abstract = address.sun_path[0] == b'@' as libc::c_char;
    if is_abstract {
        address.sun_path[0] = 0;
    }
    let len = size_of::<libc::sa_family_t>() + len + usize::from(!is_abstract);
    // SAFETY: no memory is passed; then an address of this length.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, OWN, 0);
        if fd < 0 {
            return None;
        }
        if real::connect(fd, (&raw const address).cast(), len as socklen_t) == 0 {
            return Some(fd);
        }
        close(fd);
    }
    None
}

/// Returns the user of the peer of a Unix socket.
pub fn user(fd: RawFd) -> Option<u32> {
    let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut len = size_of::<libc::ucred>() as socklen_t;
    let at = (&raw mut cred).cast();
    // SAFETY: `cred` is writable for `len` bytes.
    let got = unsafe { real::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, at, &mut len) };
    (got == 0).then_some(cred.uid)
}

/// Makes a pair of sockets for messages, which never wait.
pub fn pair() -> Option<[RawFd; 2]> {
    let mut ends = [-1; 2];
    // SAFETY: space for two descriptors.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, OWN, 0, ends.as_mut_ptr()) };
    (made == 0).then_some(ends)
}

/// Receives bytes.
pub fn receive(fd: RawFd, to: &mut [u8], flags: c_int) -> isize {
    // SAFETY: space for so many bytes.
    unsafe { real::recv(fd, to.as_mut_ptr().cast(), to.len(), flags) }
}

/// Space for the control message of one descriptor, aligned for `cmsghdr`.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends a message of these parts, and a descriptor.
///
/// # Safety
/// The parts are readable.
pub unsafe fn send_passing(
    socket: RawFd,
    parts: &[iovec],
    pass: Option<RawFd>,
    flags: c_int,
) -> isize {
    let mut control = Control([0; 64]);
    // SAFETY: all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_ptr().cast_mut(), parts.len() as _);
    if let Some(fd) = pass {
        let size = size_of::<RawFd>() as libc::c_uint;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the control buffer holds a header and one descriptor, and is aligned.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let head = libc::CMSG_FIRSTHDR(&message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size) as _;
            libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(fd);
        }
    }
    // SAFETY: the message points to live buffers.
    unsafe { real::sendmsg(socket, &message, flags | libc::MSG_NOSIGNAL) }
}

/// Sends bytes as a message, and a descriptor.
pub fn send(socket: RawFd, bytes: &[u8], pass: Option<RawFd>, flags: c_int) -> isize {
    let part = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: so many bytes.
    unsafe { send_passing(socket, &[part], pass, flags) }
}

/// Receives a message, and the descriptor that came with it (-1: none).
pub fn receive_passed(socket: RawFd, to: &mut [u8], flags: c_int) -> (isize, RawFd) {
    let mut part = iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let mut control = Control([0; 64]);
    // SAFETY: all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the message points to live, writable buffers of the stated lengths.
    let len = unsafe { real::recvmsg(socket, &mut message, flags | libc::MSG_CMSG_CLOEXEC) };
    let mut passed = -1;
    // SAFETY: the kernel filled the control buffer with well-formed headers.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&message);
        if len > 0 && !head.is_null() && (*head).cmsg_type == libc::SCM_RIGHTS {
            passed = libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned();
        }
    }
    (len, passed)
}
