//! Descriptors that are made, copied and closed.

use super::leave::{hand_over, stay_tcp};
use super::programs::{self, Refused};
use crate::guard::Caller;
use crate::slot::SHOWN;
use crate::sys::{calls, real, socket};
use crate::table::{self, Connection, Ended};
use crate::why::{self, Why};
use crate::{agent, handback, loan, own, registrations, settings, stream, tcp, tipc, vfork};
use libc::{c_int, c_uint, sockaddr, socklen_t};

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
pub fn connect(
    fd: c_int,
    to: Caller<sockaddr>,
    len: socklen_t,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if tipc::is(fd) {
        return tipc::connect(fd, to, len);
    }
    let result = call();
    let was = real::errno();
    let is_refused = result != 0 && was == libc::EFAULT;
    if is_refused || (len as usize) < size_of::<libc::sa_family_t>() {
        return result;
    }
    let Some(&family) = to.cast::<libc::sa_family_t>().get() else { return result };
    let family = c_int::from(family);
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

/// accept4(2) has this result.
pub fn accepted(listener: c_int, fd: c_int) -> c_int {
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

/// The last descriptor of a connection in this process is about to be closed.
fn ends(one: &Connection) {
    let slot = one.slot;
    let alone = slot.holders.is_own();
    agent::closes(one.at, slot, one.fd, alone);
    loan::has_sent(one);
    if alone {
        registrations::closed(one);
    } else if slot.holders.is_own_or_strangers() {
        // Nobody else can read what could not go back to TCP.
        let is_left = |user: stream::Use| user.in_ring() > 0;
        if stream::enter(*one).is_some_and(is_left) {
            handback::reset(one);
        }
    }
    let Some(user) = stream::enter(*one).filter(|_| alone) else { return };
    user.end_receiving();
    if slot.has(SHOWN) {
        match user.in_ring() {
            0 => _ = real::shutdown(one.fd, libc::SHUT_WR),
            _ => socket::reset(one.fd),
        }
    } else if user.in_ring() > 0 {
        // TCP resets a connection that is closed before all was read.
        socket::set_option(one.fd, libc::SOL_SOCKET, libc::SO_LINGER, &[1, 0]);
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

/// A descriptor was closed.
fn closed(ended: Ended) {
    if let Ended::Connection(at) = ended {
        table::release(at);
    }
}

/// close(2).
pub fn close(fd: c_int) -> c_int {
    if own::is_own(fd) {
        return real::fail(libc::EBADF);
    }
    let ended = closes(fd);
    let result = real::close(fd);
    closed(ended);
    result
}

/// close_range(2).
pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
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
    while let Some(own) = own::next_own(first).filter(|&own| own <= last) {
        if own > first && real::close_range(first, own - 1, flags) != 0 {
            return -1;
        }
        if own == last {
            return 0;
        }
        first = own + 1;
    }
    real::close_range(first, last, flags)
}

/// A call that copies a descriptor has this result.
pub fn copied(from: c_int, to: c_int) -> c_int {
    if to >= 0 && vfork::is_child() {
        // The copy is for the program that the child becomes, and is not its own yet.
        if programs::is_for_strangers(from).is_err() {
            real::close(to);
            return Refused.fail();
        }
    } else if to >= 0 {
        table::copy(from, to);
        tipc::copied(from, to);
    }
    to
}

/// A descriptor is about to be replaced by a copy of another one.
fn replaces(from: c_int, to: c_int) -> Ended {
    match calls::descriptor_flags(from) >= 0 && from != to {
        true => closes(to),
        false => Ended::Nothing,
    }
}

/// dup2(2).
pub fn dup2(from: c_int, to: c_int) -> c_int {
    let ended = replaces(from, to);
    let result = real::dup2(from, to);
    closed(ended);
    if from == to {
        result
    } else {
        copied(from, result)
    }
}

/// dup3(2).
pub fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    let ended = replaces(from, to);
    let result = real::dup3(from, to, flags);
    closed(ended);
    copied(from, result)
}

/// A descriptor came from another process.
pub fn came(fd: c_int) {
    if fd >= 0 {
        let was = real::errno();
        table::forget(fd);
        tipc::look(fd);
        real::set_errno(was);
    }
}

/// A standard stream of the C library gets a descriptor: it reads and writes past this library.
/// False: it is not to have it.
pub fn has_stream(fd: c_int) -> bool {
    let failed = table::connection(fd).and_then(|one| hand_over(&one).err());
    if let Some(why) = &failed {
        programs::complain("fdopen(3) failed", fd, why);
        Refused.fail();
    }
    failed.is_none()
}

/// The stream is made, and closes its descriptor past this library, too.
pub fn is_stream(fd: c_int) {
    if let Some(one) = table::connection(fd) {
        why::note(one.at, one.slot, Why::Printed);
        table::forget(fd);
    }
}
