//! Requests to the agent, each with its answer.

use super::sys;
use crate::sys::calls::{self, close};
use crate::sys::{real, socket};
use crate::{own, reach};
use libc::{c_int, iovec};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use weft_streams::tipc::control::ANSWER;
use weft_streams::tipc::{Answer, Request};

/// The end of the name of the agent's socket.
const END: &[u8] = b"-tipc";

/// The connection that is used next, its process, and its file: those of other processes, and other
/// files that have got its number, are left alone.
static NEXT: AtomicI32 = AtomicI32::new(-1);
static PROCESS: AtomicU32 = AtomicU32::new(0);
static FILE: AtomicU64 = AtomicU64::new(0);

/// Takes a connection that no other thread uses, or makes one.
fn take() -> Option<c_int> {
    let fd = NEXT.swap(-1, Ordering::AcqRel);
    if fd >= 0 && own::file(fd) == Some(FILE.load(Ordering::Relaxed)) {
        if PROCESS.load(Ordering::Relaxed) == calls::process() as u32 {
            return Some(fd);
        }
        // The descriptor is the parent's.
        close(fd);
    }
    reach::connect_to_wait(END)
}

/// Keeps a connection for the next request, unless another thread did.
fn keep(fd: c_int) {
    if NEXT.load(Ordering::Relaxed) >= 0 {
        return close(fd);
    }
    FILE.store(own::file(fd).unwrap_or(0), Ordering::Relaxed);
    PROCESS.store(calls::process() as u32, Ordering::Relaxed);
    if NEXT.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        close(fd);
    }
}

/// Asks the agent about a socket. The error is that of the C library; ENXIO: no agent serves.
pub fn ask(fd: c_int, request: &Request, data: &[iovec]) -> Result<(Answer, c_int), c_int> {
    let mut asked = Err(libc::ENXIO);
    // The agent may have ended the connection of an earlier request, before it took this one.
    for _ in 0..2 {
        let agent = take().ok_or(libc::ENXIO)?;
        asked = say(agent, fd, request, data).and_then(|()| hear(agent));
        match asked {
            Ok((_, _, true)) => keep(agent),
            _ => close(agent),
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

fn say(agent: c_int, fd: c_int, request: &Request, data: &[iovec]) -> Result<(), c_int> {
    let head = request.encode();
    let pass = (fd >= 0).then_some(fd);
    loop {
        let sent = sys::send(agent, &head, data, pass, 0)?;
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
fn hear(agent: c_int) -> Result<(Answer, c_int, bool), c_int> {
    let (mut bytes, mut is_whole) = ([0u8; ANSWER], true);
    loop {
        let (len, passed) = socket::receive_passed(agent, &mut bytes, 0);
        if len < 0 && real::errno() == libc::EINTR {
            // The agent answers that it did nothing, or that it did.
            real::shutdown(agent, libc::SHUT_WR);
            is_whole = false;
            continue;
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
