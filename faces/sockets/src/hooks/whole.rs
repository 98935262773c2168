//! Calls that the bell has interrupted after they had moved some bytes: they move the rest, as
//! without this library they would not have ended.

use super::data::{receive, send_parts, takes};
use crate::parts::Parts;
use crate::table::{self, Connection};
use crate::urgent;
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
    let cut = all.cut(got as usize, left);
    got + receive(one, cut.parts(), flags, || cut.receive(one.fd, flags)).max(0)
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
    let cut = all.cut(sent as usize, left);
    sent + send_parts(one, cut.parts(), flags, || cut.send(fd, flags)).max(0)
}
