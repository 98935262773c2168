//! Memory of a caller of TIPC's functions, and messages of its parts.

use super::calls::Named;
use crate::guard::{copy, Caller};
use crate::sys::real;
use crate::sys::socket::send_passing;
use libc::{c_int, iovec, msghdr, ssize_t};
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::ptr::null_mut;

/// Parts of a message's data.
pub const PARTS: usize = 1023;

const NONE: iovec = iovec { iov_base: null_mut(), iov_len: 0 };

/// Sends a head, a caller's parts behind it, and a descriptor.
///
/// # Errors
/// There are too many parts.
pub fn send(
    fd: RawFd,
    head: &[u8],
    data: &[iovec],
    pass: Option<RawFd>,
    flags: c_int,
) -> Result<ssize_t, c_int> {
    if data.len() > PARTS {
        return Err(libc::EMSGSIZE);
    }
    let mut parts = [NONE; PARTS + 1];
    parts[0] = iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
    parts[1..=data.len()].copy_from_slice(data);
    // SAFETY: a slice, and the caller's parts, of which the kernel says what is wrong.
    Ok(unsafe { send_passing(fd, &parts[..=data.len()], pass, flags) })
}

/// Receives into a caller's parts.
pub fn receive_parts(fd: RawFd, parts: &[iovec], flags: c_int) -> ssize_t {
    // SAFETY: all-zero is a valid value.
    let mut message: msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_ptr().cast_mut(), parts.len() as _);
    // SAFETY: the caller's parts, of which the kernel says what is wrong.
    unsafe { real::recvmsg(fd, &mut message, flags) }
}

/// Receives a head, at most `PARTS - 1` parts of a caller, and the rest.
pub fn receive(
    fd: RawFd,
    head: &mut [u8],
    parts: &[iovec],
    rest: &mut [u8],
    flags: c_int,
) -> ssize_t {
    let own = |to: &mut [u8]| iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let mut all = [NONE; PARTS + 1];
    all[0] = own(head);
    all[1..=parts.len()].copy_from_slice(parts);
    all[parts.len() + 1] = own(rest);
    receive_parts(fd, &all[..parts.len() + 2], flags)
}

/// Copies the bytes of a caller's parts, as far as there is space. Returns their number.
pub fn gather(parts: &[iovec], to: &mut [u8]) -> usize {
    let mut n = 0;
    for part in parts {
        let space = &mut to[n..];
        let len = part.iov_len.min(space.len());
        // SAFETY: space for so many bytes, and the caller's part, or a fault.
        if !unsafe { copy(space.as_mut_ptr(), part.iov_base.cast(), len) } {
            break;
        }
        n += len;
    }
    n
}

/// Returns the parts of a caller's message.
pub fn parts_of(message: &msghdr) -> Option<&[iovec]> {
    match message.msg_iovlen {
        0 => Some(&[]),
        // SAFETY: the caller's array of so many parts.
        n @ 1..=1024 => unsafe { Caller::new(message.msg_iov) }.list(n),
        _ => None,
    }
}

/// Returns the place of a caller's message for an address.
pub fn name_of(message: &msghdr) -> Named {
    // SAFETY: a caller's message.
    unsafe { (Caller::new(message.msg_name.cast()), Caller::new(&raw const message.msg_namelen)) }
}

/// Adds ancillary data of this level and type to a caller's message, behind the `used` bytes of its
/// control buffer. False: there is no space.
pub fn add(message: &msghdr, used: &mut usize, (level, name): (c_int, c_int), data: &[u8]) -> bool {
    let all = message.msg_controllen;
    // SAFETY: computes lengths; all-zero is a valid value.
    let (len, space, mut head) = unsafe {
        let len = data.len() as u32;
        let sizes = (libc::CMSG_LEN(len) as usize, libc::CMSG_SPACE(len) as usize);
        (sizes.0, sizes.1, zeroed::<libc::cmsghdr>())
    };
    if message.msg_control.is_null() || *used + len > all {
        return false;
    }
    (head.cmsg_level, head.cmsg_type) = (level, name);
    head.cmsg_len = len as _;
    let at = message.msg_control.cast::<u8>().wrapping_add(*used);
    // SAFETY: the header and the data are within the caller's buffer, or a fault.
    let is_put = unsafe {
        let to = at.wrapping_add(libc::CMSG_LEN(0) as usize);
        copy(at, (&raw const head).cast(), size_of::<libc::cmsghdr>())
            && copy(to, data.as_ptr(), data.len())
    };
    *used = (*used + space).min(all);
    is_put
}
