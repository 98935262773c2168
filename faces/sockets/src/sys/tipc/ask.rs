//! Requests to the agent, each with its answer.

use crate::sys::{line, real};
use libc::{c_int, iovec};
use std::mem::{size_of, zeroed};
use weft_streams::tipc::control::{ANSWER, HEAD};
use weft_streams::tipc::{Answer, Request};

/// The end of the name of the agent's socket.
const END: &[u8] = b"-tipc";
/// Parts of a message's data.
pub const PARTS: usize = 1023;

/// Room for the control message of one descriptor, aligned for `cmsghdr`.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Asks the agent about a socket. The error is that of the C library; ENXIO: no agent serves.
pub fn ask(fd: c_int, request: &Request, data: &[iovec]) -> Result<(Answer, c_int), c_int> {
    let line = line::reach(END).ok_or(libc::ENXIO)?;
    let answer = say(line, fd, request, data).and_then(|()| hear(line));
    // SAFETY: a descriptor of this library.
    unsafe { real::close(line) };
    let (answer, passed) = answer?;
    match answer.error {
        0 => Ok((answer, passed)),
        error => {
            close(passed);
            Err(error)
        }
    }
}

fn close(fd: c_int) {
    if fd >= 0 {
        // SAFETY: a descriptor that came with an answer.
        unsafe { real::close(fd) };
    }
}

fn say(line: c_int, fd: c_int, request: &Request, data: &[iovec]) -> Result<(), c_int> {
    if data.len() > PARTS {
        return Err(libc::EMSGSIZE);
    }
    let head = request.encode();
    let none = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut parts = [none; PARTS + 1];
    parts[0] = iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: HEAD };
    parts[1..=data.len()].copy_from_slice(data);
    let mut control = Control([0; 64]);
    // SAFETY: all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = (data.len() + 1) as _;
    if fd >= 0 {
        let size = size_of::<c_int>() as libc::c_uint;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the control buffer holds a header and one descriptor, and is aligned.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let head = libc::CMSG_FIRSTHDR(&message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size) as _;
            libc::CMSG_DATA(head).cast::<c_int>().write_unaligned(fd);
        }
    }
    loop {
        // SAFETY: the message points to live buffers.
        let sent = unsafe { real::sendmsg(line, &message, libc::MSG_NOSIGNAL) };
        match real::errno() {
            _ if sent >= 0 => return Ok(()),
            libc::EINTR => {}
            libc::EPIPE | libc::ECONNRESET => return Err(libc::ENETDOWN),
            error => return Err(error),
        }
    }
}

/// Waits for the answer, and the descriptor that comes with it (-1: none). A signal ends the wait
/// of a request that the agent has not carried out.
fn hear(line: c_int) -> Result<(Answer, c_int), c_int> {
    let mut bytes = [0u8; ANSWER];
    loop {
        let mut part = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: ANSWER };
        let mut control = Control([0; 64]);
        // SAFETY: all-zero is a valid value.
        let mut message: libc::msghdr = unsafe { zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        // SAFETY: the message points to live, writable buffers of the stated lengths.
        let len = unsafe { real::recvmsg(line, &mut message, libc::MSG_CMSG_CLOEXEC) };
        if len < 0 && real::errno() == libc::EINTR {
            // SAFETY: no memory is passed. The agent answers that it did nothing, or that it did.
            unsafe { real::shutdown(line, libc::SHUT_WR) };
            continue;
        }
        let mut passed = -1;
        // SAFETY: the kernel filled the control buffer with well-formed headers.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&message);
            if len > 0 && !head.is_null() && (*head).cmsg_type == libc::SCM_RIGHTS {
                passed = libc::CMSG_DATA(head).cast::<c_int>().read_unaligned();
            }
        }
        let answer = bytes.get(..len.max(0) as usize).and_then(Answer::decode);
        return match answer {
            Some(answer) => Ok((answer, passed)),
            None => {
                close(passed);
                Err(libc::ENETDOWN)
            }
        };
    }
}
