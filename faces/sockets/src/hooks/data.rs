//! Moves of bytes.

use super::quick::{self, Usual};
use super::whole::{receive_rest, send_rest, sends_all};
use crate::guard::Caller;
use crate::parts::Parts;
use crate::slot::NEVER;
use crate::sys::real;
use crate::table::{self, Connection};
use crate::why::{self, Why};
use crate::{agent, loan, owner, settings, stream, tcp_spin, tipc, urgent};
use libc::{c_int, c_uint, iovec, size_t, sockaddr, socklen_t, ssize_t};
use std::cell::Cell;
use weft_streams::count::Count;

/// Flags of a receive that the kernel alone serves.
pub const KERNEL: c_int = libc::MSG_OOB | libc::MSG_ERRQUEUE;

/// Makes a call of the kernel on a connection by TCP, and counts it.
/// `moves`: it takes the bytes that it returns. `None`: the connection shares memory, or the
/// descriptor is another file's by now.
fn by_tcp(
    one: &Connection,
    tcp: &Count,
    moves: bool,
    call: impl Fn() -> ssize_t,
) -> Option<ssize_t> {
    if let Some(under_way) = tcp.own_call(owner::thread()) {
        return Some(quick::count(one.fd, one.slot, under_way, moves, call));
    }
    if one.slot.is_final() {
        return Some(urgent::steady(call));
    }
    if one.slot.is_shared() {
        return None;
    }
    tcp.adopt(owner::thread());
    let under_way = tcp.call();
    // A thread that makes it share memory, or closes it, finds this call, or is found here.
    let is_plain = !one.slot.is_shared() && one.is_here();
    is_plain.then(|| quick::count(one.fd, one.slot, under_way, moves, call))
}

/// Receives. `call` is the call of the kernel.
pub fn receive(
    one: Connection,
    parts: &[iovec],
    flags: c_int,
    call: impl Fn() -> ssize_t,
) -> ssize_t {
    if flags & KERNEL != 0 {
        // The peer counts an urgent byte, this end does not.
        one.slot.set(NEVER);
        why::note(one.at, one.slot, Why::Urgent);
        return call();
    }
    let tcp = &one.slot.receiver.tcp;
    let spins = || match waits(flags) {
        true => tcp_spin::before(&one, &call),
        false => call(),
    };
    let rung = urgent::rung();
    match by_tcp(&one, tcp, takes(flags), spins) {
        Some(n) if flags & libc::MSG_WAITALL != 0 && urgent::rung() != rung => {
            receive_rest(one, parts, flags, rung, n)
        }
        Some(n) => n,
        None => receive_shared(one, parts, flags, call),
    }
}

/// True if a receive of a connection by TCP is left to the kernel.
#[inline]
fn is_usual(len: size_t, flags: c_int) -> bool {
    len > 0 && flags & (KERNEL | libc::MSG_WAITALL) == 0
}

/// True if a receive may wait.
#[inline]
fn waits(flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT == 0
}

/// True if a receive takes the bytes that it returns.
#[inline]
pub fn takes(flags: c_int) -> bool {
    flags & libc::MSG_PEEK == 0
}

/// Receives by a connection that shares memory.
#[inline(never)]
fn receive_shared(
    one: Connection,
    parts: &[iovec],
    flags: c_int,
    call: impl Fn() -> ssize_t,
) -> ssize_t {
    let (tcp, fd) = (&one.slot.receiver.tcp, one.fd);
    match (stream::enter(one), Parts::new(parts)) {
        // A confined program reads by its own call what is not in the ring.
        (Some(user), _) if !settings::is_on() && user.in_ring() == 0 => {
            let under_way = tcp.call();
            let n = call();
            under_way.done(if flags & libc::MSG_PEEK == 0 { n.max(0) as u64 } else { 0 });
            return n;
        }
        (Some(user), Some(parts)) if parts.len() > 0 => {
            let n = user.recv(parts, flags);
            if n >= 0 || !is_other_file(fd) {
                return n;
            }
        }
        _ => {}
    }
    call()
}

/// Receives no bytes, as the calls of sockets do: waits until there are some, or the end. `call` is
/// the call of the kernel.
pub fn receive_none(one: Connection, flags: c_int, call: impl Fn() -> ssize_t) -> ssize_t {
    let byte = Cell::new(0u8);
    let part = [iovec { iov_base: byte.as_ptr().cast(), iov_len: 1 }];
    let flags = flags & !libc::MSG_WAITALL | libc::MSG_PEEK;
    match (stream::enter(one), Parts::new(&part)) {
        (Some(user), Some(parts)) if flags & KERNEL == 0 => user.recv(parts, flags).min(0),
        _ => call(),
    }
}

/// True if a descriptor turns out to be another file, as it was closed and opened past this
/// library.
fn is_other_file(fd: c_int) -> bool {
    let other = real::errno() == libc::ENOTSOCK;
    if other {
        table::forget(fd);
    }
    other
}

/// Sends. `call` is the call of the kernel.
pub fn send_parts(
    one: Connection,
    parts: &[iovec],
    flags: c_int,
    call: impl Fn() -> ssize_t,
) -> ssize_t {
    if flags & libc::MSG_OOB != 0 {
        one.slot.set(NEVER);
        why::note(one.at, one.slot, Why::Urgent);
    }
    match by_tcp(&one, &one.slot.sender.tcp, true, &call) {
        Some(n) => n,
        None => send_shared(one, parts, flags, call),
    }
}

/// Sends by a connection that shares memory.
#[inline(never)]
fn send_shared(
    one: Connection,
    parts: &[iovec],
    flags: c_int,
    call: impl Fn() -> ssize_t,
) -> ssize_t {
    let fd = one.fd;
    if !settings::is_on() {
        return send_by_kernel(one, call);
    }
    match (stream::enter(one), Parts::new(parts)) {
        (Some(user), Some(parts)) if parts.len() > 0 => {
            let n = user.send(parts, flags);
            if n >= 0 || !is_other_file(fd) {
                return n;
            }
        }
        _ => {}
    }
    call()
}

/// Sends by a call that the kernel alone serves.
pub fn send_by_kernel(one: Connection, call: impl FnOnce() -> ssize_t) -> ssize_t {
    let user = stream::enter(one);
    let under_way = match user.as_ref().map(|user| user.begins_tcp(0)) {
        Some(None) => return -1,
        Some(Some(call)) => call,
        None => one.slot.sender.by_tcp(None),
    };
    let n = call();
    under_way.done(n.max(0) as u64);
    loan::has_sent(&one);
    if n > 0 && one.slot.is_plain() {
        agent::after_call(one.slot, one.fd);
    }
    n
}

/// The parts of a call, as a caller names them. `None`: the kernel says what is wrong.
pub fn parts_of<'a>(parts: Caller<iovec>, n: usize) -> Option<&'a [iovec]> {
    (n <= 1024).then(|| parts.list(n)).flatten()
}

/// The part of a call that names one.
fn part(base: Caller<u8>, len: size_t) -> [iovec; 1] {
    [iovec { iov_base: base.at().cast(), iov_len: len }]
}

/// Flags of a call on a socket for those of a call at a place of a file.
fn flags_at(flags: c_int) -> c_int {
    match flags & libc::RWF_NOWAIT {
        0 => 0,
        _ => libc::MSG_DONTWAIT,
    }
}

/// read(2).
#[inline(always)]
pub fn read(fd: c_int, buf: Caller<u8>, len: size_t, call: impl Fn() -> ssize_t + Copy) -> ssize_t {
    let done = quick::on(fd, quick::incoming, Usual::ALL, call);
    done.unwrap_or_else(|| {
        quick::rest(move || match table::connection(fd) {
            Some(one) => receive(one, &part(buf, len), 0, call),
            None if tipc::is(fd) => tipc::receive(fd, &part(buf, len), 0, None),
            None => call(),
        })
    })
}

/// readv(2).
#[inline(always)]
pub fn readv(
    fd: c_int,
    parts: Caller<iovec>,
    n: c_int,
    call: impl Fn() -> ssize_t + Copy,
) -> ssize_t {
    let done = quick::on(fd, quick::incoming, Usual::ALL, call);
    done.unwrap_or_else(|| {
        quick::rest(move || {
            let list = parts_of(parts, n.max(0) as usize);
            match (table::connection(fd), list) {
                (Some(one), Some(list)) => receive(one, list, 0, call),
                (None, Some(list)) if tipc::is(fd) => tipc::receive(fd, list, 0, None),
                _ => call(),
            }
        })
    })
}

/// preadv2(2): a socket is read where the place is -1, as it has none.
pub fn readv_at(
    fd: c_int,
    parts: Caller<iovec>,
    n: c_int,
    (at, flags): (i64, c_int),
    call: impl Fn() -> ssize_t,
) -> ssize_t {
    match table::connection(fd).zip(parts_of(parts, n.max(0) as usize)) {
        Some((one, list)) if at == -1 => receive(one, list, flags_at(flags), call),
        _ => call(),
    }
}

/// recv(2), and recvfrom(2) without an address.
#[inline(always)]
pub fn recv(
    fd: c_int,
    buf: Caller<u8>,
    len: size_t,
    flags: c_int,
    call: impl Fn() -> ssize_t + Copy,
) -> ssize_t {
    let usual =
        Usual { is_usual: is_usual(len, flags), may_spin: waits(flags), moves: takes(flags) };
    let done = quick::on(fd, quick::incoming, usual, call);
    done.unwrap_or_else(|| {
        quick::rest(move || match table::connection(fd) {
            Some(one) if len == 0 => receive_none(one, flags, call),
            Some(one) => receive(one, &part(buf, len), flags, call),
            None if tipc::is(fd) => tipc::receive(fd, &part(buf, len), flags, None),
            None => call(),
        })
    })
}

/// recvfrom(2) with an address.
pub fn recv_from(
    fd: c_int,
    (buf, len): (Caller<u8>, size_t),
    flags: c_int,
    (from, from_len): (Caller<sockaddr>, Caller<socklen_t>),
    call: impl Fn() -> ssize_t,
) -> ssize_t {
    let Some(one) = table::connection(fd) else {
        if tipc::is(fd) {
            return tipc::receive(fd, &part(buf, len), flags, Some((from, from_len)));
        }
        return call();
    };
    let n = match len {
        0 => receive_none(one, flags, call),
        _ => receive(one, &part(buf, len), flags, call),
    };
    // TCP names nobody.
    match n < 0 || from_len.is_null() || from_len.put(0) {
        true => n,
        false => real::fail(libc::EFAULT) as ssize_t,
    }
}

/// write(2), and send(2) with flags.
#[inline(always)]
pub fn send(
    fd: c_int,
    buf: Caller<u8>,
    len: size_t,
    flags: c_int,
    call: impl Fn() -> ssize_t + Copy,
) -> ssize_t {
    send_to(fd, (buf, len), flags, (Caller::NONE, 0), call)
}

/// sendto(2).
#[inline(always)]
pub fn send_to(
    fd: c_int,
    (buf, len): (Caller<u8>, size_t),
    flags: c_int,
    to: (Caller<sockaddr>, socklen_t),
    call: impl Fn() -> ssize_t + Copy,
) -> ssize_t {
    let usual = Usual { is_usual: flags & libc::MSG_OOB == 0, may_spin: false, moves: true };
    sends_all(fd, &part(buf, len), flags, || {
        let done = quick::on(fd, quick::out, usual, call);
        done.unwrap_or_else(|| {
            quick::rest(move || match table::connection(fd) {
                Some(one) => send_parts(one, &part(buf, len), flags, call),
                None if tipc::is(fd) => tipc::send(fd, &part(buf, len), flags, to),
                None => call(),
            })
        })
    })
}

/// writev(2).
#[inline(always)]
pub fn writev(
    fd: c_int,
    parts: Caller<iovec>,
    n: c_int,
    call: impl Fn() -> ssize_t + Copy,
) -> ssize_t {
    let list = move || parts_of(parts, n.max(0) as usize);
    let rung = urgent::rung();
    let done = quick::on(fd, quick::out, Usual { may_spin: false, ..Usual::ALL }, call);
    let sent = done.unwrap_or_else(|| {
        quick::rest(move || match (table::connection(fd), list()) {
            (Some(one), Some(list)) => send_parts(one, list, 0, call),
            (None, Some(list)) if tipc::is(fd) => tipc::send(fd, list, 0, (Caller::NONE, 0)),
            _ => call(),
        })
    });
    match urgent::rung() == rung {
        true => sent,
        false => list().map_or(sent, |list| send_rest(fd, list, 0, rung, sent)),
    }
}

/// pwritev2(2): a socket is written where the place is -1, as it has none.
pub fn writev_at(
    fd: c_int,
    parts: Caller<iovec>,
    n: c_int,
    (at, flags): (i64, c_int),
    call: impl Fn() -> ssize_t,
) -> ssize_t {
    match table::connection(fd).zip(parts_of(parts, n.max(0) as usize)) {
        Some((one, list)) if at == -1 => send_parts(one, list, flags_at(flags), call),
        _ => call(),
    }
}

/// sendfile(2).
pub fn send_file(to: c_int, call: impl FnOnce() -> ssize_t) -> ssize_t {
    match table::connection(to) {
        Some(one) => send_by_kernel(one, call),
        None => call(),
    }
}

/// splice(2). `call` is the call of the kernel, for so many bytes.
pub fn splice(
    from: c_int,
    to: c_int,
    len: size_t,
    flags: c_uint,
    call: impl Fn(size_t) -> ssize_t,
) -> ssize_t {
    if let Some(one) = table::connection(to) {
        return send_by_kernel(one, || call(len));
    }
    let Some(one) = table::connection(from) else { return call(len) };
    if let Some(n) = by_tcp(&one, &one.slot.receiver.tcp, true, || call(len)) {
        return n;
    }
    match stream::enter(one) {
        Some(user) => user.splice(to, len, flags, call),
        None => call(len),
    }
}
