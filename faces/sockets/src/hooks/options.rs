//! Modes and options of sockets.

use super::leave::{stay_tcp, stay_tcp_as};
use super::life::copied;
use crate::guard::Caller;
use crate::slot::{BULK, CORKED, DEEP, INQ, NAGLE, NONBLOCKING, NOTIFIED, SHUT};
use crate::sys::real;
use crate::sys::socket::SIOCATMARK;
use crate::table::{self, Connection};
use crate::why::Why;
use crate::{loan, readiness, stream, tcp, tipc};
use libc::{c_int, c_long, c_ulong, c_void, socklen_t};
use std::sync::atomic::{fence, Ordering};

/// fcntl(2) has this result.
pub fn has_controlled(fd: c_int, command: c_int, arg: c_long, result: c_int) -> c_int {
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

/// Their numbers on all machines that this library is built for.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;

/// True if a command of fcntl(2) is not the kernel's alone.
pub fn is_hooked(command: c_int) -> bool {
    matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETFL)
        || matches!(command, libc::F_SETOWN | F_SETSIG | F_SETOWN_EX)
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
pub fn ioctl(
    fd: c_int,
    request: c_ulong,
    arg: Caller<c_void>,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if tipc::is(fd) {
        if let Some(result) = tipc::ioctl(fd, request, arg) {
            return result;
        }
    }
    let result = call();
    let one = table::connection(fd).filter(|_| result == 0);
    // These requests have a number as their argument.
    let is_number = matches!(request, libc::FIONBIO | libc::FIOASYNC | libc::FIONREAD | SIOCATMARK);
    let number = is_number.then(|| arg.cast::<c_int>().get_mut()).flatten();
    let Some((one, number)) = one.zip(number) else { return result };
    match request {
        libc::FIONBIO => changes_mode(&one, *number != 0),
        libc::FIOASYNC => stay_tcp_as(&one, Why::Signals),
        libc::FIONREAD => {
            if let Some(user) = stream::enter(one) {
                let more = user.unread((*number).max(0) as u64);
                *number = (*number).saturating_add(more as c_int).max(0);
            }
        }
        _ => {
            if let Some(user) = stream::enter(one) {
                *number = user.is_at_mark(*number != 0).into();
            }
        }
    }
    result
}

/// shutdown(2).
pub fn shutdown(fd: c_int, how: c_int) -> c_int {
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
            loan::is_back(&one, loan::EVER);
            user.say_end();
        }
        if how != libc::SHUT_WR {
            user.end_receiving();
            // From now on TCP tells of an end that is none of the peer's.
            one.slot.set(NOTIFIED);
        }
    }
    real::shutdown(fd, how)
}

/// setsockopt(2).
pub fn set(
    fd: c_int,
    (level, name): (c_int, c_int),
    (value, len): (Caller<c_void>, socklen_t),
    call: impl FnOnce() -> c_int,
) -> c_int {
    if tipc::is(fd) {
        if let Some(result) = tipc::setsockopt(fd, level, name, value, len) {
            return result;
        }
    }
    let is_number = level == libc::IPPROTO_TCP && len >= 4;
    let one = table::connection(fd).filter(|one| is_number && hides_nagle(one));
    if let Some((one, number)) = one.and_then(|one| Some((one, value.cast::<c_int>().get()?))) {
        let flag = match name {
            libc::TCP_NODELAY => Some((NAGLE, *number == 0)),
            libc::TCP_CORK => Some((CORKED, *number != 0)),
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
    let result = call();
    if result == 0 {
        has_set(fd, level, name);
    }
    result
}

/// The program has set an option that changes what this library does, or has set.
fn has_set(fd: c_int, level: c_int, name: c_int) {
    let is_space = matches!(name, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE);
    let (is_space, is_inq) = (
        level == libc::SOL_SOCKET && is_space,
        level == libc::IPPROTO_TCP && name == libc::TCP_INQ,
    );
    let Some(one) = table::connection(fd).filter(|_| is_space || is_inq) else { return };
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
pub fn get(
    fd: c_int,
    (level, name): (c_int, c_int),
    (value, len): (Caller<c_void>, Caller<socklen_t>),
    call: impl FnOnce() -> c_int,
) -> c_int {
    if tipc::is(fd) {
        if let Some(result) = tipc::getsockopt(fd, level, name, value, len) {
            return result;
        }
    }
    if level == libc::IPPROTO_TCP && name == libc::TCP_ZEROCOPY_RECEIVE {
        // TCP_ZEROCOPY_RECEIVE reads bytes.
        table::connection(fd).iter().for_each(stay_tcp);
    }
    let result = call();
    let own = match name {
        libc::TCP_NODELAY => NAGLE,
        libc::TCP_NOTSENT_LOWAT => DEEP,
        _ => 0,
    };
    // The caller's space, which the kernel has written to.
    let number = || {
        let is_whole = len.get().is_some_and(|&len| len >= 4);
        is_whole.then(|| value.cast::<c_int>().get_mut()).flatten()
    };
    if level == libc::IPPROTO_TCP && own != 0 && result == 0 {
        let one = table::connection(fd).filter(|one| hides_nagle(one) && one.slot.has(own));
        one.and_then(|_| number()).into_iter().for_each(|number| *number = 0);
    }
    if level == libc::SOL_SOCKET && name == libc::SO_ERROR && result == 0 {
        let one = table::connection(fd).filter(|one| one.slot.is_shared());
        if let Some((one, error)) = one.and_then(|one| Some((one, number()?))) {
            tells_error(&one, error);
        }
    }
    result
}

/// The program takes the error of a connection, which it learns once: the kernel's, or that of a
/// peer that was killed before it had read all.
#[cold]
fn tells_error(one: &Connection, error: &mut c_int) {
    if *error == 0 && readiness::is_broken(one.fd) {
        *error = libc::ECONNRESET;
        stream::enter(*one).iter().for_each(stream::Use::end_sending);
        real::shutdown(one.fd, libc::SHUT_WR);
    }
    if *error == libc::ECONNRESET {
        one.slot.set(NOTIFIED);
    }
}
