//! Functions that matter for sockets of TIPC alone.

use super::life;
use crate::sys::{real, settings, tipc};
use libc::{c_int, sockaddr, socklen_t};

/// socket(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    match tipc::socket(domain, kind, protocol) {
        Some(result) => result,
        None => {
            // SAFETY: the caller's arguments.
            let fd = unsafe { real::socket(domain, kind, protocol) };
            if fd >= 0 && settings::is_on() {
                life::made(fd, domain, kind, protocol);
            }
            fd
        }
    }
}

/// bind(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn bind(fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if tipc::is(fd) {
            return tipc::bind(fd, at, len);
        }
        real::bind(fd, at, len)
    }
}

/// listen(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if tipc::is(fd) {
        return tipc::listen(fd, backlog);
    }
    // SAFETY: the caller's arguments.
    unsafe { real::listen(fd, backlog) }
}

/// getsockname(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    to: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if tipc::is(fd) {
            return tipc::getsockname(fd, to, len);
        }
        real::getsockname(fd, to, len)
    }
}

/// getpeername(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    to: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if tipc::is(fd) {
            return tipc::getpeername(fd, to, len);
        }
        real::getpeername(fd, to, len)
    }
}
