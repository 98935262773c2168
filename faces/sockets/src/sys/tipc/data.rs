//! Sending and receiving on a socket of TIPC.

use super::ask::{ask, PARTS};
use super::calls::{address_of, check_connection, give_address, is_nonblocking};
use super::{is_connected, is_connectionless, kind_of};
use crate::sys::real;
use libc::{c_int, c_void, iovec, msghdr, sockaddr, socklen_t, ssize_t};
use std::mem::zeroed;
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

const NONE: iovec = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

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
    let mut head = [0u8; HEAD];
    let mut rest = [0u8; RETURNED_MAX];
    let mut all = [NONE; PARTS + 1];
    all[0] = iovec { iov_base: head.as_mut_ptr().cast(), iov_len: HEAD };
    all[1..=parts.len()].copy_from_slice(parts);
    // A message that comes back may be longer than the program's room.
    let last = parts.len() + 1;
    all[last] = iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: RETURNED_MAX };
    // SAFETY: all-zero is a valid value.
    let mut message: msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (all.as_mut_ptr(), (last + 1) as _);
    let of_kernel = flags & (libc::MSG_PEEK | libc::MSG_DONTWAIT) | libc::MSG_TRUNC;
    // SAFETY: the message points to live, writable buffers: the caller's parts among them.
    let got = unsafe { real::recvmsg(fd, &mut message, of_kernel) };
    let got = match got {
        0 if is_connectionless(fd) => return Err(fail(libc::ECONNRESET)),
        0 => return Err(fail(libc::ENOTCONN)),
        1.. => got as usize,
        _ => return Err(-1),
    };
    let Some(head) = RecordHead::decode(&head).filter(|h| h.len as usize + HEAD == got) else {
        return Err(fail(libc::EPROTO));
    };
    let (room, len) = (len_of(parts), got - HEAD);
    let mut came = Came { result: 0, flags: 0, head, returned: [0; RETURNED_MAX] };
    match head.kind {
        Kind::Message => {
            let is_cut = len > room;
            let whole = is_cut && flags & libc::MSG_TRUNC != 0;
            came.result = if whole { len } else { len.min(room) } as ssize_t;
            came.flags = if is_cut { libc::MSG_TRUNC } else { 0 };
        }
        Kind::Returned => {
            let mut to = came.returned.iter_mut();
            for part in &all[1..=last] {
                // SAFETY: the parts are the caller's, and this function's own.
                let bytes =
                    unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
                bytes.iter().zip(&mut to).for_each(|(from, to)| *to = *from);
            }
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
///
/// # Safety
/// The caller's parts, and its room for an address.
pub unsafe fn receive(
    fd: c_int,
    parts: &[iovec],
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if kind_of(fd) == kind::STREAM {
        // SAFETY: as the caller's.
        return unsafe { receive_bytes(fd, parts, flags, from, from_len) };
    }
    let error = if is_connectionless(fd) { 0 } else { check_connection(fd) };
    if error != 0 {
        return fail(error);
    }
    match record(fd, parts, flags) {
        Ok(came) => {
            let (bytes, len) = addresses(&came.head);
            // SAFETY: the caller's room.
            unsafe { give_address(&bytes[..len], from, from_len) };
            outcome(fd, &came, false)
        }
        Err(result) => result,
    }
}

/// Receives bytes of a stream.
///
/// # Safety
/// The caller keeps the rules of `receive`.
unsafe fn receive_bytes(
    fd: c_int,
    parts: &[iovec],
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let error = check_connection(fd);
    if error != 0 {
        return fail(error);
    }
    // SAFETY: all-zero is a valid value.
    let mut message: msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_ptr().cast_mut(), parts.len() as _);
    // SAFETY: the caller's parts.
    let got = unsafe { real::recvmsg(fd, &mut message, flags) };
    if got >= 0 && !from.is_null() && !from_len.is_null() {
        // SAFETY: the caller's room.
        unsafe {
            if super::getpeername(fd, from, from_len) != 0 {
                *from_len = 0;
            }
        }
    }
    got
}

/// Adds ancillary data to a message. False: there is no room.
///
/// # Safety
/// The message's control buffer, of this room, of which `used` bytes are used.
unsafe fn add(
    message: &mut msghdr,
    used: &mut usize,
    room: usize,
    name: c_int,
    data: &[u8],
) -> bool {
    // SAFETY: these compute lengths.
    let (len, space) = unsafe {
        (libc::CMSG_LEN(data.len() as u32) as usize, libc::CMSG_SPACE(data.len() as u32) as usize)
    };
    if message.msg_control.is_null() || *used + len > room {
        return false;
    }
    // SAFETY: the header and the data are within the caller's buffer.
    unsafe {
        let at = message.msg_control.cast::<u8>().add(*used);
        let mut head: libc::cmsghdr = zeroed();
        (head.cmsg_level, head.cmsg_type) = (option::LEVEL, name);
        head.cmsg_len = len as _;
        at.cast::<libc::cmsghdr>().write_unaligned(head);
        let to = at.add(libc::CMSG_LEN(0) as usize);
        std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
    }
    *used = (*used + space).min(room);
    true
}

/// Gives a program what comes beside the data of a record.
///
/// # Safety
/// The caller's message.
unsafe fn ancillary(message: &mut msghdr, came: &Came) {
    let (head, room, mut used) = (&came.head, message.msg_controllen, 0);
    let mut fits = true;
    // SAFETY: the caller's control buffer.
    unsafe {
        if head.kind == Kind::Returned {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&head.error.to_ne_bytes());
            bytes[4..].copy_from_slice(&head.len.to_ne_bytes());
            fits &= add(message, &mut used, room, ERROR, &bytes);
            let data = &came.returned[..(head.len as usize).min(RETURNED_MAX)];
            if !data.is_empty() {
                fits &= add(message, &mut used, room, RETURNED, data);
            }
        }
        if let Some((kind, lower, upper)) = head.name {
            let mut bytes = [0; 12];
            for (to, number) in bytes.chunks_exact_mut(4).zip([kind, lower, upper]) {
                to.copy_from_slice(&number.to_ne_bytes());
            }
            fits &= add(message, &mut used, room, NAME, &bytes);
        }
    }
    message.msg_controllen = used as _;
    message.msg_flags = came.flags;
    if !fits && room > 0 {
        message.msg_flags |= libc::MSG_CTRUNC;
    }
}

/// recvmsg(2).
///
/// # Safety
/// The caller's message.
pub unsafe fn receive_message(fd: c_int, message: &mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's parts.
    let Some(parts) = (unsafe { parts_of(message) }) else { return fail(libc::EMSGSIZE) };
    let (from, from_len) = (message.msg_name.cast(), &raw mut message.msg_namelen);
    if kind_of(fd) == kind::STREAM {
        // SAFETY: the caller's message.
        let got = unsafe { receive_bytes(fd, parts, flags, from, from_len) };
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
            // SAFETY: the caller's room.
            unsafe {
                match from.is_null() {
                    true => message.msg_namelen = 0,
                    false => give_address(&bytes[..len], from, from_len),
                }
                ancillary(message, &came);
            }
            outcome(fd, &came, has_control)
        }
        Err(result) => result,
    }
}

/// Returns the parts of a message.
///
/// # Safety
/// The caller's message.
unsafe fn parts_of<'a>(message: &msghdr) -> Option<&'a [iovec]> {
    let n = message.msg_iovlen;
    match n {
        0 => Some(&[]),
        1..=1024 if !message.msg_iov.is_null() => {
            // SAFETY: the caller's array has so many parts.
            Some(unsafe { std::slice::from_raw_parts(message.msg_iov, n) })
        }
        _ => None,
    }
}

/// write(2), send(2), sendto(2).
///
/// # Safety
/// The caller's parts and address.
pub unsafe fn send(
    fd: c_int,
    parts: &[iovec],
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
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
        // SAFETY: the caller's address.
        match unsafe { address_of(to, to_len) } {
            Ok(field) => (request.field, request.flags) = (field, HAS_ADDRESS),
            Err(error) => return fail(error),
        }
    }
    if flags & libc::MSG_DONTWAIT != 0 || is_nonblocking(fd) {
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
    let mut one = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry. It is looked at without a wait.
    unsafe { real::poll(&mut one, 1, 0) > 0 }
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
    let mark = [SENT];
    let mut all = [NONE; PARTS + 1];
    let before = usize::from(!is_stream);
    all[0] = iovec { iov_base: mark.as_ptr().cast_mut().cast::<c_void>(), iov_len: 1 };
    all[before..before + parts.len()].copy_from_slice(parts);
    // SAFETY: all-zero is a valid value.
    let mut message: msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (all.as_mut_ptr(), (before + parts.len()) as _);
    let flags = flags & libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message points to live buffers, the caller's among them.
    let sent = unsafe { real::sendmsg(fd, &message, flags) };
    match sent {
        0.. => sent - before as ssize_t,
        _ => {
            if real::errno() == libc::ECONNRESET {
                real::set_errno(libc::EPIPE);
            }
            -1
        }
    }
}

/// sendmsg(2).
///
/// # Safety
/// The caller's message.
pub unsafe fn send_message(fd: c_int, message: &msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's message.
    unsafe {
        match parts_of(message) {
            Some(parts) => {
                let to = message.msg_name.cast_const().cast();
                send(fd, parts, flags, to, message.msg_namelen)
            }
            None => fail(libc::EMSGSIZE),
        }
    }
}
