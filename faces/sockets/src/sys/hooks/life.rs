//! Functions that make, copy, change and close descriptors.

use super::data::{hand_over, stay_tcp, stay_tcp_as};
use super::programs::{self, Refused};
use crate::sys::slot::{BULK, CORKED, DEEP, INQ, NAGLE, NONBLOCKING, SHOWN, SHUT, TOLD};
use crate::sys::table::{self, Connection, Ended};
use crate::sys::why::{self, Why};
use crate::sys::{giving, guard, line, real, set, settings, stream, tcp, tipc, vfork, wait};
use libc::{c_char, c_int, c_long, c_uint, c_ulong, c_void, sockaddr, socklen_t, FILE};
use std::sync::atomic::{fence, Ordering};

/// A socket was made.
pub fn made(fd: c_int, domain: c_int, kind: c_int, protocol: c_int) {
    let kind = kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    let is_internet = matches!(domain, libc::AF_INET | libc::AF_INET6);
    match is_internet && kind == libc::SOCK_STREAM && matches!(protocol, 0 | libc::IPPROTO_TCP) {
        true => table::begin_tcp(fd),
        false => table::forget(fd),
    }
}

/// connect(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    if tipc::is(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { tipc::connect(fd, to, len) };
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real::connect(fd, to, len) };
    let was = real::errno();
    let is_refused = result != 0 && was == libc::EFAULT;
    if is_refused || to.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return result;
    }
    // SAFETY: the caller's address has a family.
    let family = c_int::from(unsafe { (*to).sa_family });
    if family == libc::AF_UNSPEC && result == 0 {
        if let Some(one) = table::connection(fd) {
            stay_tcp(&one);
        }
    } else if settings::is_on()
        && matches!(family, libc::AF_INET | libc::AF_INET6)
        && (result == 0 || was == libc::EINPROGRESS || was == libc::EINTR)
        && (table::is_tcp(fd) || tcp::is_tcp(fd))
    {
        match table::connection(fd) {
            // The connection is asked for again, or was put into an epoll set before.
            Some(one) if one.slot.is_plain() => {}
            // The socket was disconnected, and connects again.
            Some(_) => table::begin(fd).iter().for_each(stay_tcp),
            None => drop(table::begin(fd)),
        }
    }
    real::set_errno(was);
    result
}

fn accepted(listener: c_int, fd: c_int) -> c_int {
    if fd >= 0 {
        let was = real::errno();
        let is_known = table::is_tcp(listener);
        match settings::is_on() && (is_known || tcp::is_tcp(fd)) {
            true => drop(table::begin(fd)),
            false => table::forget(fd),
        }
        if !is_known && table::connection(fd).is_some() {
            // The listener was made before this program was started, or elsewhere.
            table::begin_tcp(listener);
        }
        real::set_errno(was);
    }
    fd
}

/// accept(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { accept4(fd, from, len, 0) }
}

/// accept4(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if tipc::is(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { tipc::accept(fd, from, len, flags) };
    }
    // SAFETY: the caller's arguments.
    let new = unsafe {
        match flags {
            0 => real::accept(fd, from, len),
            _ => real::accept4(fd, from, len, flags),
        }
    };
    accepted(fd, new)
}

/// The last descriptor of a connection in this process is about to be closed.
fn ends(one: &Connection) {
    let slot = one.slot;
    let alone = slot.holders.is_own();
    line::closes(one.at, slot, one.fd, alone);
    giving::has_sent(one);
    if alone {
        set::closed(one);
    } else if slot.holders.is_own_or_strangers() {
        // Nobody else can read what could not go back to TCP.
        let is_left = |user: stream::Use| user.in_ring() > 0;
        if stream::enter(*one).is_some_and(is_left) {
            giving::reset(one);
        }
    }
    let Some(user) = stream::enter(*one).filter(|_| alone) else { return };
    user.end_receiving();
    if slot.has(SHOWN) {
        match user.in_ring() {
            // SAFETY: no memory is passed.
            0 => _ = unsafe { real::shutdown(one.fd, libc::SHUT_WR) },
            _ => giving::reset_socket(one.fd),
        }
    } else if user.in_ring() > 0 {
        // TCP resets a connection that is closed before all was read.
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let (at, len) = ((&raw const linger).cast(), size_of::<libc::linger>() as socklen_t);
        // SAFETY: the option's value, of this length.
        unsafe { real::setsockopt(one.fd, libc::SOL_SOCKET, libc::SO_LINGER, at, len) };
    }
}

/// A descriptor is about to be closed. The result is to be given to `closed` after that.
fn closes(fd: c_int) -> Ended {
    if vfork::is_child() {
        return Ended::Nothing;
    }
    if let Some(one) = table::connection(fd).filter(table::is_last) {
        ends(&one);
    }
    tipc::forget(fd);
    table::remove(fd)
}

fn closed(ended: Ended) {
    if let Ended::Connection(at) = ended {
        table::release(at);
    }
}

/// close(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if line::is_own(fd) {
        return real::fail(libc::EBADF);
    }
    let ended = closes(fd);
    // SAFETY: the caller's argument.
    let result = unsafe { real::close(fd) };
    closed(ended);
    result
}

/// close(2) under its other name.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __close(fd: c_int) -> c_int {
    // SAFETY: the caller's argument.
    unsafe { close(fd) }
}

/// close_range(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
    if flags & CLOEXEC == 0 && first <= last && !vfork::is_child() {
        let end = last.min(c_int::MAX as c_uint - 1) as c_int + 1;
        let mut from = first.min(c_int::MAX as c_uint - 1) as c_int;
        while let Some(fd) = table::next(from, end) {
            closed(closes(fd));
            from = fd + 1;
        }
        tipc::forget_all(first, last);
    }
    let mut first = first;
    // All but this library's own descriptors.
    while let Some(own) = line::next_own(first).filter(|&own| own <= last) {
        // SAFETY: the caller's arguments.
        if own > first && unsafe { real::close_range(first, own - 1, flags) } != 0 {
            return -1;
        }
        if own == last {
            return 0;
        }
        first = own + 1;
    }
    // SAFETY: the caller's arguments.
    unsafe { real::close_range(first, last, flags) }
}

/// dup2(2) under its other name.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { dup2(from, to) }
}

/// connect(2) under its other name.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { connect(fd, to, len) }
}

/// fcntl(2) under its other name.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn __fcntl(fd: c_int, command: c_int, arg: c_long) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fcntl(fd, command, arg) }
}

/// closefrom(3).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: the caller's argument.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

fn copied(from: c_int, to: c_int) -> c_int {
    if to >= 0 && vfork::is_child() {
        // The copy is for the program that the child becomes.
        if programs::is_for_strangers(from).is_err() {
            // SAFETY: the copy, which is not the program's own yet.
            unsafe { real::close(to) };
            return Refused.fail();
        }
    } else if to >= 0 {
        table::copy(from, to);
        tipc::copied(from, to);
    }
    to
}

/// dup(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's argument.
    copied(fd, unsafe { real::dup(fd) })
}

/// A descriptor is about to be replaced by a copy of another one.
fn replaces(from: c_int, to: c_int) -> Ended {
    // SAFETY: no memory is passed.
    let is_open = unsafe { real::fcntl(from, libc::F_GETFD, 0) } >= 0;
    match is_open && from != to {
        true => closes(to),
        false => Ended::Nothing,
    }
}

/// dup2(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn dup2(from: c_int, to: c_int) -> c_int {
    let ended = replaces(from, to);
    // SAFETY: the caller's arguments.
    let result = unsafe { real::dup2(from, to) };
    closed(ended);
    if from == to {
        result
    } else {
        copied(from, result)
    }
}

/// dup3(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    let ended = replaces(from, to);
    // SAFETY: the caller's arguments.
    let result = unsafe { real::dup3(from, to, flags) };
    closed(ended);
    copied(from, result)
}

/// fcntl(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, arg: c_long) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::fcntl(fd, command, arg) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => return copied(fd, result),
        libc::F_SETFL if result == 0 => {
            if let Some(one) = table::connection(fd) {
                changes_mode(&one, arg as c_int & libc::O_NONBLOCK != 0);
                if arg as c_int & libc::O_ASYNC != 0 {
                    stay_tcp_as(&one, Why::Signals);
                }
            }
        }
        libc::F_SETOWN | F_SETSIG | F_SETOWN_EX => {
            if let Some(one) = table::connection(fd) {
                stay_tcp_as(&one, Why::Signals);
            }
        }
        _ => {}
    }
    result
}

/// fcntl(2), as programs with large files call it.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, arg: c_long) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fcntl(fd, command, arg) }
}

/// Their numbers on all machines that this library is built for.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;

/// True if a command of fcntl(2) is not the kernel's alone.
pub(super) fn is_hooked(command: c_int) -> bool {
    matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETFL)
        || matches!(command, libc::F_SETOWN | F_SETSIG | F_SETOWN_EX)
}

/// A descriptor came from another process.
pub(super) fn came(fd: c_int) {
    if fd >= 0 {
        let was = real::errno();
        table::forget(fd);
        tipc::look(fd);
        real::set_errno(was);
    }
}

/// True if this library may have set TCP_NODELAY on a connection, which the program is not to see.
fn hides_nagle(one: &Connection) -> bool {
    one.slot.is_shared() || one.slot.has(BULK)
}

fn changes_mode(one: &Connection, is_nonblocking: bool) {
    match is_nonblocking {
        true => one.slot.set(NONBLOCKING),
        false => one.slot.clear(NONBLOCKING),
    }
}

/// ioctl(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    if tipc::is(fd) {
        // SAFETY: the caller's arguments.
        if let Some(result) = unsafe { tipc::ioctl(fd, request, arg) } {
            return result;
        }
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real::ioctl(fd, request, arg) };
    let Some(one) = table::connection(fd).filter(|_| result == 0 && !arg.is_null()) else {
        return result;
    };
    let number = arg.cast::<c_int>();
    // SAFETY: these requests have a number as their argument.
    unsafe {
        match request {
            libc::FIONBIO => changes_mode(&one, *number != 0),
            libc::FIOASYNC => stay_tcp_as(&one, Why::Signals),
            libc::FIONREAD => {
                if let Some(user) = stream::enter(one) {
                    let more = user.unread((*number).max(0) as u64);
                    *number = (*number).saturating_add(more as c_int).max(0);
                }
            }
            tcp::SIOCATMARK => {
                if let Some(user) = stream::enter(one) {
                    *number = user.is_at_mark(*number != 0).into();
                }
            }
            _ => {}
        }
    }
    result
}

/// sockatmark(3), for which the C library asks the kernel past this library.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn sockatmark(fd: c_int) -> c_int {
    let mut mark: c_int = 0;
    // SAFETY: a number is written.
    match unsafe { ioctl(fd, tcp::SIOCATMARK, (&raw mut mark).cast()) } {
        0 => mark,
        failed => failed,
    }
}

/// shutdown(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if tipc::is(fd) {
        return tipc::shutdown(fd, how);
    }
    let connection = table::connection(fd);
    if how != libc::SHUT_RD {
        connection.iter().for_each(|one| one.slot.set(SHUT));
        // Either this call finds memory that comes now, or who brings it finds the flag.
        fence(Ordering::SeqCst);
    }
    if let Some((one, user)) = connection.and_then(|one| Some((one, stream::enter(one)?))) {
        if how != libc::SHUT_RD {
            // The bytes that the agent sends come before the end.
            giving::is_back(&one, giving::EVER);
            user.say_end();
        }
        if how != libc::SHUT_WR {
            user.end_receiving();
            // From now on TCP tells of an end that is none of the peer's.
            one.slot.set(TOLD);
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real::shutdown(fd, how) }
}

/// setsockopt(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if tipc::is(fd) {
        // SAFETY: the caller's arguments.
        if let Some(result) = unsafe { tipc::setsockopt(fd, level, name, value, len) } {
            return result;
        }
    }
    let is_number = |_: &Connection| level == libc::IPPROTO_TCP && len >= 4 && !value.is_null();
    // SAFETY: the caller's value of this length, if it is there.
    let is_there = |_: &Connection| unsafe { guard::is_readable(value.cast::<c_int>(), 1) };
    let one = table::connection(fd).filter(hides_nagle).filter(is_number).filter(is_there);
    if let Some(one) = one {
        // SAFETY: as above.
        let on = unsafe { *value.cast::<c_int>() } != 0;
        let flag = match name {
            libc::TCP_NODELAY => Some((NAGLE, !on)),
            libc::TCP_CORK => Some((CORKED, on)),
            libc::TCP_NOTSENT_LOWAT => Some((DEEP, false)),
            _ => None,
        };
        match flag {
            Some((flag, true)) => one.slot.set(flag),
            Some((flag, false)) => one.slot.clear(flag),
            None => {}
        }
        if name == libc::TCP_NODELAY {
            return 0;
        }
    }
    if let Some(why) = tcp::odd(level, name) {
        if let Some(one) = table::connection(fd) {
            stay_tcp_as(&one, why);
        }
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real::setsockopt(fd, level, name, value, len) };
    if result == 0 {
        has_set(fd, level, name);
    }
    result
}

/// The program has set an option that changes what this library does, or has set.
fn has_set(fd: c_int, level: c_int, name: c_int) {
    let is_room = matches!(name, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE);
    let (is_room, is_inq) =
        (level == libc::SOL_SOCKET && is_room, level == libc::IPPROTO_TCP && name == libc::TCP_INQ);
    let Some(one) = table::connection(fd).filter(|_| is_room || is_inq) else { return };
    if is_inq {
        match tcp::is_set(fd, name) {
            true => one.slot.set(INQ),
            false => one.slot.clear(INQ),
        }
    } else if one.slot.is_shared() && one.slot.has(DEEP) {
        tcp::keep_more(fd);
    }
}

/// getsockopt(2).
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if tipc::is(fd) {
        // SAFETY: the caller's arguments.
        if let Some(result) = unsafe { tipc::getsockopt(fd, level, name, value, len) } {
            return result;
        }
    }
    if level == libc::IPPROTO_TCP && name == libc::TCP_ZEROCOPY_RECEIVE {
        // TCP_ZEROCOPY_RECEIVE reads bytes.
        table::connection(fd).iter().for_each(stay_tcp);
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real::getsockopt(fd, level, name, value, len) };
    let own = match name {
        libc::TCP_NODELAY => NAGLE,
        libc::TCP_NOTSENT_LOWAT => DEEP,
        _ => 0,
    };
    if level == libc::IPPROTO_TCP && own != 0 && result == 0 {
        let one = table::connection(fd).filter(|one| hides_nagle(one) && one.slot.has(own));
        // SAFETY: the caller's room, which the kernel has written to.
        if one.is_some() && unsafe { *len } >= 4 {
            // SAFETY: as above.
            unsafe { *value.cast::<c_int>() = 0 };
        }
    }
    if level == libc::SOL_SOCKET && name == libc::SO_ERROR && result == 0 {
        let one = table::connection(fd).filter(|one| one.slot.is_shared());
        // SAFETY: the caller's room, which the kernel has written to.
        if let Some(one) = one.filter(|_| unsafe { *len } >= 4) {
            // SAFETY: as above.
            unsafe { tells_error(&one, &mut *value.cast::<c_int>()) };
        }
    }
    result
}

/// The program takes the error of a connection, which it learns once: the kernel's, or that of a
/// peer that was killed before it had read all.
#[cold]
fn tells_error(one: &Connection, error: &mut c_int) {
    if *error == 0 && wait::is_broken(one.fd) {
        *error = libc::ECONNRESET;
        stream::enter(*one).iter().for_each(stream::Use::end_sending);
        // SAFETY: no memory is passed.
        unsafe { real::shutdown(one.fd, libc::SHUT_WR) };
    }
    if *error == libc::ECONNRESET {
        one.slot.set(TOLD);
    }
}

/// fdopen(3): the C library reads and writes its streams past this library.
///
/// # Safety
/// The caller keeps the rules of the C library's function.
#[no_mangle]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if let Some(one) = table::connection(fd) {
        if let Err(why) = hand_over(&one) {
            programs::complain("fdopen(3) failed", fd, &why);
            Refused.fail();
            return std::ptr::null_mut();
        }
    }
    // SAFETY: the caller's arguments.
    let file = unsafe { real::fdopen(fd, mode) };
    if let Some(one) = table::connection(fd).filter(|_| !file.is_null()) {
        why::note(one.at, one.slot, Why::Printed);
        // The stream closes its descriptor past this library, too.
        table::forget(fd);
    }
    file
}
