//! Calls that the bell has interrupted after they had moved some bytes: they move the rest, as
//! without this library they would not have ended.

use super::data::{receive, send_parts, takes};
use crate::sys::parts::Parts;
use crate::sys::table::{self, Connection};
use crate::sys::{real, urgent};
use libc::{c_int, iovec, ssize_t};

/// A receive that waits for all may have ended early: it goes on if the bell has interrupted it.
#[cold]
pub(super) fn receive_rest(
    one: Connection,
    parts: &[iovec],
    flags: c_int,
    rung: u32,
    got: ssize_t,
) -> ssize_t {
    let Some(all) = Parts::new(parts).filter(|_| got > 0 && takes(flags)) else { return got };
    let left = all.len().saturating_sub(got as usize);
    if left == 0 || !urgent::has_rung(rung) {
        return got;
    }
    let mut cut = all.cut(got as usize, left);
    let message = std::cell::Cell::new(cut.as_message());
    // SAFETY: the caller's parts, but for those that have bytes.
    let call = || unsafe { real::recvmsg(one.fd, message.as_ptr(), flags) };
    // SAFETY: the list of these parts.
    let rest = unsafe {
        let message = message.get();
        std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen)
    };
    got + receive(one, rest, flags, call).max(0)
}

/// Makes a call that sends, and sends the rest if the bell has interrupted it.
#[inline(always)]
pub(super) fn sends_all(
    fd: c_int,
    parts: &[iovec],
    flags: c_int,
    send: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let rung = urgent::rung();
    let n = send();
    match urgent::rung() == rung {
        true => n,
        false => send_rest(fd, parts, flags, rung, n),
    }
}

/// Sends the rest, if there is one, and if the bell has interrupted the call.
#[cold]
pub(super) fn send_rest(
    fd: c_int,
    parts: &[iovec],
    flags: c_int,
    rung: u32,
    sent: ssize_t,
) -> ssize_t {
    let all = Parts::new(parts).filter(|_| sent > 0);
    let (Some(one), Some(all)) = (table::connection(fd), all) else { return sent };
    let left = all.len().saturating_sub(sent as usize);
    if left == 0 || !urgent::has_rung(rung) {
        return sent;
    }
    let mut cut = all.cut(sent as usize, left);
    let message = cut.as_message();
    // SAFETY: the caller's parts, but for those that were sent.
    let call = || unsafe { real::sendmsg(fd, &message, flags) };
    // SAFETY: the list of these parts.
    let rest = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
    sent + send_parts(one, rest, flags, call).max(0)
}
