//! System calls whose arguments are pointers.

pub mod epoll;
pub mod forks;
pub mod threads;

use std::io;
use std::mem::{size_of, size_of_val, zeroed, ManuallyDrop};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Most descriptors in one message (the kernel's SCM_MAX_FD).
pub const FDS_MAX: usize = 253;

/// Room for as many descriptors as a message may have and for the sender's name, aligned for
/// `cmsghdr`.
#[repr(C, align(8))]
struct Control([u8; 16 + 4 * FDS_MAX + 4 + 32]);

/// Room for the sender's name alone.
#[repr(C, align(8))]
struct Narrow([u8; 32]);

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns process and user of the other end. (The wrapper of `rustix` has no value for process 0,
/// which the kernel names where the process is not visible from here.)
pub fn peer(fd: BorrowedFd<'_>) -> io::Result<(i32, u32)> {
    let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (fd, at) = (fd.as_raw_fd(), (&raw mut cred).cast());
    // SAFETY: `cred` is writable for `len` bytes.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, at, &mut len) })?;
    // Sockets that are no Unix sockets have no user.
    match cred.uid {
        u32::MAX => Err(io::ErrorKind::NotConnected.into()),
        uid => Ok((cred.pid.max(0), uid)),
    }
}

/// Sends one message, with a descriptor if given; never waits.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8], pass: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send_all(fd, bytes, pass.as_slice())
}

/// Sends one message with up to [`FDS_MAX`] descriptors; never waits.
pub fn send_all(fd: BorrowedFd<'_>, bytes: &[u8], pass: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_by(fd, bytes, pass, libc::MSG_DONTWAIT)
}

/// Sends one message with up to [`FDS_MAX`] descriptors; waits as long as the socket allows.
pub fn send_patiently(fd: BorrowedFd<'_>, bytes: &[u8], pass: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_by(fd, bytes, pass, 0)
}

/// Sends a byte out of band, with a descriptor, as a stranger may.
#[cfg(test)]
pub fn send_out_of_band(
    fd: BorrowedFd<'_>,
    byte: &[u8; 1],
    pass: BorrowedFd<'_>,
) -> io::Result<()> {
    send_by(fd, byte, &[pass], libc::MSG_DONTWAIT | libc::MSG_OOB)
}

fn send_by(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    pass: &[BorrowedFd<'_>],
    more: libc::c_int,
) -> io::Result<()> {
    assert!(pass.len() <= FDS_MAX);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; size_of::<Control>()]);
    // SAFETY: all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    if !pass.is_empty() {
        let size = size_of_val(pass) as libc::c_uint;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the control buffer holds a header and FDS_MAX descriptors, and is aligned. A
        // borrowed descriptor has the form of its number.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size) as _;
            let data = libc::CMSG_DATA(head);
            std::ptr::copy_nonoverlapping(pass.as_ptr().cast::<u8>(), data, size as usize);
        }
    }
    let flags = libc::MSG_NOSIGNAL | more;
    // SAFETY: the message points to live buffers.
    match unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The parts of a received message: its length, its descriptors, if it was cut, if descriptors are
/// missing.
pub type Parts = (usize, Vec<OwnedFd>, bool, bool);

/// Receives one message with all its descriptors; never waits.
pub fn recv(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Parts> {
    recv_by(fd, buf, libc::MSG_DONTWAIT)
}

/// Receives one message with all its descriptors; waits as long as the socket allows.
pub fn recv_patiently(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Parts> {
    recv_by(fd, buf, 0)
}

fn recv_by(fd: BorrowedFd<'_>, buf: &mut [u8], more: libc::c_int) -> io::Result<Parts> {
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let mut control = Control([0; size_of::<Control>()]);
    // SAFETY: all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | more;
    // SAFETY: the message points to live, writable buffers of the stated lengths.
    let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    let mut fds = Vec::new();
    // SAFETY: the kernel filled the control buffer with well-formed headers within msg_controllen;
    // each descriptor in it is new and ours, and is wrapped once.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(&raw const message);
        while !head.is_null() {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*head).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(head).cast::<RawFd>();
                for i in 0..bytes / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(data.add(i).read_unaligned()));
                }
            }
            head = libc::CMSG_NXTHDR(&raw const message, head);
        }
    }
    let has = |flag| message.msg_flags & flag != 0;
    Ok((len, fds, has(libc::MSG_TRUNC), has(libc::MSG_CTRUNC)))
}

/// Looks at the next message without taking it: its length in the buffer, and true if it has
/// descriptors. `None`: there is none.
pub fn peek(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Option<(usize, bool)>> {
    let is_stream = rustix::net::sockopt::socket_type(fd)? == rustix::net::SocketType::STREAM;
    // With its sender's name a message without a byte differs from none.
    rustix::net::sockopt::set_socket_passcred(fd, true)?;
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let mut control = Narrow([0; size_of::<Narrow>()]);
    // SAFETY: all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Narrow>() as _;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the message points to live, writable buffers of the stated lengths. There is no room
    // for a descriptor, so none is made.
    let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) };
    let len = match usize::try_from(len) {
        Ok(len) => len,
        Err(_) => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            e => return Err(e),
        },
    };
    let has_fds = message.msg_flags & libc::MSG_CTRUNC != 0;
    let is_none = len == 0 && !has_fds && (is_stream || message.msg_controllen as usize == 0);
    Ok((!is_none).then_some((len, has_fds)))
}

/// Closes descriptors whose numbers are side by side by one call, which gives all numbers back
/// before it waits for the first close. Returns them if the system cannot.
pub fn close_run(run: Vec<OwnedFd>) -> Result<(), Vec<OwnedFd>> {
    let is_run = run.windows(2).all(|two| two[1].as_raw_fd() == two[0].as_raw_fd() + 1);
    let (Some(first), Some(last), true) = (run.first(), run.last(), is_run) else {
        return Err(run);
    };
    let (first, last) = (first.as_raw_fd(), last.as_raw_fd());
    let run = ManuallyDrop::new(run);
    // SAFETY: the descriptors of these numbers are owned here, and nobody uses them after this.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } {
        0 => Ok(()),
        // Nothing was closed: the kernel has no such call, or forbids it.
        _ => Err(ManuallyDrop::into_inner(run)),
    }
}

/// Ends a connection for both sides.
pub fn shutdown(fd: BorrowedFd<'_>) {
    // SAFETY: no memory is passed.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}
