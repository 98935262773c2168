//! Requests to the agent, each with its answer.

use crate::sys::{line, real};
use libc::{c_int, iovec};
use std::mem::{size_of, zeroed};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use weft_streams::tipc::control::{ANSWER, HEAD};
use weft_streams::tipc::{Answer, Request};

/// The end of the name of the agent's socket.
const END: &[u8] = b"-tipc";
/// Parts of a message's data.
pub const PARTS: usize = 1023;

/// Room for the control message of one descriptor, aligned for `cmsghdr`.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// The connection that is used next, its process, and its file: those of other processes, and other
/// files that have got its number, are left alone.
static LINE: AtomicI32 = AtomicI32::new(-1);
static PROCESS: AtomicU32 = AtomicU32::new(0);
static FILE: AtomicU64 = AtomicU64::new(0);

fn process() -> u32 {
    // SAFETY: no memory is passed.
    unsafe { libc::getpid() as u32 }
}

/// Takes a connection that no other thread uses, or makes one.
fn take() -> Option<c_int> {
    let fd = LINE.swap(-1, Ordering::AcqRel);
    if fd >= 0 && line::file(fd) == Some(FILE.load(Ordering::Relaxed)) {
        if PROCESS.load(Ordering::Relaxed) == process() {
            return Some(fd);
        }
        // The descriptor is the parent's.
        close(fd);
    }
    line::reach(END)
}

/// Keeps a connection for the next request, unless another thread did.
fn keep(fd: c_int) {
    if LINE.load(Ordering::Relaxed) >= 0 {
        return close(fd);
    }
    FILE.store(line::file(fd).unwrap_or(0), Ordering::Relaxed);
    PROCESS.store(process(), Ordering::Relaxed);
    if LINE.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        close(fd);
    }
}

/// Asks the agent about a socket. The error is that of the C library; ENXIO: no agent serves.
pub fn ask(fd: c_int, request: &Request, data: &[iovec]) -> Result<(Answer, c_int), c_int> {
    let mut asked = Err(libc::ENXIO);
    // The agent may have ended the connection of an earlier request, before it took this one.
    for _ in 0..2 {
        let line = take().ok_or(libc::ENXIO)?;
        asked = say(line, fd, request, data).and_then(|()| hear(line));
        match asked {
            Ok((_, _, true)) => keep(line),
            _ => close(line),
        }
        if !matches!(asked, Err(libc::EPIPE)) {
            break;
        }
    }
    match asked {
        Ok((answer, passed, _)) if answer.error == 0 => Ok((answer, passed)),
        Ok((answer, passed, _)) => {
            close(passed);
            Err(answer.error)
        }
        Err(libc::EPIPE) => Err(libc::ENETDOWN),
        Err(error) => Err(error),
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
            libc::EPIPE | libc::ECONNRESET => return Err(libc::EPIPE),
            error => return Err(error),
        }
    }
}

/// Waits for the answer, and the descriptor that comes with it (-1: none). A signal ends the wait
/// of a request that the agent has not carried out. True: the connection can be used again.
fn hear(line: c_int) -> Result<(Answer, c_int, bool), c_int> {
    let (mut bytes, mut is_whole) = ([0u8; ANSWER], true);
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
            is_whole = false;
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
            Some(answer) => Ok((answer, passed, is_whole)),
            None => {
                close(passed);
                Err(libc::ENETDOWN)
            }
        };
    }
}
