//! Sending and receiving on a socket of TIPC.

use super::ask::ask;
use super::calls::{address_of, check_connection, give_address, Named};
use super::sys::{self, PARTS};
use super::{is_connected, is_connectionless, kind_of};
use crate::guard::Caller;
use crate::sys::{calls as system, real};
use libc::{c_int, iovec, msghdr, sockaddr, socklen_t, ssize_t};
use weft_streams::tipc::address::LEN;
use weft_streams::tipc::control::{DONT_WAIT, HAS_ADDRESS};
use weft_streams::tipc::record::HEAD;
use weft_streams::tipc::{
    kind, option, reason, Kind, Op, RecordHead, Request, MESSAGE_MAX, RETURNED_MAX, SENT,
};

/// Ancillary data.
const ERROR: c_int = 1;
const RETURNED: c_int = 2;
const NAME: c_int = 3;

fn fail(error: c_int) -> ssize_t {
    real::fail(error) as ssize_t
}

/// A message that came, beside its data.
struct Came {
    /// The result of the call.
    result: ssize_t,
    flags: c_int,
    head: RecordHead,
    /// The data of a message that came back.
    returned: [u8; RETURNED_MAX],
}

fn len_of(parts: &[iovec]) -> usize {
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.iov_len))
}

/// Receives a record: its data go into the parts. `None`: the result is that of the kernel, which
/// told the error.
fn record(fd: c_int, parts: &[iovec], flags: c_int) -> Result<Came, ssize_t> {
    if parts.len() > PARTS - 1 {
        return Err(fail(libc::EMSGSIZE));
    }
    let (mut head, mut rest) = ([0u8; HEAD], [0u8; RETURNED_MAX]);
    let of_kernel = flags & (libc::MSG_PEEK | libc::MSG_DONTWAIT) | libc::MSG_TRUNC;
    let got = sys::receive(fd, &mut head, parts, &mut rest, of_kernel);
    let got = match got {
        0 if is_connectionless(fd) => return Err(fail(libc::ECONNRESET)),
        0 => return Err(fail(libc::ENOTCONN)),
        1.. => got as usize,
        _ => return Err(-1),
    };
    let Some(head) = RecordHead::decode(&head).filter(|h| h.len as usize + HEAD == got) else {
        return Err(fail(libc::EPROTO));
    };
    let (space, len) = (len_of(parts), got - HEAD);
    let mut came = Came { result: 0, flags: 0, head, returned: [0; RETURNED_MAX] };
    match head.kind {
        Kind::Message => {
            let is_cut = len > space;
            let whole = is_cut && flags & libc::MSG_TRUNC != 0;
            came.result = if whole { len } else { len.min(space) } as ssize_t;
            came.flags = if is_cut { libc::MSG_TRUNC } else { 0 };
        }
        Kind::Returned => {
            // A message that comes back may be longer than the program's space.
            let n = sys::gather(parts, &mut came.returned);
            came.returned[n..].iter_mut().zip(&rest).for_each(|(to, from)| *to = *from);
        }
        Kind::Caller => return Err(fail(libc::EINVAL)),
    }
    if head.out_of_band {
        came.flags |= libc::MSG_OOB;
    }
    if head.ends {
        came.flags |= libc::MSG_EOR;
    }
    Ok(came)
}

/// Returns the addresses of a record, and their length.
fn addresses(head: &RecordHead) -> ([u8; 2 * LEN], usize) {
    let (socket, member) = head.places();
    let mut bytes = [0; 2 * LEN];
    bytes[..LEN].copy_from_slice(&socket.encode());
    match member {
        Some(member) => {
            bytes[LEN..].copy_from_slice(&member.encode());
            (bytes, 2 * LEN)
        }
        None => (bytes, LEN),
    }
}

/// The result of a receive whose message may have come back.
fn outcome(fd: c_int, came: &Came, has_control: bool) -> ssize_t {
    let is_broken = came.head.kind == Kind::Returned
        && !is_connectionless(fd)
        && came.head.error != reason::SHUTDOWN
        && !has_control;
    if is_broken {
        return fail(libc::ECONNRESET);
    }
    came.result
}

/// read(2), recv(2), recvfrom(2).
pub fn receive(fd: c_int, parts: &[iovec], flags: c_int, from: Option<Named>) -> ssize_t {
    if kind_of(fd) == kind::STREAM {
        return receive_bytes(fd, parts, flags, from);
    }
    let error = if is_connectionless(fd) { 0 } else { check_connection(fd) };
    if error != 0 {
        return fail(error);
    }
    match record(fd, parts, flags) {
        Ok(came) => {
            let (bytes, len) = addresses(&came.head);
            from.into_iter().for_each(|from| give_address(&bytes[..len], from));
            outcome(fd, &came, false)
        }
        Err(result) => result,
    }
}

/// Receives bytes of a stream.
fn receive_bytes(fd: c_int, parts: &[iovec], flags: c_int, from: Option<Named>) -> ssize_t {
    let error = check_connection(fd);
    if error != 0 {
        return fail(error);
    }
    let got = sys::receive_parts(fd, parts, flags);
    let from = from.filter(|(to, len)| got >= 0 && !to.is_null() && !len.is_null());
    if let Some(from) = from {
        if super::getpeername(fd, from) != 0 {
            from.1.put(0);
        }
    }
    got
}

/// Gives a program what comes beside the data of a record.
fn ancillary(message: &mut msghdr, came: &Came) {
    let (head, space, mut used) = (&came.head, message.msg_controllen, 0);
    let mut fits = true;
    let mut add =
        |name, data: &[u8]| fits &= sys::add(message, &mut used, (option::LEVEL, name), data);
    if head.kind == Kind::Returned {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&head.error.to_ne_bytes());
        bytes[4..].copy_from_slice(&head.len.to_ne_bytes());
        add(ERROR, &bytes);
        let data = &came.returned[..(head.len as usize).min(RETURNED_MAX)];
        if !data.is_empty() {
            add(RETURNED, data);
        }
    }
    if let Some((kind, lower, upper)) = head.name {
        let mut bytes = [0; 12];
        for (to, number) in bytes.chunks_exact_mut(4).zip([kind, lower, upper]) {
            to.copy_from_slice(&number.to_ne_bytes());
        }
        add(NAME, &bytes);
    }
    message.msg_controllen = used as _;
    message.msg_flags = came.flags;
    if !fits && space > 0 {
        message.msg_flags |= libc::MSG_CTRUNC;
    }
}

/// recvmsg(2).
pub fn receive_message(fd: c_int, message: Caller<msghdr>, flags: c_int) -> ssize_t {
    let Some(message) = message.get_mut() else { return fail(libc::EFAULT) };
    let Some(parts) = sys::parts_of(message) else { return fail(libc::EMSGSIZE) };
    let from = sys::name_of(message);
    if kind_of(fd) == kind::STREAM {
        let got = receive_bytes(fd, parts, flags, Some(from));
        if got >= 0 {
            (message.msg_controllen, message.msg_flags) = (0, 0);
        }
        return got;
    }
    let error = if is_connectionless(fd) { 0 } else { check_connection(fd) };
    if error != 0 {
        return fail(error);
    }
    let has_control = !message.msg_control.is_null() && message.msg_controllen > 0;
    match record(fd, parts, flags) {
        Ok(came) => {
            let (bytes, len) = addresses(&came.head);
            match from.0.is_null() {
                true => message.msg_namelen = 0,
                false => give_address(&bytes[..len], from),
            }
            ancillary(message, &came);
            outcome(fd, &came, has_control)
        }
        Err(result) => result,
    }
}

/// write(2), send(2), sendto(2).
pub fn send(
    fd: c_int,
    parts: &[iovec],
    flags: c_int,
    (to, to_len): (Caller<sockaddr>, socklen_t),
) -> ssize_t {
    let has_address = !to.is_null() && to_len > 0;
    if !has_address && !is_connectionless(fd) {
        return match check_connection(fd) {
            0 => send_itself(fd, parts, flags),
            error => fail(error),
        };
    }
    // A stream is connected by as much as one message has.
    let first: [iovec; 1];
    let parts = match parts {
        [one] if kind_of(fd) == kind::STREAM => {
            first = [iovec { iov_len: one.iov_len.min(MESSAGE_MAX), ..*one }];
            &first[..]
        }
        _ => parts,
    };
    if len_of(parts) > MESSAGE_MAX {
        return fail(libc::EMSGSIZE);
    }
    let mut request = Request::new(Op::Send, 0);
    if has_address {
        match address_of(to, to_len) {
            Ok(field) => (request.field, request.flags) = (field, HAS_ADDRESS),
            Err(error) => return fail(error),
        }
    }
    if flags & libc::MSG_DONTWAIT != 0 || system::is_nonblocking(fd) {
        request.flags |= DONT_WAIT;
    }
    match ask(fd, &request, parts) {
        Ok((answer, _)) => {
            if !is_connectionless(fd) {
                is_connected(fd);
            }
            answer.value as ssize_t
        }
        Err(libc::ENXIO) => fail(libc::ENETDOWN),
        Err(error) => fail(error),
    }
}

/// True if the agent has ended a connection. It reads on, to see the program close the socket.
fn is_over(fd: c_int) -> bool {
    system::poll_one(fd, libc::POLLRDHUP, 0) != 0
}

/// Sends on a connection: the agent reads what this end of the pair has.
fn send_itself(fd: c_int, parts: &[iovec], flags: c_int) -> ssize_t {
    let is_stream = kind_of(fd) == kind::STREAM;
    if is_over(fd) {
        return fail(libc::EPIPE);
    }
    if parts.len() > PARTS {
        return fail(libc::EMSGSIZE);
    }
    if !is_stream && len_of(parts) > MESSAGE_MAX {
        return fail(libc::EMSGSIZE);
    }
    let mark: &[u8] = if is_stream { &[] } else { &[SENT] };
    let flags = flags & libc::MSG_DONTWAIT;
    let sent = sys::send(fd, mark, parts, None, flags).unwrap_or_else(fail);
    match sent {
        0.. => sent - mark.len() as ssize_t,
        _ => {
            if real::errno() == libc::ECONNRESET {
                real::set_errno(libc::EPIPE);
            }
            -1
        }
    }
}

/// sendmsg(2).
pub fn send_message(fd: c_int, message: &msghdr, flags: c_int) -> ssize_t {
    match sys::parts_of(message) {
        Some(parts) => send(fd, parts, flags, (sys::name_of(message).0, message.msg_namelen)),
        None => fail(libc::EMSGSIZE),
    }
}
