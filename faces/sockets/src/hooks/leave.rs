//! Connections that are left to TCP.

use crate::failure::Failure;
use crate::slot::NEVER;
use crate::sys::real;
use crate::table::{self, Connection};
use crate::why::{self, Why};
use crate::{handback, holders, readiness, stream};
use libc::c_int;

/// A connection is by TCP from now on.
pub fn stay_tcp(one: &Connection) {
    stay_tcp_as(one, Why::Call);
}

/// A connection is by TCP from now on, for this reason.
pub fn stay_tcp_as(one: &Connection, reason: Why) {
    one.slot.set(NEVER);
    // A thread that is about to join it has done so then.
    drop(holders::no_fork());
    why::note(one.at, one.slot, reason);
    readiness::never(one);
    if let Some(user) = stream::enter(*one) {
        user.end_sending();
    }
}

/// A connection is by TCP from now on, and what waits in its ring too, as somebody without this
/// library is to read it.
///
/// # Errors
/// Bytes stay in the ring, or the connection has ended.
pub fn hand_over(one: &Connection) -> Result<(), Failure> {
    hand_over_as(one, Why::Passed)
}

/// A connection is by TCP from now on, for this reason, and what waits in its ring too.
///
/// # Errors
/// Bytes stay in the ring, or the connection has ended.
pub fn hand_over_as(one: &Connection, reason: Why) -> Result<(), Failure> {
    stay_tcp_as(one, reason);
    handback::give_back(one)
}

/// The C library is about to write to a descriptor past this library.
pub fn is_printed_to(fd: c_int) {
    let was = real::errno();
    table::connection(fd).iter().for_each(|one| stay_tcp_as(one, Why::Printed));
    real::set_errno(was);
}
