//! Functions that move bytes at a place of a file: sockets have none, and are named by -1.

use super::data::{parts_of, receive, send_parts};
use crate::sys::{real, table};
use libc::{c_int, iovec, off64_t, ssize_t};

/// Flags of a socket's call for those of preadv2(2) and pwritev2(2).
fn flags_of(flags: c_int) -> c_int {
    match flags & libc::RWF_NOWAIT {
        0 => 0,
        _ => libc::MSG_DONTWAIT,
    }
}

/// preadv2(2): a socket is read where the place is -1.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    parts: *const iovec,
    n: c_int,
    at: off64_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::preadv2(fd, parts, n, at, flags) };
    // SAFETY: the caller's parts.
    let list = table::connection(fd).zip(unsafe { parts_of(parts, n.max(0) as usize) });
    match list {
        Some((one, list)) if at == -1 => receive(one, list, flags_of(flags), call),
        _ => call(),
    }
}

/// preadv2(2), as programs with large files call it.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn preadv64v2(
    fd: c_int,
    parts: *const iovec,
    n: c_int,
    at: off64_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { preadv2(fd, parts, n, at, flags) }
}

/// pwritev2(2): a socket is written where the place is -1.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    n: c_int,
    at: off64_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::pwritev2(fd, parts, n, at, flags) };
    // SAFETY: the caller's parts.
    let list = table::connection(fd).zip(unsafe { parts_of(parts, n.max(0) as usize) });
    match list {
        Some((one, list)) if at == -1 => send_parts(one, list, flags_of(flags), call),
        _ => call(),
    }
}

/// pwritev2(2), as programs with large files call it.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    parts: *const iovec,
    n: c_int,
    at: off64_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { pwritev2(fd, parts, n, at, flags) }
}
