//! Sockets of AF_TIPC. The agent has their state (`weft_streams::tipc`); here are the functions
//! that a program calls on them.
//!
//! A program's descriptor is one end of a pair of Unix sockets. This module keeps one byte of it:
//! its type, and that it has a connection.

mod ask;
mod calls;
mod data;
mod sys;

pub use calls::{
    accept, bind, connect, getpeername, getsockname, getsockopt, ioctl, listen, setsockopt,
    shutdown, socket,
};
pub use data::{receive, receive_message, send, send_message};

use crate::own;
use crate::sys::{real, socket};
use libc::c_int;
use std::sync::atomic::{AtomicU32, AtomicU8, Ordering};
use weft_streams::tipc::{kind, MARK};

/// Descriptors that may be sockets of TIPC.
const MOST: usize = 1 << 16;
/// Descriptors that a program may have inherited as such.
const INHERITED: usize = 256;
/// Mark of a socket with a connection.
const CONNECTED: u8 = 0x80;

static TABLE: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];
/// 1 if there is one, or was.
static ANY: AtomicU32 = AtomicU32::new(0);

/// Returns what the table has of a descriptor; 0: it is no socket of TIPC.
#[inline]
fn entry(fd: c_int) -> u8 {
    if ANY.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    TABLE.get(fd as usize).map_or(0, |one| one.load(Ordering::Relaxed))
}

/// True if a descriptor is a socket of TIPC.
#[inline]
pub fn is(fd: c_int) -> bool {
    entry(fd) != 0
}

/// Returns the type of a socket.
fn kind_of(fd: c_int) -> u8 {
    entry(fd) & !CONNECTED
}

fn is_connectionless(fd: c_int) -> bool {
    matches!(kind_of(fd), kind::DGRAM | kind::RDM)
}

fn has_connection(fd: c_int) -> bool {
    entry(fd) & CONNECTED != 0
}

fn is_connected(fd: c_int) {
    if let Some(one) = TABLE.get(fd as usize) {
        one.fetch_or(CONNECTED, Ordering::Relaxed);
    }
}

/// A descriptor is a socket of TIPC. False: its number is too high.
fn note(fd: c_int, value: u8) -> bool {
    let Some(one) = TABLE.get(fd as usize) else { return false };
    one.store(value, Ordering::Relaxed);
    ANY.store(1, Ordering::Relaxed);
    true
}

/// A descriptor is closed.
#[inline]
pub fn forget(fd: c_int) {
    if entry(fd) != 0 {
        TABLE[fd as usize].store(0, Ordering::Relaxed);
    }
}

/// Descriptors of this range are closed.
pub fn forget_all(first: u32, last: u32) {
    if ANY.load(Ordering::Relaxed) != 0 {
        let count = last.min(MOST as u32 - 1).saturating_add(1).saturating_sub(first);
        let of_range = TABLE.iter().skip(first as usize).take(count as usize);
        of_range.for_each(|one| one.store(0, Ordering::Relaxed));
    }
}

/// A descriptor is another one of the same file.
#[inline]
pub fn copied(from: c_int, to: c_int) {
    let value = entry(from);
    if value != 0 {
        note(to, value);
    } else {
        forget(to);
    }
}

/// A descriptor came from elsewhere: looks if it is a socket of TIPC.
pub fn look(fd: c_int) {
    let was = real::errno();
    let name = socket::unix_peer(fd);
    real::set_errno(was);
    let Some(name) = name else { return forget(fd) };
    let digit = name[1..].strip_prefix(MARK).and_then(|rest| rest.first());
    match digit.map(|digit| digit.wrapping_sub(b'0')) {
        Some(kind @ (kind::STREAM | kind::DGRAM | kind::RDM | kind::SEQPACKET)) if name[0] == 0 => {
            note(fd, kind);
        }
        _ => forget(fd),
    }
}

/// Looks for sockets that this program was started with.
pub fn begin() {
    let was = real::errno();
    own::each_open::<INHERITED>(look);
    real::set_errno(was);
}
