//! Functions that move bytes, under the names that they have in programs built with checks, and
//! under the C library's own.

use super::data::{read, recv, recvfrom, send, write};
use libc::{c_int, c_void, size_t, sockaddr, socklen_t, ssize_t};

extern "C" {
    /// Ends a program that overflows a buffer.
    fn __chk_fail() -> !;
}

/// read(2) of programs built with checks.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe {
        if len > room {
            __chk_fail()
        } else {
            read(fd, buf, len)
        }
    }
}

/// recv(2) of programs built with checks.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe {
        if len > room {
            __chk_fail()
        } else {
            recv(fd, buf, len, flags)
        }
    }
}

/// recvfrom(2) of programs built with checks.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe {
        if len > room {
            __chk_fail()
        } else {
            recvfrom(fd, buf, len, flags, from, from_len)
        }
    }
}

/// read(2) under its other name.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { read(fd, buf, len) }
}

/// write(2) under its other name.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { write(fd, buf, len) }
}

/// send(2) under its other name.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __send(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { send(fd, buf, len, flags) }
}
