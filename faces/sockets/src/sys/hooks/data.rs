//! Functions that move bytes.

use super::programs::{hands_over, passed};
use super::whole::{receive_rest, send_rest, sends_all};
use super::{life, quick, waits};
use crate::sys::parts::Parts;
use crate::sys::slot::{INQ, NEVER};
use crate::sys::table::{self, Connection};
use crate::sys::why::{self, Why};
use crate::sys::{
    clock, giving, guard, holders, line, look, owner, real, settings, stream, tipc, urgent, wait,
};
use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off64_t, off_t, size_t, sockaddr, socklen_t,
    ssize_t, timespec,
};
use weft_streams::count::Count;

/// Flags of a receive that the kernel alone serves.
const KERNEL: c_int = libc::MSG_OOB | libc::MSG_ERRQUEUE;

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
pub(super) fn receive(
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
    let looks = || match waits(flags) {
        true => look::before(&one, &call),
        false => call(),
    };
    let rung = urgent::rung();
    match by_tcp(&one, tcp, takes(flags), looks) {
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
pub(super) fn takes(flags: c_int) -> bool {
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
fn receive_none(one: Connection, flags: c_int, call: impl Fn() -> ssize_t) -> ssize_t {
    let mut byte = 0u8;
    let parts = part((&raw mut byte).cast(), 1);
    let flags = flags & !libc::MSG_WAITALL | libc::MSG_PEEK;
    match (stream::enter(one), Parts::new(&parts)) {
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
pub(super) fn send_parts(
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
fn send_by_kernel(one: Connection, call: impl FnOnce() -> ssize_t) -> ssize_t {
    let user = stream::enter(one);
    let under_way = match user.as_ref().map(|user| user.begins_tcp(0)) {
        Some(None) => return -1,
        Some(Some(call)) => call,
        None => one.slot.sender.by_tcp(None),
    };
    let n = call();
    under_way.done(n.max(0) as u64);
    giving::has_sent(&one);
    if n > 0 && one.slot.is_plain() {
        line::after_call(one.slot, one.fd);
    }
    n
}

fn part(base: *const c_void, len: size_t) -> [iovec; 1] {
    [iovec { iov_base: base.cast_mut(), iov_len: len }]
}

/// Returns the parts that a caller names. `None`: the kernel says what is wrong.
///
/// # Safety
/// The caller's parts are valid.
pub(super) unsafe fn parts_of<'a>(parts: *const iovec, n: usize) -> Option<&'a [iovec]> {
    // SAFETY: the caller's array has `n` parts, if it is there.
    unsafe {
        let is_there = !parts.is_null() && n <= 1024 && guard::is_readable(parts, n);
        is_there.then(|| std::slice::from_raw_parts(parts, n))
    }
}

/// Receives on a socket of TIPC.
///
/// # Safety
/// The caller's parts.
unsafe fn of_tipc(fd: c_int, parts: &[iovec], flags: c_int) -> ssize_t {
    let (from, len) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the caller's parts, and no room for an address.
    unsafe { tipc::receive(fd, parts, flags, from, len) }
}

/// Sends on a socket of TIPC.
///
/// # Safety
/// The caller's parts.
unsafe fn to_tipc(fd: c_int, parts: &[iovec], flags: c_int) -> ssize_t {
    // SAFETY: the caller's parts, and no address.
    unsafe { tipc::send(fd, parts, flags, std::ptr::null(), 0) }
}

/// read(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::read(fd, buf, len) };
    let done = quick::on(fd, quick::incoming, true, true, true, call);
    done.unwrap_or_else(|| {
        quick::rest(move || {
            match table::connection(fd) {
                Some(one) => receive(one, &part(buf, len), 0, call),
                // SAFETY: the caller's arguments.
                None if tipc::is(fd) => unsafe { of_tipc(fd, &part(buf, len), 0) },
                None => call(),
            }
        })
    })
}

/// readv(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn readv(fd: c_int, parts: *const iovec, n: c_int) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::readv(fd, parts, n) };
    let done = quick::on(fd, quick::incoming, true, true, true, call);
    done.unwrap_or_else(|| {
        quick::rest(move || {
            // SAFETY: the caller's parts.
            let list = unsafe { parts_of(parts, n.max(0) as usize) };
            match (table::connection(fd), list) {
                (Some(one), Some(list)) => receive(one, list, 0, call),
                // SAFETY: the caller's arguments.
                (None, Some(list)) if tipc::is(fd) => unsafe { of_tipc(fd, list, 0) },
                _ => call(),
            }
        })
    })
}

/// recv(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn recv(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::recv(fd, buf, len, flags) };
    let done =
        quick::on(fd, quick::incoming, is_usual(len, flags), waits(flags), takes(flags), call);
    done.unwrap_or_else(|| {
        quick::rest(move || {
            match table::connection(fd) {
                Some(one) if len == 0 => receive_none(one, flags, call),
                Some(one) => receive(one, &part(buf, len), flags, call),
                // SAFETY: the caller's arguments.
                None if tipc::is(fd) => unsafe { of_tipc(fd, &part(buf, len), flags) },
                None => call(),
            }
        })
    })
}

/// recvfrom(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::recvfrom(fd, buf, len, flags, from, from_len) };
    let done = quick::on(
        fd,
        quick::incoming,
        is_usual(len, flags) && from.is_null(),
        waits(flags),
        takes(flags),
        call,
    );
    done.unwrap_or_else(|| {
        quick::rest(move || {
            let Some(one) = table::connection(fd) else {
                if tipc::is(fd) {
                    // SAFETY: the caller's arguments.
                    return unsafe { tipc::receive(fd, &part(buf, len), flags, from, from_len) };
                }
                return call();
            };
            let n = match len {
                0 => receive_none(one, flags, call),
                _ => receive(one, &part(buf, len), flags, call),
            };
            if n >= 0 && !from.is_null() && !from_len.is_null() {
                // SAFETY: the caller's; TCP names nobody.
                let is_there = unsafe { guard::write(from_len, 0) };
                return if is_there { n } else { real::fail(libc::EFAULT) as ssize_t };
            }
            n
        })
    })
}

/// recvmsg(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::recvmsg(fd, message, flags) };
    // SAFETY: the caller's message, if it is there.
    let to = || unsafe { guard::get(message) };
    let Some((one, to)) = table::connection(fd).and_then(|one| Some((one, to()?))) else {
        if tipc::is(fd) && !message.is_null() {
            // SAFETY: the caller's message.
            return unsafe { tipc::receive_message(fd, &mut *message, flags) };
        }
        let n = call();
        if n >= 0 {
            // SAFETY: the kernel has filled the message.
            unsafe {
                passed(&*message, life::came);
            }
        }
        return n;
    };
    // SAFETY: the caller's parts.
    let Some(parts) = (unsafe { parts_of(to.msg_iov, to.msg_iovlen) }) else {
        return call();
    };
    let shared = one.slot.is_shared() && flags & KERNEL == 0;
    let n = match parts.iter().all(|part| part.iov_len == 0) {
        true => receive_none(one, flags, call),
        false => receive(one, parts, flags, call),
    };
    if n >= 0 && shared {
        let mut told = *to;
        (told.msg_namelen, told.msg_controllen, told.msg_flags) = (0, 0, 0);
        if one.slot.has(INQ) && to.msg_controllen > 0 && !to.msg_control.is_null() {
            // SAFETY: the caller's room for control messages.
            unsafe { tells_left(&one, to.msg_controllen, &mut told) };
        }
        // SAFETY: as above; the call has returned.
        if !unsafe { guard::write(message, told) } {
            return real::fail(libc::EFAULT) as ssize_t;
        }
    }
    n
}

/// Tells the number of bytes that are left to read, as a socket does with TCP_INQ.
///
/// # Safety
/// The message's control messages are the caller's, of so much room.
unsafe fn tells_left(one: &Connection, room: usize, message: &mut msghdr) {
    let Some(left) = stream::enter(*one).map(|user| user.left()) else { return };
    // SAFETY: no memory is passed.
    let (len, space) = unsafe { (libc::CMSG_LEN(4) as usize, libc::CMSG_SPACE(4) as usize) };
    if room < len {
        message.msg_flags |= libc::MSG_CTRUNC;
        return;
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Left(libc::cmsghdr, c_int);
    // SAFETY: all-zero is a valid value; the caller's room.
    unsafe {
        let mut head: libc::cmsghdr = std::mem::zeroed();
        head.cmsg_len = len as _;
        (head.cmsg_level, head.cmsg_type) = (libc::IPPROTO_TCP, libc::TCP_INQ);
        let all = Left(head, left);
        if guard::copy(message.msg_control.cast(), (&raw const all).cast(), len) {
            message.msg_controllen = space.min(room) as _;
        }
    }
}

/// recvmmsg(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    n: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let is_ours = table::connection(fd).is_some() || tipc::is(fd);
    // SAFETY: the caller's time.
    let time = || unsafe { waits::time_of(timeout) };
    let Some(time) = (is_ours && n > 0 && !messages.is_null()).then(time).flatten() else {
        // SAFETY: the caller's arguments.
        return unsafe { real::recvmmsg(fd, messages, n, flags, timeout) };
    };
    let from = clock::now_ns();
    let most = time.map(|t| (t.tv_sec as u64).saturating_mul(1_000_000_000) + t.tv_nsec as u64);
    let left = || most.map(|most| most.saturating_sub(clock::now_ns().saturating_sub(from)));
    let (mut done, mut flags) = (0, flags);
    while done < n.min(1024) && (done == 0 || left() != Some(0)) {
        // SAFETY: the caller's messages.
        unsafe {
            let one = messages.wrapping_add(done as usize);
            let got = recvmsg(fd, &raw mut (*one).msg_hdr, flags & !libc::MSG_WAITFORONE);
            if got < 0 || !guard::write(&raw mut (*one).msg_len, got as c_uint) {
                break;
            }
        }
        done += 1;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
    }
    if let Some(left) = left().filter(|_| done > 0) {
        let (seconds, rest) = (left / 1_000_000_000, left % 1_000_000_000);
        let time = timespec { tv_sec: seconds as _, tv_nsec: rest as _ };
        // SAFETY: the caller's time, to which the kernel writes too.
        unsafe { guard::write(timeout, time) };
    }
    if done > 0 {
        done as c_int
    } else {
        -1
    }
}

/// write(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::write(fd, buf, len) };
    sends_all(fd, &part(buf, len), 0, || {
        let done = quick::on(fd, quick::out, true, false, true, call);
        done.unwrap_or_else(|| {
            quick::rest(move || {
                match table::connection(fd) {
                    Some(one) => send_parts(one, &part(buf, len), 0, call),
                    // SAFETY: the caller's arguments.
                    None if tipc::is(fd) => unsafe { to_tipc(fd, &part(buf, len), 0) },
                    None => call(),
                }
            })
        })
    })
}

/// writev(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn writev(fd: c_int, parts: *const iovec, n: c_int) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::writev(fd, parts, n) };
    // SAFETY: the caller's parts.
    let list = move || unsafe { parts_of(parts, n.max(0) as usize) };
    let rung = urgent::rung();
    let done = quick::on(fd, quick::out, true, false, true, call);
    let sent = done.unwrap_or_else(|| {
        quick::rest(move || {
            match (table::connection(fd), list()) {
                (Some(one), Some(list)) => send_parts(one, list, 0, call),
                // SAFETY: the caller's arguments.
                (None, Some(list)) if tipc::is(fd) => unsafe { to_tipc(fd, list, 0) },
                _ => call(),
            }
        })
    });
    match urgent::rung() == rung {
        true => sent,
        false => list().map_or(sent, |list| send_rest(fd, list, 0, rung, sent)),
    }
}

/// send(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::send(fd, buf, len, flags) };
    sends_all(fd, &part(buf, len), flags, || {
        let done = quick::on(fd, quick::out, flags & libc::MSG_OOB == 0, false, true, call);
        done.unwrap_or_else(|| {
            quick::rest(move || {
                match table::connection(fd) {
                    Some(one) => send_parts(one, &part(buf, len), flags, call),
                    // SAFETY: the caller's arguments.
                    None if tipc::is(fd) => unsafe { to_tipc(fd, &part(buf, len), flags) },
                    None => call(),
                }
            })
        })
    })
}

/// sendto(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::sendto(fd, buf, len, flags, to, to_len) };
    sends_all(fd, &part(buf, len), flags, || {
        let done = quick::on(fd, quick::out, flags & libc::MSG_OOB == 0, false, true, call);
        done.unwrap_or_else(|| {
            quick::rest(move || {
                match table::connection(fd) {
                    Some(one) => send_parts(one, &part(buf, len), flags, call),
                    // SAFETY: the caller's arguments.
                    None if tipc::is(fd) => unsafe {
                        tipc::send(fd, &part(buf, len), flags, to, to_len)
                    },
                    None => call(),
                }
            })
        })
    })
}

/// A connection is by TCP from now on.
pub fn stay_tcp(one: &Connection) {
    stay_tcp_as(one, Why::Call);
}

/// The same, for a reason.
pub fn stay_tcp_as(one: &Connection, reason: Why) {
    one.slot.set(NEVER);
    // A thread that is about to join it has done so then.
    drop(holders::no_fork());
    why::note(one.at, one.slot, reason);
    wait::never(one);
    if let Some(user) = stream::enter(*one) {
        user.end_sending();
    }
}

/// A connection is by TCP from now on, and what waits in its ring too, as somebody without this
/// library is to read it.
///
/// # Errors
/// Bytes stay in the ring, or the connection has ended.
pub fn hand_over(one: &Connection) -> Result<(), giving::Why> {
    hand_over_as(one, Why::Passed)
}

/// The same, for a reason.
///
/// # Errors
/// As above.
pub fn hand_over_as(one: &Connection, reason: Why) -> Result<(), giving::Why> {
    stay_tcp_as(one, reason);
    giving::give_back(one)
}

/// sendmsg(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::sendmsg(fd, message, flags) };
    // SAFETY: the caller's message, if it is there. Without a connection none is handed over.
    let of = unsafe { (guard::is_on() || tipc::is(fd)).then(|| guard::get(message)).flatten() };
    let Some(of) = of else { return call() };
    let Some(one) = table::connection(fd) else {
        if tipc::is(fd) {
            // SAFETY: the caller's message.
            return unsafe { tipc::send_message(fd, of, flags) };
        }
        // SAFETY: the caller's message.
        return match unsafe { hands_over(of) } {
            true => call(),
            false => real::fail(libc::EAGAIN) as ssize_t,
        };
    };
    if of.msg_controllen > 0 {
        return send_by_kernel(one, call);
    }
    // SAFETY: the caller's parts.
    match unsafe { parts_of(of.msg_iov, of.msg_iovlen) } {
        Some(parts) => sends_all(fd, parts, flags, || send_parts(one, parts, flags, call)),
        None => call(),
    }
}

/// sendmmsg(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    n: c_uint,
    flags: c_int,
) -> c_int {
    if table::connection(fd).is_none() && !tipc::is(fd) || messages.is_null() {
        // SAFETY: the caller's arguments, and messages.
        return unsafe {
            let len = n.min(1024) as usize;
            if guard::is_on() && !messages.is_null() && guard::is_readable(messages, len) {
                let list = std::slice::from_raw_parts(messages, len);
                if !list.iter().all(|one| hands_over(&one.msg_hdr)) {
                    return real::fail(libc::EAGAIN);
                }
            }
            real::sendmmsg(fd, messages, n, flags)
        };
    }
    let mut done = 0;
    while done < n.min(1024) {
        // SAFETY: the caller's messages.
        unsafe {
            let one = messages.wrapping_add(done as usize);
            let sent = sendmsg(fd, &raw const (*one).msg_hdr, flags);
            if sent < 0 || !guard::write(&raw mut (*one).msg_len, sent as c_uint) {
                break;
            }
            let one = &*one;
            let parts = parts_of(one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen);
            done += 1;
            if parts.and_then(Parts::new).is_some_and(|parts| (sent as usize) < parts.len()) {
                break;
            }
        }
    }
    if done > 0 || n == 0 {
        done as c_int
    } else {
        -1
    }
}

/// sendfile(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    at: *mut off_t,
    len: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::sendfile(to, from, at, len) };
    match table::connection(to) {
        Some(one) => send_by_kernel(one, call),
        None => call(),
    }
}

/// sendfile(2), as programs with large files call it.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    at: *mut off64_t,
    len: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move || unsafe { real::sendfile64(to, from, at, len) };
    match table::connection(to) {
        Some(one) => send_by_kernel(one, call),
        None => call(),
    }
}

/// splice(2).
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let call = move |len| unsafe { real::splice(from, from_at, to, to_at, len, flags) };
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
