//! Unix sockets with abstract names, which belong to a network namespace like packet sockets, and
//! the descriptors sent over them. Calls block for a bounded time.

use super::check;
use std::io;
use std::mem::{self, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Highest number of descriptors in one message (the kernel allows 253).
pub const FDS_MAX: usize = 64;

/// A process that takes longer to answer does not run.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Room for a header and [`FDS_MAX`] descriptors, aligned for the kernel.
#[repr(C, align(8))]
struct Control([u8; 16 + 4 * FDS_MAX]);

fn new_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed; the result is a descriptor that nothing else owns.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::socket(libc::AF_UNIX, kind, 0))?)) }
}

fn address(name: &str) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: all-zero is a valid value.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let len = size_of::<libc::sa_family_t>() + 1 + name.len().min(address.sun_path.len() - 1);
    (address, len as libc::socklen_t)
}

/// Listens under a name. `AddrInUse`: another process listens under it.
pub fn listen(name: &str) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    let (name, len) = address(name);
    // SAFETY: `name` is valid for `len` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) })?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::listen(fd.as_raw_fd(), 4096) })?;
    Ok(fd)
}

/// Connects to a name. `ConnectionRefused`: no process listens under that name.
pub fn connect(name: &str) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    be_patient(&fd)?;
    let (name, len) = address(name);
    // SAFETY: `name` is valid for `len` bytes.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const name).cast(), len) })?;
    Ok(fd)
}

/// Waits for the next connection and returns it. An error after [`shut_down`].
pub fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let (null, fd) = (std::ptr::null_mut(), listener.as_raw_fd());
    // SAFETY: null pointers ask for no address; the result is a descriptor that nothing else owns.
    let fd = unsafe {
        let fd = check(libc::accept4(fd, null, std::ptr::null_mut(), libc::SOCK_CLOEXEC))?;
        OwnedFd::from_raw_fd(fd)
    };
    be_patient(&fd)?;
    Ok(fd)
}

fn be_patient(fd: &OwnedFd) -> io::Result<()> {
    let time = libc::timeval { tv_sec: TIMEOUT.as_secs() as libc::time_t, tv_usec: 0 };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let (data, len) = ((&raw const time).cast(), size_of::<libc::timeval>());
        // SAFETY: `time` is readable for its length.
        check(unsafe {
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, data, len as u32)
        })?;
    }
    Ok(())
}

/// Ends a listener: a thread that waits in [`accept`] returns.
pub fn shut_down(fd: &OwnedFd) {
    // SAFETY: no memory is passed.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Sends one message with up to [`FDS_MAX`] descriptors.
pub fn send(fd: &OwnedFd, bytes: &[u8], pass: &[RawFd]) -> io::Result<()> {
    assert!(pass.len() <= FDS_MAX);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; size_of::<Control>()]);
    // SAFETY: all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !pass.is_empty() {
        let size = mem::size_of_val(pass) as libc::c_uint;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the control buffer holds a header and FDS_MAX descriptors, and is aligned.
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
    // SAFETY: the message points to live buffers.
    if unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Receives one message; returns its length (0 if the other end is gone) and its descriptors.
pub fn recv(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control([0; size_of::<Control>()]);
    // SAFETY: all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the message points to live, writable buffers of the stated lengths.
    let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if len < 0 {
        return Err(io::Error::last_os_error());
    }
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
    if message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((len as usize, fds))
}

/// Runs `f` with all signals blocked: threads that it starts take no signals from the program.
pub fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: all-zero is a valid set; both sets are live for the calls.
    let old = unsafe {
        let (mut all, mut old) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    };
    let result = f();
    // SAFETY: `old` is the set that was in force before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut()) };
    result
}
