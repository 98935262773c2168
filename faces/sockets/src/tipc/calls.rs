//! Everything on a socket of TIPC but sending and receiving.

use super::ask::ask;
use super::{has_connection, is_connected, is_connectionless, kind_of, note};
use crate::guard::Caller;
use crate::settings;
use crate::sys::real::fail;
use crate::sys::{calls as system, socket};
use libc::{c_int, c_ulong, c_void, sockaddr, socklen_t};
use weft_streams::tipc::address::LEN;
use weft_streams::tipc::control::{DONT_WAIT, HAS_ADDRESS};
use weft_streams::tipc::record::HEAD;
use weft_streams::tipc::{option, Op, Request};

/// AF_TIPC.
const FAMILY: c_int = 30;
/// Requests of ioctl(2).
const GET_LINK_NAME: c_ulong = 0x89e0;
const GET_NODE: c_ulong = 0x89e1;

/// Where a program wants an address, and its length.
pub type Named = (Caller<sockaddr>, Caller<socklen_t>);

/// Copies an address of a program into a request.
pub fn address_of(at: Caller<sockaddr>, len: socklen_t) -> Result<[u8; LEN], c_int> {
    match (len as usize) < LEN {
        true => Err(libc::EINVAL),
        false => at.cast::<u8>().copy(0).ok_or(libc::EFAULT),
    }
}

/// Gives addresses to a program, as far as it has space, and says how long they are.
pub fn give_address(bytes: &[u8], (to, len): Named) {
    let Some(space) = len.get().copied().filter(|_| !to.is_null()) else { return };
    to.cast::<u8>().put_all(&bytes[..bytes.len().min(space as usize)]);
    len.put(bytes.len() as socklen_t);
}

fn simple(fd: c_int, op: Op, value: u32) -> Result<weft_streams::tipc::Answer, c_int> {
    ask(fd, &Request::new(op, value), &[]).map(|(answer, _)| answer)
}

/// The result of a request as functions of the C library return it.
fn result(asked: Result<weft_streams::tipc::Answer, c_int>) -> c_int {
    match asked {
        Ok(_) => 0,
        // The agent is gone, and the socket's state with it.
        Err(libc::ENXIO) => fail(libc::ENETDOWN),
        Err(error) => fail(error),
    }
}

/// Sets the flags of a new descriptor, which is close-on-exec.
fn set_flags(fd: c_int, flags: c_int) {
    if flags & libc::SOCK_CLOEXEC == 0 {
        system::set_descriptor_flags(fd, 0);
    }
    if flags & libc::SOCK_NONBLOCK != 0 {
        system::set_flags(fd, system::flags(fd) | libc::O_NONBLOCK);
    }
}

/// socket(2). `None`: it is no socket of TIPC, or no agent serves one.
pub fn socket(domain: c_int, flags: c_int, protocol: c_int) -> Option<c_int> {
    if domain != FAMILY || !settings::is_on() {
        return None;
    }
    if protocol != 0 {
        return Some(fail(libc::EPROTONOSUPPORT));
    }
    let kind = flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    let (answer, fd) = match ask(-1, &Request::new(Op::Socket, kind as u32), &[]) {
        Ok(made) => made,
        Err(libc::ENXIO) => return None,
        Err(error) => return Some(fail(error)),
    };
    let _ = answer;
    if fd < 0 || !note(fd, kind as u8) {
        system::close(fd);
        return Some(fail(libc::EMFILE));
    }
    set_flags(fd, flags);
    Some(fd)
}

/// bind(2).
pub fn bind(fd: c_int, at: Caller<sockaddr>, len: socklen_t) -> c_int {
    let mut request = Request::new(Op::Bind, 0);
    if len > 0 && at.is_null() {
        return fail(libc::EFAULT);
    }
    if len > 0 {
        match address_of(at, len) {
            Ok(field) => (request.field, request.flags) = (field, HAS_ADDRESS),
            Err(error) => return fail(error),
        }
    }
    result(ask(fd, &request, &[]).map(|(answer, _)| answer))
}

/// connect(2).
pub fn connect(fd: c_int, at: Caller<sockaddr>, len: socklen_t) -> c_int {
    if at.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return fail(libc::EINVAL);
    }
    let mut request = Request::new(Op::Connect, 0);
    let Some(&family) = at.cast::<libc::sa_family_t>().get() else { return fail(libc::EFAULT) };
    if c_int::from(family) != libc::AF_UNSPEC {
        match address_of(at, len) {
            Ok(field) => (request.field, request.flags) = (field, HAS_ADDRESS),
            Err(error) => return fail(error),
        }
    }
    if system::is_nonblocking(fd) {
        request.flags |= DONT_WAIT;
    }
    let asked = ask(fd, &request, &[]).map(|(answer, _)| answer);
    if asked.is_ok() && !is_connectionless(fd) {
        is_connected(fd);
    }
    result(asked)
}

/// listen(2).
pub fn listen(fd: c_int, backlog: c_int) -> c_int {
    result(simple(fd, Op::Listen, backlog.max(0) as u32))
}

/// accept4(2).
pub fn accept(fd: c_int, from: Named, flags: c_int) -> c_int {
    if is_connectionless(fd) {
        return fail(libc::EOPNOTSUPP);
    }
    // An agent that has ended is found below.
    if simple(fd, Op::Get, 1).is_ok_and(|answer| answer.value == 0) {
        return fail(libc::EINVAL);
    }
    loop {
        let mut bytes = [0u8; HEAD];
        let most = match kind_of(fd) {
            weft_streams::tipc::kind::STREAM => 1,
            _ => HEAD,
        };
        // A byte or a record for each call: the kernel waits as the descriptor says.
        match socket::receive(fd, &mut bytes[..most], 0) {
            0 => return fail(libc::EINVAL),
            1.. => {}
            _ => return -1,
        }
        match ask(fd, &Request::new(Op::Accept, 0), &[]) {
            Ok((answer, new)) if new >= 0 => {
                let kind = kind_of(fd);
                if !note(new, kind) {
                    system::close(new);
                    return fail(libc::EMFILE);
                }
                is_connected(new);
                set_flags(new, flags);
                give_address(&answer.field, from);
                return new;
            }
            // The caller has gone meanwhile.
            Ok(_) | Err(libc::EAGAIN) => {}
            Err(error) => return fail(error),
        }
    }
}

/// getsockname(2).
pub fn getsockname(fd: c_int, to: Named) -> c_int {
    name(fd, Op::Own, to)
}

/// getpeername(2).
pub fn getpeername(fd: c_int, to: Named) -> c_int {
    name(fd, Op::Peer, to)
}

fn name(fd: c_int, op: Op, to: Named) -> c_int {
    if to.0.is_null() || to.1.is_null() {
        return fail(libc::EFAULT);
    }
    match simple(fd, op, 0) {
        Ok(answer) => {
            give_address(&answer.field, to);
            0
        }
        Err(libc::EINPROGRESS | libc::EPIPE) => fail(libc::ENOTCONN),
        Err(error) => fail(error),
    }
}

/// Returns 0 if a socket has a connection, or is about to have one, and the error otherwise.
pub fn check_connection(fd: c_int) -> c_int {
    if has_connection(fd) {
        return 0;
    }
    match simple(fd, Op::Peer, 0) {
        Ok(_) | Err(libc::EPIPE) => {
            is_connected(fd);
            0
        }
        Err(libc::EINPROGRESS) => 0,
        Err(error) => error,
    }
}

/// shutdown(2).
pub fn shutdown(fd: c_int, how: c_int) -> c_int {
    match how {
        libc::SHUT_RDWR => result(simple(fd, Op::Shutdown, 0)),
        _ => fail(libc::EINVAL),
    }
}

/// setsockopt(2). `None`: the kernel has the option.
pub fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: Caller<c_void>,
    len: socklen_t,
) -> Option<c_int> {
    match level {
        option::LEVEL => {}
        libc::SOL_SOCKET => return None,
        libc::IPPROTO_TCP if kind_of(fd) == weft_streams::tipc::kind::STREAM => return Some(0),
        _ => return Some(fail(libc::ENOPROTOOPT)),
    }
    let mut request = Request::new(Op::Set, name as u32);
    let need = match name as u32 {
        option::MCAST_BROADCAST | option::MCAST_REPLICAST | option::GROUP_LEAVE => 0,
        option::GROUP_JOIN => LEN,
        option::IMPORTANCE..=option::NODELAY => size_of::<u32>(),
        _ => return Some(fail(libc::ENOPROTOOPT)),
    };
    if need > 0 && (value.is_null() || (len as usize) < need) {
        return Some(fail(libc::EINVAL));
    }
    match value.cast::<u8>().list(need) {
        Some(value) => request.field[..need].copy_from_slice(value),
        None if need > 0 => return Some(fail(libc::EFAULT)),
        None => {}
    }
    Some(result(ask(fd, &request, &[]).map(|(answer, _)| answer)))
}

/// getsockopt(2). `None`: the kernel has the option.
pub fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: Caller<c_void>,
    len: Caller<socklen_t>,
) -> Option<c_int> {
    let stream = weft_streams::tipc::kind::STREAM;
    let number = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_TYPE) => Ok(kind_of(fd).into()),
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => Ok(FAMILY as u32),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => Ok(0),
        (libc::SOL_SOCKET, libc::SO_ERROR) => simple(fd, Op::Get, 0).map(|a| a.value),
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => simple(fd, Op::Get, 1).map(|a| a.value),
        (libc::SOL_SOCKET, _) => return None,
        (option::LEVEL, name) if name >= option::IMPORTANCE as c_int => {
            simple(fd, Op::Get, name as u32).map(|answer| answer.value)
        }
        (libc::IPPROTO_TCP, _) if kind_of(fd) == stream => Ok(0),
        _ => Err(libc::ENOPROTOOPT),
    };
    let Some(&space) = len.get().filter(|_| !value.is_null()) else {
        return Some(fail(libc::EFAULT));
    };
    Some(match number {
        Ok(_) if (space as usize) < size_of::<u32>() => fail(libc::EINVAL),
        Ok(number) => {
            let is_put = value.cast::<[u8; 4]>().put(number.to_ne_bytes());
            match is_put && len.put(size_of::<u32>() as socklen_t) {
                true => 0,
                false => fail(libc::EFAULT),
            }
        }
        Err(error) => fail(error),
    })
}

/// ioctl(2). `None`: the kernel carries it out.
pub fn ioctl(fd: c_int, request: c_ulong, arg: Caller<c_void>) -> Option<c_int> {
    match request {
        GET_LINK_NAME => return Some(fail(libc::EOPNOTSUPP)),
        GET_NODE if !arg.is_null() => {}
        GET_NODE => return Some(fail(libc::EFAULT)),
        _ => return None,
    }
    // The argument is the number of a host, then space for 16 bytes.
    let Some(node) = arg.cast::<u8>().copy(0) else { return Some(fail(libc::EFAULT)) };
    Some(match simple(fd, Op::Node, u32::from_ne_bytes(node)) {
        Ok(answer) => match arg.cast::<u8>().skip(4).put_all(&answer.field[..LEN]) {
            true => 0,
            false => fail(libc::EFAULT),
        },
        Err(error) => fail(error),
    })
}
