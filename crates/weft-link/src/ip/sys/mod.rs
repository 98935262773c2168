//! The system calls about addresses and routes.
#![allow(unsafe_code)]

mod addr;
mod net;

pub(crate) use addr::SockAddr;
pub(crate) use net::{interfaces, name_of, route_to, Interface};

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Turns the result of a system call into a `Result`.
pub(crate) fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(rc)
}

/// Sets an integer option.
pub(crate) fn set(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is readable for `len` bytes.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) })?;
    Ok(())
}

/// Reads an integer option.
pub(crate) fn get(fd: RawFd, level: i32, name: i32) -> io::Result<i32> {
    let (mut value, mut len) = (0i32, mem::size_of::<i32>() as libc::socklen_t);
    // SAFETY: `value` is writable for `len` bytes.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// Returns the socket's own address.
pub(crate) fn local(fd: RawFd) -> io::Result<SocketAddr> {
    let mut addr = SockAddr::empty();
    let mut len = addr.len();
    // SAFETY: `addr` is writable for `len` bytes.
    check(unsafe { libc::getsockname(fd, addr.as_mut_ptr(), &raw mut len) })?;
    addr.get().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Opens a new UDP socket.
pub(crate) fn open(v6: bool) -> io::Result<OwnedFd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed; a non-negative result is a descriptor that nothing else owns.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::socket(family, kind, 0))?)) }
}

/// Selects refusal (`on`) or fragmentation of datagrams larger than the path's MTU.
pub(crate) fn set_discovery(fd: RawFd, v6: bool, on: bool) -> io::Result<()> {
    let (level, name) = match v6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
        false => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    };
    let value = match (on, v6) {
        (true, true) => libc::IPV6_PMTUDISC_DO,
        (true, false) => libc::IP_PMTUDISC_DO,
        (false, true) => libc::IPV6_PMTUDISC_DONT,
        (false, false) => libc::IP_PMTUDISC_DONT,
    };
    set(fd, level, name, value)
}
